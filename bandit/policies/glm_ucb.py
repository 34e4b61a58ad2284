"""`UCBGLM` and `GLMUCB`: optimism with a generalised linear regression for each action."""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from ...inference import Laplace
from ...inference.gaussian.action_blocks import ActionState, no_data, observe
from ...inference.gaussian.backend import GaussianState
from ...inference.gaussian.linear_model import ActionModel, dot
from ...inference.observation import as_context, one_observation
from ...models import Bernoulli, Reward
from ...models.arrays import as_positive
from ...models.pytrees import register_declaration
from .confidence import (
    Optimism,
    actions_alone,
    columns_of,
    context_norms,
    design_model,
    horizon_and_log_odds,
    put,
    settle,
    sub_gaussian,
)

__all__ = ["GLMUCB", "UCBGLM", "GlmUcbState"]


class GlmUcbState(NamedTuple):
    """Every action's generalised linear regression.

    Attributes:
        estimates: the regularised maxima of the likelihoods, and all observations behind them.
        design: a square root of `V_i^{-1}` (`root`), actions last.
    """

    estimates: GaussianState
    design: ActionState


@dataclass(frozen=True, eq=False, repr=False)
class _GlmUcb(Optimism[GlmUcbState]):
    """What `UCBGLM` and `GLMUCB` share: estimates, `V_i`, and the slope of the mean function."""

    _: KW_ONLY
    context_norm: Any = 1.0
    slope: Any = None
    estimator: Laplace = field(init=False)

    def _settle_shared(self) -> None:
        settle(self)
        who = type(self).__name__
        put(self, context_norm=as_positive(self.context_norm, f"{who} context_norm"))
        lowest, _ = _slopes(self.hierarchy.reward, self.norm * self.context_norm)
        slope = lowest if self.slope is None else self.slope
        put(self, slope=as_positive(slope, f"{who} slope"))
        alone = actions_alone(self.hierarchy, self.regularisation, self.hierarchy.reward)
        put(self, estimator=Laplace(alone), model=design_model(self.hierarchy, self.regularisation))

    @abstractmethod
    def _bounds(
        self,
        predictor: Float[Array, " K"],
        uncertain: Float[Array, " K"],
        taken: Int[Array, ""],
    ) -> Float[Array, " K"]:
        """Upper confidence bounds, from `x' theta_i` and `|x|_{V_i^{-1}}`."""

    def init(self, key: Array, *, room: int = 0) -> GlmUcbState:
        """No data, with room for `room` observations; nothing is drawn."""
        return GlmUcbState(self.estimator.init(key, room=room), no_data(self.model))

    def indices(self, state: GlmUcbState, context: Any) -> Float[Array, " K"]:
        """The upper confidence bound of every action."""
        return _glm_indices(self, state, as_context(self.hierarchy, context))

    def reserve(self, state: GlmUcbState, more: int) -> GlmUcbState:
        """The same state with room for `more` observations."""
        return state._replace(estimates=self.estimator.reserve(state.estimates, more))

    def update(self, state: GlmUcbState, context: Any, action: Any, reward: Any) -> GlmUcbState:
        """One more observation: its action is fitted anew to all its rewards."""
        x, a, y = one_observation(self.hierarchy, context, action, reward)
        estimates = self.estimator.update(state.estimates, x, a, y)
        changed = estimates.taken > state.estimates.taken
        return GlmUcbState(estimates, _add_context(self.model, state.design, x, a, changed))

    def troubles(self, state: GlmUcbState) -> dict[str, Int[Array, ""]]:
        """Observations that were ignored, and fits that stopped before their end."""
        return self.estimator.troubles(state.estimates)


_SHARED_ARRAYS = tuple(part.name for part in fields(_GlmUcb) if part.name != "horizon")


@dataclass(frozen=True, eq=False, repr=False)
class UCBGLM(_GlmUcb):
    """`x' theta_i + alpha |x|_{V_i^{-1}}` (Li, Lu & Zhou 2017, Algorithm UCB-GLM, Thm. 2).

    `theta_i` maximises the likelihood of the action's rewards, and

        alpha = (sigma / kappa) sqrt((d / 2) log(1 + 2 n / d) + log(1 / delta)).

    The mean function `f` is increasing, so that the highest predictor has the highest mean reward. The
    paper draws actions at random until the smallest eigenvalue of `V_i` is one; here `lambda = 1` sees
    to that from the first round, and to the existence of the maximum: `lambda |theta|^2 / 2` is taken
    from the log likelihood, so that an action nobody has taken has the estimate zero.

    `kappa` is the smallest slope `f'` over the predictors that may occur. It decides everything: for
    clicks it falls like `exp(-S)`. Published implementations often set it to the steepest slope
    instead, `slope=0.25` for clicks.

    Args:
        hierarchy: what the agent is told.
        horizon: `n`. By default the current round stands in for it, so that no horizon is needed.
        delta: default `1 / n`.
        regularisation: `lambda`.
        norm: `S`, a bound of `|theta_{*,i}|`; by default the root of `E |theta_i|^2` under the
            hierarchy's prior, on average over actions.
        context_norm: a bound of `|x|`, one in the paper. Used for the default of `slope` only.
        slope: `kappa`; by default the smallest `f'(u)` over `|u| <= S * context_norm`.
        noise: `sigma`, as in `LinUCB`.
        width: what `alpha` is multiplied by.
    """

    _: KW_ONLY
    noise: Any = None

    def __post_init__(self):
        self._settle_shared()
        noise = sub_gaussian(self.hierarchy.reward, self.norm) if self.noise is None else self.noise
        put(self, noise=as_positive(noise, "UCBGLM noise"))

    def _bounds(
        self,
        predictor: Float[Array, " K"],
        uncertain: Float[Array, " K"],
        taken: Int[Array, ""],
    ) -> Float[Array, " K"]:
        n, log_odds = horizon_and_log_odds(self, taken)
        d = self.hierarchy.dim
        alpha = self.noise / self.slope * jnp.sqrt(d / 2 * jnp.log1p(2 * n / d) + log_odds)
        return predictor + self.width * alpha * uncertain


register_declaration(UCBGLM, arrays=(*_SHARED_ARRAYS, "noise"), static=("horizon",))


@dataclass(frozen=True, eq=False, repr=False)
class GLMUCB(_GlmUcb):
    """`f(x' theta_i) + rho(t) |x|_{V_i^{-1}}` (Filippi, Cappe, Garivier & Szepesvari 2010).

    `theta_i` maximises the likelihood of the action's rewards, and in round `t`

        rho(t) = (2 k_f kappa R_max / c_f) sqrt(2 d log(t) log(2 d n / delta)),
        kappa = sqrt(3 + 2 log(1 + 2 c_x^2 / lambda)).

    The paper takes `d` actions first and calls the smallest eigenvalue of their `V` lambda; here
    `V_i` starts from `lambda I` and the likelihood is regularised as in `UCBGLM`. That keeps estimates
    bounded, and they are not projected onto the admissible parameters.

    Args:
        hierarchy: what the agent is told.
        horizon: `n`. By default the current round stands in for it, so that no horizon is needed.
        delta: default `1 / n`.
        regularisation: `lambda`.
        norm: `S`, a bound of `|theta_{*,i}|`, as in `UCBGLM`.
        context_norm: `c_x`, a bound of `|x|`.
        slope: `c_f`; by default the smallest `f'(u)` over `|u| <= S c_x`.
        steepest: `k_f`; by default the largest.
        largest: `R_max`, a bound of rewards; by default 1 for clicks, and for others the mean reward at
            the predictor `S c_x` and three standard deviations.
        width: what `rho(t)` is multiplied by.
    """

    _: KW_ONLY
    steepest: Any = None
    largest: Any = None

    def __post_init__(self):
        self._settle_shared()
        reward, reach = self.hierarchy.reward, self.norm * self.context_norm
        steepest = _slopes(reward, reach)[1] if self.steepest is None else self.steepest
        largest = _largest_reward(reward, reach) if self.largest is None else self.largest
        put(self, steepest=as_positive(steepest, "GLMUCB steepest"))
        put(self, largest=as_positive(largest, "GLMUCB largest"))

    def _bounds(
        self,
        predictor: Float[Array, " K"],
        uncertain: Float[Array, " K"],
        taken: Int[Array, ""],
    ) -> Float[Array, " K"]:
        n, log_odds = horizon_and_log_odds(self, taken)
        d, t = self.hierarchy.dim, taken + 1.0
        kappa = jnp.sqrt(3 + 2 * jnp.log1p(2 * self.context_norm**2 / self.regularisation))
        rho = 2 * self.steepest * kappa * self.largest / self.slope
        rho *= jnp.sqrt(2 * d * jnp.log(t) * (jnp.log(2 * d * n) + log_odds))
        return self.hierarchy.reward.mean(predictor) + self.width * rho * uncertain


register_declaration(GLMUCB, arrays=(*_SHARED_ARRAYS, "steepest", "largest"), static=("horizon",))


@jax.jit
def _glm_indices(policy: _GlmUcb, state: GlmUcbState, context: Array) -> Float[Array, " K"]:
    columns = columns_of(context)
    predictor = dot(state.estimates.actions.center, columns)
    return policy._bounds(predictor, context_norms(state.design, columns), state.estimates.taken)


@jax.jit
def _add_context(
    model: ActionModel, design: ActionState, context: Array, action: Array, changed: Array
) -> ActionState:
    x = jnp.where(changed, context, 0.0)  # which adds nothing
    return observe(model, design, x, action, jnp.zeros((), x.dtype))[0]


def _slopes(reward: Reward, reach: Array) -> tuple[Array, Array]:
    """The smallest and the largest `f'(u)` over `|u| <= reach`, on a grid with both ends and zero.

    Exact where `f'` has a single peak, at zero or outside, as for all families here. A slope that
    vanishes in the current precision counts as that precision's epsilon.
    """
    grid = jnp.linspace(-1.0, 1.0, 129) * reach
    slopes = jax.vmap(jax.grad(reward.mean))(grid)
    return jnp.maximum(slopes.min(), jnp.finfo(slopes.dtype).eps), slopes.max()


def _largest_reward(reward: Reward, reach: Array) -> Array:
    if isinstance(reward, Bernoulli):
        return jnp.ones(())
    return reward.mean(reach) + 3 * jnp.sqrt(reward.law(jnp.asarray(reach)).variance)
