"""Three independent arms with normal posteriors, whose probabilities are integrals on a grid."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import norm

from mixts.inference import ClosedForm
from mixts.models import Gaussian, Hierarchy, Level

MEANS, SDS = np.array([0.0, 0.4, 0.5]), np.array([1.0, 0.6, 0.3])


def arms() -> ClosedForm:
    """The posterior of three arms without data."""
    level = Level("arm", 3, mean=MEANS[:, None], cov=np.square(SDS)[:, None, None])
    return ClosedForm(Hierarchy([level], Gaussian(1.0), dim=1))


def grid(points: int = 160) -> tuple[np.ndarray, np.ndarray]:
    """(n, 3) values of the arms and their probabilities, points in all: midpoints of equal shares."""
    quantiles = (np.arange(points) + 0.5) / points
    axes = [norm.ppf(quantiles, mean, sd) for mean, sd in zip(MEANS, SDS, strict=True)]
    values = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)
    return values, np.full(len(values), 1.0 / len(values))


def best_probabilities(allowed=(True, True, True)) -> np.ndarray:
    """The probability of each arm to be the best of those allowed, by a sum over its values."""
    quantiles = (np.arange(20_000) + 0.5) / 20_000
    found = np.zeros(3)
    for a in np.flatnonzero(allowed):
        others = [b for b in np.flatnonzero(allowed) if b != a]
        values = norm.ppf(quantiles, MEANS[a], SDS[a])
        found[a] = np.prod([norm.cdf(values, MEANS[b], SDS[b]) for b in others], axis=0).mean()
    return found


def chosen_shares(policy, n: int, allowed=None) -> np.ndarray:
    """How often each arm has the best score in n draws."""
    state, context = policy.init(jax.random.key(0)), jnp.ones(1)
    allowed = jnp.ones(3, bool) if allowed is None else jnp.asarray(allowed)

    @jax.jit
    def choose(key):
        return policy.scores_of(key, state, context, allowed).argmax()

    chosen = jax.lax.map(choose, jax.random.split(jax.random.key(1), n), batch_size=500)
    return np.bincount(chosen, minlength=3) / n


def standard_errors(p: np.ndarray, n: int) -> np.ndarray:
    """Of shares of n independent draws."""
    return np.sqrt(np.maximum(p * (1 - p), 1 / n) / n)
