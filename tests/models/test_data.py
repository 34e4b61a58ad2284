"""`Data`: what was seen, in the order in which a program takes it."""

import jax
import jax.numpy as jnp
import numpy as np

from mixts.models import Bernoulli, Data, Hierarchy, Level


def test_it_unpacks_as_a_program_wants_it(precision):
    data = Data([[1, 2], [3, 4]], [1, 0], [True, False])
    contexts, actions, rewards = data
    assert contexts.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert (actions.tolist(), rewards.tolist()) == ([1, 0], [1.0, 0.0])
    assert (contexts.dtype, actions.dtype, rewards.dtype) == (precision, np.int32, precision)
    assert len(data) == 2
    assert repr(data) == "Data(2 observations, dim=2)"


def test_it_may_be_empty():
    data = Data(np.ones((0, 2)), [], [])
    assert len(data) == 0
    assert data.actions.dtype == np.int32


def test_it_is_a_pytree():
    data = Data([[1.0], [2.0]], [0, 1], [0.0, 1.0])
    total = jax.jit(lambda data: data.contexts.sum() + data.rewards.sum() + len(data))(data)
    assert float(total) == 6.0
    twice = jax.tree.map(lambda leaf: jnp.concatenate([leaf, leaf]), data)
    assert len(twice) == 4


def test_observations_fit_a_hierarchy(precision):
    """Padding is blanked, whatever it held, and the rest is converted."""
    hierarchy = Hierarchy([Level("action", 3)], Bernoulli(), 1)
    seen = hierarchy.observations([[2], [np.nan]], [1, 99], [1, np.nan], mask=[True, False])
    assert seen.contexts.tolist() == [[2.0], [0.0]]
    assert (seen.actions.tolist(), seen.rewards.tolist()) == ([1, 0], [1.0, 0.0])
    assert seen.mask.tolist() == [True, False]
    assert seen.contexts.dtype == precision
    unseen = hierarchy.observations([[2.0]], [1])
    assert (unseen.rewards, unseen.mask) == (None, None)
