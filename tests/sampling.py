"""Problems with a known posterior for backends that sample, and the Monte Carlo errors of their draws."""

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import effective_sample_size

from mixts.inference import ClosedForm, Posterior, Status
from mixts.models import Gaussian, Hierarchy, Level, linear

__all__ = [
    "BAD",
    "Estimate",
    "Problem",
    "bad_rows",
    "common_taste",
    "common_taste_hierarchy",
    "deviations",
    "estimate",
    "exact",
    "linear_problem",
    "site_draws",
    "standard_errors_off",
    "troubles",
    "unoptimised",
]


@contextlib.contextmanager
def unoptimised() -> Iterator[None]:
    """Compile in half the time what then runs at half the speed: these tests mostly compile."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        yield
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


# Problems ----------------------------------------------------------------------------------------


class Problem(NamedTuple):
    """A hierarchy and observations drawn from it."""

    hierarchy: Hierarchy
    contexts: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray

    @property
    def seen(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.contexts, self.actions, self.rewards


def linear_problem(K: int = 20, L: int = 3, d: int = 2, n: int = 300, seed: int = 0) -> Problem:
    """Two levels, linear and Gaussian; every action has about `n / K` observations."""
    rng = np.random.default_rng(seed)
    weights = rng.uniform(-1, 1, (K, L))
    effects = rng.normal(scale=np.sqrt(3.0), size=(L, d))
    theta = weights @ effects + rng.normal(size=(K, d))
    contexts, actions = rng.normal(size=(n, d)), rng.integers(0, K, n)
    rewards = np.sum(contexts * theta[actions], axis=1) + rng.normal(size=n)
    return Problem(linear(weights, d, effect_cov=3.0), contexts, actions, rewards)


def common_taste(contexts, actions, rewards=None):
    """A program by hand: five movies around one common taste; their site is deterministic."""
    taste = numpyro.sample("taste", dist.Normal(0.0, 1.5).expand([1, 2]).to_event(2))
    own = numpyro.sample("own", dist.Normal(0.0, 1.0).expand([5, 2]).to_event(2))
    movies = numpyro.deterministic("movie", taste + 0.7 * own)
    mean = jnp.sum(contexts * movies[actions], axis=-1)
    with numpyro.plate("observation", contexts.shape[0]):
        numpyro.sample("reward", dist.Normal(mean, 0.5), obs=rewards)


def common_taste_hierarchy() -> Hierarchy:
    """The same declared, so that it has a closed form."""
    movies = Level("movie", 5, parents={"taste": np.ones((5, 1))}, cov=0.7**2)
    return Hierarchy([Level("taste", 1, cov=1.5**2), movies], Gaussian(0.5), 2)


def exact(hierarchy: Hierarchy, seen) -> Posterior:
    backend = ClosedForm(hierarchy)
    return backend.posterior(backend.condition(backend.init(), *seen))


def deviations(posterior: Posterior, level: str) -> np.ndarray:
    """(size, d) standard deviations of a level."""
    return np.sqrt(np.diagonal(np.asarray(posterior.cov[level]), axis1=1, axis2=2))


# What no backend can use: (action, reward, a number of the context); K is beyond the last action.
BAD = {
    "negative action": (-1, 1.0, 1.0),
    "action K": ("K", 1.0, 1.0),
    "NaN reward": (0, np.nan, 1.0),
    "infinite reward": (0, -np.inf, 1.0),
    "NaN context": (0, 1.0, np.nan),
}


def bad_rows(problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    K, d = problem.hierarchy.num_actions, problem.hierarchy.dim
    contexts = np.ones((len(BAD), d))
    contexts[:, 0] = [number for _, _, number in BAD.values()]
    actions = np.array([K if action == "K" else action for action, _, _ in BAD.values()])
    return contexts, actions, np.array([reward for _, reward, _ in BAD.values()])


# Monte Carlo error -------------------------------------------------------------------------------


class Estimate(NamedTuple):
    """Moments of draws, each with its standard error."""

    mean: np.ndarray
    mean_error: np.ndarray
    deviation: np.ndarray
    deviation_error: np.ndarray


def estimate(draws: np.ndarray) -> Estimate:
    """Moments of (chains, draws, ...) correlated draws.

    The mean of `x` over draws has the standard error `sd(x) / sqrt(ESS(x))`. So has the variance `v`,
    the mean of `(x - mean)^2`; and the deviation `sqrt(v)` has that of `v` over `2 sqrt(v)`.
    """
    draws = np.asarray(draws, np.float64)
    mean, mean_error = _mean(draws)
    variance, variance_error = _mean((draws - mean) ** 2)
    deviation = np.sqrt(variance)
    return Estimate(mean, mean_error, deviation, variance_error / (2 * deviation))


def _mean(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # Draws of alternating sign can count for more than as many independent ones; do not lean on it.
    count = np.minimum(effective_sample_size(draws), draws.shape[0] * draws.shape[1])
    return draws.mean((0, 1)), draws.std((0, 1)) / np.sqrt(count)


def site_draws(backend: Any, state: Any) -> dict[str, np.ndarray]:
    """Every site at the draws that the chains of a `Nuts` state left: (chains, draws, ...)."""
    sites = _sites(backend, state)
    return {k: np.asarray(v).reshape(backend.chains, -1, *v.shape[1:]) for k, v in sites.items()}


@jax.jit
def _sites(backend, state):
    one = lambda position: backend.target.sites(position, state.buffer)  # noqa: E731
    return jax.lax.map(one, state.bank, batch_size=64)


def standard_errors_off(found: np.ndarray, error: np.ndarray, expected: np.ndarray) -> float:
    """The largest distance from what was expected, in standard errors."""
    return float(np.max(np.abs(found - np.asarray(expected)) / error))


def troubles(status: Status) -> set[str]:
    """The kinds of trouble that have occurred."""
    return {kind for kind in status.counts if kind in status}
