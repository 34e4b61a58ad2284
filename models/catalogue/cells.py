"""Cells that hold labels: one, several in a separated text or a list, or each with a weight."""

import unicodedata
from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..messages import short
from .table import Table, is_missing

__all__ = ["Cells", "Labelled", "clean_label", "label_column", "read_cells", "weight_array"]

_LARGEST = 2**53  # whole numbers up to here are exact as floats
_SEVERAL = (list, tuple, set, frozenset, np.ndarray)


class Labelled(NamedTuple):
    """The labels of a cell, and their weights where the cell gives them."""

    labels: tuple[Hashable, ...]
    weights: tuple[float, ...] | None


class Cells(NamedTuple):
    """A column of labels: each different cell once.

    Attributes:
        different: the different cells; None is a missing one.
        codes: (n,) which of them each row has.
        first: (cells,) a row that has it.
    """

    different: list[Labelled | None]
    codes: Int[np.ndarray, " n"]
    first: list[int]


def read_cells(table: Table, name: str, separator: str | None) -> Cells:
    """A column whose cells hold labels; cells that are the same are read once.

    Args:
        table: the table.
        name: the column.
        separator: what separates several labels in a text; None where a text is one label.
    """
    codes, raw, first = _factorised(table.column(name))
    different = [
        None if is_missing(value) else _Reader(table, name, row, separator).cell(value)
        for value, row in zip(raw, first, strict=True)
    ]
    _check_one_kind(table, name, different, first)
    return Cells(different, codes, first)


def label_column(table: Table, name: str) -> list[Hashable | None]:
    """A column with one label in each row; None where it is missing."""
    values = table.column(name)
    if set(map(type, values)) <= {str, type(None)}:  # the usual case, quickly
        clean = {value: clean_label(value) for value in dict.fromkeys(values)}
        return [clean[value] for value in values]
    cells = read_cells(table, name, None)
    for cell, row in zip(cells.different, cells.first, strict=True):
        if cell is not None and (cell.weights is not None or len(cell.labels) != 1):
            table.refuse(row, name, cell.labels, "are several labels; expected one")
    labels = [None if cell is None else cell.labels[0] for cell in cells.different]
    return [labels[code] for code in cells.codes.tolist()]


def clean_label(value: Any) -> Hashable | None:
    """A label without the spaces around it, in Unicode's composed form; None if it cannot be one."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        composed = value if value.isascii() else unicodedata.normalize("NFC", value)
        return composed.strip() or None
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= _LARGEST else None
    return value if isinstance(value, int) else None


def _factorised(values: list[Any]) -> tuple[Int[np.ndarray, " n"], list[Any], list[int]]:
    """Numbers of the different cells, these, and a row of each."""
    numbers: dict[Any, int] = {}
    codes = np.empty(len(values), np.int64)
    raw: list[Any] = []
    first: list[int] = []
    for row, value in enumerate(values):
        # 1, 1.0 and True are the same key of a dict, but not the same cell.
        key = value if type(value) is str else _key(value)
        code = numbers.setdefault(key, len(raw))
        if code == len(raw):
            raw.append(value)
            first.append(row)
        codes[row] = code
    return codes, raw, first


def _key(value: Any) -> Hashable:
    try:
        hash(value)
    except TypeError:
        return (id(value),)  # the column keeps it alive meanwhile
    return type(value), value, str(value)  # -0.0 and 0.0, (1,) and (True,) are told apart


class _Reader:
    """Reads a cell, of which errors know the place."""

    def __init__(self, table: Table, name: str, row: int, separator: str | None):
        self.place, self.separator = (table, row, name), separator

    def cell(self, value: Any) -> Labelled | None:
        """The labels of a cell; None where it has none."""
        if isinstance(value, Mapping):
            return self.weighted(value)
        if isinstance(value, _SEVERAL):
            if isinstance(value, np.ndarray) and value.ndim == 0:
                return self.refuse(value, "is not a list of labels")
            parts: list[Any] = list(value)
            if isinstance(value, set | frozenset):
                parts = sorted(parts, key=repr)
            return self.several(value, parts) if parts else None
        if isinstance(value, str) and self.separator is not None and self.separator in value:
            return self.several(value, value.split(self.separator))
        return Labelled((self.label(value, value),), None)

    def several(self, cell: Any, parts: list[Any]) -> Labelled:
        return Labelled(self.different(cell, tuple(self.label(part, cell) for part in parts)), None)

    def weighted(self, cell: Mapping[Any, Any]) -> Labelled | None:
        # None is how a table with a column for each label says that a row does not have it.
        given = {label: weight for label, weight in cell.items() if weight is not None}
        if not given:
            return None
        labels = self.different(cell, tuple(self.label(label, cell) for label in given))
        for label, weight in given.items():
            is_number = isinstance(weight, int | float | np.number) and not isinstance(weight, bool)
            if not is_number or not np.isfinite(weight):
                self.refuse(
                    cell, f"gives {short(label)} the weight {short(weight)}; expected a number"
                )
        return Labelled(labels, tuple(float(weight) for weight in given.values()))

    def label(self, value: Any, cell: Any) -> Hashable:
        label = clean_label(value)
        if label is None and is_missing(value):
            self.refuse(cell, "has an empty label in it")
        if label is None:
            self.refuse(
                cell,
                f"holds {short(value)} of type {type(value).__name__}; expected text or a whole number: "
                "make text of it, or name the column in numeric=[...]",
            )
        return label

    def different(self, cell: Any, labels: tuple[Hashable, ...]) -> tuple[Hashable, ...]:
        if len(set(labels)) != len(labels):
            twice = next(label for label in labels if labels.count(label) > 1)
            self.refuse(
                cell, f"names {short(twice)} more than once; name it once, or give it a weight"
            )
        return labels

    def refuse(self, value: Any, why: str) -> Any:
        table, row, name = self.place
        table.refuse(row, name, value, why)


def _check_one_kind(
    table: Table, name: str, different: list[Labelled | None], first: list[int]
) -> None:
    """Refuse 1 beside "1": they look the same in a table."""
    seen: tuple[type, Any] | None = None
    for cell, row in zip(different, first, strict=True):
        for label in () if cell is None else cell.labels:
            seen = seen or (type(label), label)
            if type(label) is not seen[0]:
                table.refuse(
                    row,
                    name,
                    label,
                    f"is of type {type(label).__name__}, and {short(seen[1])} in the same column of type "
                    f"{seen[0].__name__}; write all labels in one way",
                )


def weight_array(cells: Cells, average: bool) -> list[Float[np.ndarray, " m"]]:
    """The weights of each different cell: as given, one each, or equal ones that add up to one."""
    rows = []
    for cell in cells.different:
        if cell is None:
            rows.append(np.zeros(0))
        elif cell.weights is not None:
            rows.append(np.asarray(cell.weights))
        else:
            count = len(cell.labels)
            rows.append(np.full(count, 1.0 / count if average else 1.0))
    return rows
