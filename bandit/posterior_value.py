"""The value of a policy under a posterior: what its mean reward would be, as a distribution.

The structured direct method (Aouali et al. 2024): a log is conditioned on, and any policy is judged by
what the posterior says of the rewards of its actions. No propensities are needed, and actions that were
never logged are judged by their effects. It is right where the hierarchy is; the weights of
`off_policy_value` are right where propensities are.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ..inference import Posterior
from ..inference.random import fused_key
from ..models import Hierarchy
from ..models.arrays import as_count
from ..models.messages import short

__all__ = ["PosteriorValue", "posterior_value"]

_SUM_TOLERANCE = 1e-3


class PosteriorValue(NamedTuple):
    """The mean reward of a policy over some contexts, in posterior draws.

    Attributes:
        draws: (draws,) one value for each joint draw of all actions.

    Example:
        >>> from mixts.bandit import PosteriorValue
        >>> value = PosteriorValue(np.array([0.1, 0.3, 0.2]))
        >>> round(float(value.mean), 3), value.interval(0.5).round(3).tolist()
        (0.2, [0.15, 0.25])
    """

    draws: np.ndarray

    @property
    def mean(self) -> float:
        """The posterior mean."""
        return float(self.draws.mean())

    @property
    def sd(self) -> float:
        """The posterior standard deviation: of the value, not of this estimate of its mean."""
        return float(self.draws.std(ddof=1))

    def interval(self, level: float = 0.95) -> np.ndarray:
        """(2,) between which the value lies with this probability, as much of it outside on each side."""
        if not isinstance(level, float) or not 0 < level < 1:
            raise ValueError(f"level is {short(level)}; expected a probability between 0 and 1")
        return np.quantile(self.draws, [(1 - level) / 2, (1 + level) / 2])

    def probability_above(self, other: "PosteriorValue | float") -> float:
        """That the value is above a number, or another policy's in the same draws."""
        return float(np.mean(self.draws > getattr(other, "draws", other)))


def posterior_value(
    posterior: Posterior, contexts: Any, probabilities: Any, *, draws: int = 1000, key: Any = 0
) -> PosteriorValue:
    """The mean reward in these contexts of a policy that chooses with the given probabilities.

    With the same key, posterior and number of draws, two policies are judged by the same draws, so that
    their difference is known better than either value.

    Args:
        posterior: what is known, such as `backend.posterior(backend.condition(...))`.
        contexts: (n, d), or (n, K, d) with a row for each action.
        probabilities: (n, K) how the policy chooses in each context, see `choice_probabilities`; or (n,)
            the actions of a deterministic policy, as whole numbers.
        draws: joint posterior draws.
        key: a seed or a key.

    Example:
        >>> from mixts.bandit import posterior_value
        >>> from mixts.inference import ClosedForm
        >>> from mixts.models import linear
        >>> backend = ClosedForm(linear([[1.0], [0.5]], dim=1))
        >>> posterior = backend.posterior(backend.update(backend.init(), [1.0], 0, 9.0))
        >>> value = posterior_value(posterior, [[1.0], [2.0]], [0, 0], draws=500)
        >>> bool(value.interval(0.9)[0] > 0)
        True
    """
    if not isinstance(posterior, Posterior) or not isinstance(posterior.backend.problem, Hierarchy):
        raise TypeError(
            f"posterior_value: got {short(posterior)}; expected the posterior of a hierarchy, such as "
            "backend.posterior(state)"
        )
    hierarchy = posterior.backend.problem
    K, d = hierarchy.num_actions, hierarchy.dim
    x = jnp.asarray(contexts, float)
    if x.shape[1:] not in ((d,), (K, d)) or not len(x):
        raise ValueError(f"contexts have shape {x.shape}; expected (n, {d}) or (n, {K}, {d})")
    p = _as_probabilities(probabilities, len(x), K)
    count, name = as_count(draws, "draws"), hierarchy.actions.name
    theta = posterior.draw(fused_key(key), count)[name]
    return PosteriorValue(np.asarray(_values(hierarchy, x, p, theta), float))


@jax.jit
def _values(
    hierarchy: Hierarchy, contexts: Array, p: Float[Array, "n K"], theta: Float[Array, "S K d"]
) -> Float[Array, " S"]:
    form = "nd,kd->nk" if contexts.ndim == 2 else "nkd,kd->nk"

    def value(vectors: Float[Array, "K d"]) -> Array:
        rewards = hierarchy.reward.mean(jnp.einsum(form, contexts, vectors))
        return jnp.sum(p * rewards) / len(contexts)

    return jax.lax.map(value, theta)


def _as_probabilities(given: Any, n: int, K: int) -> Float[Array, "n K"]:
    p = np.asarray(given)
    if p.shape == (n,) and p.dtype.kind in "iu":
        if p.min() < 0 or p.max() >= K:
            raise ValueError(
                f"probabilities hold the actions {p.min()} to {p.max()}; expected 0 to {K - 1}"
            )
        return jnp.asarray(np.eye(K)[p], float)
    if p.shape != (n, K) or p.dtype.kind not in "fiub":
        raise ValueError(
            f"probabilities have shape {p.shape}; expected ({n}, {K}), or ({n},) actions"
        )
    sums = p.sum(1)
    if not (p >= 0).all() or not (np.abs(sums - 1) <= _SUM_TOLERANCE).all():
        worst = int(np.argmax(np.abs(sums - 1)))
        raise ValueError(
            f"probabilities of decision {worst} sum to {sums[worst]:g}, the least is {p.min():g}; expected "
            "numbers from 0 that sum to 1"
        )
    return jnp.asarray(p, float)
