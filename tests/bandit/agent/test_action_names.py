"""Actions by label and by position: whoever means one action is never given another."""

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from mixts.bandit import AgentError, LabelTaken, Position, UnknownAction
from mixts.bandit.agent.action_names import ActionNames

LABELS = ["2", "1", "0", "b", "b\0"]
MIXED = [2, ("b", 1), None, 0.5, "b", 0]


def make(labels, size=5):
    return ActionNames(labels, np.ones(size, bool), capacity=8)


@pytest.fixture
def names():
    return make(LABELS)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["2", "0"], [0, 2]),
        (("b", "b\0"), [3, 4]),  # NumPy's strings lose what this label ends in
        (np.array(["b", "1"]), [3, 1]),
        (pd.Series(["b", "1"]), [3, 1]),
        (Position([0, 4]), [0, 4]),
        (Position(np.array([4, 0], np.uint8)), [4, 0]),
        (Position(jnp.array([1, 2])), [1, 2]),
        (["2", Position(2), "0"], [0, 2, 2]),
        ([], []),
        (Position([]), []),
    ],
)
def test_several_actions(names, given, expected):
    assert names.numbers(given).tolist() == expected
    assert names.numbers(given).dtype == np.int32


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([1, 0], [1, 0]),
        (np.array([4, 0], np.uint8), [4, 0]),
        (jnp.array([1, 2]), [1, 2]),
        ([np.int64(1), jnp.array(3)], [1, 3]),
        (Position([2]), [2]),
    ],
)
def test_numbers_are_names_where_there_are_no_labels(given, expected):
    assert make(None).numbers(given).tolist() == expected


@pytest.mark.parametrize("given", [2, np.int64(2), jnp.array(2), [2], np.array([2, 1])])
def test_no_number_is_a_position_where_there_are_labels(names, given):
    with pytest.raises(UnknownAction, match=r"there is no action 2; .*'0', or Position\(2\)"):
        names.numbers(given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([2, 0], [0, 5]),
        (np.array([2, 0]), [0, 5]),
        ([("b", 1), None], [1, 2]),
        ([np.float64(0.5), np.str_("b"), jnp.array(0)], [3, 4, 5]),
        (("b", 1), [1]),  # one label, not two
        (None, [2]),
        (Position(2), [2]),
    ],
)
def test_labels_of_any_kind(given, expected):
    assert make(MIXED, 6).numbers(given).tolist() == expected


def test_true_is_not_one():
    for labels, wrong in (([1, 0, "a"], True), ([True, False, "a"], 1)):
        with pytest.raises(UnknownAction, match="there is no action"):
            make(labels, 3).number(wrong)
    names = make([True, False, "a"], 3)
    assert names.number(False) == 1
    with pytest.raises(AgentError, match="may be labels or say which actions are eligible"):
        names.allowed([True, False, True])


@pytest.mark.parametrize(
    "given", [[True, "2"], [1.0], [None], [["b"]], [["b"], ["1", "2"]], [-1], [5], [2**70], [b"b"]]
)
@pytest.mark.parametrize("labels", [LABELS, None], ids=["labels", "none"])
def test_several_things_that_are_no_actions(labels, given):
    with pytest.raises(UnknownAction):
        make(labels).numbers(given)


@pytest.mark.parametrize("given", [-1, 5, [0, 5], 2**70])
def test_positions_of_no_action(names, given):
    with pytest.raises(AgentError, match=r"no action number|expected a whole number"):
        names.numbers(Position(given))


@pytest.mark.parametrize("given", [True, "1", 1.0, [0.5], ["b"], [[1]], None])
def test_what_is_no_position(names, given):
    with pytest.raises(AgentError, match="as positions; expected a whole number"):
        names.numbers(Position(given))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"b"}, [3]),
        ({"b": 1, "1": 2}, [1, 3]),
        ({"b": True, "1": False}, [3]),
        (pd.Series([True, False, True], index=["b", "1", "2"]), [0, 3]),
        (pd.Series([True, False, False, True, False]), [0, 3]),
        ((label for label in ["1", "b", "1"]), [1, 3]),
        ([True, False, False, True, False], [0, 3]),
        ([np.True_, False, False, np.True_, False], [0, 3]),
        (jnp.array([True, False, False, True, False]), [0, 3]),
        (Position([0, 3]), [0, 3]),
        (Position(3), [3]),
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


@pytest.mark.parametrize("given", ["b", Position(3), np.array("b"), np.str_("b"), {"b"}])
def test_one_action_is_enough_to_be_removed(names, given):
    assert names.check_closing(given).tolist() == [3]


@pytest.mark.parametrize("given", [None, 1.5, True, b"b", object()])
def test_what_is_no_action_cannot_be_removed(names, given):
    with pytest.raises(UnknownAction, match="there is no action"):
        names.check_closing(given)


def test_a_removed_action_comes_back(names):
    names.set_open(names.check_closing(["b", "1"]), False)
    with pytest.raises(UnknownAction, match="'b' was removed already"):
        names.check_closing("b")
    with pytest.raises(AgentError, match="'2' was not removed"):
        names.check_opening(["b", "2"])
    names.set_open(names.check_opening("b"), True)
    assert names.open.tolist() == [0, 2, 3, 4]


def test_new_labels(names):
    for given in (["c", "d"], np.array(["c", "d"]), (label for label in "cd")):
        found = names.check_new(given, 2)
        assert found == ["c", "d"]
        assert {type(label) for label in found} == {str}
    assert names.check_new([1, ("b", 2)], 2) == [1, ("b", 2)]
    for wrong in (5, None, "cd", [["c"], ["d"]], [float("nan"), "c"]):
        with pytest.raises(AgentError, match="expected a sequence of 2 strings, or other hashable"):
            names.check_new(wrong, 2)
    with pytest.raises(AgentError, match="got 1 labels; expected 2"):
        names.check_new(["c"], 2)
    for wrong in (["c", "b"], ["c", "c"]):
        with pytest.raises(LabelTaken, match="is taken; choose another"):
            names.check_new(wrong, 2)
    names.set_open(names.check_closing("b"), False)
    with pytest.raises(LabelTaken, match="'b' is taken by an action that was removed; reopen_"):
        names.check_new(["c", "b"], 2)


def test_messages_are_short():
    names = make([f"product {i}" for i in range(20_000)], 20_000)
    for call in (
        lambda: names.numbers(["y" * 5_000]),
        lambda: names.check_new([["x"] * 9_000], 1),
        lambda: names.allowed("z" * 9_000),
        lambda: names.numbers(Position(["q"] * 9_000)),
    ):
        with pytest.raises(AgentError) as refusal:
            call()
        assert len(str(refusal.value)) < 2000
