"""R-hat and effective sizes of draws whose correlation is known."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

from mixts.inference.programs.mixing import (
    effective_sizes,
    halves,
    num_correlated,
    num_unmixed,
    r_hats,
    stand_still,
)


def of(function, draws: np.ndarray) -> np.ndarray:
    return np.asarray(function(jnp.asarray(draws, jnp.float32)))


def autoregressive(rho: float, chains: int, n: int, numbers: int, seed: int = 0) -> np.ndarray:
    """Stationary chains `x_t = rho x_{t-1} + sqrt(1 - rho^2) e`, standard normal each."""
    noise = np.random.default_rng(seed).normal(size=(n, chains, numbers))
    rows = [noise[0]]
    for e in noise[1:]:
        rows.append(rho * rows[-1] + np.sqrt(1 - rho**2) * e)
    return np.moveaxis(np.stack(rows), 0, 1).astype(np.float32)


def test_r_hat_is_that_of_its_formula():
    draws = np.random.default_rng(1).normal(size=(4, 50, 3)) + np.arange(4)[:, None, None]
    within = draws.var(axis=1, ddof=1).mean(0)
    between = 50 * draws.mean(1).var(axis=0, ddof=1)
    expected = np.sqrt((49 / 50 * within + between / 50) / within)
    np.testing.assert_allclose(of(r_hats, draws), expected, rtol=1e-5)


def unmixed(draws: np.ndarray, is_settled: bool = True) -> int:
    return int(of(partial(num_unmixed, is_settled=jnp.asarray(is_settled)), draws))


def test_one_chain_is_compared_with_itself():
    draws = autoregressive(0.0, 1, 101, 2)
    split = of(halves, draws)
    np.testing.assert_array_equal(split, np.stack([draws[0, 1:51], draws[0, 51:]]))
    assert unmixed(draws) == 0
    moved = draws + np.linspace(0.0, 20.0, 101)[:, None]
    assert unmixed(moved) == 2
    assert unmixed(moved, is_settled=False) == 0, "new observations may have moved it"


def test_numbers_that_never_move():
    draws = np.random.default_rng(3).normal(size=(2, 40, 3)).astype(np.float32)
    draws[..., 0] = 1.0
    draws[..., 1] = np.arange(2)[:, None]
    agreeing, apart, moving = np.asarray(of(r_hats, draws))
    assert agreeing == 1.0
    assert apart == np.inf
    assert moving < 1.3
    assert unmixed(draws) == 1
    assert not np.any(of(stand_still, draws))
    assert np.all(of(stand_still, draws[..., :2]))


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_effective_sizes(rho):
    """`(1 - rho) / (1 + rho)` of the draws; 39 degrees of freedom know a variance to a fifth."""
    found = of(effective_sizes, autoregressive(rho, 4, 1000, 200))
    expected = 4000 * (1 - rho) / (1 + rho)
    assert 0.75 * expected < np.median(found) < 1.25 * expected


@pytest.mark.parametrize("n", [100, 500, 2000])
def test_chains_that_have_mixed_are_not_blamed(n):
    """Thousands of numbers, of which one draw in ten is effective, and half the draws of few."""
    assert unmixed(autoregressive(0.8, 2, n, 3000)) == 0
    assert int(of(num_correlated, autoregressive(0.5, 2, n, 1000))) == 0


@pytest.mark.parametrize("n", [100, 500, 2000])
def test_one_chain_elsewhere(n):
    draws = autoregressive(0.5, 4, n, 10)
    draws[1, :, 3] += 5.0
    assert unmixed(draws) == 1
    assert int(of(num_correlated, draws)) == (1 if 4 * n >= 1000 else 0)


def test_too_few_draws_to_tell():
    assert unmixed(np.arange(18.0).reshape(2, 9, 1)) == 0


def test_a_drift_that_all_chains_share_is_no_disagreement():
    """Observations move the posterior while draws are made."""
    draws = autoregressive(0.5, 2, 100, 50) + np.linspace(0, 8, 100)[:, None]
    assert unmixed(draws, is_settled=False) == 0
    assert unmixed(draws) > 40
