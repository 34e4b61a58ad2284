"""A fixed-capacity record of observations, for backends that need them all and not only their sums."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from ..models.arrays import is_concrete
from .observation import can_be_used

__all__ = ["Buffer", "append", "empty", "insert", "record", "reserve", "rows_of", "sort"]


class Buffer(NamedTuple):
    """Observations in order of arrival or of actions, then blank rows, whose action is -1.

    Its capacity is its shape, so nothing recompiles while it fills. `reserve` makes room, outside `jit`.
    """

    contexts: Float[Array, "capacity d"]
    actions: Int[Array, " capacity"]
    rewards: Float[Array, " capacity"]
    num_observations: Int[Array, ""]

    @property
    def capacity(self) -> int:
        """How many observations it can hold."""
        return self.rewards.shape[0]


def empty(capacity: int, dim: int) -> Buffer:
    """A buffer with room for `capacity` observations."""
    return Buffer(
        contexts=jnp.zeros((capacity, dim)),
        actions=jnp.full(capacity, -1, jnp.int32),
        rewards=jnp.zeros(capacity),
        num_observations=jnp.zeros((), jnp.int32),
    )


def reserve(buffer: Buffer, more: int) -> Buffer:
    """The same buffer with room for `more` observations: the capacity doubles until there is.

    Inside `jit` the number of observations is not known, so the buffer stays as it is.
    """
    if not is_concrete(buffer.num_observations):
        return buffer
    needed, capacity = int(buffer.num_observations) + more, max(buffer.capacity, 1)
    while capacity < needed:
        capacity *= 2
    room = capacity - buffer.capacity
    if room == 0:
        return buffer
    return Buffer(
        contexts=jnp.pad(buffer.contexts, ((0, room), (0, 0))),
        actions=jnp.pad(buffer.actions, (0, room), constant_values=-1),
        rewards=jnp.pad(buffer.rewards, (0, room)),
        num_observations=buffer.num_observations,
    )


def append(
    buffer: Buffer,
    contexts: Float[Array, "n d"],
    actions: Int[Array, " n"],
    rewards: Float[Array, " n"],
    valid: Array,
) -> tuple[Buffer, Int[Array, ""]]:
    """Add the valid observations; also how many of them found no room."""
    place = buffer.num_observations + jnp.cumsum(valid, dtype=jnp.int32) - 1
    place = jnp.where(valid, place, buffer.capacity)  # past the end, where scatters drop it
    lost = jnp.sum(valid & (place >= buffer.capacity))
    added = valid.sum(dtype=jnp.int32) - lost.astype(jnp.int32)
    extended = Buffer(
        contexts=buffer.contexts.at[place].set(contexts, mode="drop"),
        actions=buffer.actions.at[place].set(actions.astype(jnp.int32), mode="drop"),
        rewards=buffer.rewards.at[place].set(rewards, mode="drop"),
        num_observations=buffer.num_observations + added,
    )
    return extended, lost


def record(
    buffer: Buffer,
    num_actions: int,
    contexts: Float[Array, "n d"],
    actions: Int[Array, " n"],
    rewards: Float[Array, " n"],
) -> tuple[Buffer, Int[Array, ""]]:
    """Add the observations that can be used; also how many were rejected, for any reason."""
    valid = can_be_used(contexts, actions, rewards, num_actions)
    extended, lost = append(buffer, contexts, actions, rewards, valid)
    return extended, (~valid).sum(dtype=jnp.int32) + lost.astype(jnp.int32)


def insert(
    buffer: Buffer,
    context: Float[Array, " d"],
    action: Int[Array, ""],
    reward: Float[Array, ""],
    valid: Array,
) -> tuple[Buffer, Array]:
    """Add one observation, if valid, after the others of its action; also whether it was added.

    The rows must be in order of their actions, and stay so: those of one action are side by side.
    Rows after the new one move by one place, which is one pass over memory.
    """
    found_room = valid & (buffer.num_observations < buffer.capacity)
    place = jnp.where(found_room, rows_of(buffer, action)[1], buffer.capacity)
    before = jnp.arange(buffer.capacity) < place

    def inserted(column: Array, value: Array) -> Array:
        stays = before.reshape(-1, *[1] * (column.ndim - 1))
        moved = jnp.where(stays, column, jnp.roll(column, 1, axis=0))
        return moved.at[place].set(value.astype(column.dtype), mode="drop")

    grown = Buffer(
        contexts=inserted(buffer.contexts, context),
        actions=inserted(buffer.actions, action),
        rewards=inserted(buffer.rewards, reward),
        num_observations=buffer.num_observations + found_room,
    )
    return grown, found_room


def rows_of(buffer: Buffer, action: Int[Array, ""]) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """The first row of an action and the one after its last, in a buffer in order of actions."""
    before = (buffer.actions >= 0) & (buffer.actions < action)
    start = jnp.sum(before, dtype=jnp.int32)
    return start, start + jnp.sum(buffer.actions == action, dtype=jnp.int32)


def sort(buffer: Buffer) -> Buffer:
    """The same observations in order of their actions, blank rows last."""
    last = jnp.iinfo(buffer.actions.dtype).max
    order = jnp.argsort(jnp.where(buffer.actions < 0, last, buffer.actions), stable=True)
    rows = buffer.contexts[order], buffer.actions[order], buffer.rewards[order]
    return Buffer(*rows, buffer.num_observations)
