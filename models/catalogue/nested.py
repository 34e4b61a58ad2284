"""Nested columns as a tree: departments, their categories, the categories of these."""

from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from ..messages import listed, short
from .cells import label_column
from .crossed import NEW
from .table import Table

__all__ = ["Nested", "NewNode", "learn_nested"]


class NewNode(NamedTuple):
    """A node that a tree does not have yet: its label, and that of its parent (None at the top)."""

    label: Hashable
    parent: Hashable | None


class Nested(NamedTuple):
    """The tree of some columns.

    A node is its path: `"shoes"` at the top, and `("shoes", "boots")` below it, which is not the node
    `("toys", "boots")`.

    Attributes:
        levels: the names of the levels, top to bottom.
        columns: the names of the columns.
        missing: "error" or "new".
        labels: for each level its nodes, sorted.
        parents: for each level below the first the position of every node's parent.
    """

    levels: tuple[str, ...]
    columns: tuple[str, ...]
    missing: str
    labels: tuple[tuple[Hashable, ...], ...]
    parents: tuple[Int[np.ndarray, " nodes"], ...]

    def place(self, table: Table) -> tuple[list[Hashable], dict[str, list[NewNode]]]:
        """The node above each item, and the nodes that there are not yet, by level."""
        paths = _paths(table, self.columns, self.missing)
        known = [set(labels) for labels in self.labels]
        new: dict[str, list[NewNode]] = {}
        for path, row in _firsts(paths):
            for depth in range(len(self.levels)):
                node, above = _node(path, depth), _node(path, depth - 1) if depth else None
                if node in known[depth]:
                    continue
                if self.missing == "error":
                    siblings = [label for label in self.labels[depth] if _above(label) == above]
                    table.refuse(
                        row,
                        self.columns[depth],
                        path[depth],
                        f"was never seen{f' below {short(above)}' if depth else ''}; there is "
                        f"{listed(siblings) or 'nothing'}. A node of its own, drawn from its "
                        'population, is what missing="new" gives it',
                    )
                known[depth].add(node)
                new.setdefault(self.levels[depth], []).append(NewNode(node, above))
        return [_node(path, len(path) - 1) for path in paths], new

    def with_new(self, new: dict[str, list[NewNode]]) -> "Nested":
        """The tree with new nodes after those it has."""
        labels: list[tuple[Hashable, ...]] = []
        parents: list[Any] = []
        for depth, level in enumerate(self.levels):
            added = new.get(level, [])
            labels.append((*self.labels[depth], *(node.label for node in added)))
            if depth:
                places = {label: i for i, label in enumerate(labels[depth - 1])}
                own = [places[node.parent] for node in added]
                parents.append(np.concatenate([self.parents[depth - 1], own]).astype(np.int32))
        return self._replace(labels=tuple(labels), parents=tuple(parents))

    def positions(self, nodes: list[Hashable]) -> Int[np.ndarray, " n"]:
        """The positions of nodes of the lowest level."""
        places = {label: i for i, label in enumerate(self.labels[-1])}
        return np.array([places[node] for node in nodes], np.int32)


def learn_nested(
    table: Table, levels: tuple[str, ...], columns: tuple[str, ...], missing: str
) -> tuple[Nested, Int[np.ndarray, " n"]]:
    """The tree of some columns, and the position of the node above each item."""
    paths = _paths(table, columns, missing)
    different = {path for path, _ in _firsts(paths)}
    labels, parents = [], []
    for depth in range(len(columns)):
        nodes = sorted({path[: depth + 1] for path in different}, key=_order)
        if depth:
            above = {label: i for i, label in enumerate(labels[-1])}
            own = [above[_node(node, depth - 1)] for node in nodes]
            parents.append(np.array(own, np.int32))
        labels.append(tuple(_node(node, depth) for node in nodes))
    nested = Nested(levels, columns, missing, tuple(labels), tuple(parents))
    return nested, nested.positions([_node(path, len(path) - 1) for path in paths])


def _paths(table: Table, columns: tuple[str, ...], missing: str) -> list[tuple[Hashable, ...]]:
    """The labels of every row, top to bottom; missing ones are `NEW` where that is allowed."""
    read = []
    for column in columns:
        labels = label_column(table, column)
        if missing == "error":
            if None in labels:
                table.refuse(
                    labels.index(None),
                    column,
                    None,
                    "is missing; every item has a place in the tree: fill it in, or take "
                    'missing="new" for a node of its own',
                )
        else:
            if NEW in labels:
                table.refuse(
                    labels.index(NEW), column, NEW, "stands for what is missing; rename it"
                )
            labels = [NEW if label is None else label for label in labels]
        read.append(labels)
    return list(zip(*read, strict=True))


def _firsts(paths: list[tuple[Hashable, ...]]) -> list[tuple[tuple[Hashable, ...], int]]:
    """The different paths, and the first row of each."""
    rows: dict[tuple[Hashable, ...], int] = {}
    for row, path in enumerate(paths):
        rows.setdefault(path, row)
    return list(rows.items())


def _node(path: tuple[Hashable, ...], depth: int) -> Hashable:
    """The name of the node of a path at a depth."""
    return path[0] if depth == 0 else path[: depth + 1]


def _above(node: Hashable) -> Hashable | None:
    """The name of the node above one."""
    if not isinstance(node, tuple):
        return None
    return node[0] if len(node) == 2 else node[:-1]


def _order(path: tuple[Hashable, ...]) -> list[tuple[bool, Any]]:
    # `NEW` may stand beside numbers, and comes last.
    return [(True, "") if label == NEW else (False, label) for label in path]
