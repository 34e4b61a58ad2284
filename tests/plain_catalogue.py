"""Tables with broken cells, and what a catalogue of them is, worked out cell by cell in plain Python."""

import datetime
import random
import unicodedata
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

__all__ = ["Wrong", "broken_table", "plain_weights"]


class Wrong(NamedTuple):
    """The cells of which any may be named: (row, column); the row is None for a whole column."""

    cells: set[tuple[int | None, str]]


class _Bad(Exception):
    pass


GOOD = ["Comedy", "Drama", "Crime", "Café", " Drama", "Comedy ", "Cafe\u0301", "ünï cödé"]
SEVERAL = ["Comedy|Drama", "Crime | Drama", "Café|Crime", "Drama|Comedy|Crime"]
LISTS = [["Comedy"], ["Drama", "Crime"], ("Comedy", "Drama"), np.array(["Crime", "Drama"])]
WEIGHED = [{"Comedy": 0.3, "Drama": 0.7}, {"Crime": 2}, {"Drama": None, "Comedy": 1.0}]
BROKEN = [
    *(None, float("nan"), "", "  ", pd.NA, pd.NaT, [], {}),
    *("Comedy||Drama", "|Comedy", "Comedy|", "Comedy|Comedy", "Cafe\u0301|Café"),
    *(7, 7.0, 3.5, True, b"Comedy", object(), datetime.date(2020, 1, 1), 1e300),
    *(["Comedy", None], [["Comedy"]], ["Comedy", "Comedy "], ["Comedy", 3]),
    *({"Comedy": float("nan")}, {"Comedy": "much"}, {"": 1.0}, {"Comedy": True}, {"Drama": np.inf}),
]
NUMBERS = [1.0, 2, -3.5, 1e6, True, np.float32(0.5), np.int64(4)]
BROKEN_NUMBERS = [None, float("nan"), np.inf, "12", b"1", [1.0], pd.NA, 1 + 2j, 10**400]


def broken_table(seed: int) -> tuple[pd.DataFrame, dict[str, Any]]:
    """A table with some broken cells, and arguments of a `Catalogue` of it."""
    rng = random.Random(seed)
    rows = rng.randint(1, 8)
    pool = list(GOOD)
    for more in (SEVERAL, LISTS, WEIGHED):
        pool += more if rng.random() < 0.5 else []
    share = rng.choice([0.0, 0.0, 0.05, 0.2])

    def column(good: list[Any], broken: list[Any]) -> list[Any]:
        return [rng.choice(broken if rng.random() < share else good) for _ in range(rows)]

    ids: list[Any] = [f"item {i}" for i in range(rows)] if rng.random() < 0.7 else list(range(rows))
    if rng.random() < 0.1:
        ids[rng.randrange(rows)] = ids[0]
    if rng.random() < 0.1:
        ids[rng.randrange(rows)] = rng.choice([None, "", float("nan"), [1, 2], 2.5, "item 0 "])
    top = rng.choice([["x", "y"], [1, 2], ["x", "y", "z "]])
    columns = {
        "item": ids,
        "kinds": column(pool, BROKEN),
        "brand": column(GOOD[:4], BROKEN),
        "top": column(top, [None, "x|y", 3.5, ["x", "y"]]),
        "sub": column(["p", "q"], [None, "", 4, {"p": 0.5}]),
        "price": column(NUMBERS, BROKEN_NUMBERS),
    }
    table = pd.DataFrame(
        {name: pd.Series(values, dtype=object) for name, values in columns.items()}
    )
    options: dict[str, Any] = {
        "crossed": rng.choice([None, ["kinds"], ["kinds", "brand"]]),
        "nested": rng.choice([None, ["top"], ["top", "sub"]]),
        "numeric": rng.choice([None, ["price"]]),
        "several": rng.choice(["average", "sum"]),
        "missing": rng.choice(["error", "error", "unknown", "new"]),
        "separator": rng.choice(["|", "|", None]),
    }
    return table, options


def plain_weights(
    table: pd.DataFrame, options: dict[str, Any]
) -> dict[str, list[dict[Any, float]]] | Wrong:
    """For each level right above the actions the weights of each item by label, or `Wrong`."""
    read = {name: list(table[name]) for name in table.columns}
    wrong: set[tuple[int | None, str]] = set()
    weights: dict[str, list[dict[Any, float]]] = {}
    wrong |= _wrong_ids(read["item"])
    for name in options["crossed"] or []:
        cells, bad = _column(read[name], options["separator"])
        wrong |= {(row, name) for row in bad}
        if not bad:
            weights[name] = _crossed(cells, name, options, wrong)
    if options["nested"]:
        paths: list[list[Any]] = [[] for _ in read["item"]]
        for name in options["nested"]:
            cells, bad = _column(read[name], None)
            wrong |= {(row, name) for row in bad}
            for row, cell in enumerate(cells):
                label = "(new)" if not cell else next(iter(cell))
                if cell and (len(cell) > 1 or cell[label] is not None):
                    wrong.add((row, name))
                if not cell and options["missing"] != "new":
                    wrong.add((row, name))
                paths[row].append(label)
        weights[options["nested"][-1]] = [
            {path[0] if len(path) == 1 else tuple(path): 1.0} for path in paths
        ]
    if options["numeric"]:
        weights["numeric"] = _numbers(read["price"], options["missing"] == "unknown", wrong)
    if wrong:
        return Wrong(wrong)
    return weights


def _wrong_ids(ids: list[Any]) -> set[tuple[int | None, str]]:
    cells, bad = _column(ids, None)
    bad |= {row for row, cell in enumerate(cells) if len(cell) != 1}
    labels = [next(iter(cell), None) for cell in cells]
    bad |= {row for row, label in enumerate(labels) if label in labels[:row]}
    return {(row, "item") for row in bad}


def _column(values: list[Any], separator: str | None) -> tuple[list[dict[Any, Any]], set[int]]:
    """Each cell's labels, with weights or None; and the rows that cannot be read."""
    cells: list[dict[Any, Any]] = []
    bad: set[int] = set()
    kind: type | None = None
    for row, value in enumerate(values):
        try:
            cell = _cell(value, separator)
        except _Bad:
            cell = {}
            bad.add(row)
        for label in cell:
            kind = kind or type(label)
            if type(label) is not kind:
                bad.add(row)
        cells.append(cell)
    return cells, bad


def _cell(value: Any, separator: str | None) -> dict[Any, Any]:
    if value is None or value is pd.NA or value is pd.NaT:
        return {}
    if isinstance(value, float) and value != value:
        return {}
    if isinstance(value, dict):
        found: list[tuple[Any, Any]] = []
        for label, weight in value.items():
            if weight is None:
                continue
            if isinstance(weight, bool | str) or not np.isfinite(weight):
                raise _Bad
            found.append((_label(label), float(weight)))
    elif isinstance(value, list | tuple | np.ndarray):
        found = [(_label(part), None) for part in value]
    elif isinstance(value, str) and not value.strip():
        return {}
    elif isinstance(value, str) and separator and separator in value:
        found = [(_label(part), None) for part in value.split(separator)]
    else:
        found = [(_label(value), None)]
    if len({label for label, _ in found}) != len(found):
        raise _Bad
    return dict(found)


def _label(value: Any) -> Any:
    if isinstance(value, str):
        label = unicodedata.normalize("NFC", value.strip())
        if label:
            return label
    elif isinstance(value, bool | int):
        return value
    elif (
        isinstance(value, float)
        and value == int(min(max(value, -1e17), 1e17))
        and abs(value) < 1e15
    ):
        return int(value)
    raise _Bad


def _crossed(
    cells: list[dict[Any, Any]], name: str, options: dict[str, Any], wrong: set[Any]
) -> list[dict[Any, float]]:
    own: list[dict[Any, float]] = []
    for cell in cells:
        each = 1.0 / len(cell) if cell and options["several"] == "average" else 1.0
        own.append({label: each if weight is None else weight for label, weight in cell.items()})
    known = [cell for cell, read in zip(own, cells, strict=True) if read]
    if not known:
        wrong.add((None, name))
        return own
    for row, cell in enumerate(cells):
        if cell:
            continue
        if options["missing"] == "error":
            wrong.add((row, name))
        elif options["missing"] == "new":
            own[row] = {"(new)": 1.0}
        else:
            labels = {label for each in known for label in each}
            own[row] = {
                label: sum(each.get(label, 0.0) for each in known) / len(known) for label in labels
            }
    return own


def _numbers(values: list[Any], may_miss: bool, wrong: set[Any]) -> list[dict[Any, float]]:
    numbers: list[float] = []
    for row, value in enumerate(values):
        is_missing = (
            value is None or value is pd.NA or (isinstance(value, float) and value != value)
        )
        is_number = isinstance(value, int | float | np.number) and not isinstance(value, complex)
        if is_missing:
            numbers.append(float("nan"))
            if not may_miss:
                wrong.add((row, "price"))
        elif not is_number or str(value) == "inf" or len(str(value)) > 300:
            wrong.add((row, "price"))
        else:
            numbers.append(float(value))
    if any(column == "price" for _, column in wrong):
        return []
    known = [number for number in numbers if number == number]
    if not known or max(known) == min(known):
        wrong.add((None, "price"))
        return []
    mean = sum(known) / len(known)
    deviation = (sum((number - mean) ** 2 for number in known) / len(known)) ** 0.5
    filled = [mean if number != number else number for number in numbers]
    return [{"price": (number - mean) / deviation} for number in filled]
