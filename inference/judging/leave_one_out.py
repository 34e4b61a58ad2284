"""Exact leave-one-out predictions of a linear-Gaussian hierarchy, without conditioning anew."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ...models import Data, Gaussian, Hierarchy
from ..gaussian.closed_form import ClosedForm, check_linear_gaussian

__all__ = ["LeaveOneOut", "leave_one_out"]


class LeaveOneOut(NamedTuple):
    """What each reward was predicted to be from all others.

    Attributes:
        mean: (n,) means of the predictions.
        sd: (n,) their standard deviations, the noise included.
        log_density: (n,) log densities of the rewards.

    Example:
        >>> from mixts.inference import leave_one_out
        >>> from mixts.models import Data, linear
        >>> data = Data([[1.0], [1.0]], [0, 1], [1.0, 2.0])
        >>> left_out = leave_one_out(linear([[1.0], [1.0]], dim=1), data)
        >>> round(left_out.elpd, 3), round(left_out.se, 3)
        (-3.36, 0.5)
    """

    mean: Float[np.ndarray, " n"]
    sd: Float[np.ndarray, " n"]
    log_density: Float[np.ndarray, " n"]

    @property
    def elpd(self) -> float:
        """The sum of the log densities: the expected log predictive density of as many new rewards."""
        return float(self.log_density.sum())

    @property
    def se(self) -> float:
        """Its standard error."""
        n = len(self.log_density)
        return float(np.sqrt(n) * self.log_density.std(ddof=1)) if n > 1 else float("nan")


def leave_one_out(hierarchy: Hierarchy, data: Data) -> LeaveOneOut:
    """Predict each reward from all others, exactly.

    A Gaussian reward is a Gaussian message about `u = x' theta_a`, so leaving it out divides the posterior
    `N(m, v)` of `u` by the message: precision `1/v - exposure/noise^2`. The cost is that of one posterior,
    O(n d^2) beyond it. Where numbers were fitted to the data, the reward left out was part of that fit.

    Args:
        hierarchy: linear and Gaussian, with known numbers.
        data: the observations.

    Example:
        >>> from mixts.inference import leave_one_out
        >>> from mixts.models import Data, linear
        >>> data = Data([[1.0], [1.0]], [0, 0], [1.0, 2.0])  # the first is N(2 * 2/3, 2/3 + 1)
        >>> print(leave_one_out(linear([[1.0]], dim=1), data).mean.round(3))
        [1.333 0.667]
    """
    check_linear_gaussian(hierarchy, "leave_one_out")
    if not isinstance(data, Data):
        raise TypeError(
            f"leave_one_out: got {type(data).__name__}; expected Data(contexts, actions, rewards)"
        )
    backend, reward = ClosedForm(hierarchy), hierarchy.reward
    noise = jnp.asarray(reward.noise) if isinstance(reward, Gaussian) else jnp.ones(())
    state = backend.condition(backend.init(), *data)
    posterior = backend.posterior(state)
    name = hierarchy.actions.name
    own = posterior.mean[name][data.actions], posterior.cov[name][data.actions]
    variance = noise**2 / (1.0 if data.exposure is None else data.exposure)
    mean, sd, density = _left_out(data.contexts, data.rewards, *own, variance)
    return LeaveOneOut(np.asarray(mean), np.asarray(sd), np.asarray(density))


def _left_out(
    contexts: Float[Array, "n d"],
    rewards: Float[Array, " n"],
    means: Float[Array, "n d"],
    covs: Float[Array, "n d d"],
    variance: Array,
) -> tuple[Array, Array, Array]:
    m, v = jnp.sum(contexts * means, -1), jnp.einsum("nd,nde,ne->n", contexts, covs, contexts)
    # By the share of the message in the posterior, so that nothing is divided by zero.
    share = v / variance
    v_without = v / (1 - share)
    m_without = (m - share * rewards) / (1 - share)
    total = v_without + variance
    density = -0.5 * (jnp.log(2 * jnp.pi * total) + (rewards - m_without) ** 2 / total)
    return m_without, jnp.sqrt(total), density
