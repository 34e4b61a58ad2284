"""Observations given to a backend: converted, and checked by value where values are known."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from ..models.arrays import as_integers, as_numbers
from ..models.components import as_contexts
from ..models.data import Observations
from ..models.rewards import is_one

__all__ = [
    "PADDING",
    "Observation",
    "as_context",
    "can_be_used",
    "many_observations",
    "num_rejected",
    "one_observation",
    "own_context",
]

# Inside `jit`, a row with this action is none at all: neither used nor counted as rejected.
PADDING = -(2**31)


@runtime_checkable
class Problem(Protocol):
    """What observations must fit: a `Hierarchy`, or the `Target` of a program."""

    @property
    def dim(self) -> int: ...

    @property
    def num_actions(self) -> int: ...

    @property
    def components(self) -> Any: ...

    @property
    def takes_exposure(self) -> bool: ...

    def observations(
        self, contexts: Any, actions: Any, rewards: Any, exposure: Any = None
    ) -> Observations: ...


def as_context(problem: Problem, context: Any) -> Array:
    """A context as numbers: (d,) for all actions, or (K, d) with a row for each."""
    context = as_contexts(context, problem.components, "context")
    shared, each = (problem.dim,), (problem.num_actions, problem.dim)
    if context.shape not in (shared, each):
        raise ValueError(
            f"context has shape {context.shape}; expected {shared}, shared by all actions, or "
            f"{each}, a row for each"
        )
    return context


def own_context(context: Array, action: Array) -> Float[Array, " d"]:
    """The context of one action."""
    return context if context.ndim == 1 else context[jnp.clip(action, 0, context.shape[0] - 1)]


class Observation(NamedTuple):
    """One observation that fits a problem: the context of the chosen action, the action, the reward.

    An exposure of one is None, so that it costs nothing.
    """

    context: Float[Array, " d"]
    action: Int[Array, ""]
    reward: Float[Array, ""]
    exposure: Float[Array, ""] | None


def one_observation(
    problem: Problem, context: Any, action: Any, reward: Any, exposure: Any = None
) -> Observation:
    """One observation, checked."""
    action = as_integers(action, "action", below=problem.num_actions)
    reward = as_numbers(reward, "reward")
    exposure = None if is_one(exposure) else as_numbers(exposure, "exposure")
    if action.shape or reward.shape:
        raise ValueError(
            f"action has shape {action.shape} and reward {reward.shape}; expected one of each. "
            "Use condition(state, contexts, actions, rewards) for many observations"
        )
    if exposure is not None and exposure.shape:
        raise ValueError(f"exposure has shape {exposure.shape}; expected one number, as the reward")
    context = own_context(as_context(problem, context), action)
    exposed = () if exposure is None else (exposure[None],)
    checked = problem.observations(context[None], action[None], reward[None], *exposed)
    assert checked.rewards is not None
    found = None if checked.exposure is None else checked.exposure[0]
    return Observation(checked.contexts[0], checked.actions[0], checked.rewards[0], found)


def many_observations(
    problem: Problem, contexts: Any, actions: Any, rewards: Any, exposure: Any = None
) -> Observations:
    """Many observations, checked; contexts are (n, d) or (n, K, d)."""
    contexts = as_contexts(contexts, problem.components, "contexts")
    if contexts.ndim == 3:
        K, dim = problem.num_actions, problem.dim
        if contexts.shape[1:] != (K, dim):
            raise ValueError(
                f"contexts have shape {contexts.shape}; expected (n, {dim}) or (n, {K}, {dim}), a row "
                "for each action"
            )
        actions = as_integers(actions, "actions", below=K)
        if actions.shape == contexts.shape[:1]:
            here = jnp.clip(actions, 0, K - 1)
            contexts = jnp.take_along_axis(contexts, here[:, None, None], axis=1)[:, 0]
    return problem.observations(
        contexts, actions, rewards, *(() if exposure is None else (exposure,))
    )


def can_be_used(
    contexts: Float[Array, "*n d"],
    actions: Int[Array, "*n"],
    rewards: Float[Array, "*n"],
    K: int,
    exposure: Float[Array, "*n"] | None = None,
) -> Bool[Array, "*n"]:
    """Which observations have an action in range and finite numbers; the check inside `jit`."""
    finite = jnp.isfinite(rewards) & jnp.isfinite(contexts).all(-1)
    if exposure is not None:
        finite &= jnp.isfinite(exposure) & (exposure > 0)
    return finite & (actions >= 0) & (actions < K)


def num_rejected(actions: Int[Array, " n"], valid: Bool[Array, " n"]) -> Int[Array, ""]:
    """How many observations cannot be used; rows of padding are none."""
    return jnp.sum(~valid & (actions != PADDING), dtype=jnp.int32)
