"""Wide priors and collinear effects, what statisticians write first, are right in float32.

Everything is measured against float64: means in its standard deviations, standard deviations as ratios.
"""

from functools import partial

import jax
import numpy as np
import pytest

from backends import updated
from mixts.inference import ClosedForm, Factored, Laplace, Trouble, log_evidence
from mixts.models import Data, Gaussian, Hierarchy, Level, Poisson
from sampling import unoptimised

N = 300
# An intercept and three treatments: the sum of the treatments is the intercept.
TREATMENTS = [[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]]
# In standard deviations. Measured: 0.0003 and, of `ClosedForm`, 0.002; of `Factored` 0.04, where a root
# of 1e4 shrinks to 0.1 in one step.
CLOSE = {1e3: 0.01, 1e6: 0.01, 1e8: 0.05}


@pytest.fixture(autouse=True)
def compile_quickly():
    with unoptimised():
        yield


def treatments(cov: float) -> tuple[Hierarchy, Data]:
    levels = [
        Level("effect", 4, cov=cov),
        Level("action", 3, parents={"effect": TREATMENTS}, cov=0.01),
    ]
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 3, N)
    means = np.array([5.0, 7.0, 4.0])[actions]
    seen = Data(np.ones((N, 1)), actions, means + 0.1 * rng.normal(size=N))
    return Hierarchy(levels, Gaussian(0.1), dim=1), seen


@partial(jax.jit, static_argnums=0)
def at_once(kind, hierarchy, seen):
    backend = kind(hierarchy)
    state = backend.condition(backend.init(room=N), *seen)
    return summary(backend, state)


@partial(jax.jit, static_argnums=0)
def one_by_one(kind, hierarchy, seen):
    backend = kind(hierarchy)
    return summary(backend, updated(backend, backend.init(room=N), *seen))


@partial(jax.jit, static_argnums=0)
def forgotten(kind, hierarchy, seen):
    backend = kind(hierarchy)
    return summary(backend, backend.forget(updated(backend, backend.init(), *seen), 0.5))


def summary(backend, state):
    posterior = backend.posterior(state)
    return posterior.mean, posterior.cov, posterior.log_evidence, posterior.status


def in_float64(learn, kind, problem, *options):
    """What is learned of a problem that is declared in float64 too."""
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, learn(kind, *problem(*options))[:3])


def assert_close(found, expected, cov):
    """The numbers of float32 are those of float64, and nothing is counted as trouble."""
    assert str(found[3]) == "ok"
    for name, matrices in expected[1].items():
        sd = np.sqrt(np.diagonal(matrices, axis1=1, axis2=2))
        assert np.abs(found[0][name] - expected[0][name]).max() < CLOSE[cov] * sd.min()
        spread = np.sqrt(np.diagonal(np.asarray(found[1][name], float), axis1=1, axis2=2))
        np.testing.assert_allclose(spread, sd, rtol=CLOSE[cov])


@pytest.mark.parametrize("kind", [ClosedForm, Factored])
def test_an_intercept_and_treatments(kind):
    """With a variance of 1e6 or 1e8, all rewards at once and one by one."""
    for cov in (1e6, 1e8):
        expected = in_float64(at_once, kind, treatments, cov)
        for learn in (at_once, one_by_one):
            found = learn(kind, *treatments(cov))
            assert_close(found, expected, cov)
            if kind is ClosedForm:
                np.testing.assert_allclose(found[2], expected[2], rtol=1e-4)


def test_what_is_left_after_forgetting():
    expected = in_float64(forgotten, ClosedForm, treatments, 1e6)
    assert_close(forgotten(ClosedForm, *treatments(1e6)), expected, 1e6)


def test_the_evidence_has_a_gradient():
    """Finite in float32, and where an action has no rewards at all."""

    def value(cov):
        hierarchy, (x, a, y) = treatments(cov)
        return log_evidence(hierarchy, Data(x, a % 2, y))

    with jax.enable_x64(True):
        expected = float(jax.jit(jax.grad(value))(1e6))
    np.testing.assert_allclose(jax.jit(jax.grad(value))(1e6), expected, rtol=1e-3)


def test_contexts_of_one_direction():
    """Nothing is learned across it: there the variance of the prior, 2e6, is left."""
    parents = {"effect": [[1.0], [1.0]]}
    levels = [Level("effect", 1, cov=1e6), Level("action", 2, parents=parents, cov=1e6)]
    hierarchy = Hierarchy(levels, Gaussian(0.1), dim=2)
    direction = np.array([0.6, 0.8])
    seen = Data(np.tile(direction, (N, 1)), np.arange(N) % 2, np.full(N, 3.0))
    mean, cov, _, _ = at_once(ClosedForm, hierarchy, seen)
    across = np.array([0.8, -0.6])
    variances = np.einsum("d,kde,e->k", across, np.asarray(cov["action"], float), across)
    np.testing.assert_allclose(variances, 2e6, rtol=1e-3)
    np.testing.assert_allclose(mean["action"] @ direction, 3.0, rtol=1e-4)


def counts(rate: float) -> tuple[Hierarchy, Data]:
    """Contexts with an intercept and both dummies, and variances of 1,000 on two levels."""
    rng, n = np.random.default_rng(0), 200
    parents = {"effect": np.eye(2)[[1, 1, 0]]}
    levels = [Level("effect", 2, cov=1e3), Level("action", 3, parents=parents, cov=1e3)]
    group, actions = rng.integers(0, 2, n), rng.integers(0, 3, n)
    contexts = np.column_stack([np.ones(n), group == 0, group == 1]).astype(float)
    seen = rng.poisson(rate * np.exp(0.2 * group + 0.1 * actions)).astype(float)
    return Hierarchy(levels, Poisson(), dim=3), Data(contexts, actions, seen)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [150.0, 3000.0])
def test_large_counts(rate):
    """All at once and one by one; both stand at the same mode, and count no trouble."""
    expected = in_float64(at_once, Laplace, counts, rate)
    for learn in (at_once, one_by_one):
        found = learn(Laplace, *counts(rate))
        assert Trouble.UNCONVERGED not in found[3]
        assert_close(found, expected, 1e3)
        contexts = np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
        fitted = np.exp(np.asarray(found[0]["action"], float) @ contexts.T)
        means = rate * np.exp(0.1 * np.arange(3)[:, None] + [0.0, 0.2])
        # Some 33 counts each: five standard errors of their mean.
        assert np.abs(fitted - means).max() < 5 * np.sqrt(means.max() / 25)
