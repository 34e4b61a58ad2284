"""Of thousands of tables with broken cells, each is read rightly or refused by row and column."""

import re
from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from mixts.models import Catalogue, CatalogueError, Sparse
from plain_catalogue import Wrong, broken_table, plain_weights


def weights_by_label(catalogue: Catalogue) -> dict[str, list[dict]]:
    """The weights of every action in the hierarchy, by label; none are zero."""
    hierarchy = catalogue.hierarchy
    found = {}
    for name, weights in hierarchy.actions.parents.items():
        labels, K = hierarchy[name].labels, hierarchy.num_actions
        if isinstance(weights, Sparse):
            indices, values = np.asarray(weights.indices), np.asarray(weights.written_out)
        else:
            values = np.asarray(weights)
            indices = np.broadcast_to(np.arange(values.shape[1]), values.shape)
        found[name] = [
            {labels[i]: float(w) for i, w in zip(indices[k], values[k], strict=True) if w}
            for k in range(K)
        ]
    return found


def check_refused(table: pd.DataFrame, options: dict, wrong: set) -> None:
    """One of the wrong cells is named."""
    with pytest.raises(CatalogueError) as caught:
        Catalogue(table, "item", **options)
    message = str(caught.value)
    place = re.search(r"(?:row (\d+), )?column '(\w+)'", message)
    assert place is not None, message
    row = None if place[1] is None else int(place[1])
    assert (row, place[2]) in wrong, message


def check(seed: int) -> str:
    table, options = broken_table(seed)
    expected = plain_weights(table, options)
    if isinstance(expected, Wrong):
        check_refused(table, options, expected.cells)
        return "refused"
    catalogue = Catalogue(table, "item", **options)
    found = weights_by_label(catalogue)
    found.pop("common", None)
    assert set(found) == set(expected), seed
    for name, rows in expected.items():
        for own, plain in zip(found[name], rows, strict=True):
            plain = {label: weight for label, weight in plain.items() if weight}
            assert set(own) == set(plain), (seed, name, own, plain)
            for label, weight in plain.items():
                assert own[label] == pytest.approx(weight, rel=1e-5, abs=1e-6), (seed, name)
    if options["nested"]:
        check_tree(catalogue, options["nested"])
    return "read"


def check_tree(catalogue: Catalogue, columns: list[str]) -> None:
    """The parent of each node is its path without the last label."""
    for above, below in pairwise(columns):
        level = catalogue.hierarchy[below]
        parents = np.asarray(level.parents[above].indices)[:, 0]
        for node, parent in zip(level.labels, parents, strict=True):
            assert catalogue.hierarchy[above].labels[parent] == node[0]


def test_a_hundred_tables():
    outcomes = [check(seed) for seed in range(100)]
    assert 20 < outcomes.count("read") < 90


@pytest.mark.slow
def test_ten_thousand_tables():
    outcomes = [check(seed) for seed in range(100, 10_100)]
    assert 2000 < outcomes.count("read") < 9000


def test_other_libraries_give_the_same_hierarchy():
    table = pd.DataFrame(
        {
            "item": ["a", "b", "c"],
            "kinds": ["x|y", "y", "x"],
            "tags": [["p"], ["p", "q"], ["q"]],
            "top": [1, 2, 2],
            "price": [1.0, 2.0, 4.0],
        }
    )
    options = {"crossed": ["kinds", "tags"], "nested": "top", "numeric": "price"}
    first = weights_by_label(Catalogue(table, "item", **options))
    for other in (pl.from_pandas(table), pa.Table.from_pandas(table), table.to_dict("records")):
        assert weights_by_label(Catalogue(other, "item", **options)) == first


@pytest.mark.slow
def test_a_hundred_thousand_categories():
    n = 100_000
    table = pd.DataFrame({"item": np.arange(n), "kind": [f"kind {i}" for i in range(n)]})
    catalogue = Catalogue(table, "item", crossed="kind")
    level = catalogue.hierarchy["kind"]
    assert level.size == n
    weights = catalogue.hierarchy.actions.parents["kind"]
    assert level.labels[int(weights.indices[777, 0])] == "kind 777"
