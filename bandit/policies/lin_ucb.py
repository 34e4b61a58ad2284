"""`LinUCB`: optimism with a ridge regression for each action."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from ...inference.gaussian.action_blocks import ActionState, no_data, observe
from ...inference.gaussian.linear_model import dot
from ...inference.observation import as_context, can_be_used, one_observation
from ...models.arrays import as_positive
from ...models.pytrees import register_declaration
from .confidence import (
    Optimism,
    columns_of,
    context_norms,
    design_model,
    horizon_and_log_odds,
    put,
    settle,
    sub_gaussian,
)

__all__ = ["LinUCB", "LinUcbState"]


class LinUcbState(NamedTuple):
    """Every action's ridge regression.

    Attributes:
        actions: its estimate (`center`) and a square root of `V_i^{-1}` (`root`), actions last.
        log_det: (K,) `log det(V_i) - log det(lambda I)`.
        taken: how many observations were taken in.
        rejected: how many were ignored inside `jit`.
    """

    actions: ActionState
    log_det: Float[Array, " K"]
    taken: Int[Array, ""]
    rejected: Int[Array, ""]


@dataclass(frozen=True, eq=False, repr=False)
class LinUCB(Optimism[LinUcbState]):
    """`x' theta_i + sqrt(beta_i) |x|_{V_i^{-1}}` (Abbasi-Yadkori, Pal & Szepesvari 2011, Theorem 2).

    `theta_i` is the ridge estimate, and

        sqrt(beta_i) = sigma sqrt(2 log(det(V_i)^{1/2} det(lambda I)^{-1/2} / delta)) + sqrt(lambda) S

    makes `|theta_i - theta_{*,i}|_{V_i} <= sqrt(beta_i)` for all rounds with probability `1 - delta`,
    action by action. A round costs O(K d^2), an update O(d^2).

    Args:
        hierarchy: what the agent is told.
        horizon: `n`. By default the current round stands in for it, so that no horizon is needed.
        delta: default `1 / n`.
        regularisation: `lambda`.
        norm: `S`, an upper bound of `|theta_{*,i}|`; by default the root of `E |theta_i|^2` under the
            hierarchy's prior, on average over actions: a typical norm, not a certain bound.
        noise: `sigma`: rewards are `sigma`-sub-Gaussian around their mean. By default the standard
            deviation of Gaussian rewards, 1/2 of clicks (Hoeffding's lemma), and of others their
            standard deviation at the predictor `S`.
        width: what `sqrt(beta_i)` is multiplied by.
    """

    _: KW_ONLY
    noise: Any = None

    def __post_init__(self):
        settle(self)
        noise = sub_gaussian(self.hierarchy.reward, self.norm) if self.noise is None else self.noise
        put(self, noise=as_positive(noise, "LinUCB noise"))
        put(self, model=design_model(self.hierarchy, self.regularisation))

    def init(self, key: Array, *, room: int = 0) -> LinUcbState:
        """No data; nothing is drawn and no observation kept."""
        none = jnp.zeros((), jnp.int32)
        log_det = jnp.zeros(self.hierarchy.num_actions, self.model.root.dtype)
        return LinUcbState(no_data(self.model), log_det, none, none)

    def indices(self, state: LinUcbState, context: Any) -> Float[Array, " K"]:
        """The upper confidence bound of every action's `x' theta_i`."""
        return _linear_indices(self, state, as_context(self.hierarchy, context))

    def update(self, state: LinUcbState, context: Any, action: Any, reward: Any) -> LinUcbState:
        """One more observation: a rank-one step of its action's regression."""
        return _regress(self, state, *one_observation(self.hierarchy, context, action, reward))

    def troubles(self, state: LinUcbState) -> dict[str, Int[Array, ""]]:
        """Observations that were ignored."""
        return {"rejected": state.rejected}


register_declaration(
    LinUCB,
    arrays=("hierarchy", "delta", "regularisation", "norm", "noise", "width", "model"),
    static=("horizon",),
)


@jax.jit
def _linear_indices(policy: LinUCB, state: LinUcbState, context: Array) -> Float[Array, " K"]:
    columns = columns_of(context)
    _, log_odds = horizon_and_log_odds(policy, state.taken)
    # 2 log(det(V)^{1/2} det(lambda I)^{-1/2} / delta)
    radius = policy.noise * jnp.sqrt(state.log_det + 2 * log_odds)
    radius += jnp.sqrt(policy.regularisation) * policy.norm
    uncertain = context_norms(state.actions, columns)
    return dot(state.actions.center, columns) + policy.width * radius * uncertain


@jax.jit
def _regress(
    policy: LinUCB, state: LinUcbState, context: Array, action: Array, reward: Array
) -> LinUcbState:
    valid = can_be_used(context, action, reward, policy.model.num_actions)
    x, y = jnp.where(valid, context, 0.0), jnp.where(valid, reward, 0.0)
    actions, seen = observe(policy.model, state.actions, x, jnp.where(valid, action, -1), y)
    # det(V + x x') / det(V) = 1 + x' V^{-1} x, the variance of what was seen.
    log_det = state.log_det.at[seen.action].add(jnp.log(seen.variance), mode="drop")
    return LinUcbState(actions, log_det, state.taken + valid, state.rejected + ~valid)
