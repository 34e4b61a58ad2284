"""Observations say the same one by one, all at once, in batches, and in any order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from backends import BACKENDS, assert_same_posterior, make, updated
from gaussian_models import rows

FEW, MANY = 8, 100
N = 24


@pytest.mark.parametrize("n", [FEW, MANY])
@pytest.mark.parametrize("name", BACKENDS)
def test_one_by_one_is_all_at_once(name, n, precision):
    """One batch, two, single rows in between, in another order; and an empty batch is nothing."""
    model, backend = make(name)
    numbers = model.dim * sum(group.size for group in model.groups)
    assert FEW <= numbers < MANY  # a batch of few is taken row by row, one of many in one sweep
    rng = np.random.default_rng(1)
    first, second = rows(model, n, rng), rows(model, n, rng)
    order = rng.permutation(n)
    shuffled = [column[order] for column in first]
    prior = backend.init()
    same = [
        (backend.condition(prior, *first), updated(backend, prior, *first)),
        (backend.condition(prior, *shuffled), updated(backend, prior, *shuffled)),
    ]
    at_once, one_by_one = same[0]
    same += [(at_once, same[1][0])]
    everything = updated(backend, one_by_one, *second)
    assert int(everything.info.observed) == 2 * n
    same += [
        (backend.condition(at_once, *second), everything),
        (updated(backend, at_once, *second), everything),
        (backend.condition(one_by_one, *second), everything),
        (backend.condition(backend.condition(prior, *second), *first), everything),
    ]
    for a, b in same:
        # Dozens of rank-one steps and one factorisation round differently, by a few ulps of the
        # largest entry rather than of each.
        assert_same_posterior(backend, a, b, loosen=10)
    nothing = np.zeros((0, model.dim)), [], []
    jax.tree.map(np.testing.assert_array_equal, backend.condition(at_once, *nothing), at_once)


@pytest.mark.parametrize("name", BACKENDS)
def test_contexts_of_each_action(name, x64):
    """With a row for each action, only the row of the action taken counts."""
    model, backend = make(name)
    x, a, y = rows(model, N, np.random.default_rng(4))
    every = np.random.default_rng(5).normal(size=(N, model.groups[-1].size, model.dim))
    every[np.arange(N), a] = x
    prior = backend.init()
    expected = backend.condition(prior, x, a, y)
    assert_same_posterior(backend, backend.condition(prior, every, a, y), expected)
    assert_same_posterior(backend, updated(backend, prior, every, a, y), expected)
    one = backend.update(prior, every[0], a[0], y[0])
    same = backend.update(prior, x[0], a[0], y[0])
    jax.tree.map(np.testing.assert_array_equal, one, same)


def test_scores_in_contexts_of_each_action(x64):
    """Scores of a (K, d) context whose rows are all equal are those of that row, by the same key."""
    model, backend = make("closed form")
    state = backend.condition(backend.init(), *rows(model, N, np.random.default_rng(6)))
    size = model.groups[-1].size
    contexts = np.random.default_rng(7).normal(size=(size, model.dim))
    key = jax.random.key(0)
    own = backend.sample_scores(key, state, contexts)
    for i in range(size):
        shared = backend.sample_scores(key, state, contexts[i])
        np.testing.assert_allclose(own[i], shared[i], rtol=1e-12)
    assert len(np.unique(np.asarray(own))) == size


def test_every_kind_of_integer_counts_as_an_action(x64):
    model, backend = make("closed form")
    x, a, y = rows(model, N, np.random.default_rng(8))
    expected = backend.condition(backend.init(), x, a, y)
    for kind in (np.int8, np.uint16, np.int64):
        found = backend.condition(backend.init(), x, a.astype(kind), y)
        jax.tree.map(np.testing.assert_array_equal, found, expected)
    listed = backend.condition(backend.init(), x.tolist(), a.tolist(), jnp.asarray(y))
    jax.tree.map(np.testing.assert_array_equal, listed, expected)
