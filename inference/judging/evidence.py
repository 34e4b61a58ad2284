"""The log evidence of a hierarchy: how well it explains data."""

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ...models import Data, Gaussian, Hierarchy
from ..gaussian.closed_form import check_linear_gaussian
from ..gaussian.evidence import gaussian_levels, log_density_of_rewards
from ..gaussian.laplace import check_gaussian_levels
from ..gaussian.propagated_evidence import propagated_log_evidence
from ..gaussian.reduction import weighed_rows
from ..gaussian.sufficient_statistics import reward_statistics
from ..observation import can_be_used, many_observations

__all__ = ["log_evidence"]


def log_evidence(hierarchy: Hierarchy, data: Data) -> Float[Array, ""]:
    """Log density of the rewards, all vectors integrated out.

    Differentiable in every leaf of the hierarchy: covariances, noise, means and weights. The rows are
    read once, at O(n d^2); what follows, and its gradient, costs the same however many there were.

    Where rewards are not Gaussian it is that of expectation propagation, differentiable in the numbers of
    the rewards' law too; it is NaN where messages were not found to agree, and costs sweeps over the rows.

    Example:
        >>> from mixts.inference import log_evidence
        >>> from mixts.models import Data, linear
        >>> data = Data([[1.0]], [0], [0.0])
        >>> round(float(log_evidence(linear([[1.0], [1.0]], dim=1), data)), 4)  # N(0; 0, 1 + 1 + 1)
        -1.4682
    """
    if not isinstance(getattr(hierarchy, "reward", None), Gaussian | None):
        check_gaussian_levels(hierarchy, "log_evidence")
        seen = many_observations(hierarchy, *data)
        return _propagated(hierarchy, *seen[:4])
    check_linear_gaussian(hierarchy, "log_evidence")
    seen = many_observations(hierarchy, *data)
    return _log_evidence(hierarchy, *seen[:4])


_propagated = jax.jit(propagated_log_evidence)


@jax.jit
def _log_evidence(
    hierarchy: Hierarchy, contexts: Array, actions: Array, rewards: Array, exposure: Array | None
) -> Float[Array, ""]:
    K, noise = hierarchy.num_actions, getattr(hierarchy.reward, "noise", jnp.ones(()))
    valid = can_be_used(contexts, actions, rewards, K, exposure)
    contexts, rewards = jnp.where(valid[:, None], contexts, 0.0), jnp.where(valid, rewards, 0.0)
    exposure = None if exposure is None else jnp.where(valid, exposure, 1.0)
    rows, scales = weighed_rows(contexts, jnp.where(valid, actions, K), rewards, exposure)
    statistics = reward_statistics(*rows, K)
    return scales + log_density_of_rewards(gaussian_levels(hierarchy), noise, statistics)
