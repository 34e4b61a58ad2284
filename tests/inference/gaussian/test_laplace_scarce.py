"""`Laplace` where the likelihood alone has no maximum: few rewards, or all of them equal."""

import jax
import numpy as np
import pytest
import scipy.special

from glm_models import errors_at_the_mode
from mixts.inference import Laplace
from mixts.models import glm
from sampling import unoptimised

pytestmark = pytest.mark.usefixtures("x64")

# Rows beyond the data belong to no action, so that all data have one shape.
N, NOBODY = 60, -1


@pytest.fixture(autouse=True)
def compile_quickly():
    with unoptimised():
        yield


@jax.jit
def learn(hierarchy, contexts, actions, rewards):
    backend = Laplace(hierarchy, capacity=N)
    state = backend.condition(backend.init(), contexts, actions, rewards)
    posterior = backend.posterior(state)
    return posterior.mean, posterior.cov, state.info.unconverged


def by_quadrature(weights, effect_cov, action_cov, counts):
    """Posterior means and standard deviations of one effect and its actions, whose rewards are all 1."""
    psi = np.linspace(-8, 8, 801) * np.sqrt(effect_cov)
    z = np.linspace(-10, 10, 2001) * np.sqrt(action_cov)
    log_density, moments = -(psi**2) / (2 * effect_cov), []
    for b, n in zip(weights, counts, strict=True):
        theta = b * psi[:, None] + z
        density = np.exp(n * scipy.special.log_expit(theta) - z**2 / (2 * action_cov))
        total = density.sum(1)
        log_density = log_density + np.log(total)
        moments.append(
            ((density * theta).sum(1) / total, (density * theta**2).sum(1) / total),
        )
    p = np.exp(log_density - log_density.max())
    p /= p.sum()
    both = np.array([(p @ first, p @ second) for first, second in [(psi, psi**2), *moments]])
    return both[:, 0], np.sqrt(both[:, 1] - both[:, 0] ** 2)


@pytest.mark.parametrize("counts", [(1, 1, 1), (1, 3, 10), (20, 20, 20)])
@pytest.mark.parametrize("variances", [(3.0, 1.0), (9.0, 9.0)])
def test_three_actions_that_never_failed(variances, counts):
    """Against the exact posterior, by quadrature: it is skewed, and the mode stands short of the mean.

    Measured: standard deviations from 0.85 to 0.99 of the exact ones, means within 0.46 of them.
    """
    weights = np.array([1.0, 0.5, -1.0])
    hierarchy = glm(weights[:, None], 1, effect_cov=variances[0], action_cov=variances[1])
    actions = np.full(N, NOBODY)
    actions[: sum(counts)] = np.repeat(np.arange(3), counts)
    mean, cov, unconverged = learn(hierarchy, np.ones((N, 1)), actions, np.ones(N))
    assert int(unconverged) == 0
    found = np.concatenate([mean["effect"], mean["action"]])[:, 0]
    sd = np.sqrt(np.concatenate([cov["effect"], cov["action"]])[:, 0, 0])
    exact_mean, exact_sd = by_quadrature(weights, *variances, counts)
    assert np.all(sd > 0.8 * exact_sd)
    assert np.all(sd < 1.05 * exact_sd)
    assert np.all(np.abs(found - exact_mean) < 0.5 * exact_sd)


@pytest.mark.parametrize("kind", ["separable", "one reward", "no reward"])
def test_a_mode_exists(kind):
    """Finite means and positive definite covariances: those of the joint density at its mode."""
    rng = np.random.default_rng(0)
    hierarchy = glm(rng.normal(size=(3, 2)), 2, effect_cov=4.0)
    contexts, actions = rng.normal(size=(N, 2)), rng.integers(0, 3, N)
    rewards = (contexts[:, 0] > 0).astype(float)
    if kind != "separable":
        actions[(1 if kind == "one reward" else 0) :] = NOBODY
    mean, cov, unconverged = learn(hierarchy, contexts, actions, rewards)
    assert int(unconverged) == 0
    seen, mask = (contexts, np.maximum(actions, 0), rewards), actions != NOBODY
    assert max(errors_at_the_mode(hierarchy, seen, mean, cov, mask)) < 1e-8
    for matrices in cov.values():
        assert np.linalg.eigvalsh(matrices).min() > 0
