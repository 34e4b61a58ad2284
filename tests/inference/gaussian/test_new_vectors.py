"""Hierarchies with spare vectors, and newcomers that take their place."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from mistakes import as_a_user
from mixts.inference import ClosedForm, Laplace
from mixts.inference.gaussian.new_vectors import carry_over, extend, newcomers, rows_of
from mixts.inference.gaussian.places import level_axes
from mixts.models import Bernoulli, Gaussian, Hierarchy, Level, Sparse, linear

K, L, D = 3, 2, 2


def hierarchy(**changes) -> Hierarchy:
    given = {"parents": {"effect": np.arange(6.0).reshape(K, L)}, **changes}
    levels = [Level("effect", L), Level("action", K, labels=["a", "b", "c"], **given)]
    return Hierarchy(levels, Gaussian(0.5), D)


class TestExtended:
    def test_spare_actions_have_weights_of_zero(self):
        wide = extend(hierarchy(), {"action": 5})
        weights = np.asarray(wide.actions.parents["effect"])
        np.testing.assert_array_equal(weights[:K], np.arange(6.0).reshape(K, L))
        np.testing.assert_array_equal(weights[K:], np.zeros((2, L)))
        assert wide.num_actions == 5
        assert wide.actions.labels is None
        assert wide.actions.cov.shape == (), "what all actions share is not written out"

    def test_newcomers_take_their_places(self):
        level = newcomers(hierarchy(), None, [[7.0, 8.0]])
        wide = extend(hierarchy(), {"action": 6}, {"action": (level, K)})
        weights = np.asarray(wide.actions.parents["effect"])
        np.testing.assert_array_equal(weights[K:], [[7, 8], [0, 0], [0, 0]])
        more = newcomers(wide, None, [[9.0, 9.0]])
        wider = extend(wide, {"action": 6}, {"action": (more, K + 1)})
        np.testing.assert_array_equal(wider.actions.parents["effect"][K:], [[7, 8], [9, 9], [0, 0]])

    def test_a_mean_and_a_covariance_of_ones_own(self):
        """The first newcomer that has them makes those of all others be written out."""
        level = newcomers(
            hierarchy(cov=2.0), None, np.ones((1, L)), mean=[1.0, 2.0], cov=[3.0, 4.0]
        )
        wide = extend(hierarchy(cov=2.0), {"action": 5}, {"action": (level, K)})
        np.testing.assert_array_equal(wide.actions.mean, [[0, 0]] * K + [[1, 2], [0, 0]])
        covariances = [np.eye(2) * 2] * K + [np.diag([3.0, 4.0]), np.eye(2)]
        np.testing.assert_array_equal(wide.actions.cov, covariances)

    def test_sparse_rows_of_different_width(self):
        """The wider pattern wins; zeros fill the other."""
        above = Level("effect", 4)
        parents = {"effect": Sparse([[0], [3]], [[1.0], [2.0]])}
        own = Level("action", 2, parents=parents, branching=False)
        told = Hierarchy([above, own], Gaussian(), D)
        level = newcomers(told, None, Sparse([[1, 2]], [[3.0, 4.0]]))
        wide = extend(told, {"action": 4}, {"action": (level, 2)})
        weights = wide.actions.parents["effect"]
        np.testing.assert_array_equal(weights.indices, [[0, 0], [3, 0], [1, 2], [0, 0]])
        np.testing.assert_array_equal(weights.values, [[1, 0], [2, 0], [3, 4], [0, 0]])

    def test_numbers_among_matrices(self):
        """A number stands for that multiple of the identity."""
        matrices = np.tile(np.eye(D), (K, L, 1, 1))
        level = newcomers(hierarchy(parents={"effect": matrices}), None, [[2.0, 0.0]])
        np.testing.assert_array_equal(level.parents["effect"], [[2 * np.eye(D), np.zeros((D, D))]])

    def test_a_level_above_the_actions(self):
        """The level below knows how many parents there are, and is no child of the new ones."""
        level = newcomers(hierarchy(), None, None, mean=[1.0, 2.0], name="effect")
        wide = extend(hierarchy(), {"effect": 4}, {"effect": (level, L)})
        np.testing.assert_array_equal(wide["effect"].mean, [[0, 0], [0, 0], [1, 2], [0, 0]])
        weights = np.asarray(wide.actions.parents["effect"])
        np.testing.assert_array_equal(weights, [[0, 1, 0, 0], [2, 3, 0, 0], [4, 5, 0, 0]])
        assert wide.actions.labels == ("a", "b", "c")
        again = extend(wide, {"effect": L})
        np.testing.assert_array_equal(again.actions.parents["effect"], weights[:, :L])
        few = hierarchy(parents={"effect": Sparse([[1], [0], [1]])})
        assert extend(few, {"effect": 4}).actions.parents["effect"].num_parents == 4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"weights": np.ones((1, 3))}, r"have shape \(1, 3\); expected \(1, 2\)"),
        ({"weights": {"genre": np.ones((1, L))}}, r"parents \['genre'\]; the actions have"),
        ({"weights": None}, "expected a dict with weights for each of the parents"),
        ({"weights": Sparse([[0]], [[1.0]])}, "expected an array, as the others have"),
        ({"weights": np.ones((1, L, D, D))}, "are matrices; the others have numbers"),
        ({"weights": np.ones((2, L)), "count": 3}, "of 2 and 3 new actions"),
        ({"weights": np.ones((1, L)), "cov": -1.0}, "every variance must be positive"),
        ({"weights": np.ones((1, L)), "mean": [1.0]}, r"mean has shape \(1,\)"),
        ({"weights": [[1.0, np.nan]]}, r"parent 'effect': holds nan at position \(0, 1\)"),
        ({"weights": np.ones((1, L)), "mean": np.inf}, "level 'action': mean: holds inf"),
        ({"weights": np.ones((1, L)), "cov": np.ones((3, 3))}, r"cov has shape \(3, 3\); expected"),
    ],
)
def test_newcomers_that_do_not_fit(given, message):
    with as_a_user(), pytest.raises(ValueError, match=message):
        newcomers(hierarchy(), given.pop("count", None), **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"weights": dist.Normal().expand([1, L])}, "parent 'effect': got <numpyro"),
        ({"weights": np.ones((1, L)), "cov": dist.HalfNormal()}, "cov is a distribution"),
        ({"weights": np.ones((1, L)), "mean": "one"}, "level 'action': mean: got 'one'"),
    ],
)
def test_newcomers_of_the_wrong_type(given, message):
    with as_a_user(), pytest.raises(TypeError, match=message):
        newcomers(hierarchy(), None, **given)


def test_newcomers_have_numbers_of_their_own():
    """The caller may change what is theirs afterwards."""
    weights, mean = np.ones((1, L), np.float32), np.ones(D, np.float32)
    new = newcomers(hierarchy(), None, weights, mean)
    weights[:], mean[:] = 5.0, 5.0
    np.testing.assert_array_equal(new.parents["effect"], np.ones((1, L)))
    np.testing.assert_array_equal(new.rows.mean, np.ones(D))


class TestRows:
    """New vectors in the form of the others, for a compiled call, or None."""

    def test_shared_numbers_are_not_written_out(self):
        same = newcomers(hierarchy(cov=2.0), None, np.ones((3, L)), mean=0.0, cov=2.0)
        rows = rows_of(hierarchy(cov=2.0), same, 4)
        assert rows is not None
        assert rows.mean is None
        assert rows.cov is None
        np.testing.assert_array_equal(rows.parents["effect"], [[1, 1]] * 3 + [[0, 0]])

    @pytest.mark.parametrize("own", [{"mean": 1.0}, {"cov": 3.0}])
    def test_the_first_numbers_of_ones_own_have_no_such_form(self, own):
        new = newcomers(hierarchy(cov=2.0), None, np.ones((1, L)), **own)
        assert rows_of(hierarchy(cov=2.0), new, 1) is None

    def test_numbers_of_ones_own_are_written_out(self):
        others = hierarchy(mean=np.ones((K, D)), cov=np.tile(np.eye(D), (K, 1, 1)))
        new = newcomers(others, None, np.ones((1, L)), mean=2.0, cov=[3.0, 4.0])
        rows = rows_of(others, new, 2)
        assert rows is not None
        np.testing.assert_array_equal(rows.mean, [[2, 2], [0, 0]])
        np.testing.assert_array_equal(rows.cov, [np.diag([3.0, 4.0]), np.eye(D)])


def test_actions_that_know_each_other():
    joint = Level("action", 2, cov=np.eye(4) + 0.1)
    with pytest.raises(ValueError, match="joint covariance of all its vectors"):
        newcomers(Hierarchy([joint], Gaussian(), 2), 1, None)


@pytest.mark.parametrize("kind", ["ClosedForm", "Laplace"])
def test_the_axis_that_goes_over_actions(kind):
    """Wherever an array has one, it is found; a record of observations has none."""
    told = linear(np.ones((K, L)), D)
    if kind == "Laplace":
        told = Hierarchy(told.levels, Bernoulli(), D)
    make = {"ClosedForm": ClosedForm, "Laplace": Laplace}[kind]
    axes = level_axes(lambda hierarchy: make(hierarchy).init(), told, "action")
    state = make(told).init()
    leaves = jax.tree.leaves_with_path(state)
    found = {jax.tree_util.keystr(path): axis for (path, _), axis in zip(leaves, axes, strict=True)}
    assert found[".actions.center"] == 1
    assert found[".actions.root"] == 2
    assert found[".effects.root"] is None
    if kind == "Laplace":
        assert found[".memory.factor"] == 0
        assert found[".memory.buffer.actions"] is None


def test_what_is_carried_over():
    """New places are fresh; the others, and what has no places, are as they were."""
    old = {
        "each": jnp.asarray([[1.0, 2.0]]),
        "all": jnp.asarray([5.0]),
        "shared": jnp.asarray([[9.0]]),
    }
    fresh = {"each": jnp.zeros((1, 4)), "all": jnp.zeros(1), "shared": jnp.zeros((1, 4))}
    axes = [{}, {"action": 1}, {"action": 1}]
    kept = carry_over(old, fresh, axes, {"action": jnp.arange(4) >= 2})
    np.testing.assert_array_equal(kept["all"], [5.0])
    np.testing.assert_array_equal(kept["each"], [[1, 2, 0, 0]])
    np.testing.assert_array_equal(kept["shared"], [[9, 9, 0, 0]])
