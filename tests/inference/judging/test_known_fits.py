"""`empirical_bayes` ends at the same optimum from any start, in any units: the one that lme4 finds."""

import itertools

import jax
import numpy as np
import pytest

from mixed_models import known_fits
from mixts.inference import Trouble, empirical_bayes
from mixts.models import Data, Gaussian, Hierarchy, Level
from sampling import unoptimised


@pytest.fixture(autouse=True)
def compile_quickly():
    with unoptimised():
        yield


# Variance, noise and mean to start from: 1e6 too small and too large, and the wrong way round.
STARTS = [
    (1.0, 1.0, 0.0),
    (1e-8, 1e-4, 1e3),
    (1e14, 1e8, -1e6),
    (1e-6, 1e6, 0.0),
    (1e10, 1e-3, 50.0),
]
FACTORS = [1.0, 1e4]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sleepstudy", "dyestuff", "dyestuff2", "pastes"])
def test_any_start_in_any_unit_ends_where_lme4_does(name):
    """lme4's log-likelihoods are known to 5e-4, its variances are where slopes are below about 1e-3."""
    found = []
    for factor, start in itertools.product(FACTORS, STARTS):
        known = known_fits()[name].scaled(factor)
        fit = empirical_bayes(known.hierarchy(*start), known.data, learn=known.learn)
        assert (Trouble.AT_ZERO in fit.status) == (name == "dyestuff2")
        assert fit.status.ok or name == "dyestuff2"
        assert fit.log_evidence == pytest.approx(known.log_likelihood, abs=1e-3)
        found.append(fit.log_evidence + len(known.data) * np.log(factor))
        covs = [level.cov for level in fit.hierarchy.levels]
        variances = np.concatenate([np.ravel(np.diag(c) if c.ndim else c) for c in covs])
        variances = [*variances, float(fit.hierarchy.reward.noise) ** 2]
        expected = np.array(known.variances)
        np.testing.assert_allclose(variances, expected, rtol=2e-3, atol=1e-5 * expected[-1])
    # Rewards are rounded to float32, in each unit differently.
    assert np.ptp(found) < 1e-4


def test_zero_and_flat_are_told_apart():
    """Between batches there is no variance; of a brand without rewards nothing can be known."""
    batches = known_fits()["dyestuff2"]
    fit = empirical_bayes(batches.hierarchy(1.0, 1.0, 5.0), batches.data, learn=batches.learn)
    assert fit.at_zero == ("batch.cov",)
    assert fit.undetermined == ()
    assert 0 < float(fit.hierarchy["batch"].cov) < 1e-5 * 13.3461
    assert "zero where the evidence is highest" in str(fit.status)

    levels = [
        Level("zone", 1),
        Level("brand", 1, cov=3.0),
        Level("item", 7, parents={"zone": np.eye(7, 1), "brand": np.eye(7, 1, -6)}),
    ]
    hierarchy = Hierarchy(levels, Gaussian(1.0), dim=1)
    fit = empirical_bayes(hierarchy, batches.data, learn=("brand.cov", "item.cov", "noise"))
    assert fit.undetermined == ("brand.cov",)
    assert Trouble.AT_ZERO not in fit.status
    assert float(fit.hierarchy["brand"].cov) == pytest.approx(3.0)


def test_variances_that_can_be_exchanged_are_undetermined():
    """One item in each zone: the variances of both levels add up, and only the sum is known."""
    known = known_fits()["dyestuff"]
    levels = [Level("zone", 6), Level("item", 6, parents={"zone": np.eye(6)})]
    hierarchy = Hierarchy(levels, Gaussian(1.0), dim=1)
    fit = empirical_bayes(hierarchy, known.data, learn=("cov", "noise", "zone.mean"))
    assert fit.undetermined
    assert Trouble.AT_ZERO not in fit.status
    assert fit.log_evidence == pytest.approx(known.log_likelihood, abs=1e-3)
    total = sum(float(level.cov) for level in fit.hierarchy.levels)
    assert total == pytest.approx(known.variances[0], rel=2e-3)


def correlated_regions(units: float, start: float):
    """Twelve regions along a line, each like its neighbours, and rewards of 24 shops in them."""
    rng = np.random.default_rng(1)
    apart = np.abs(np.subtract.outer(np.arange(12), np.arange(12)))
    cov = np.kron(0.8**apart, [[1.0, 0.3], [0.3, 0.5]])
    regions = rng.multivariate_normal(np.zeros(24), cov).reshape(12, 2)
    where = np.arange(24) % 12
    shops = regions[where] + 0.3 * rng.normal(size=(24, 2))
    contexts, actions = rng.normal(size=(400, 2)), rng.integers(0, 24, 400)
    rewards = np.sum(contexts * shops[actions], axis=1) + 0.5 * rng.normal(size=400)
    levels = [
        Level("region", 12, cov=start * cov),
        Level("shop", 24, parents={"region": np.eye(12)[where]}, cov=start),
    ]
    return Hierarchy(levels, Gaussian(1.0), dim=2), Data(contexts, actions, units * rewards)


def test_a_joint_covariance_stays_positive_definite():
    """A single draw of 24 correlated numbers: the best joint covariance is singular."""
    ends = []
    for units, start in [(1.0, 1.0), (1e3, 1e-4), (1e-3, 1e6)]:
        fit = empirical_bayes(*correlated_regions(units, start))
        assert fit.at_zero == ("region.cov",)
        assert Trouble.FAILED not in fit.status
        np.linalg.cholesky(np.asarray(fit.hierarchy["region"].cov, float))
        ends.append(fit.log_evidence + 400 * np.log(units))
    # Widened by what float32 can hold, at some 0.01 nats for each of 23 directions.
    assert np.ptp(ends) < 0.05


def test_a_covariance_that_float32_cannot_hold_is_widened():
    """The second column of the contexts varies ten thousand times as much as the first."""
    known = known_fits()["sleepstudy"]
    contexts, actions, rewards = (np.asarray(part, float) for part in known.data)
    data = Data(contexts * [1.0, 1e4], actions.astype(int), rewards)
    fit = empirical_bayes(known.hierarchy(1.0, 1.0, 0.0), data, learn=known.learn)
    assert Trouble.WIDENED in fit.status
    assert "rescale the contexts" in str(fit.status)
    with jax.enable_x64(True):
        data = Data(contexts * [1.0, 1e4], actions.astype(int), rewards)
        fit = empirical_bayes(known.hierarchy(1.0, 1.0, 0.0), data, learn=known.learn)
    assert fit.status.ok
    assert fit.log_evidence == pytest.approx(known.log_likelihood, abs=1e-3)


def test_one_level_s_mean_and_the_other_s_covariance():
    known = known_fits()["pastes"]
    declared = known.hierarchy(4.0, 0.8, 60.0)
    fit = empirical_bayes(declared, known.data, learn=("batch.mean", "cask.cov"), max_steps=5)
    before, after = declared.levels, fit.hierarchy.levels
    assert float(after[0].mean) != float(before[0].mean)
    assert float(after[1].cov) != float(before[1].cov)
    assert float(after[0].cov) == float(before[0].cov)
    assert float(after[1].mean) == float(before[1].mean)
    assert float(fit.hierarchy.reward.noise) == float(declared.reward.noise)


@pytest.mark.parametrize("wrong", ["casks.cov", "cask.noise", "cask.", ".cov", "cask.cov.mean"])
def test_names_that_mean_nothing(wrong):
    known = known_fits()["pastes"]
    with pytest.raises(ValueError, match=r"such as 'batch.mean' \(levels: batch, cask\)"):
        empirical_bayes(known.hierarchy(1.0, 1.0, 0.0), known.data, learn=(wrong,))
