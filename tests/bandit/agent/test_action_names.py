"""Actions by name and by number: whoever means one action is never given another."""

import jax.numpy as jnp
import numpy as np
import pytest

from mixts.bandit import AgentError, LabelTaken, UnknownAction
from mixts.bandit.agent.action_names import ActionNames

LABELS = ["2", "1", "0", "b", "b\0"]


@pytest.fixture
def names():
    return ActionNames(LABELS, np.ones(len(LABELS), bool), capacity=8)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["2", 2, "0"], [0, 2, 2]),  # labels that look like the number of another action
        (["2", np.int64(1), jnp.array(3)], [0, 1, 3]),
        (("b", "b\0"), [3, 4]),  # NumPy's strings lose what this label ends in
        ([0, 4], [0, 4]),
        (np.array([4, 0], np.uint8), [4, 0]),
        (np.array(["b", "1"]), [3, 1]),
        (np.array(["b", 1], object), [3, 1]),
        (jnp.array([1, 2]), [1, 2]),
        ([], []),
    ],
)
def test_several_actions(names, given, expected):
    assert names.numbers(given).tolist() == expected
    assert names.numbers(given).dtype == np.int32


@pytest.mark.parametrize(
    "given", [[True, 2], [1.0], [None], [["b"]], [["b"], ["1", "2"]], [-1], [5], [2**70], [b"b"]]
)
def test_several_things_that_are_no_actions(names, given):
    with pytest.raises(UnknownAction):
        names.numbers(given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"b"}, [3]),
        ({"b": 1, "1": 2}, [1, 3]),
        ((label for label in ["1", 1, "1"]), [1]),
        ([True, False, False, True, False], [0, 3]),
        ([np.True_, False, False, np.True_, False], [0, 3]),
        (jnp.array([True, False, False, True, False]), [0, 3]),
        (jnp.array([0, 3]), [0, 3]),
    ],
)
def test_eligible_actions(names, given, expected):
    assert np.flatnonzero(names.allowed(given)).tolist() == expected


@pytest.mark.parametrize(
    "given", ["b", "b1", b"b", 3, 1.5, np.int64(3), np.array("b"), jnp.array(3)]
)
def test_one_action_is_no_list_of_eligible_ones(names, given):
    with pytest.raises(AgentError, match="expected a list of labels or numbers, or True or False"):
        names.allowed(given)


@pytest.mark.parametrize(
    "given", ["b", 3, np.int64(3), np.array(3), jnp.array(3), np.str_("b"), {"b"}]
)
def test_one_action_is_enough_to_be_removed(names, given):
    assert names.check_removed(given).tolist() == [3]


@pytest.mark.parametrize("given", [None, 1.5, True, b"b", object()])
def test_what_is_no_action_cannot_be_removed(names, given):
    with pytest.raises(UnknownAction, match="there is no action"):
        names.check_removed(given)


def test_new_labels(names):
    for given in (["c", "d"], np.array(["c", "d"]), (label for label in "cd")):
        found = names.check_new(given, 2)
        assert found == ["c", "d"]
        assert {type(label) for label in found} == {str}
    for wrong in (5, None, "cd", [1, 2], ["c"], [["c"], ["d"]]):
        with pytest.raises(AgentError, match="expected 2 strings, one per new action"):
            names.check_new(wrong, 2)
    for wrong in (["c", "b"], ["c", "c"]):
        with pytest.raises(LabelTaken, match="is taken"):
            names.check_new(wrong, 2)
