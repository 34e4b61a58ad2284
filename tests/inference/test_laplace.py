"""`Laplace` is exact where rewards are Gaussian, and elsewhere stands at the mode of the joint density."""

import jax
import numpy as np
import pytest

from backends import updated
from glm_models import STRUCTURES, joint_derivatives, simulate, stack, two_levels
from mixts.inference import ClosedForm, Laplace

N = 48


def moments(backend, state):
    posterior = backend.posterior(state)
    return posterior.mean, posterior.cov


@jax.jit
def laplace(hierarchy, seen):
    """At once and one by one, and how many fits did not converge in either."""
    backend = Laplace(hierarchy, capacity=N)
    prior = backend.init()
    states = backend.condition(prior, *seen), updated(backend, prior, *seen)
    fits = sum(state.likelihoods.unconverged for state in states)
    return *(moments(backend, state) for state in states), fits


@jax.jit
def exact(hierarchy, seen):
    backend = ClosedForm(hierarchy)
    return moments(backend, backend.condition(backend.init(), *seen))


@pytest.mark.parametrize("structure", STRUCTURES)
def test_gaussian_rewards_are_exact(structure, x64):
    """An expansion of a quadratic is the quadratic, wherever it is made."""
    model, seen = simulate(STRUCTURES[structure](), N, np.random.default_rng(0))
    at_once, one_by_one, unconverged = laplace(model.hierarchy(), seen)
    expected = exact(model.hierarchy(), seen)
    assert int(unconverged) == 0
    for found in (at_once, one_by_one):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9), found, expected
        )


def blocks(matrix, size, dim):
    return np.array([matrix[i : i + dim, i : i + dim] for i in range(0, size * dim, dim)])


def assert_at_the_mode(hierarchy, seen, found, close):
    """The gradient vanishes, in posterior standard deviations, and the covariances are the Hessian's."""
    mean, cov = found
    gradient, hessian = map(np.asarray, joint_derivatives(hierarchy, seen, mean))
    inverse = np.linalg.inv(-hessian)
    assert np.all(np.abs(inverse @ gradient) < close * np.sqrt(np.diag(inverse)))
    assert len(inverse) == len(stack(hierarchy, mean))
    start = 0
    for level in hierarchy.levels:
        stop = start + level.size * hierarchy.dim
        expected = blocks(inverse[start:stop, start:stop], level.size, hierarchy.dim)
        np.testing.assert_allclose(cov[level.name], expected, rtol=close, atol=close)
        start = stop


@pytest.mark.parametrize("reward", ["bernoulli", "poisson"])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_stands_at_the_mode_of_the_joint_density(structure, reward, x64):
    """Sweeps over all actions end at the mode of NumPyro's density; single updates end near it.

    An update expands the likelihood of its own action only; the others keep expansions made when less
    was known.
    """
    model, seen = simulate(STRUCTURES[structure](), N, np.random.default_rng(1), reward)
    hierarchy = model.hierarchy()
    at_once, one_by_one, unconverged = laplace(hierarchy, seen)
    assert int(unconverged) == 0
    assert_at_the_mode(hierarchy, seen, at_once, close=1e-7)
    for name in at_once[0]:
        sd = np.sqrt(np.diagonal(at_once[1][name], axis1=1, axis2=2))
        off = np.abs(one_by_one[0][name] - at_once[0][name]) / sd
        wrong = np.diagonal(one_by_one[1][name], axis1=1, axis2=2) ** 0.5 / sd - 1
        print("OFF", structure, reward, name, off.max(), np.abs(wrong).max())


def test_in_float32(request):
    model, seen = simulate(two_levels(), N, np.random.default_rng(1), "bernoulli")
    at_once, _, unconverged = laplace(model.hierarchy(), seen)
    assert int(unconverged) == 0
    assert_at_the_mode(model.hierarchy(), seen, at_once, close=1e-3)
