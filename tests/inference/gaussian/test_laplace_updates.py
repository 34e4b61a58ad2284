"""What an observation does to the state of `Laplace`, and what one does that cannot be taken in."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from backends import updated
from glm_models import errors_at_the_mode, simulate, two_levels
from hierarchies import Rows
from mixts.inference import Laplace
from sampling import unoptimised

pytestmark = pytest.mark.usefixtures("x64")

CAPACITY = 4


@pytest.fixture(autouse=True)
def compile_quickly():
    with unoptimised():
        yield


init = jax.jit(Laplace.init)
step = jax.jit(Laplace.update)


def make(capacity: int = CAPACITY, n: int = CAPACITY, seed: int = 0):
    model, seen = simulate(two_levels(), n, np.random.default_rng(seed), "bernoulli")
    return Laplace(model.hierarchy(), capacity=capacity), seen


def rows(seen):
    return zip(*seen, strict=True)


def others(array, action, axis=0):
    return np.delete(np.asarray(array), action, axis=axis)


def test_only_the_action_taken_is_touched():
    backend, seen = make()
    before = init(backend)
    for context, action, reward in rows(seen):
        after = step(backend, before, context, action, reward)
        for field in ("precision", "information"):
            old, new = (getattr(state.memory, field) for state in (before, after))
            np.testing.assert_array_equal(others(new, action), others(old, action))
            assert np.any(new[action] != old[action])
        for old, new in zip(*map(jax.tree.leaves, (before.actions, after.actions)), strict=True):
            np.testing.assert_array_equal(others(new, action, -1), others(old, action, -1))
            assert np.any(new[..., action] != old[..., action])
        assert np.all(after.effects.mean != before.effects.mean)
        assert int(after.info.observed) == int(before.info.observed) + 1
        assert int(after.info.rejected) == 0
        before = after


def assert_only_rejected(before, after, times: int = 1):
    assert int(after.info.rejected) == int(before.info.rejected) + times
    after = after._replace(info=after.info._replace(rejected=before.info.rejected))
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        np.testing.assert_allclose(new, old, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("bad", ["action 4", "action -1", "nan reward", "infinite context"])
def test_a_bad_observation_inside_jit_is_only_counted(bad):
    backend, seen = make()
    state = init(backend)
    for row in list(rows(seen))[:3]:
        state = step(backend, state, *row)
    context, action, reward = np.ones(2), 0, 1.0
    match bad:
        case "action 4" | "action -1":
            action = int(bad.split()[1])
        case "nan reward":
            reward = np.nan
        case "infinite context":
            context[1] = np.inf
    assert_only_rejected(state, step(backend, state, context, action, reward))


def test_an_observation_without_room_inside_jit_is_only_counted():
    backend, seen = make()
    state = init(backend)
    for row in rows(seen):
        state = step(backend, state, *row)
    assert int(state.info.observed) == CAPACITY
    assert_only_rejected(state, step(backend, state, np.ones(2), 0, 1.0))


def test_many_observations_without_room_for_all_inside_jit():
    """Those that fit are taken in, in order; one is bad, and the last has no room."""
    backend, seen = make(n=CAPACITY + 2)
    spoilt = seen.actions.copy()
    spoilt[1] = 9
    state = jax.jit(Laplace.condition)(backend, init(backend), seen.contexts, spoilt, seen.rewards)
    assert int(state.info.observed) == CAPACITY
    assert int(state.info.rejected) == 2
    kept = Rows(*(column[[0, 2, 3, 4]] for column in seen))
    by_action = np.argsort(kept.actions, kind="stable")
    np.testing.assert_array_equal(state.memory.buffer.rewards, kept.rewards[by_action])
    np.testing.assert_array_equal(state.memory.buffer.actions, kept.actions[by_action])
    found = backend.posterior(state)
    assert max(errors_at_the_mode(backend.hierarchy, kept, found.mean, found.cov)) < 1e-8


def test_room_is_asked_for_at_the_start():
    backend, _ = make()
    assert init(backend).memory.buffer.capacity == CAPACITY
    asked = jax.eval_shape(lambda: backend.init(room=9))
    assert asked.memory.buffer.capacity == 9
    asked = jax.eval_shape(lambda: backend.init(room=2))
    assert asked.memory.buffer.capacity == CAPACITY


def test_room_grows_outside_jit():
    """The fifth observation doubles the room for four, and says what it says where there was room."""
    backend, seen = make(n=CAPACITY + 1)
    *first, last = rows(seen)
    small = init(backend)
    roomy = backend.reserve(small, 2 * CAPACITY)
    for row in first:
        small, roomy = step(backend, small, *row), backend.update(roomy, *row)
    grown, expected = backend.update(small, *last), backend.update(roomy, *last)
    assert grown.memory.buffer.capacity == expected.memory.buffer.capacity == 8
    assert int(grown.info.observed) == CAPACITY + 1
    assert int(grown.info.rejected) == 0
    for a, b in zip(jax.tree.leaves(grown), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)


@pytest.mark.slow
def test_many_runs_at_once():
    """`vmap` over hierarchies and data: a scan of updates, then the rest in one batch."""
    n, backends, data = 12, [], []
    for seed in (0, 1):
        backend, seen = make(capacity=n, n=n, seed=seed)
        backends.append(backend)
        data.append(seen)
    pairs = zip(backends, data, strict=True)
    backend, seen = jax.tree.map(lambda *leaves: jnp.stack(leaves), *pairs)

    @jax.jit
    @jax.vmap
    def learn(backend, seen):
        state = updated(backend, backend.init(), *(column[:8] for column in seen))
        state = backend.condition(state, *(column[8:] for column in seen))
        posterior = backend.posterior(state)
        return posterior.mean, posterior.cov, state.info.observed

    mean, cov, taken = learn(backend, seen)
    np.testing.assert_array_equal(taken, n)
    for i in range(2):
        own = jax.tree.map(lambda leaf, i=i: leaf[i], (mean, cov))
        assert max(errors_at_the_mode(backends[i].hierarchy, data[i], *own)) < 1e-8
