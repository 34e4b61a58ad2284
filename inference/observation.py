"""Observations on their way into a backend: converted and checked while their values are known."""

from typing import Any

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ..models import Hierarchy
from ..models.arrays import as_integers, as_numbers
from ..models.data import Observations

__all__ = ["as_context", "many_observations", "one_observation", "own_context"]


def as_context(hierarchy: Hierarchy, context: Any) -> Array:
    """A context as numbers: (d,) for all actions, or (K, d) with a row for each."""
    context = as_numbers(context, "context")
    shared, each = (hierarchy.dim,), (hierarchy.num_actions, hierarchy.dim)
    if context.shape not in (shared, each):
        raise ValueError(
            f"context has shape {context.shape}; expected {shared}, shared by all actions, or "
            f"{each}, a row for each"
        )
    return context


def own_context(context: Array, action: Array) -> Float[Array, " d"]:
    """The context that an action met."""
    return context if context.ndim == 1 else context[jnp.clip(action, 0, context.shape[0] - 1)]


def one_observation(
    hierarchy: Hierarchy, context: Any, action: Any, reward: Any
) -> tuple[Array, Array, Array]:
    """One observation, checked: the context of the chosen action, the action, the reward."""
    action = as_integers(action, "action", below=hierarchy.num_actions)
    reward = as_numbers(reward, "reward")
    if action.shape or reward.shape:
        raise ValueError(
            f"action has shape {action.shape} and reward {reward.shape}; expected one of each. "
            "Use condition(state, contexts, actions, rewards) for many observations"
        )
    context = own_context(as_context(hierarchy, context), action)
    checked = hierarchy.observations(context[None], action[None], reward[None])
    assert checked.rewards is not None
    return checked.contexts[0], checked.actions[0], checked.rewards[0]


def many_observations(
    hierarchy: Hierarchy, contexts: Any, actions: Any, rewards: Any
) -> Observations:
    """Many observations, checked; contexts are (n, d) or (n, K, d)."""
    contexts = as_numbers(contexts, "contexts")
    if contexts.ndim == 3:
        K, dim = hierarchy.num_actions, hierarchy.dim
        if contexts.shape[1:] != (K, dim):
            raise ValueError(
                f"contexts have shape {contexts.shape}; expected (n, {dim}) or (n, {K}, {dim}), a row "
                "for each action"
            )
        actions = as_integers(actions, "actions", below=K)
        if actions.shape == contexts.shape[:1]:
            here = jnp.clip(actions, 0, K - 1)
            contexts = jnp.take_along_axis(contexts, here[:, None, None], axis=1)[:, 0]
    return hierarchy.observations(contexts, actions, rewards)
