"""Contexts with names: in the order that is declared, whatever they come in, or refused."""

import numpy as np
import pandas as pd
import pytest
import xarray

from mistakes import as_a_user
from mixts.inference import ClosedForm
from mixts.models import Data, Gaussian, Hierarchy, Level, linear
from mixts.models.components import in_order
from mixts.models.labels import as_labels, label_index
from mixts.models.messages import listed, short

NAMES = ("one", "age")
HIERARCHY = Hierarchy([Level("action", 2)], Gaussian(), 2, components=["one", "age"])
TABLE = pd.DataFrame({"age": [2.0, 4.0], "one": [1.0, 3.0]}, index=["u", "v"])
ORDERED = [[1.0, 2.0], [3.0, 4.0]]


class OtherTable:
    """A table of another library: names of columns, and an array."""

    columns = ["age", "one"]  # noqa: RUF012

    def __array__(self, dtype=None, copy=None):
        return TABLE.to_numpy()


@pytest.mark.parametrize(
    "given",
    [
        TABLE,
        OtherTable(),
        TABLE.to_dict("list"),
        TABLE.to_dict("records"),
        [row for _, row in TABLE.iterrows()],
        (TABLE.iloc[0], [3.0, 4.0]),
        ORDERED,
        np.array(ORDERED),
        pd.DataFrame(ORDERED),
    ],
    ids=["table", "other", "columns", "records", "rows", "mixed", "lists", "array", "unnamed"],
)
def test_in_order(given):
    np.testing.assert_array_equal(np.asarray(in_order(given, NAMES, "contexts")), ORDERED)
    np.testing.assert_array_equal(HIERARCHY.contexts(given), ORDERED)


@pytest.mark.parametrize(
    "given",
    [
        TABLE.rename(columns={"age": "edge"}),
        TABLE[["one"]],
        TABLE.assign(id=[1, 2]),
        TABLE[["one", "age", "age"]],
        [TABLE.iloc[0], {"one": 1.0}],
        pd.DataFrame(ORDERED, columns=[1, 0]),
        xarray.DataArray(ORDERED, coords={"row": [0, 1], "component": ["age", "one"]}),
    ],
)
def test_other_names_are_refused(given):
    with pytest.raises(ValueError, match=r"contexts: its components are named .*; expected 'one'"):
        HIERARCHY.contexts(given)


def test_names_are_refused_where_none_are_declared():
    backend = ClosedForm(linear(np.ones((2, 1)), dim=2))
    for call in (
        lambda: Data(TABLE, [0, 1], [1.0, 2.0]),
        lambda: backend.hierarchy.observations(TABLE, [0, 1]),
        lambda: backend.update(backend.init(), TABLE.iloc[0], 0, 1.0),
        lambda: backend.condition(backend.init(), TABLE, [0, 1], [1.0, 2.0]),
    ):
        with pytest.raises(ValueError, match="there are no names to match them by; declare"):
            call()


def test_declared_names():
    assert HIERARCHY.components == NAMES
    assert HIERARCHY.remade(dim=2).components == NAMES
    with pytest.raises(ValueError, match=r"Hierarchy components: got 1 labels, .* expected 2"):
        Hierarchy([Level("action", 2)], Gaussian(), 2, components=["one"])


def test_labels_of_any_kind():
    given = [np.str_("a"), np.int64(3), ("b", 1), None, np.float64(0.5)]
    found = as_labels(given, 5, "here")
    assert found == ("a", 3, ("b", 1), None, 0.5)
    assert [type(label) for label in found] == [str, int, tuple, type(None), float]
    assert label_index(found).tolist() == list(found)
    assert label_index([("a", 1), ("b", 2)]).shape == (2,)
    assert label_index(["a", "b"]).dtype.kind == "U"
    level = Level("a", 2, labels=[("x", 1), 2])
    assert [level.label_of(i) for i in range(2)] == ["('x', 1)", "2"]
    assert Level("a", 2).coordinates.tolist() == [0, 1]


def test_what_is_shown_is_short():
    assert listed(range(9), most=5) == "0, 1, 2, 3, 4 and 4 more"
    assert len(short("x" * 10_000)) < 250
    with as_a_user(), pytest.raises(TypeError) as refusal:
        Level("a", 20_000, labels=[["x"] * 20_000])
    assert len(str(refusal.value)) < 500
