"""`ShardedMessages`: exact messages where each device of a mesh holds an equal share of the actions.

Scores need no care: what is computed for an action is computed where the action is. A reward concerns
one action, whose numbers are few. The device that holds it sends them to the others; all of them update
that action alone, and the levels above, of which each device has a copy; its own device keeps the result.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .levels import Levels
from .linear_model import ActionModel
from .messages import ExactMessages, GaussianState, Seen

__all__ = ["AXIS", "ShardedMessages", "split_first", "split_levels", "split_state"]

# The axis of a mesh that actions are spread over.
AXIS = "actions"

_WHOLE = PartitionSpec()


class ShardedMessages(ExactMessages):
    """Exact messages about actions that are spread over the axis 'actions' of a mesh.

    An `update` sends the numbers of one action from its device to the others, and nothing else.
    """

    mesh: Mesh = eqx.field(static=True)

    @property
    def why_no_new_actions(self) -> str:
        return (
            "its actions are shared out equally over devices. Add them to a backend that is not, and "
            "hand that to over_devices"
        )

    def init(self, levels: Levels, room: int) -> GaussianState:
        return _prior(self, levels, room)

    def update(self, levels: Levels, state: GaussianState, seen: Seen) -> GaussianState:
        of_levels, of_state = split_levels(levels), split_state(state)
        on_devices = jax.shard_map(
            lambda *shares: self._update_share(of_levels, of_state, *shares),
            mesh=self.mesh,
            in_specs=(of_levels, of_state, _WHOLE),
            out_specs=of_state,
        )
        return on_devices(levels, state, seen)

    def _update_share(
        self,
        of_levels: Levels,
        of_state: GaussianState,
        levels: Levels,
        state: GaussianState,
        seen: Seen,
    ) -> GaussianState:
        """What each device does, on its share of the actions."""
        size = state.actions.center.shape[-1]
        here = seen.action - size * jax.lax.axis_index(AXIS)
        is_own = (here >= 0) & (here < size)
        place = jnp.clip(here, 0, size - 1)

        def sent(share: Array, split: PartitionSpec) -> Array:
            """The action's part of an array, on every device."""
            if AXIS not in split:
                return share
            part = jax.lax.dynamic_slice_in_dim(share, place, 1, split.index(AXIS))
            # A sum with negative zeros is the number itself, to the bit and the sign of zero.
            none = jnp.array(-0.0 if jnp.issubdtype(part.dtype, jnp.floating) else 0, part.dtype)
            return jax.lax.psum(jnp.where(is_own, part, none), AXIS)

        def kept(share: Array, part: Array, split: PartitionSpec) -> Array:
            """An array with the action's new part, on its own device."""
            axis = split.index(AXIS)
            old = jax.lax.dynamic_slice_in_dim(share, place, 1, axis)
            new = jnp.where(is_own, part, old)
            return jax.lax.dynamic_update_slice_in_dim(share, new, place, axis)

        model = jax.tree.map(sent, levels.model, of_levels.model)
        alone = eqx.tree_at(lambda levels: levels.model, levels, _of_one(model))
        actions = jax.tree.map(sent, state.actions, of_state.actions)
        seen = seen._replace(action=jnp.where(seen.valid, 0, 1))
        after = super().update(alone, state._replace(actions=actions), seen)
        return after._replace(
            actions=jax.tree.map(kept, state.actions, after.actions, of_state.actions)
        )

    def condition(self, levels: Levels, state: GaussianState, seen: Seen) -> GaussianState:
        """One `update` after the other, so that no more is sent than they send."""

        def one(state: GaussianState, seen: Seen) -> tuple[GaussianState, None]:
            return self.update(levels, state, seen), None

        return jax.lax.scan(one, state, seen)[0]


@eqx.filter_jit
def _prior(messages: ShardedMessages, levels: Levels, room: int) -> GaussianState:
    state = ExactMessages.init(messages, levels, room)

    def placed(x: Array, split: PartitionSpec) -> Array:
        return jax.lax.with_sharding_constraint(x, NamedSharding(messages.mesh, split))

    return jax.tree.map(placed, state, split_state(state))


def _of_one(model: ActionModel) -> ActionModel:
    """The same model, whose arrays are of one action already."""
    return dataclasses.replace(model, num_actions=1)


def split_levels(levels: Levels) -> Levels:
    """In the place of each array, how it is split: the model of the actions, not the levels above."""
    K = levels.model.num_actions
    split = jax.tree.map(_last(K), levels.model)
    split = eqx.tree_at(lambda model: model.arrows, split, split_first(levels.model.arrows, K))
    whole = jax.tree.map(lambda _: _WHOLE, levels)
    return eqx.tree_at(lambda levels: levels.model, whole, split)


def split_state(state: GaussianState) -> GaussianState:
    """In the place of each array, how it is split: the actions, not the levels above."""
    actions = jax.tree.map(_last(state.actions.center.shape[-1]), state.actions)
    return jax.tree.map(lambda _: _WHOLE, state)._replace(actions=actions)


def split_first(tree: Any, K: int) -> Any:
    """In the place of each array, how it is split: along its first axis where that is the actions'."""
    return jax.tree.map(lambda x: PartitionSpec(AXIS) if jnp.shape(x)[:1] == (K,) else _WHOLE, tree)


def _last(K: int) -> Callable[[Array], PartitionSpec]:
    """How an array is split along its last axis, where that is the actions'."""

    def split(x: Array) -> PartitionSpec:
        axes = [None] * (x.ndim - 1)
        return PartitionSpec(*axes, AXIS) if x.shape[-1:] == (K,) else _WHOLE

    return split
