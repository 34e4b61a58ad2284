"""Rounds whose reward stands for several: drawn, learned from, and refused."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

from mixts.bandit import HierarchyProblem, LinUCB, ThompsonSampling, UniformRandom, simulate
from mixts.inference import ClosedForm, Laplace
from mixts.models import Bernoulli, Gaussian, Hierarchy, Level


def actions_alone(reward):
    return Hierarchy([Level("action", 3)], reward, 2)


def exact(hierarchy):
    return ThompsonSampling(ClosedForm(hierarchy))


def laplace(hierarchy):
    return ThompsonSampling(Laplace(hierarchy))


def final_regret(problem, make, runs=40):
    found = simulate(problem, {"it": make}, 50, runs=runs, key=1, progress=False)
    return found.regret["it"][:, -1]


def test_more_rewards_a_round_teach_more():
    """The mean of 25 ratings: a fifth of the noise; half of the regret at least is gone."""
    hierarchy = actions_alone(Gaussian(2.0))
    one, many = (
        final_regret(HierarchyProblem(hierarchy, exposure=m), exact).mean() for m in (None, 25)
    )
    assert many < 0.5 * one


def test_an_exposure_of_one_is_a_reward_of_one():
    hierarchy = actions_alone(Gaussian(2.0))
    plain, one = (
        final_regret(HierarchyProblem(hierarchy, exposure=m), exact, runs=4) for m in (None, 1)
    )
    # Their noise is drawn differently; vectors and contexts are the same.
    assert plain.shape == one.shape
    assert not np.isnan(one).any()


def test_a_law_of_exposures():
    """Impressions of each round; rewards are clicks out of so many."""
    law = dist.TransformedDistribution(
        dist.Exponential(0.1), [dist.transforms.AffineTransform(1.0, 1.0)]
    )
    counted = dist.DiscreteUniform(1, 30)
    problem = HierarchyProblem(actions_alone(Bernoulli()), exposure=counted)
    found = simulate(problem, {"it": laplace}, 20, runs=2, key=0, progress=False)
    assert np.isfinite(found.regret["it"]).all()
    world = problem.sample(jax.random.key(0)).environment
    drawn = np.array([world.draw_exposure(jax.random.key(i)) for i in range(20)])
    assert drawn.min() >= 1
    assert drawn.max() <= 30
    assert len(set(drawn.tolist())) > 5
    with pytest.raises(ValueError, match=r"exposure ~ TransformedDistribution gives .* whole"):
        HierarchyProblem(actions_alone(Bernoulli()), exposure=law)


def test_who_cannot_learn_from_them_is_refused():
    problem = HierarchyProblem(actions_alone(Gaussian(1.0)), exposure=4)
    with pytest.raises(ValueError, match=r"exposure: got one, and LinUCB learns from one reward"):
        simulate(problem, {"it": LinUCB}, 5, runs=2, key=0, progress=False)
    assert final_regret(problem, UniformRandom, runs=2).shape == (2,)


@pytest.mark.parametrize(
    "exposure", [0, -1.0, dist.Normal(0.0, 1.0)], ids=["zero", "negative", "a law"]
)
def test_exposures_that_cannot_be(exposure):
    with pytest.raises(ValueError, match=r"HierarchyProblem exposure .*expected.*positive"):
        HierarchyProblem(actions_alone(Gaussian(1.0)), exposure=exposure)
