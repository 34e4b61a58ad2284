"""Clicks under an unknown scale: `Collapsed` around expectation propagation, against a grid."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from mixts.inference import Collapsed, ExpectationPropagation
from mixts.models import Bernoulli, Hierarchy, Level
from sampling import unoptimised

ACTIONS, ROWS, PARTICLES = 4, 40, 32


def declared(spread: dict) -> Hierarchy:
    return Hierarchy([Level("action", ACTIONS, **spread)], Bernoulli(), 1)


def clicks() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    actions = np.arange(ROWS) % ACTIONS
    chance = np.array([0.1, 0.35, 0.65, 0.9])[actions]
    return np.ones((ROWS, 1)), actions, (rng.uniform(size=ROWS) < chance).astype(float)


def _log_sum(evidence, prior, grid):
    """The log of the sum over the grid, which is even in the logarithm."""
    step = jnp.log(grid[1] / grid[0])
    return jax.nn.logsumexp(evidence + prior.log_prob(grid) + jnp.log(grid)) + jnp.log(step)


@pytest.mark.slow
def test_scale_and_actions_agree_with_a_grid():
    """Means and deviations over 60 scales, each with its own expectation propagation.

    Particles are worth 16 at least where rewards come one by one or at once: four standard errors of a mean
    are one posterior deviation. The 400 draws of the posterior, which are moves of these, are worth 60 or
    more: half of one.
    """
    prior, seen = dist.LogNormal(0.0, 1.0), clicks()
    grid = jnp.exp(jnp.linspace(-3.0, 3.0, 60))

    @jax.jit
    def known(scale):
        backend = ExpectationPropagation(declared({"cov": scale**2}))
        state = backend.condition(backend.init(), *seen)
        return backend.log_evidence(state), backend.posterior(state).mean["action"][:, 0]

    evidence, means = jax.lax.map(known, grid)
    weight = jax.nn.softmax(
        evidence + prior.log_prob(grid) + jnp.log(grid)
    )  # even in the logarithm
    mean, actions = float(weight @ jnp.log(grid)), weight @ means
    sd = float(jnp.sqrt(weight @ (jnp.log(grid) - mean) ** 2))
    with unoptimised():
        backend = Collapsed(declared({"scale": prior}), particles=PARTICLES, chains=2, samples=200)
        start = backend.init(jax.random.key(0), room=ROWS)
        state = backend.condition(start, *seen)
        assert backend.status(state).ok
        at_once = backend.weights(state) @ jnp.log(backend.unknowns(state)["action_scale"])
        assert abs(float(at_once) - mean) < sd
        rows = tuple(map(jnp.asarray, seen))
        run = jax.jit(
            lambda s: jax.lax.scan(lambda s, r: (backend.update(s, *r), None), s, rows)[0]
        )
        online = run(start)
        one_by_one = backend.weights(online) @ jnp.log(backend.unknowns(online)["action_scale"])
        assert abs(float(one_by_one) - mean) < sd
        posterior = backend.posterior(state)
        drawn = jnp.log(backend.unknowns(posterior.state)["action_scale"])
        assert abs(float(drawn.mean()) - mean) < 0.5 * sd
        np.testing.assert_allclose(posterior.mean["action"][:, 0], actions, atol=0.25)
        assert abs(float(posterior.log_evidence - _log_sum(evidence, prior, grid))) < 0.5
