"""The order of policies in the paper's synthetic experiments, at its size: K = 100, L = 3, d = 2.

Every policy plays the same instances, so that differences are taken run by run. Each test prints its
table; `pytest -s` shows it.
"""

import numpy as np
import pytest

from mixts.bandit import (
    GLMTS,
    UCBGLM,
    HierTS,
    LinTS,
    LinUCB,
    Simulation,
    SyntheticProblem,
    ThompsonSampling,
    simulate,
)
from mixts.inference import ClosedForm, Factored, Laplace
from mixts.models import Bernoulli, Gaussian, Hierarchy

pytestmark = pytest.mark.slow

HORIZON, RUNS = 5000, 50


def exact(hierarchy):
    return ThompsonSampling(ClosedForm(hierarchy))


def as_if_gaussian(hierarchy):
    return exact(Hierarchy(hierarchy.levels, Gaussian(1.0), hierarchy.dim))


def laplace(hierarchy):
    return ThompsonSampling(Laplace(hierarchy))


def factored(hierarchy):
    return ThompsonSampling(Factored(hierarchy))


def excess(result: Simulation, name: str, over: str) -> tuple[float, float]:
    """By how much one policy's total regret exceeds another's, and the standard error of that."""
    difference = (result.regret[name] - result.regret[over]).sum(1, dtype=float)
    return difference.mean(), difference.std(ddof=1) / np.sqrt(len(difference))


def assert_order(result: Simulation, best: str, others: list[str], factored: str) -> None:
    print("\n", result.summary().to_string(), sep="")
    for other in others:
        more, error = excess(result, other, best)
        assert more > 3 * error, f"{other} exceeds {best} by {more:.1f} +- {error:.1f}"
    less, error = excess(result, best, factored)
    assert less < 3 * error, f"{best} exceeds {factored} by {less:.1f} +- {error:.1f}"
    for other in others:
        more, error = excess(result, other, factored)
        assert more > 3 * error, f"{other} exceeds {factored} by {more:.1f} +- {error:.1f}"


def test_linear_rewards():
    policies = {
        "meTS-Lin": exact,
        "meTS-Lin-Fa": factored,
        "HierTS": HierTS,
        "LinTS": LinTS,
        "LinUCB": LinUCB,
    }
    result = simulate(SyntheticProblem(), policies, HORIZON, RUNS, 0, progress=False)
    assert_order(result, "meTS-Lin", ["HierTS", "LinTS", "LinUCB"], "meTS-Lin-Fa")


def test_clicks():
    policies = {
        "meTS-GLM": laplace,
        "meTS-GLM-Fa": factored,
        "meTS-Lin": as_if_gaussian,
        "GLM-TS": GLMTS,
        "HierTS": HierTS,
        "UCB-GLM": UCBGLM,
    }
    problem = SyntheticProblem(reward=Bernoulli())
    result = simulate(problem, policies, HORIZON, RUNS, 0, progress=False)
    assert all(status.ok for status in result.status.values())
    assert_order(result, "meTS-GLM", ["meTS-Lin", "GLM-TS", "HierTS", "UCB-GLM"], "meTS-GLM-Fa")
