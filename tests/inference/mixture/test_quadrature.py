"""`Collapsed` against quadrature over the unknown numbers, on the density of rewards written out."""

from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from mixts.inference import Collapsed
from mixts.models import Gaussian, Hierarchy, Level
from quadrature import Quadrature, dense_log_density, integrated

LEVELS, ACTIONS, DIM, ROWS = 4, 10, 2, 60
KNOWN = {"effect_scale": np.array([1.0, 0.7]), "action_scale": np.array([0.5, 0.8])}
NOISE = 0.6
# Logarithms of scales have this prior deviation.
WIDTH = 0.8
UNKNOWN = {
    1: ("reward_noise",),
    3: ("effect_scale", "reward_noise"),
    5: ("effect_scale", "action_scale", "reward_noise"),
}

rng = np.random.default_rng(7)
WEIGHTS = rng.dirichlet(np.ones(LEVELS), ACTIONS)


def declared(unknown: tuple[str, ...]) -> Hierarchy:
    def spread(name: str) -> dict[str, Any]:
        if name in unknown:
            return {"scale": dist.LogNormal(jnp.zeros(DIM), WIDTH)}
        return {"cov": KNOWN[name] ** 2}

    noise = dist.LogNormal(0.0, WIDTH) if "reward_noise" in unknown else NOISE
    effect = Level("effect", LEVELS, **spread("effect_scale"))
    action = Level("action", ACTIONS, parents={"effect": WEIGHTS}, **spread("action_scale"))
    return Hierarchy([effect, action], Gaussian(noise), DIM)


def observed(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rewards of a truth with the known numbers."""
    source = np.random.default_rng(11)
    effects = KNOWN["effect_scale"] * source.normal(size=(LEVELS, DIM))
    vectors = WEIGHTS @ effects + KNOWN["action_scale"] * source.normal(size=(ACTIONS, DIM))
    contexts = source.uniform(-1, 1, (rows, DIM))
    actions = source.integers(0, ACTIONS, rows)
    rewards = np.sum(contexts * vectors[actions], axis=1) + NOISE * source.normal(size=rows)
    return contexts, actions, rewards


def design(contexts: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """What each reward has of every effect's and action's own standard normals, before scales."""
    own = np.zeros((len(contexts), ACTIONS, DIM))
    own[np.arange(len(contexts)), actions] = contexts
    shared = np.einsum("nd,nl->nld", contexts, WEIGHTS[actions])
    return np.concatenate([shared.reshape(len(contexts), -1), own.reshape(len(contexts), -1)], 1)


def by_quadrature(unknown: tuple[str, ...], seen: Any, order: int) -> Quadrature:
    """Over logarithms of the unknown numbers; the mean of every action is a function of them too."""
    contexts, actions, rewards = seen
    columns = jnp.asarray(design(contexts, actions))
    weights = jnp.asarray(WEIGHTS)
    sizes = {name: DIM if name != "reward_noise" else 1 for name in unknown}

    def numbers(z: Any) -> dict[str, Any]:
        parts = jnp.split(jnp.exp(z), np.cumsum(list(sizes.values()))[:-1])
        found = dict(zip(sizes, parts, strict=True))
        return {**KNOWN, "reward_noise": jnp.array([NOISE]), **found}

    def spread(given: dict[str, Any]) -> Any:
        effect, action = (jnp.asarray(given[name]) for name in KNOWN)
        return jnp.concatenate([jnp.tile(effect, LEVELS), jnp.tile(action, ACTIONS)])

    def log_density(z: Any) -> Any:
        given = numbers(z)
        density = dense_log_density(columns, rewards, spread(given), given["reward_noise"][0])
        return density - jnp.sum((z / WIDTH) ** 2 / 2 + jnp.log(2 * jnp.pi * WIDTH**2) / 2)

    def functions(z: Any) -> dict[str, Any]:
        given = numbers(z)
        each = spread(given)
        scaled = columns * each
        noise = given["reward_noise"][0] ** 2
        normals = scaled.T @ jnp.linalg.solve(
            scaled @ scaled.T + noise * jnp.eye(len(rewards)), rewards
        )
        both = each * normals
        effect = both[: LEVELS * DIM].reshape(LEVELS, DIM)
        action = weights @ effect + both[LEVELS * DIM :].reshape(ACTIONS, DIM)
        return {name: given[name] for name in unknown} | {"effect": effect, "action": action}

    return integrated(log_density, functions, sum(sizes.values()), order)


def moments(values: Any, weights: Any) -> tuple[np.ndarray, np.ndarray]:
    """Weighted means and standard deviations."""
    values, weights = np.asarray(values, float), np.asarray(weights, float)
    mean = np.tensordot(weights, values, 1)
    return mean, np.sqrt(np.tensordot(weights, (values - mean) ** 2, 1))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.usefixtures("x64")
def test_posterior_agrees_with_quadrature(count: int):
    check_posterior(count, order=15)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_posterior_of_five_numbers_agrees_with_quadrature():
    check_posterior(5, order=9)


def check_posterior(count: int, order: int) -> None:
    """Means and deviations within Monte Carlo error of 2,000 draws, worth at least 500.

    A mean is off by `sd / sqrt(500)` and a deviation by `sd / sqrt(1000)` for normal draws, and by twice
    that for the skewed ones of scales; four such errors are allowed.
    """
    seen = observed(ROWS)
    truth = by_quadrature(UNKNOWN[count], seen, order)
    backend = Collapsed(declared(UNKNOWN[count]))
    state = backend.condition(backend.init(jax.random.key(1)), *seen)
    posterior = backend.posterior(state)
    assert posterior.status.ok
    drawn = backend.draws(posterior.state)
    for name in UNKNOWN[count]:
        values = np.asarray(drawn[name]).reshape(-1, truth.mean[name].size)
        sd = truth.sd[name]
        assert np.abs(values.mean(0) - truth.mean[name]).max() < 4 * (sd / np.sqrt(500)).max()
        assert np.abs(values.std(0) / sd - 1).max() < 8 / np.sqrt(1000)
    for level in ("effect", "action"):
        # Means given the numbers vary less than the vectors do.
        error = np.asarray(posterior.mean[level]) - truth.mean[level]
        assert np.all(np.abs(error) < 4 * truth.sd[level] / np.sqrt(500) + 1e-9)
    # The evidence of a few hundred particles.
    assert abs(float(posterior.log_evidence) - truth.log_integral) < 0.3


@pytest.mark.parametrize("count", [1, 3, 5])
def test_online_particles_agree_with_quadrature(count: int, x64: None):
    """256 particles after 2,000 rounds: means within 10% of a posterior deviation, deviations within 15%.

    The grid is over the evidence of sums, which `test_evidence.py` compares with the dense one.
    """
    contexts, actions, rewards = observed(2000)
    hierarchy = declared(UNKNOWN[count])
    backend = Collapsed(hierarchy, particles=256)

    def one(state: Any, row: Any) -> tuple[Any, None]:
        return backend.update(state, *row), None

    rows = jnp.asarray(contexts), jnp.asarray(actions), jnp.asarray(rewards)
    state, _ = jax.jit(lambda state: jax.lax.scan(one, state, rows))(
        backend.init(jax.random.key(2))
    )
    mixing, kept = backend.mixing, state.kept
    _, back = jax.flatten_util.ravel_pytree(
        jax.tree.map(lambda leaf: leaf[0], state.particles.positions)
    )
    truth = integrated(
        lambda z: mixing.log_target(back(z), kept),
        lambda z: mixing.numbers.values(back(z)),
        count,
        9 if count < 5 else 7,
    )
    for name, values in backend.unknowns(state).items():
        mean, sd = moments(values, backend.weights(state))
        assert np.all(np.abs(mean - truth.mean[name]) < 0.10 * truth.sd[name])
        assert np.all(np.abs(sd / truth.sd[name] - 1) < 0.15)
    assert backend.status(state).ok
