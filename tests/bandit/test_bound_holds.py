"""Bayes regret of mixed-effect Thompson sampling stays below the bound, and moves as the bound says."""

import numpy as np
import pytest

from mixts.bandit import SyntheticProblem, ThompsonSampling, regret_bound, simulate
from mixts.inference import ClosedForm
from mixts.models import Gaussian, linear

pytestmark = pytest.mark.slow

HORIZON, RUNS = 1000, 100
USUAL = {"num_actions": 50, "num_effects": 3, "dim": 2, "effect_cov": 3.0, "action_cov": 1.0}
# For every knob of Eq. 12: a setting in which its term counts, and one with less of it.
LESS = {
    "num_actions": ({}, {"num_actions": 10}),
    "dim": ({}, {"dim": 1}),
    "action_cov": ({}, {"action_cov": 0.1}),
    "num_effects": (
        {"num_effects": 12, "action_cov": 0.01},
        {"num_effects": 3, "action_cov": 0.01},
    ),
    "effect_cov": (
        {"effect_cov": 0.03, "action_cov": 1e-4},
        {"effect_cov": 3e-4, "action_cov": 1e-4},
    ),
}


def regret(**knobs) -> np.ndarray:
    """Total regret of every run."""
    problem = SyntheticProblem(**(USUAL | knobs))
    policies = {"meTS": lambda h: ThompsonSampling(ClosedForm(h))}
    result = simulate(problem, policies, HORIZON, RUNS, 0, progress=False)
    return result.regret["meTS"].sum(1, dtype=float)


def bound(**knobs) -> float:
    """The bound for weights as long as they can be: `|b_i|^2 <= L` and `|x|^2 <= d`."""
    chosen = USUAL | knobs
    weights = np.ones((chosen["num_actions"], chosen["num_effects"]))
    covs = {"effect_cov": chosen["effect_cov"], "action_cov": chosen["action_cov"]}
    noise = knobs.get("reward", Gaussian(1.0)).noise
    hierarchy = linear(weights, chosen["dim"], **covs, noise=noise)
    return float(regret_bound(hierarchy, HORIZON, kappa_x=float(chosen["dim"])).total)


def assert_rises(low: dict, high: dict) -> None:
    """Below the bound in both settings, and more regret in the second."""
    less, more = regret(**low), regret(**high)
    print(f"\n{low}: {less.mean():.1f}\n{high}: {more.mean():.1f}")
    assert less.mean() < bound(**low)
    assert more.mean() < bound(**high)
    error = np.hypot(less.std(ddof=1), more.std(ddof=1)) / np.sqrt(RUNS)
    assert more.mean() - less.mean() > 3 * error


@pytest.mark.parametrize("knob", LESS)
def test_less_to_learn_brings_less_regret(knob):
    """With fewer parameters, or less uncertain ones."""
    high, low = LESS[knob]
    assert_rises(low, high)


def test_larger_effects_may_be_easier_to_learn():
    """What a bound cannot say: effects far larger than the noise tell the best actions apart at once."""
    assert_rises({"effect_cov": 3.0, "action_cov": 0.01}, {"effect_cov": 0.3, "action_cov": 0.01})


@pytest.mark.parametrize(
    "knobs",
    [
        {"effect_cov": 1.0, "action_cov": 3.0},
        {"num_effects": 10},
        {"reward": Gaussian(0.1)},
        {"reward": Gaussian(5.0)},
    ],
    ids=["uncertain actions", "many effects", "little noise", "much noise"],
)
def test_regret_is_below_the_bound(knobs):
    found, most = regret(**knobs).mean(), bound(**knobs)
    print(f"\n{knobs}: {found:.0f}, bound {most:.0f}")
    assert found < most
