"""`calibrate` passes what is right and catches what is not."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from mistakes import as_a_user
from mixts.inference import Calibration, ClosedForm, Laplace, Nuts, calibrate
from mixts.models import Gaussian, Hierarchy, glm, linear

WEIGHTS = np.random.default_rng(0).uniform(-1, 1, (5, 2))
EXACT = linear(WEIGHTS, 2, effect_cov=3.0)


@pytest.fixture(scope="module")
def exact() -> Calibration:
    return calibrate(EXACT, ClosedForm, simulations=400, observations=20, key=jax.random.key(1))


def with_noise(hierarchy: Hierarchy, noise: float) -> ClosedForm:
    """A backend that assumes another noise than the rewards have."""
    return ClosedForm(replace(hierarchy, reward=Gaussian(noise)))


def test_an_exact_posterior_passes(exact):
    assert exact.p_value > 0.01
    assert set(exact.ranks) == {"effect", "action", "log-likelihood", "best reward"}
    assert exact.ranks["action"].shape == (400, 10)
    assert exact.ranks["effect"].max() <= exact.draws == 99
    # 400 simulations of 14 numbers: a uniform rank's variance is known to about 1 / sqrt(400).
    assert np.abs(exact.table["spread"] - 1).max() < 0.25


def test_an_overconfident_posterior_fails():
    result = calibrate(EXACT, lambda h: with_noise(h, 0.3), simulations=400, observations=20)
    assert result.p_value < 0.01
    assert result.table.loc["action", "spread"] > 1.2


def test_a_posterior_too_wide_fails():
    result = calibrate(EXACT, lambda h: with_noise(h, 4.0), simulations=400, observations=20)
    assert result.p_value < 0.01
    assert result.table.loc["action", "spread"] < 0.9


def test_clicks_run_and_the_deviation_is_reported():
    """The paper's scheme is far off in the log-likelihood; expanding under the hierarchy is not."""
    clicks = glm(WEIGHTS, 2, effect_cov=3.0)
    tables = {
        sites: calibrate(
            clicks, lambda h, sites=sites: Laplace(h, sites=sites, capacity=8), simulations=200
        ).table
        for sites in ("tilted", "mle")
    }
    bias = {sites: abs(table.loc["log-likelihood", "bias"]) for sites, table in tables.items()}
    assert bias["tilted"] < 0.3 < bias["mle"]


@pytest.mark.slow
def test_chains_pass():
    """Clicks, where there is no exact posterior to compare with."""
    clicks = glm(WEIGHTS, 2, effect_cov=3.0)
    result = calibrate(
        clicks,
        lambda h: Nuts(h, chains=1, warmup=200, samples=400, capacity=20),
        simulations=200,
        observations=20,
    )
    print("\n", result.table.to_string(), sep="")
    assert result.p_value > 0.01


def test_the_same_key_gives_the_same_ranks(exact):
    again = calibrate(
        EXACT, ClosedForm(EXACT), simulations=400, observations=20, key=jax.random.key(1), batch=7
    )
    for name in exact.ranks:
        assert np.array_equal(exact.ranks[name], again.ranks[name])


def test_p_values_of_uniform_ranks_are_uniform():
    """Of 200 sets of uniform ranks, 5% fall below 0.05: five standard errors are 0.08."""
    rng = np.random.default_rng(0)
    p = [Calibration({"a": rng.integers(0, 100, (300, 1))}, 99, "none").p_value for _ in range(200)]
    assert abs(np.mean(np.array(p) < 0.05) - 0.05) < 0.08
    assert abs(np.mean(np.array(p) < 0.5) - 0.5) < 5 * 0.5 / np.sqrt(200)


def test_the_picture_has_a_panel_and_a_band_for_each(exact):
    figure = exact.plot()
    assert [axis.get_title() for axis in figure.axes[:4]] == list(exact.ranks)
    for axis, ranks in zip(figure.axes, exact.ranks.values(), strict=False):
        assert len(axis.lines) == 1 + ranks.shape[1]
    assert "ClosedForm" in repr(exact)


def test_bad_input():
    with as_a_user(), pytest.raises(TypeError, match="expected a Hierarchy"):
        calibrate(3, ClosedForm)
    with (
        as_a_user(),
        pytest.raises(ValueError, match="simulations: got 0; expected a whole number"),
    ):
        calibrate(EXACT, ClosedForm, simulations=0)
    with as_a_user(), pytest.raises(TypeError, match="a function that makes one"):
        calibrate(EXACT, lambda h: 3)
