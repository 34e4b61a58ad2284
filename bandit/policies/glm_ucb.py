"""`UCBGLM` and `GLMUCB`: optimism with a generalised linear regression for each action."""

from abc import abstractmethod
from dataclasses import KW_ONLY
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ...inference import Laplace, Status
from ...inference.gaussian.action_blocks import ActionState, no_data, observe
from ...inference.gaussian.linear_model import ActionModel
from ...inference.gaussian.messages import GaussianState
from ...inference.observation import as_context, one_observation
from ...models import Bernoulli, Reward
from ...models.arrays import as_positive
from .lin_ucb import Optimism, sub_gaussian

__all__ = ["GLMUCB", "UCBGLM", "GlmUcbState"]

Vector = Float[Array, " K"]


class GlmUcbState(NamedTuple):
    """Every action's generalised linear regression.

    Attributes:
        estimates: the regularised maxima of the likelihoods, and all observations behind them.
        design: a square root of `V_i^{-1}` (`root`), actions last.
    """

    estimates: GaussianState
    design: ActionState


class _GlmUcb(Optimism[GlmUcbState]):
    """What `UCBGLM` and `GLMUCB` share: estimates, `V_i`, and the slope of the mean function."""

    _: KW_ONLY
    context_norm: Any = 1.0
    slope: Any = None

    def __post_init__(self):
        super().__post_init__()
        who = type(self).__name__
        self.context_norm = as_positive(self.context_norm, f"{who} context_norm")
        lowest, _ = _slopes(self.hierarchy.reward, self.norm * self.context_norm)
        self.slope = as_positive(lowest if self.slope is None else self.slope, f"{who} slope")

    @property
    def estimator(self) -> Laplace:
        """The regularised maxima of every action's likelihood, as modes of a posterior."""
        return Laplace(self.prior(self.hierarchy.reward))

    @abstractmethod
    def bounds(self, predictors: Vector, norms: Vector, observed: Array) -> Vector:
        """Upper confidence bounds, from `x' theta_i` and `|x|_{V_i^{-1}}`."""

    def init(self, key: Array, *, room: int = 0) -> GlmUcbState:
        """No data, with room for `room` observations; nothing is drawn."""
        return GlmUcbState(self.estimator.init(key, room=room), no_data(self.model))

    def indices(self, state: GlmUcbState, context: Any) -> Vector:
        """The upper confidence bound of every action."""
        return _glm_indices(self, state, as_context(self.hierarchy, context))

    def reserve(self, state: GlmUcbState, more: int) -> GlmUcbState:
        """The same state with room for `more` observations."""
        return state._replace(estimates=self.estimator.reserve(state.estimates, more))

    def update(self, state: GlmUcbState, context: Any, action: Any, reward: Any) -> GlmUcbState:
        """One more observation: its action is fitted anew to all its rewards."""
        x, a, y, _ = one_observation(self.hierarchy, context, action, reward)
        estimates = self.estimator.update(state.estimates, x, a, y)
        changed = estimates.info.observed > state.estimates.info.observed
        return GlmUcbState(estimates, _add_context(self.model, state.design, x, a, changed))

    def status(self, state: GlmUcbState) -> Status:
        """Observations that were ignored, and fits that stopped before their end."""
        return self.estimator.status(state.estimates)


class UCBGLM(_GlmUcb):
    """`x' theta_i + alpha |x|_{V_i^{-1}}` (Li, Lu & Zhou 2017, Algorithm UCB-GLM, Thm. 2).

    `theta_i` maximises the likelihood of the action's rewards, and

        alpha = (sigma / kappa) sqrt((d / 2) log(1 + 2 n / d) + log(1 / delta)).

    The mean function `f` is increasing, so that the highest predictor has the highest mean reward. The
    paper draws actions at random until the smallest eigenvalue of `V_i` is one; here `lambda = 1` makes
    it so from the first round, and the maximum exists: `lambda |theta|^2 / 2` is subtracted from the log
    likelihood, so that the estimate of an action without rewards is zero.

    `kappa` is the smallest slope `f'` over the predictors that may occur. The bounds depend on it most:
    for clicks it falls like `exp(-S)`. Published implementations often set it to the steepest slope
    instead, `slope=0.25` for clicks.

    Args:
        hierarchy, horizon, delta, regularisation, norm, noise: as in `LinUCB`.
        context_norm: a bound of `|x|`, one in the paper. Used for the default of `slope` only.
        slope: `kappa`; by default the smallest `f'(u)` over `|u| <= S * context_norm`.
        width: what `alpha` is multiplied by.

    Example:
        >>> from mixts.bandit import UCBGLM
        >>> from mixts.models import glm
        >>> policy = UCBGLM(glm([[1.0], [0.5]], dim=2), horizon=100, slope=0.25)
        >>> round(float(policy.indices(policy.init(jax.random.key(0)), [1.0, 0.0])[0]), 2)
        6.07
    """

    _: KW_ONLY
    noise: Any = None

    def __post_init__(self):
        super().__post_init__()
        noise = sub_gaussian(self.hierarchy.reward, self.norm) if self.noise is None else self.noise
        self.noise = as_positive(noise, "UCBGLM noise")

    def bounds(self, predictors: Vector, norms: Vector, observed: Array) -> Vector:
        """Upper confidence bounds of `x' theta_i`."""
        (n, log_odds), d = self.horizon_and_log_odds(observed), self.hierarchy.dim
        alpha = self.noise / self.slope * jnp.sqrt(d / 2 * jnp.log1p(2 * n / d) + log_odds)
        return predictors + self.width * alpha * norms


class GLMUCB(_GlmUcb):
    """`f(x' theta_i) + rho(t) |x|_{V_i^{-1}}` (Filippi, Cappe, Garivier & Szepesvari 2010).

    `theta_i` maximises the likelihood of the action's rewards, and in round `t`

        rho(t) = (2 k_f kappa R_max / c_f) sqrt(2 d log(t) log(2 d n / delta)),
        kappa = sqrt(3 + 2 log(1 + 2 c_x^2 / lambda)).

    The paper chooses `d` actions first and calls the smallest eigenvalue of their `V` lambda; here
    `V_i` starts from `lambda I` and the likelihood is regularised as in `UCBGLM`. That keeps estimates
    bounded, and they are not projected onto the admissible parameters.

    Args:
        hierarchy, horizon, delta, regularisation, norm: as in `LinUCB`.
        context_norm: `c_x`, a bound of `|x|`.
        slope: `c_f`; by default the smallest `f'(u)` over `|u| <= S c_x`.
        steepest: `k_f`; by default the largest.
        largest: `R_max`, a bound of rewards; by default 1 for clicks, and for others the mean reward at
            the predictor `S c_x` and three standard deviations.
        width: what `rho(t)` is multiplied by.

    Example:
        >>> from mixts.bandit import GLMUCB
        >>> from mixts.models import glm
        >>> policy = GLMUCB(glm([[1.0], [0.5]], dim=2), horizon=100)
        >>> policy.indices(policy.init(jax.random.key(0)), [1.0, 0.0])
        Array([0.5, 0.5], dtype=float32)
    """

    _: KW_ONLY
    steepest: Any = None
    largest: Any = None

    def __post_init__(self):
        super().__post_init__()
        reward, reach = self.hierarchy.reward, self.norm * self.context_norm
        steepest = _slopes(reward, reach)[1] if self.steepest is None else self.steepest
        largest = _largest_reward(reward, reach) if self.largest is None else self.largest
        self.steepest = as_positive(steepest, "GLMUCB steepest")
        self.largest = as_positive(largest, "GLMUCB largest")

    def bounds(self, predictors: Vector, norms: Vector, observed: Array) -> Vector:
        """Upper confidence bounds of `f(x' theta_i)`."""
        n, log_odds = self.horizon_and_log_odds(observed)
        d, t = self.hierarchy.dim, observed + 1.0
        kappa = jnp.sqrt(3 + 2 * jnp.log1p(2 * self.context_norm**2 / self.regularisation))
        rho = 2 * self.steepest * kappa * self.largest / self.slope
        rho *= jnp.sqrt(2 * d * jnp.log(t) * (jnp.log(2 * d * n) + log_odds))
        return self.hierarchy.reward.mean(predictors) + self.width * rho * norms


@jax.jit
def _glm_indices(policy: _GlmUcb, state: GlmUcbState, context: Array) -> Vector:
    center, root = state.estimates.actions.center, state.design.root
    predictors, norms = policy.estimates_and_norms(center, root, context)
    return policy.bounds(predictors, norms, state.estimates.info.observed)


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
