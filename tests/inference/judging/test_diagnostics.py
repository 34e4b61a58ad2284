"""R-hat and effective sample sizes of each number are ArviZ's, and chains that do not mix show."""

import arviz
import numpy as np
import pytest

from mixts.inference.arviz_view import rhat_and_ess


def chains(correlation: float, tails: float = 3.0, shape=(3, 400, 2)) -> np.ndarray:
    """Each number follows the one before it; steps have heavy tails."""
    steps = np.random.default_rng(0).standard_t(tails, size=shape)
    draws = np.zeros(shape)
    for t in range(1, shape[1]):
        draws[:, t] = correlation * draws[:, t - 1] + steps[:, t]
    return draws


def r_hat(draws) -> np.ndarray:
    return rhat_and_ess(draws)[0]


def assert_arvizs(draws) -> None:
    for found, expected in zip(rhat_and_ess(draws), (arviz.rhat, arviz.ess), strict=True):
        each = [float(expected(draws[..., i])) for i in range(2)]
        np.testing.assert_allclose(found, each, rtol=1e-6)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.95])
@pytest.mark.parametrize("tails", [1.0, 30.0])
def test_is_arvizs(correlation, tails):
    assert_arvizs(chains(correlation, tails))


def test_equal_draws_share_their_rank():
    assert_arvizs(np.round(chains(0.5), 0))


@pytest.mark.parametrize("fault", ["elsewhere", "wider", "drifts", "stands still"])
def test_a_fault_shows(fault):
    """In one number of one chain; the other number stays below 1.01."""
    draws = chains(0.0, tails=30.0, shape=(4, 1000, 2))
    one = draws[1, :, 0]
    if fault == "elsewhere":
        one += 1.0
    elif fault == "wider":
        one *= 2.0
    elif fault == "drifts":
        draws[:, :, 0] += np.linspace(0.0, 2.0, 1000)
    else:
        one[:] = 0.5
    assert r_hat(draws)[0] > 1.05
    assert r_hat(draws)[1] < 1.01


def test_chains_that_never_move():
    apart = np.ones((2, 100, 1)) * np.array([1.0, 2.0])[:, None, None]
    assert r_hat(apart)[0] == np.inf
    assert np.isnan(r_hat(np.ones((2, 100, 1))))


def test_one_chain_is_compared_with_itself():
    draws = chains(0.0, tails=30.0, shape=(1, 1000, 2))
    assert np.all(r_hat(draws) < 1.02)
    draws[:, :, 0] += np.linspace(0.0, 2.0, 1000)
    assert r_hat(draws)[0] > 1.05


def test_a_number_without_axes():
    r_hat, ess = rhat_and_ess(chains(0.0, tails=30.0)[..., 0])
    assert r_hat.shape == ess.shape == ()
