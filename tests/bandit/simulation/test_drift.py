"""Worlds that drift, and policies that follow them."""

import jax
import numpy as np
import pytest

from mistakes import as_a_user
from mixts.bandit import (
    HierarchyProblem,
    LinTS,
    SyntheticProblem,
    ThompsonSampling,
    instance_of_run,
    simulate,
)
from mixts.inference import ClosedForm, ExpectationPropagation, Laplace
from mixts.models import Bernoulli, Gaussian, Hierarchy, Level, glm, linear


def walking(hierarchy):
    return ThompsonSampling(ClosedForm(hierarchy))


def still(hierarchy):
    return ThompsonSampling(ClosedForm(hierarchy.without_drift()))


def with_half_life(hierarchy):
    return ThompsonSampling(ClosedForm(hierarchy.without_drift()), half_life=100)


def test_who_knows_that_the_world_drifts_has_less_regret():
    """Effects move by more than they were uncertain at first; LinTS knows of neither."""
    problem = SyntheticProblem(10, 3, 2, effect_drift=0.03)
    policies = {"walk": walking, "half-life": with_half_life, "still": still, "LinTS": LinTS}
    found = simulate(problem, policies, 600, runs=20, key=0, progress=False)
    total = {name: np.asarray(regret).sum(1) for name, regret in found.regret.items()}
    for worse in ("half-life", "still", "LinTS"):
        gain = total[worse] - total["walk"]
        assert gain.mean() > 3 * gain.std(ddof=1) / np.sqrt(len(gain))
    gain = total["still"] - total["half-life"]
    assert gain.mean() > 2 * gain.std(ddof=1) / np.sqrt(len(gain))


def test_the_first_round_is_that_of_the_instance_and_later_ones_are_not():
    levels = [Level("action", 2, drift=100.0, cov=1e-6, mean=[[1.0], [0.0]])]
    problem = HierarchyProblem(Hierarchy(levels, Gaussian(1e-3), 1), contexts=np.ones((1, 1)))
    found = simulate(problem, {"walk": walking}, 50, runs=2, key=0, progress=False)
    theta = instance_of_run(problem, 0, 0).environment.theta[:, 0]
    regret, action = found.regret["walk"][0], found.actions["walk"][0]
    np.testing.assert_allclose(regret[0], theta.max() - theta[action[0]], rtol=1e-5)
    assert np.max(regret) > 5.0  # far more than at first any action could cost
    assert len(np.unique(action)) == 2


def test_clicks_that_drift():
    problem = SyntheticProblem(5, 2, 2, reward=Bernoulli(), action_drift=0.1)
    make = lambda h: ThompsonSampling(ExpectationPropagation(h))  # noqa: E731
    found = simulate(problem, {"EP": make}, 50, runs=2, key=0, progress=False)
    assert found.status["EP"].ok
    assert np.isfinite(found.regret["EP"]).all()


def test_a_half_life_in_rounds():
    policy = ThompsonSampling(ClosedForm(linear([[1.0], [0.5]], dim=1)), half_life=10)
    assert policy.ages
    assert not ThompsonSampling(policy.backend).ages
    state = policy.update(policy.init(jax.random.key(0)), [1.0], 0, 2.0)
    later, expected = policy.advance(state, 10.0), policy.forget(state, 0.5)
    np.testing.assert_allclose(later.actions.root, expected.actions.root, rtol=1e-6)
    assert policy.with_hierarchy(policy.backend.hierarchy).half_life == 10


@pytest.mark.parametrize(
    ("half_life", "said"),
    [
        (0, "ThompsonSampling half_life is 0"),
        ([1.0, 2.0], "ThompsonSampling half_life"),
    ],
)
def test_half_lives_that_are_refused(half_life, said):
    with as_a_user(), pytest.raises(ValueError, match=said):
        ThompsonSampling(ClosedForm(linear([[1.0], [0.5]], dim=1)), half_life=half_life)


def test_one_way_to_follow_a_world_is_enough():
    walk = Hierarchy([Level("action", 2, drift=0.1)], Gaussian(), dim=1)
    with pytest.raises(ValueError, match="two ways to follow"):
        ThompsonSampling(ClosedForm(walk), half_life=5)
    policy = ThompsonSampling(Laplace(glm([[1.0], [1.0]], dim=1)), half_life=5)
    state = policy.init(jax.random.key(0))
    with pytest.raises(ValueError, match="keeps every reward"):
        policy.advance(state)
