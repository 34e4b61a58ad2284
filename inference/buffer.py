"""A fixed-capacity record of observations, for backends that need them all and not only their sums."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from ..models.arrays import is_concrete
from .observation import can_be_used

__all__ = ["Buffer", "append", "empty", "insert", "record", "reserve", "rows_of", "sort"]


class Buffer(NamedTuple):
    """Observations by arrival or by action; rows from `taken` on are blank, with action -1.

    Its capacity is its shape, so nothing recompiles while it fills. `reserve` makes room, outside `jit`.
    """

    contexts: Float[Array, "capacity d"]
    actions: Int[Array, " capacity"]
    rewards: Float[Array, " capacity"]
    taken: Int[Array, ""]

    @property
    def capacity(self) -> int:
        """How many observations there is room for."""
        return self.rewards.shape[0]


def empty(capacity: int, dim: int) -> Buffer:
    """A buffer with room for `capacity` observations."""
    return Buffer(
        contexts=jnp.zeros((capacity, dim)),
        actions=jnp.full(capacity, -1, jnp.int32),
        rewards=jnp.zeros(capacity),
        taken=jnp.zeros((), jnp.int32),
    )


def reserve(buffer: Buffer, more: int) -> Buffer:
    """The same buffer with room for `more` observations: the capacity doubles until there is.

    Where the number taken is not known, inside `jit`, the shape cannot depend on it and the buffer
    stays as it is.
    """
    if not is_concrete(buffer.taken):
        return buffer
    needed, capacity = int(buffer.taken) + more, max(buffer.capacity, 1)
    while capacity < needed:
        capacity *= 2
    room = capacity - buffer.capacity
    if room == 0:
        return buffer
    return Buffer(
        contexts=jnp.pad(buffer.contexts, ((0, room), (0, 0))),
        actions=jnp.pad(buffer.actions, (0, room), constant_values=-1),
        rewards=jnp.pad(buffer.rewards, (0, room)),
        taken=buffer.taken,
    )


def append(
    buffer: Buffer,
    contexts: Float[Array, "n d"],
    actions: Int[Array, " n"],
    rewards: Float[Array, " n"],
    valid: Array,
) -> tuple[Buffer, Int[Array, ""]]:
    """Add the valid observations; also how many of them found no room."""
    place = buffer.taken + jnp.cumsum(valid, dtype=jnp.int32) - 1
    place = jnp.where(valid, place, buffer.capacity)  # past the end, where scatters drop it
    lost = jnp.sum(valid & (place >= buffer.capacity))
    kept = Buffer(
        contexts=buffer.contexts.at[place].set(contexts, mode="drop"),
        actions=buffer.actions.at[place].set(actions.astype(jnp.int32), mode="drop"),
        rewards=buffer.rewards.at[place].set(rewards, mode="drop"),
        taken=buffer.taken + valid.sum(dtype=jnp.int32) - lost.astype(jnp.int32),
    )
    return kept, lost


def record(
    buffer: Buffer,
    num_actions: int,
    contexts: Float[Array, "n d"],
    actions: Int[Array, " n"],
    rewards: Float[Array, " n"],
) -> tuple[Buffer, Int[Array, ""]]:
    """Add the observations that can be used; also how many were left out, for any reason."""
    valid = can_be_used(contexts, actions, rewards, num_actions)
    kept, lost = append(buffer, contexts, actions, rewards, valid)
    return kept, (~valid).sum(dtype=jnp.int32) + lost.astype(jnp.int32)


def insert(
    buffer: Buffer,
    context: Float[Array, " d"],
    action: Int[Array, ""],
    reward: Float[Array, ""],
    valid: Array,
) -> tuple[Buffer, Array]:
    """Add one observation, if valid, after the others of its action; also whether it found room.

    The rows must be in order of their actions. Those behind the new one move on by one, which is a
    pass over memory, so that whoever wants the rows of one action finds them side by side.
    """
    found_room = valid & (buffer.taken < buffer.capacity)
    place = jnp.where(found_room, rows_of(buffer, action)[1], buffer.capacity)
    before = jnp.arange(buffer.capacity) < place

    def put(column: Array, value: Array) -> Array:
        stays = before.reshape(-1, *[1] * (column.ndim - 1))
        moved = jnp.where(stays, column, jnp.roll(column, 1, axis=0))
        return moved.at[place].set(value.astype(column.dtype), mode="drop")

    grown = Buffer(
        contexts=put(buffer.contexts, context),
        actions=put(buffer.actions, action),
        rewards=put(buffer.rewards, reward),
        taken=buffer.taken + found_room,
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
    return Buffer(*rows, buffer.taken)
