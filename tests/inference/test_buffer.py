"""A record of fixed capacity: rows in order of arrival, none overwritten, those without room counted."""

import jax
import jax.numpy as jnp
import numpy as np

from mixts.inference.buffer import append as append_rows
from mixts.inference.buffer import empty, insert, record, reserve, rows_of, sort

DIM = 2

append = jax.jit(append_rows)


def batch(first: int, n: int, valid=None):
    """Rows that tell one another apart: row `i` has the context (i, -i), action i and reward i + 0.5."""
    i = np.arange(first, first + n)
    mask = np.ones(n, bool) if valid is None else np.asarray(valid)
    rows = np.stack([i, -i], axis=1).astype(float), i.astype(np.int32), i + 0.5, mask
    return tuple(map(jnp.asarray, rows))


def assert_holds(buffer, rows):
    """Exactly these rows, in this order, and blanks after them."""
    rows, n = np.asarray(rows), len(rows)
    assert int(buffer.num_observations) == n
    np.testing.assert_array_equal(buffer.actions[:n], rows)
    np.testing.assert_array_equal(buffer.rewards[:n], rows + 0.5)
    np.testing.assert_array_equal(buffer.contexts[:n], np.stack([rows, -rows], axis=1))
    np.testing.assert_array_equal(buffer.actions[n:], -1)
    np.testing.assert_array_equal(buffer.rewards[n:], 0.0)
    np.testing.assert_array_equal(buffer.contexts[n:], 0.0)


def test_an_empty_buffer_is_blank(precision):
    buffer = empty(4, DIM)
    assert_holds(buffer, [])
    assert buffer.capacity == 4
    assert buffer.contexts.dtype == buffer.rewards.dtype == precision


def test_rows_come_in_order_of_arrival():
    buffer, lost = append(empty(8, DIM), *batch(0, 3))
    assert int(lost) == 0
    buffer, lost = append(buffer, *batch(3, 2))
    assert int(lost) == 0
    assert_holds(buffer, range(5))


def test_rows_that_are_not_valid_leave_no_gap():
    buffer, _ = append(empty(8, DIM), *batch(0, 2))
    buffer, lost = append(buffer, *batch(2, 5, [False, True, False, False, True]))
    assert int(lost) == 0
    assert_holds(buffer, [0, 1, 3, 6])


def test_no_valid_rows_change_nothing():
    before, _ = append(empty(4, DIM), *batch(0, 2))
    after, lost = append(before, *batch(2, 3, [False] * 3))
    assert int(lost) == 0
    assert_holds(after, [0, 1])


def test_rows_without_room_are_counted_and_overwrite_nothing():
    """Of five valid rows two fit; of three more none do. An invalid row is not lost: it never came."""
    buffer, _ = append(empty(4, DIM), *batch(0, 2))
    buffer, lost = append(buffer, *batch(2, 6, [True, True, False, True, True, True]))
    assert int(lost) == 3
    assert_holds(buffer, range(4))
    buffer, lost = append(buffer, *batch(8, 3))
    assert int(lost) == 3
    assert_holds(buffer, range(4))


def test_reserve_doubles_until_there_is_room():
    buffer, _ = append(empty(3, DIM), *batch(0, 2))
    assert reserve(buffer, 1).capacity == 3
    assert reserve(buffer, 2).capacity == 6
    assert reserve(buffer, 5).capacity == 12
    grown = reserve(buffer, 5)
    assert_holds(grown, range(2))
    assert_holds(append(grown, *batch(2, 10))[0], range(12))


def test_reserve_leaves_a_traced_buffer_alone():
    """Inside jit the shape cannot follow the number of rows, so what has no room is lost and counted."""

    @jax.jit
    def fill(buffer):
        buffer = reserve(buffer, 10)
        assert buffer.capacity == 3
        return append(buffer, *batch(0, 10))

    buffer, lost = fill(empty(3, DIM))
    assert int(lost) == 7
    assert_holds(buffer, range(3))


def test_record_leaves_out_what_cannot_be_used():
    """Of six rows one has a NaN for a reward, one an infinite context, one no action; one has no room."""
    contexts, actions, rewards, _ = batch(0, 6)
    rewards = rewards.at[0].set(jnp.nan)
    contexts = contexts.at[2, 1].set(jnp.inf)
    buffer, left_out = record(empty(2, DIM), 5, contexts, actions, rewards)
    assert int(left_out) == 4
    assert_holds(buffer, [1, 3])


def in_order(pairs, capacity):
    """A buffer that took in (action, reward) pairs one by one, and those it had no room for."""
    buffer, lost = empty(capacity, DIM), []
    add = jax.jit(insert)
    for action, reward in pairs:
        context = jnp.asarray([reward, -reward])
        buffer, found_room = add(buffer, context, jnp.int32(action), jnp.asarray(reward), True)
        if not found_room:
            lost.append((action, reward))
    return buffer, lost


def test_rows_inserted_stand_in_order_of_their_actions():
    pairs = [(2, 1.5), (0, 2.5), (2, 3.5), (1, 4.5), (0, 5.5)]
    buffer, lost = in_order(pairs, 7)
    assert not lost
    expected = sorted(pairs, key=lambda pair: pair[0])  # stable: by arrival within an action
    rewards = [reward for _, reward in expected]
    assert np.asarray(buffer.actions).tolist() == [0, 0, 1, 2, 2, -1, -1]
    assert np.asarray(buffer.rewards).tolist() == [*rewards, 0.0, 0.0]
    assert np.asarray(buffer.contexts[:, 1]).tolist() == [*(-y for y in rewards), 0.0, 0.0]
    spans = [tuple(map(int, rows_of(buffer, jnp.int32(i)))) for i in range(4)]
    assert spans == [(0, 2), (2, 3), (3, 5), (5, 5)]


def test_an_insertion_without_room_or_not_valid_changes_nothing():
    full, lost = in_order([(1, 1.5), (0, 2.5), (0, 3.5)], 2)
    assert lost == [(0, 3.5)]
    assert np.asarray(full.rewards).tolist() == [2.5, 1.5]
    assert int(full.num_observations) == 2
    half, _ = in_order([(1, 1.5)], 2)
    same, found_room = insert(
        half, jnp.ones(DIM), jnp.int32(0), jnp.asarray(9.0), jnp.asarray(False)
    )
    assert not found_room
    jax.tree.map(np.testing.assert_array_equal, same, half)


def test_sorting_puts_actions_in_order_and_blanks_last():
    pairs = [(3, 0.5), (1, 1.5), (3, 2.5), (0, 3.5)]
    actions, rewards = (jnp.asarray(column) for column in zip(*pairs, strict=True))
    contexts = jnp.stack([rewards, -rewards], axis=1)
    arrived, _ = append(empty(6, DIM), contexts, actions, rewards, jnp.ones(4, bool))
    jax.tree.map(np.testing.assert_array_equal, sort(arrived), in_order(pairs, 6)[0])
