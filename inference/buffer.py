"""A fixed-capacity record of observations, for backends that need them all and not only their sums."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from ..models.arrays import is_concrete
from .observation import can_be_used, num_rejected

__all__ = [
    "Buffer",
    "append",
    "buffers_in",
    "empty",
    "insert",
    "is_buffer",
    "record",
    "reserve",
    "rows_of",
    "sort",
    "widen",
]

_BLOCK = 8192  # rows moved at a time
_BLANK = 0, -1, 0, 1  # a blank row: context, action, reward, exposure


class Buffer(NamedTuple):
    """Observations in order of arrival or of actions, then blank rows, whose action is -1.

    Its capacity is its shape, so nothing recompiles while it fills. `reserve` makes room, outside `jit`.
    Where rewards have no exposure it keeps none; where they have, blank rows have an exposure of one.
    """

    contexts: Float[Array, "capacity d"]
    actions: Int[Array, " capacity"]
    rewards: Float[Array, " capacity"]
    num_observations: Int[Array, ""]
    exposure: Float[Array, " capacity"] | None = None

    @property
    def columns(self) -> tuple[Array, ...]:
        """Contexts, actions, rewards and, where it is kept, exposure."""
        rows = self.contexts, self.actions, self.rewards
        return rows if self.exposure is None else (*rows, self.exposure)

    def with_columns(
        self, columns: tuple[Array, ...], num_observations: Int[Array, ""]
    ) -> "Buffer":
        """A buffer of other columns, in the order of `columns`."""
        contexts, actions, rewards, *exposure = columns
        return Buffer(contexts, actions, rewards, num_observations, *exposure)

    @property
    def capacity(self) -> int:
        """How many observations it can hold."""
        return self.rewards.shape[0]


def is_buffer(part: Any) -> bool:
    """Whether a part of a state is a buffer; for `is_leaf`."""
    return isinstance(part, Buffer)


def buffers_in(state: Any) -> list[Buffer]:
    """The buffers in which a state keeps observations."""
    return [part for part in jax.tree.leaves(state, is_leaf=is_buffer) if is_buffer(part)]


def empty(capacity: int, dim: int, *, exposure: bool = False) -> Buffer:
    """A buffer with room for `capacity` observations, and perhaps for their exposure."""
    return Buffer(
        contexts=jnp.zeros((capacity, dim)),
        actions=jnp.full(capacity, -1, jnp.int32),
        rewards=jnp.zeros(capacity),
        num_observations=jnp.zeros((), jnp.int32),
        exposure=jnp.ones(capacity) if exposure else None,
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
    return widen(buffer, capacity)


def widen(buffer: Buffer, capacity: int) -> Buffer:
    """The same observations with room for `capacity` in all; works inside `jit`."""
    room = capacity - buffer.capacity
    if room == 0:
        return buffer
    columns = tuple(
        jnp.pad(column, ((0, room), *[(0, 0)] * (column.ndim - 1)), constant_values=blank)
        for column, blank in zip(buffer.columns, _BLANK, strict=False)
    )
    return buffer.with_columns(columns, buffer.num_observations)


def append(
    buffer: Buffer,
    contexts: Float[Array, "n d"],
    actions: Int[Array, " n"],
    rewards: Float[Array, " n"],
    valid: Array,
    exposure: Float[Array, " n"] | None = None,
) -> tuple[Buffer, Int[Array, ""]]:
    """Add the valid observations; also how many of them found no room."""
    place = buffer.num_observations + jnp.cumsum(valid, dtype=jnp.int32) - 1
    place = jnp.where(valid, place, buffer.capacity)  # past the end, where scatters drop it
    lost = jnp.sum(valid & (place >= buffer.capacity))
    added = valid.sum(dtype=jnp.int32) - lost.astype(jnp.int32)
    columns = _put(buffer, buffer.columns, place, (contexts, actions, rewards), exposure)
    return buffer.with_columns(columns, buffer.num_observations + added), lost


def _put(
    buffer: Buffer,
    columns: tuple[Array, ...],
    place: Array,
    rows: tuple[Array, Array, Array],
    exposure: Array | None,
) -> tuple[Array, ...]:
    """Columns with rows in some places; those past the end are dropped."""
    if buffer.exposure is None and exposure is not None:
        raise ValueError("exposure: this state keeps none; its family of rewards has no exposure")
    values = (*rows, jnp.ones(()) if exposure is None else exposure)
    return tuple(
        column.at[place].set(value.astype(column.dtype), mode="drop")
        for column, value in zip(columns, values, strict=False)
    )


def record(
    buffer: Buffer,
    num_actions: int,
    contexts: Float[Array, "n d"],
    actions: Int[Array, " n"],
    rewards: Float[Array, " n"],
    exposure: Float[Array, " n"] | None = None,
) -> tuple[Buffer, Int[Array, ""]]:
    """Add the observations that can be used; also how many were rejected, for any reason."""
    valid = can_be_used(contexts, actions, rewards, num_actions, exposure)
    extended, lost = append(buffer, contexts, actions, rewards, valid, exposure)
    return extended, num_rejected(actions, valid) + lost.astype(jnp.int32)


def insert(
    buffer: Buffer,
    context: Float[Array, " d"],
    action: Int[Array, ""],
    reward: Float[Array, ""],
    valid: Array,
    exposure: Float[Array, ""] | None = None,
) -> tuple[Buffer, Array]:
    """Add one observation, if valid, after the others of its action; also whether it was added.

    The rows must be in order of their actions, and stay so: those of one action are side by side.
    Rows after the new one move by one place, those that there are and no blank ones, in place.
    """
    capacity, last = buffer.capacity, buffer.num_observations
    found_room = valid & (last < capacity)
    place = jnp.where(found_room, rows_of(buffer, action)[1], capacity)
    block = min(_BLOCK, capacity)

    def move(i: Array, columns: tuple[Array, ...]) -> tuple[Array, ...]:
        """Rows of one block, from the last on, take the values of the rows before them."""
        start = jnp.clip(last + 1 - (i + 1) * block, 0, capacity - block)
        rows = start + jnp.arange(block)
        moves = (rows > place) & (rows <= last - i * block)
        return tuple(_moved(column, start, moves) for column in columns)

    if block == capacity:  # one pass, which is faster than a loop where many buffers are one array
        moves = jnp.arange(capacity) > place
        columns = tuple(_where(moves, jnp.roll(part, 1, axis=0), part) for part in buffer.columns)
    else:
        blocks = -(-jnp.where(found_room, last - place, 0) // block)
        columns = jax.lax.fori_loop(0, blocks, move, buffer.columns)
    columns = _put(buffer, columns, place, (context, action, reward), exposure)
    return buffer.with_columns(columns, last + found_room), found_room


def _moved(column: Array, start: Int[Array, ""], moves: Array) -> Array:
    """A column in which rows from `start` on have, where they move, the values of those before."""
    block = len(moves)
    here = jax.lax.dynamic_slice_in_dim(column, start, block)
    before = jax.lax.dynamic_slice_in_dim(column, jnp.maximum(start - 1, 0), block)
    before = jnp.where(start > 0, before, jnp.roll(before, 1, axis=0))
    return jax.lax.dynamic_update_slice_in_dim(column, _where(moves, before, here), start, 0)


def _where(rows: Array, these: Array, those: Array) -> Array:
    """The given rows of one column, the others of another."""
    return jnp.where(rows.reshape(-1, *[1] * (these.ndim - 1)), these, those)


def rows_of(buffer: Buffer, action: Int[Array, ""]) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """The first row of an action and the one after its last, in a buffer in order of actions."""

    def first_from(action: Int[Array, ""]) -> Int[Array, ""]:
        """The first row of this action or a later one: each step halves where it can be."""

        def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = ends
            middle = (low + high) // 2
            is_before = buffer.actions[middle] < action
            after, upto = jnp.where(is_before, middle + 1, low), jnp.where(is_before, high, middle)
            return jnp.where(low < high, after, low), jnp.where(low < high, upto, high)

        ends = jnp.zeros_like(buffer.num_observations), buffer.num_observations
        return jax.lax.fori_loop(0, buffer.capacity.bit_length(), halve, ends)[0]

    return first_from(action), first_from(action + 1)


def sort(buffer: Buffer) -> Buffer:
    """The same observations in order of their actions, blank rows last."""
    last = jnp.iinfo(buffer.actions.dtype).max
    order = jnp.argsort(jnp.where(buffer.actions < 0, last, buffer.actions), stable=True)
    columns = tuple(column[order] for column in buffer.columns)
    return buffer.with_columns(columns, buffer.num_observations)
