"""A column of labels as a level of effects, and the weights of items on them."""

from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..messages import listed, short
from ..weights import Sparse
from .cells import Cells, read_cells, weight_array
from .table import CatalogueError, Table

__all__ = ["NEW", "Crossed", "learn_crossed"]

NEW = "(new)"  # the label that stands for one that is not among the known
_MOST = 2e8  # weights of a level: 1.6 GB


class Crossed(NamedTuple):
    """What a column of labels was found to hold; the same for all later tables.

    Attributes:
        level: the name of the level.
        column: the name of the column.
        separator: what separates labels in a text, or None.
        average: whether several labels of an item are averaged; else they are added.
        missing: "error", "unknown" or "new": what a missing cell or a label never seen means.
        labels: the labels, sorted; `NEW` comes last where there is one.
        shares: the average weights of the items that have labels: those of an "unknown" one.
    """

    level: str
    column: str
    separator: str | None
    average: bool
    missing: str
    labels: tuple[Hashable, ...]
    shares: Float[np.ndarray, " labels"]

    @property
    def is_single(self) -> bool:
        """Whether weights of an item are known to add up to one."""
        return self.average

    def weights(self, table: Table) -> Sparse:
        """The weights of the items of a table."""
        return _weights(self, read_cells(table, self.column, self.separator), table)


def learn_crossed(
    table: Table, level: str, column: str, separator: str | None, average: bool, missing: str
) -> tuple[Crossed, Sparse]:
    """The labels of a column, and the weights of its items."""
    cells = read_cells(table, column, separator)
    found = {label for cell in cells.different if cell is not None for label in cell.labels}
    if not found:
        raise CatalogueError(f"{table.what}: column {short(column)} has no labels")
    labels = sorted(found)  # type: ignore[type-var] # all of one kind
    if missing == "new":
        if NEW in found:
            raise CatalogueError(
                f"{table.what}: column {short(column)} has the label {NEW!r}, which stands for labels "
                'never seen with missing="new"; rename it'
            )
        labels.append(NEW)
    nothing = np.zeros(len(labels))
    crossed = Crossed(level, column, separator, average, missing, tuple(labels), nothing)
    crossed = crossed._replace(shares=_shares(crossed, cells))
    return crossed, _weights(crossed, cells, table)


def _shares(crossed: Crossed, cells: Cells) -> Float[np.ndarray, " labels"]:
    """The average weights of the rows that have labels."""
    places = {label: i for i, label in enumerate(crossed.labels)}
    counts = np.bincount(cells.codes, minlength=len(cells.different))
    total = np.zeros(len(places))
    own = weight_array(cells, crossed.average)
    rows = 0
    for cell, count, weights in zip(cells.different, counts, own, strict=True):
        if cell is not None:
            rows += count
            total[[places[label] for label in cell.labels]] += count * weights
    return total / rows


def _weights(crossed: Crossed, cells: Cells, table: Table) -> Sparse:
    places = {label: i for i, label in enumerate(crossed.labels)}
    own = weight_array(cells, crossed.average)
    found = [
        _arrows(crossed, places, cell, weights, (table, row))
        for cell, weights, row in zip(cells.different, own, cells.first, strict=True)
    ]
    width = max([len(indices) for indices, _ in found], default=1)
    if float(width) * len(cells.codes) > _MOST:
        raise CatalogueError(
            f"{table.what}: column {short(crossed.column)}: {len(cells.codes):,} items with up to "
            f'{width:,} labels each need too much memory; with missing="unknown" an item has a weight on '
            'every label: take missing="new", or fill in the missing cells'
        )
    indices = np.zeros((len(found), width), np.int32)
    values = np.zeros((len(found), width), np.float64)
    for i, (positions, numbers) in enumerate(found):
        indices[i, : len(positions)], values[i, : len(positions)] = positions, numbers
    is_one = width == 1 and bool((values == 1).all())
    weights: Any = 1.0 if is_one else values[cells.codes]
    return Sparse(indices[cells.codes], weights, len(crossed.labels))


def _arrows(
    crossed: Crossed, places: dict[Any, int], cell: Any, weights: Any, place: tuple[Table, int]
) -> tuple[Any, Any]:
    """The positions and weights of a cell's labels."""
    table, row = place
    if cell is None:
        if crossed.missing == "error":
            table.refuse(
                row,
                crossed.column,
                None,
                'is missing; fill it in, or say what a missing one means: missing="unknown" (one of the '
                'known, averaged over) or "new" (drawn from its population)',
            )
        if crossed.missing == "new":
            return [places[NEW]], [1.0]
        known = np.flatnonzero(crossed.shares)
        return known, crossed.shares[known]
    if all(label in places for label in cell.labels):
        return [places[label] for label in cell.labels], weights
    return _with_unseen(crossed, places, cell, weights, (table, row))


def _with_unseen(
    crossed: Crossed, places: dict[Any, int], cell: Any, weights: Any, place: tuple[Table, int]
) -> tuple[Any, Any]:
    table, row = place
    total = np.zeros(len(crossed.labels))
    for label, weight in zip(cell.labels, weights, strict=True):
        if label in places:
            total[places[label]] += weight
        elif crossed.missing == "new":
            total[places[NEW]] += weight
        elif crossed.missing == "unknown":
            total += weight * crossed.shares
        else:
            table.refuse(
                row,
                crossed.column,
                label,
                f"was never seen; the labels are {listed(crossed.labels)}. Say what a label never seen "
                'means: missing="unknown" (one of the known, averaged over) or "new" (drawn from its '
                "population)",
            )
    used = np.flatnonzero(total)
    return used, total[used]
