"""What observations do not touch, and what happens to those that make no sense."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from backends import BACKENDS, make, updated
from gaussian_models import rows

BAD = {
    "negative action": (-1, 1.0, 1.0),
    "action K": ("K", 1.0, 1.0),
    "action K + 5": ("K + 5", 1.0, 1.0),
    "NaN reward": (0, np.nan, 1.0),
    "infinite reward": (0, -np.inf, 1.0),
    "NaN context": (0, 1.0, np.nan),
    "infinite context": (0, 1.0, np.inf),
}


def bad_rows(model):
    """Every bad observation as (contexts, actions, rewards); the first number of a context is bad."""
    size = model.groups[-1].size
    places = {"K": size, "K + 5": size + 5}
    actions = np.array([places.get(action, action) for action, _, _ in BAD.values()])
    contexts = np.ones((len(BAD), model.dim))
    contexts[:, 0] = [number for _, _, number in BAD.values()]
    return contexts, actions, np.array([reward for _, reward, _ in BAD.values()])


@pytest.fixture(params=BACKENDS)
def case(request):
    """A backend with 300 observations behind it, so that no part of its state is special.

    In float32, where what rounding has left over is a part of the state.
    """
    model, backend = make(request.param)
    seen = rows(model, 300, np.random.default_rng(0))
    return model, backend, updated(backend, backend.init(), *seen)


def assert_unchanged(after, before, *, but=(".rejected",)):
    """Bit by bit, except for leaves whose path ends as named."""
    new, old = (jax.tree_util.tree_leaves_with_path(state) for state in (after, before))
    for (path, a), (_, b) in zip(new, old, strict=True):
        if not jax.tree_util.keystr(path).endswith(but):
            np.testing.assert_array_equal(a, b, err_msg=jax.tree_util.keystr(path))


def test_other_actions_are_untouched(case):
    model, backend, state = case
    context = np.ones(model.dim)
    others = np.arange(model.groups[-1].size) != 2
    one = backend.update(state, context, 2, 1.5)
    many = backend.condition(state, [context, -context], [2, 2], [1.5, 0.5])
    for after in (one, many):
        for new, old in zip(*map(jax.tree.leaves, (after.actions, state.actions)), strict=True):
            np.testing.assert_array_equal(new[..., others], old[..., others])
            assert not np.array_equal(new[..., 2], old[..., 2])


def test_bad_observations_inside_jit_change_nothing(case):
    model, backend, state = case
    update = jax.jit(backend.update)
    for context, action, reward in zip(*bad_rows(model), strict=True):
        after = update(state, context, action, reward)
        assert_unchanged(after, state)
        assert int(after.info.rejected) == 1


def test_bad_observations_inside_a_batch_change_nothing(case):
    model, backend, state = case
    after = jax.jit(backend.condition)(state, *bad_rows(model))
    # A batch factorises anew, and so carries nothing that rounding has left over.
    assert_unchanged(after, state, but=(".rejected", ".rounding"))
    assert int(after.info.rejected) == len(BAD)


def test_bad_observations_do_not_spoil_good_ones(case):
    model, backend, state = case
    good = rows(model, len(BAD), np.random.default_rng(1))
    mixed = [
        np.stack([g, b], 1).reshape(-1, *g.shape[1:])
        for g, b in zip(good, bad_rows(model), strict=True)
    ]
    found = updated(backend, state, *mixed)
    expected = updated(backend, state, *good)
    assert_unchanged(found, expected)
    assert int(found.info.rejected) == len(BAD)
    assert int(found.info.observed) == int(expected.info.observed)


class TestConcrete:
    """Outside jit bad observations are errors that say what was given and what was expected."""

    def setup_method(self):
        self.model, self.backend = make("closed form")
        self.state = self.backend.init()

    @pytest.mark.parametrize(
        ("context", "action", "reward", "kind", "message"),
        [
            ([1.0, 2.0], 0, np.nan, ValueError, "reward: holds nan; every entry must be a finite"),
            ([1.0, 2.0], 0, np.inf, ValueError, "reward: holds inf"),
            ([1.0, np.nan], 0, 0.0, ValueError, r"context: holds nan at position \(1,\)"),
            ([1.0, -np.inf], 0, 0.0, ValueError, r"context: holds -inf at position \(1,\)"),
            ([1.0, 2.0], 4, 0.0, ValueError, "action: holds 4; every entry must be from 0 to 3"),
            ([1.0, 2.0], -1, 0.0, ValueError, "action: holds -1; every entry must be from 0 to 3"),
            (
                [1.0, 2.0],
                1.0,
                0.0,
                TypeError,
                "action: got numbers of type float64; expected whole",
            ),
            ([1.0, 2.0], True, 0.0, TypeError, "action: got numbers of type bool"),
            ([1.0, 2.0, 3.0], 0, 0.0, ValueError, r"context has shape \(3,\); expected \(2,\)"),
            (np.ones((3, 2)), 0, 0.0, ValueError, r"shape \(3, 2\); expected .* or \(4, 2\)"),
            (1.0, 0, 0.0, ValueError, r"context has shape \(\)"),
            ("context", 0, 0.0, TypeError, "context: got 'context'; expected a number"),
            ([1.0, 2.0], [0], [0.0], ValueError, r"action has shape \(1,\).*Use condition"),
        ],
    )
    def test_update(self, context, action, reward, kind, message):
        with pytest.raises(kind, match=message):
            self.backend.update(self.state, context, action, reward)

    @pytest.mark.parametrize(
        ("contexts", "actions", "rewards", "kind", "message"),
        [
            (
                np.ones((2, 2)),
                [0, 1],
                [0.0, np.nan],
                ValueError,
                r"rewards: holds nan at position \(1,\)",
            ),
            ([[1.0, np.inf]], [0], [0.0], ValueError, r"contexts: holds inf at position \(0, 1\)"),
            (np.ones((2, 2)), [0, 4], [0.0, 0.0], ValueError, "actions: holds 4"),
            (np.ones((2, 2)), [-1, 0], [0.0, 0.0], ValueError, "actions: holds -1"),
            (
                np.ones((2, 2)),
                [0.0, 1.0],
                [0.0, 0.0],
                TypeError,
                "actions: got numbers of type float",
            ),
            (np.ones((2, 3)), [0, 1], [0.0, 0.0], ValueError, r"contexts have shape \(2, 3\)"),
            (np.ones((2, 2)), [0], [0.0, 0.0], ValueError, "shapes do not fit"),
            (np.ones((2, 2)), [0, 1], [0.0], ValueError, "shapes do not fit"),
            (np.ones(2), 0, 0.0, ValueError, "shapes do not fit"),
            (
                np.ones((2, 3, 2)),
                [0, 1],
                [0.0, 0.0],
                ValueError,
                r"contexts have shape \(2, 3, 2\); expected",
            ),
            (
                np.ones((2, 4, 3)),
                [0, 1],
                [0.0, 0.0],
                ValueError,
                r"contexts have shape \(2, 4, 3\); expected",
            ),
            (np.ones((2, 4, 2)), [0], [0.0], ValueError, "shapes do not fit"),
            (np.ones((2, 4, 2)), 0, [0.0, 0.0], ValueError, "shapes do not fit"),
        ],
    )
    def test_condition(self, contexts, actions, rewards, kind, message):
        with pytest.raises(kind, match=message):
            self.backend.condition(self.state, contexts, actions, rewards)

    @pytest.mark.parametrize(
        ("context", "kind", "message"),
        [
            ([1.0, np.nan], ValueError, r"context: holds nan at position \(1,\)"),
            (np.full((4, 2), np.inf), ValueError, r"context: holds inf at position \(0, 0\)"),
            (
                [1.0],
                ValueError,
                r"context has shape \(1,\); expected \(2,\), shared by all actions",
            ),
            (np.ones((2, 4)), ValueError, r"context has shape \(2, 4\); expected"),
            (None, TypeError, "context: got None"),
        ],
    )
    def test_scores(self, context, kind, message):
        with pytest.raises(kind, match=message):
            self.backend.sample_scores(jax.random.key(0), self.state, context)

    def test_shapes_are_checked_inside_jit_too(self):
        with pytest.raises(ValueError, match=r"context has shape \(3,\)"):
            jax.jit(self.backend.update)(self.state, jnp.ones(3), 0, 0.0)
        with pytest.raises(ValueError, match=r"contexts have shape \(2, 3, 2\)"):
            jax.jit(self.backend.condition)(
                self.state, jnp.ones((2, 3, 2)), jnp.zeros(2, int), jnp.zeros(2)
            )
        with pytest.raises(TypeError, match="expected whole numbers"):
            jax.jit(self.backend.update)(self.state, jnp.ones(2), 0.0, 0.0)
