"""What policies of upper confidence bounds share: a regression for each action on its own.

Every action has `V_i = lambda I + sum x x'` over the contexts it has met. Ridge regression is the
posterior mean of `theta_i ~ N(0, I / lambda)` under noise of variance one, of which `V_i^{-1}` is the
covariance; a regularised maximum of the likelihood is a mode under the same prior. So both come from
`mixts.inference`, one rank-one step a round, and nothing is inverted here.
"""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, TypeVar

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ...inference.gaussian.action_blocks import ActionState
from ...inference.gaussian.linear_model import ActionModel, action_model, contract, dot
from ...models import Bernoulli, Gaussian, Hierarchy, Level, Reward
from ...models.arrays import as_count, as_positive, is_concrete
from .baselines import prior_moments
from .policy import Policy

__all__ = [
    "Optimism",
    "actions_alone",
    "columns_of",
    "context_norms",
    "design_model",
    "horizon_and_log_odds",
    "put",
    "settle",
    "sub_gaussian",
]


State = TypeVar("State")


@dataclass(frozen=True, eq=False, repr=False)
class Optimism(Policy[State]):
    """The action with the highest upper confidence bound; what its settings mean, each policy says."""

    hierarchy: Hierarchy
    _: KW_ONLY
    horizon: int | None = None
    delta: Any = None
    regularisation: Any = 1.0
    norm: Any = None
    width: Any = 1.0
    model: ActionModel = field(init=False)

    @abstractmethod
    def indices(self, state: State, context: Any) -> Float[Array, " K"]:
        """The upper confidence bound of every action."""

    def scores(self, key: Array, state: State, context: Float[Array, "*K d"]) -> Float[Array, " K"]:
        """The upper confidence bounds; the key is not used."""
        return self.indices(state, context)

    def with_hierarchy(self, hierarchy: Hierarchy) -> "Optimism[State]":
        """The same bounds for other actions; `norm` and what follows from it stay what they are."""
        return replace(self, hierarchy=hierarchy)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.hierarchy!r})"


def columns_of(context: Array) -> Float[Array, "d _"]:
    """A context, one column for all actions or one for each."""
    return context[:, None] if context.ndim == 1 else context.T


def context_norms(design: ActionState, columns: Float[Array, "d #K"]) -> Float[Array, " K"]:
    """`|x|_{V_i^{-1}}` for every action, in one pass over the roots."""
    w = contract(design.root, columns)
    return jnp.sqrt(dot(w, w))


def horizon_and_log_odds(policy: Any, taken: Array) -> tuple[Array, Array]:
    """`n` and `log(1 / delta)`, with their defaults: the current round and `1 / n`."""
    n = taken + 1.0 if policy.horizon is None else jnp.full((), float(policy.horizon))
    return n, jnp.log(n) if policy.delta is None else -jnp.log(policy.delta)


def actions_alone(hierarchy: Hierarchy, regularisation: Array, reward: Reward) -> Hierarchy:
    """Actions without parents, `theta_i ~ N(0, I / lambda)`."""
    actions = Level(hierarchy.actions.name, hierarchy.num_actions, cov=1.0 / regularisation)
    return Hierarchy([actions], reward, hierarchy.dim)


def design_model(hierarchy: Hierarchy, regularisation: Array) -> ActionModel:
    """The model under which the covariance of `theta_i` is `V_i^{-1}`."""
    return action_model(actions_alone(hierarchy, regularisation, Gaussian(1.0)))


def sub_gaussian(reward: Reward, reach: Array) -> Array:
    """`sigma` for which rewards are sub-Gaussian around their mean, or nearly; see `LinUCB`."""
    if isinstance(reward, Bernoulli):
        return jnp.full((), 0.5)
    if isinstance(reward, Gaussian):
        return reward.noise
    return jnp.sqrt(reward.law(jnp.asarray(reach)).variance)


def _typical_norm(hierarchy: Hierarchy) -> Float[Array, ""]:
    """The root of `E |theta_i|^2` under the prior, on average over actions."""
    moments, name = prior_moments(hierarchy), hierarchy.actions.name
    variance = jnp.trace(moments.cov[name], axis1=1, axis2=2)
    return jnp.sqrt(jnp.mean(jnp.square(moments.mean[name]).sum(1) + variance))


def put(policy: Any, **values: Any) -> None:
    """Set what a frozen policy works out for itself while it is made."""
    for name, value in values.items():
        object.__setattr__(policy, name, value)


def settle(policy: Any) -> None:
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
        put(policy, horizon=as_count(policy.horizon, f"{who} horizon"))
    if policy.delta is not None:
        delta = as_positive(policy.delta, f"{who} delta")
        if is_concrete(delta) and float(delta) >= 1:
            raise ValueError(
                f"{who} delta is {float(delta):g}; expected a probability below 1, of the confidence "
                "bounds failing"
            )
        put(policy, delta=delta)
    norm = _typical_norm(hierarchy) if policy.norm is None else policy.norm
    put(
        policy,
        regularisation=as_positive(policy.regularisation, f"{who} regularisation"),
        norm=as_positive(norm, f"{who} norm"),
        width=as_positive(policy.width, f"{who} width"),
    )
