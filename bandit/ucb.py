"""Optimism: take the action with the highest upper confidence bound, each learned on its own.

As the paper's baselines do (Aouali et al. 2023, `sec:synthetic experiments`), the three policies ignore
the effects: every action has a regression of its own, with `V_i = lambda I + sum x x'` over the
contexts it has met. The hierarchy says how many actions there are, what rewards are like, and how
large the parameters may be expected to be.

Ridge regression is the posterior mean of `theta_i ~ N(0, I / lambda)` under noise of variance one, of
which `V_i^{-1}` is the covariance; a regularised maximum of the likelihood is a mode under the same
prior. So both come from `mixts.inference`, one rank-one step a round, and nothing is inverted here.
"""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from ..inference import Laplace
from ..inference.actions import ActionState, no_data, observe
from ..inference.gaussian_backend import GaussianState
from ..inference.linear_model import ActionModel, action_model, contract, dot
from ..inference.observation import as_context, can_be_used, one_observation
from ..models import Bernoulli, Gaussian, Hierarchy, Level, Reward
from ..models.arrays import as_count, as_positive, is_concrete
from ..models.pytrees import register_declaration
from .baselines import prior_moments
from .policy import Policy, best_action

__all__ = ["GLMUCB", "UCBGLM", "GlmUcbState", "LinUCB", "LinUcbState"]


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
class LinUCB(Policy[LinUcbState]):
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

    hierarchy: Hierarchy
    _: KW_ONLY
    horizon: int | None = None
    delta: Any = None
    regularisation: Any = 1.0
    norm: Any = None
    noise: Any = None
    width: Any = 1.0
    model: ActionModel = field(init=False)

    def __post_init__(self):
        _settle(self)
        noise = (
            _sub_gaussian(self.hierarchy.reward, self.norm) if self.noise is None else self.noise
        )
        _set(self, noise=as_positive(noise, "LinUCB noise"))
        _set(self, model=_design(self.hierarchy, self.regularisation))

    def init(self, key: Array, *, room: int = 0) -> LinUcbState:
        """No data; nothing is drawn and no observation kept."""
        none = jnp.zeros((), jnp.int32)
        log_det = jnp.zeros(self.hierarchy.num_actions, self.model.root.dtype)
        return LinUcbState(no_data(self.model), log_det, none, none)

    def indices(self, state: LinUcbState, context: Any) -> Float[Array, " K"]:
        """The upper confidence bound of every action's `x' theta_i`."""
        return _linear_indices(self, state, as_context(self.hierarchy, context))

    def act(self, key: Array, state: LinUcbState, context: Float[Array, "*K d"]) -> Int[Array, ""]:
        """The action with the highest bound; the key is not used."""
        return best_action(self.indices(state, context))

    def update(self, state: LinUcbState, context: Any, action: Any, reward: Any) -> LinUcbState:
        """One more observation: a rank-one step of its action's regression."""
        return _regress(self, state, *one_observation(self.hierarchy, context, action, reward))

    def troubles(self, state: LinUcbState) -> dict[str, Int[Array, ""]]:
        """Observations that were ignored."""
        return {"rejected": state.rejected}

    def __repr__(self) -> str:
        return f"LinUCB({self.hierarchy!r})"


register_declaration(
    LinUCB,
    arrays=("hierarchy", "delta", "regularisation", "norm", "noise", "width", "model"),
    static=("horizon",),
)


@jax.jit
def _linear_indices(policy: LinUCB, state: LinUcbState, context: Array) -> Float[Array, " K"]:
    columns = _columns(context)
    _, log_odds = _horizon_and_log_odds(policy, state.taken)
    # 2 log(det(V)^{1/2} det(lambda I)^{-1/2} / delta)
    radius = policy.noise * jnp.sqrt(state.log_det + 2 * log_odds)
    radius += jnp.sqrt(policy.regularisation) * policy.norm
    uncertain = _norms(state.actions, columns)
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


class GlmUcbState(NamedTuple):
    """Every action's generalised linear regression.

    Attributes:
        estimates: the regularised maxima of the likelihoods, and all observations behind them.
        design: a square root of `V_i^{-1}` (`root`), actions last.
    """

    estimates: GaussianState
    design: ActionState


class _GlmUcb(Policy[GlmUcbState]):
    """What `UCBGLM` and `GLMUCB` share: estimates, `V_i`, and the slope of the mean function."""

    hierarchy: Hierarchy
    horizon: int | None
    delta: Any
    regularisation: Any
    norm: Any
    context_norm: Any
    slope: Any
    width: Any
    estimator: Laplace
    model: ActionModel

    def _settle_shared(self) -> None:
        _settle(self)
        who = type(self).__name__
        _set(self, context_norm=as_positive(self.context_norm, f"{who} context_norm"))
        lowest, _ = _slopes(self.hierarchy.reward, self.norm * self.context_norm)
        slope = lowest if self.slope is None else self.slope
        _set(self, slope=as_positive(slope, f"{who} slope"))
        alone = _alone(self.hierarchy, self.regularisation, self.hierarchy.reward)
        _set(self, estimator=Laplace(alone), model=_design(self.hierarchy, self.regularisation))

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

    def act(self, key: Array, state: GlmUcbState, context: Float[Array, "*K d"]) -> Int[Array, ""]:
        """The action with the highest bound; the key is not used."""
        return best_action(self.indices(state, context))

    def update(self, state: GlmUcbState, context: Any, action: Any, reward: Any) -> GlmUcbState:
        """One more observation: its action is fitted anew to all its rewards."""
        x, a, y = one_observation(self.hierarchy, context, action, reward)
        estimates = self.estimator.update(state.estimates, x, a, y)
        changed = estimates.taken > state.estimates.taken
        return GlmUcbState(estimates, _add_context(self.model, state.design, x, a, changed))

    def troubles(self, state: GlmUcbState) -> dict[str, Int[Array, ""]]:
        """Observations that were ignored, and fits that stopped before their end."""
        return self.estimator.troubles(state.estimates)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.hierarchy!r})"


@dataclass(frozen=True, eq=False, repr=False)
class UCBGLM(_GlmUcb):
    """`x' theta_i + alpha |x|_{V_i^{-1}}` (Li, Lu & Zhou 2017, Algorithm UCB-GLM, Theorem 2).

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

    hierarchy: Hierarchy
    _: KW_ONLY
    horizon: int | None = None
    delta: Any = None
    regularisation: Any = 1.0
    norm: Any = None
    context_norm: Any = 1.0
    slope: Any = None
    noise: Any = None
    width: Any = 1.0
    estimator: Laplace = field(init=False)
    model: ActionModel = field(init=False)

    def __post_init__(self):
        self._settle_shared()
        noise = (
            _sub_gaussian(self.hierarchy.reward, self.norm) if self.noise is None else self.noise
        )
        _set(self, noise=as_positive(noise, "UCBGLM noise"))

    def _bounds(
        self,
        predictor: Float[Array, " K"],
        uncertain: Float[Array, " K"],
        taken: Int[Array, ""],
    ) -> Float[Array, " K"]:
        n, log_odds = _horizon_and_log_odds(self, taken)
        d = self.hierarchy.dim
        alpha = self.noise / self.slope * jnp.sqrt(d / 2 * jnp.log1p(2 * n / d) + log_odds)
        return predictor + self.width * alpha * uncertain


register_declaration(
    UCBGLM,
    arrays=(
        "hierarchy",
        "delta",
        "regularisation",
        "norm",
        "context_norm",
        "slope",
        "noise",
        "width",
        "estimator",
        "model",
    ),
    static=("horizon",),
)


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

    hierarchy: Hierarchy
    _: KW_ONLY
    horizon: int | None = None
    delta: Any = None
    regularisation: Any = 1.0
    norm: Any = None
    context_norm: Any = 1.0
    slope: Any = None
    steepest: Any = None
    largest: Any = None
    width: Any = 1.0
    estimator: Laplace = field(init=False)
    model: ActionModel = field(init=False)

    def __post_init__(self):
        self._settle_shared()
        reward, reach = self.hierarchy.reward, self.norm * self.context_norm
        steepest = _slopes(reward, reach)[1] if self.steepest is None else self.steepest
        largest = _largest_reward(reward, reach) if self.largest is None else self.largest
        _set(self, steepest=as_positive(steepest, "GLMUCB steepest"))
        _set(self, largest=as_positive(largest, "GLMUCB largest"))

    def _bounds(
        self,
        predictor: Float[Array, " K"],
        uncertain: Float[Array, " K"],
        taken: Int[Array, ""],
    ) -> Float[Array, " K"]:
        n, log_odds = _horizon_and_log_odds(self, taken)
        d, t = self.hierarchy.dim, taken + 1.0
        kappa = jnp.sqrt(3 + 2 * jnp.log1p(2 * self.context_norm**2 / self.regularisation))
        rho = 2 * self.steepest * kappa * self.largest / self.slope
        rho *= jnp.sqrt(2 * d * jnp.log(t) * (jnp.log(2 * d * n) + log_odds))
        return self.hierarchy.reward.mean(predictor) + self.width * rho * uncertain


register_declaration(
    GLMUCB,
    arrays=(
        "hierarchy",
        "delta",
        "regularisation",
        "norm",
        "context_norm",
        "slope",
        "steepest",
        "largest",
        "width",
        "estimator",
        "model",
    ),
    static=("horizon",),
)


@jax.jit
def _glm_indices(policy: _GlmUcb, state: GlmUcbState, context: Array) -> Float[Array, " K"]:
    columns = _columns(context)
    predictor = dot(state.estimates.actions.center, columns)
    return policy._bounds(predictor, _norms(state.design, columns), state.estimates.taken)


@jax.jit
def _add_context(
    model: ActionModel, design: ActionState, context: Array, action: Array, changed: Array
) -> ActionState:
    x = jnp.where(changed, context, 0.0)  # which adds nothing
    return observe(model, design, x, action, jnp.zeros((), x.dtype))[0]


def _columns(context: Array) -> Float[Array, "d _"]:
    return context[:, None] if context.ndim == 1 else context.T


def _norms(design: ActionState, columns: Float[Array, "d #K"]) -> Float[Array, " K"]:
    """`|x|_{V_i^{-1}}` for every action, in one pass over the roots."""
    w = contract(design.root, columns)
    return jnp.sqrt(dot(w, w))


def _horizon_and_log_odds(policy: Any, taken: Array) -> tuple[Array, Array]:
    """`n` and `log(1 / delta)`, with their defaults: the current round and `1 / n`."""
    n = taken + 1.0 if policy.horizon is None else jnp.full((), float(policy.horizon))
    return n, jnp.log(n) if policy.delta is None else -jnp.log(policy.delta)


def _alone(hierarchy: Hierarchy, regularisation: Array, reward: Reward) -> Hierarchy:
    """Actions without parents, `theta_i ~ N(0, I / lambda)`."""
    actions = Level(hierarchy.actions.name, hierarchy.num_actions, cov=1.0 / regularisation)
    return Hierarchy([actions], reward, hierarchy.dim)


def _design(hierarchy: Hierarchy, regularisation: Array) -> ActionModel:
    """The model under which the covariance of `theta_i` is `V_i^{-1}`."""
    return action_model(_alone(hierarchy, regularisation, Gaussian(1.0)))


def _slopes(reward: Reward, reach: Array) -> tuple[Array, Array]:
    """The smallest and the largest `f'(u)` over `|u| <= reach`, on a grid with both ends and zero.

    Exact where `f'` has a single peak, at zero or outside, as for all families here. A slope that
    vanishes in the current precision counts as that precision's epsilon.
    """
    grid = jnp.linspace(-1.0, 1.0, 129) * reach
    slopes = jax.vmap(jax.grad(reward.mean))(grid)
    return jnp.maximum(slopes.min(), jnp.finfo(slopes.dtype).eps), slopes.max()


def _sub_gaussian(reward: Reward, reach: Array) -> Array:
    if isinstance(reward, Bernoulli):
        return jnp.full((), 0.5)
    if isinstance(reward, Gaussian):
        return reward.noise
    return jnp.sqrt(reward.law(jnp.asarray(reach)).variance)


def _largest_reward(reward: Reward, reach: Array) -> Array:
    if isinstance(reward, Bernoulli):
        return jnp.ones(())
    return reward.mean(reach) + 3 * jnp.sqrt(reward.law(jnp.asarray(reach)).variance)


def _typical_norm(hierarchy: Hierarchy) -> Float[Array, ""]:
    """The root of `E |theta_i|^2` under the prior, on average over actions."""
    moments, name = prior_moments(hierarchy), hierarchy.actions.name
    variance = jnp.trace(moments.cov[name], axis1=1, axis2=2)
    return jnp.sqrt(jnp.mean(jnp.square(moments.mean[name]).sum(1) + variance))


def _set(policy: Any, **values: Any) -> None:
    for name, value in values.items():
        object.__setattr__(policy, name, value)


def _settle(policy: Any) -> None:
    """Check what all three policies are told, and fill in defaults."""
    who, hierarchy = type(policy).__name__, policy.hierarchy
    if not isinstance(hierarchy, Hierarchy):
        raise TypeError(
            f"{who}: got {hierarchy!r}; expected a Hierarchy, such as linear(weights, dim)"
        )
    if getattr(hierarchy.reward, "is_learned", False):
        raise ValueError(
            f"{who}: the hierarchy's noise is learned ({hierarchy.reward!r}); declare "
            "Gaussian(<number>), the standard deviation to reckon with"
        )
    if policy.horizon is not None:
        _set(policy, horizon=as_count(policy.horizon, f"{who} horizon"))
    if policy.delta is not None:
        delta = as_positive(policy.delta, f"{who} delta")
        if is_concrete(delta) and float(delta) >= 1:
            raise ValueError(
                f"{who} delta is {float(delta):g}; expected a probability below 1, of the confidence "
                "bounds failing"
            )
        _set(policy, delta=delta)
    norm = _typical_norm(hierarchy) if policy.norm is None else policy.norm
    _set(
        policy,
        regularisation=as_positive(policy.regularisation, f"{who} regularisation"),
        norm=as_positive(norm, f"{who} norm"),
        width=as_positive(policy.width, f"{who} width"),
    )
