"""Upper confidence bounds with a separate regression for each action; `LinUCB`, with ridge regressions.

Every action has `V_i = lambda I + sum x x'` over the contexts in which it was chosen. Ridge regression
is the posterior mean of `theta_i ~ N(0, I / lambda)` under noise of variance one, and `V_i^{-1}` its
covariance; a regularised maximum of the likelihood is a mode under the same prior. So both come from
`mixts.inference`, with one rank-one step a round.
"""

from abc import abstractmethod
from dataclasses import KW_ONLY
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from ...inference import Status, Trouble
from ...inference.gaussian.action_blocks import ActionState, no_data, observe
from ...inference.gaussian.linear_model import ActionModel, action_model, contract, dot
from ...inference.observation import as_context, can_be_used, one_observation
from ...models import Bernoulli, Gaussian, Hierarchy, Level, Reward
from ...models.arrays import as_count, as_positive, is_concrete
from ...models.messages import short
from .baselines import check_hierarchy, prior_moments
from .policy import Policy

__all__ = ["LinUCB", "LinUcbState", "Optimism", "sub_gaussian"]

State = TypeVar("State")


class Optimism(Policy[State]):
    """The action with the highest upper confidence bound; for its arguments see `LinUCB`."""

    hierarchy: Hierarchy
    _: KW_ONLY
    horizon: int | None = eqx.field(default=None, static=True)
    delta: Any = None
    regularisation: Any = 1.0
    norm: Any = None
    width: Any = 1.0

    def __post_init__(self):
        who, hierarchy = type(self).__name__, self.hierarchy
        check_hierarchy(hierarchy, who)
        if hierarchy.reward.is_learned:
            raise ValueError(
                f"{who}: the hierarchy's noise is learned ({short(hierarchy.reward)}); declare "
                "Gaussian(<number>), the standard deviation to assume, or known cut points"
            )
        if self.horizon is not None:
            self.horizon = as_count(self.horizon, f"{who} horizon")
        if self.delta is not None:
            self.delta = as_positive(self.delta, f"{who} delta")
            if is_concrete(self.delta) and float(self.delta) >= 1:
                raise ValueError(
                    f"{who} delta is {float(self.delta):g}; expected a probability below 1, of the "
                    "confidence bounds failing"
                )
        self.norm = _typical_norm(hierarchy) if self.norm is None else self.norm
        for name in ("regularisation", "norm", "width"):
            setattr(self, name, as_positive(getattr(self, name), f"{who} {name}"))

    def prior(self, reward: Reward) -> Hierarchy:
        """Actions without parents, `theta_i ~ N(0, I / lambda)`."""
        name, K = self.hierarchy.actions.name, self.hierarchy.num_actions
        return Hierarchy(
            [Level(name, K, cov=1.0 / self.regularisation)], reward, self.hierarchy.dim
        )

    @property
    def model(self) -> ActionModel:
        """The model under which the covariance of `theta_i` is `V_i^{-1}`."""
        return action_model(self.prior(Gaussian(1.0)))

    @abstractmethod
    def indices(self, state: State, context: Any) -> Float[Array, " K"]:
        """The upper confidence bound of every action."""

    def scores(self, key: Array, state: State, context: Float[Array, "*K d"]) -> Float[Array, " K"]:
        """The upper confidence bounds; the key is not used."""
        return self.indices(state, context)

    def with_hierarchy(self, hierarchy: Hierarchy) -> "Optimism[State]":
        """The same bounds for other actions, with the same `norm` and what follows from it."""
        return self.remade(hierarchy=hierarchy)

    def estimates_and_norms(
        self, center: Array, root: Array, context: Float[Array, "*K d"]
    ) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
        """`x' theta_i` and `|x|_{V_i^{-1}}` for every action, in one pass over the roots."""
        columns = context[:, None] if context.ndim == 1 else context.T
        w = contract(root, columns)
        return dot(center, columns), jnp.sqrt(dot(w, w))

    def horizon_and_log_odds(self, observed: Array) -> tuple[Array, Array]:
        """`n` and `log(1 / delta)`, with their defaults: the current round and `1 / n`."""
        n = observed + 1.0 if self.horizon is None else jnp.full((), float(self.horizon))
        return n, jnp.log(n) if self.delta is None else -jnp.log(self.delta)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.hierarchy!r})"


def _typical_norm(hierarchy: Hierarchy) -> Float[Array, ""]:
    """The root of `E |theta_i|^2` under the prior, on average over actions."""
    moments, name = prior_moments(hierarchy), hierarchy.actions.name
    variance = jnp.trace(moments.cov[name], axis1=1, axis2=2)
    return jnp.sqrt(jnp.mean(jnp.square(moments.mean[name]).sum(1) + variance))


def sub_gaussian(reward: Reward, reach: Array) -> Array:
    """`sigma` for which rewards are sub-Gaussian around their mean, or nearly; see `LinUCB`."""
    if isinstance(reward, Bernoulli):
        return jnp.full((), 0.5)
    if isinstance(reward, Gaussian):
        return reward.noise
    return jnp.sqrt(reward.law(jnp.asarray(reach)).variance)


class LinUcbState(NamedTuple):
    """Every action's ridge regression.

    Attributes:
        actions: its estimate (`center`) and a square root of `V_i^{-1}` (`root`), actions last.
        log_det: (K,) `log det(V_i) - log det(lambda I)`.
        observed: the number of observations.
        rejected: the number of observations ignored inside `jit`.
    """

    actions: ActionState
    log_det: Float[Array, " K"]
    observed: Int[Array, ""]
    rejected: Int[Array, ""]


class LinUCB(Optimism[LinUcbState]):
    """`x' theta_i + sqrt(beta_i) |x|_{V_i^{-1}}` (Abbasi-Yadkori, Pal & Szepesvari 2011, Thm. 2).

    `theta_i` is the ridge estimate, and

        sqrt(beta_i) = sigma sqrt(2 log(det(V_i)^{1/2} det(lambda I)^{-1/2} / delta)) + sqrt(lambda) S

    makes `|theta_i - theta_{*,i}|_{V_i} <= sqrt(beta_i)` for all rounds with probability `1 - delta`,
    action by action. A round costs O(K d^2), an update O(d^2).

    Args:
        hierarchy: the agent's model.
        horizon: `n`. By default the current round, so that no horizon is needed.
        delta: default `1 / n`.
        regularisation: `lambda`.
        norm: `S`, an upper bound of `|theta_{*,i}|`; by default the root of `E |theta_i|^2` under the
            hierarchy's prior, on average over actions: a typical norm, not a certain bound.
        noise: `sigma`: rewards are `sigma`-sub-Gaussian around their mean. By default the standard
            deviation of Gaussian rewards, 1/2 of clicks (Hoeffding's lemma), and of others their
            standard deviation at the predictor `S`.
        width: what `sqrt(beta_i)` is multiplied by.

    Example:
        >>> from mixts.bandit import LinUCB
        >>> from mixts.models import linear
        >>> policy = LinUCB(linear([[1.0], [0.5]], dim=2), delta=0.05, norm=1.0)
        >>> round(float(policy.indices(policy.init(jax.random.key(0)), [1.0, 0.0])[0]), 2)
        3.45
    """

    _: KW_ONLY
    noise: Any = None

    def __post_init__(self):
        super().__post_init__()
        noise = sub_gaussian(self.hierarchy.reward, self.norm) if self.noise is None else self.noise
        self.noise = as_positive(noise, "LinUCB noise")

    def init(self, key: Array, *, room: int = 0) -> LinUcbState:
        """No data; nothing is drawn and no room is needed."""
        none = jnp.zeros((), jnp.int32)
        log_det = jnp.zeros(self.hierarchy.num_actions, self.model.root.dtype)
        return LinUcbState(no_data(self.model), log_det, none, none)

    def indices(self, state: LinUcbState, context: Any) -> Float[Array, " K"]:
        """The upper confidence bound of every action's `x' theta_i`."""
        return _linear_indices(self, state, as_context(self.hierarchy, context))

    def update(self, state: LinUcbState, context: Any, action: Any, reward: Any) -> LinUcbState:
        """One more observation: a rank-one step of its action's regression."""
        seen = one_observation(self.hierarchy, context, action, reward)
        return _regress(self, state, seen.context, seen.action, seen.reward)

    def status(self, state: LinUcbState) -> Status:
        """Observations that were ignored."""
        return Status({Trouble.REJECTED: state.rejected})


@jax.jit
def _linear_indices(policy: LinUCB, state: LinUcbState, context: Array) -> Float[Array, " K"]:
    center, root = state.actions.center, state.actions.root
    estimates, norms = policy.estimates_and_norms(center, root, context)
    _, log_odds = policy.horizon_and_log_odds(state.observed)
    # 2 log(det(V)^{1/2} det(lambda I)^{-1/2} / delta)
    radius = policy.noise * jnp.sqrt(state.log_det + 2 * log_odds)
    radius += jnp.sqrt(policy.regularisation) * policy.norm
    return estimates + policy.width * radius * norms


@jax.jit
def _regress(
    policy: LinUCB, state: LinUcbState, context: Array, action: Array, reward: Array
) -> LinUcbState:
    valid = can_be_used(context, action, reward, policy.model.num_actions)
    x, y = jnp.where(valid, context, 0.0), jnp.where(valid, reward, 0.0)
    actions, seen = observe(policy.model, state.actions, x, jnp.where(valid, action, -1), y)
    # det(V + x x') / det(V) = 1 + x' V^{-1} x, the variance of the observation.
    log_det = state.log_det.at[seen.action].add(jnp.log(seen.variance), mode="drop")
    return LinUcbState(actions, log_det, state.observed + valid, state.rejected + ~valid)
