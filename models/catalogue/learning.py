"""What the items of a table are: learned once, and joined with those of later tables."""

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..messages import short
from .assembly import Parts, highest
from .cells import label_column
from .choices import Choices, check_levels, option_of
from .crossed import learn_crossed
from .nested import learn_nested
from .numeric import learn_numeric
from .table import Table

__all__ = ["Options", "action_labels", "joined_parts", "learn_parts", "sizes_of"]


class Options(NamedTuple):
    """What a user says of several labels, separators and missing cells."""

    several: Any
    separator: Any
    missing: Any
    choices: Choices

    def of(self, level: str, allowed: tuple[str, ...]) -> str:
        """What is missing in a level."""
        if not isinstance(self.missing, Mapping) and self.missing in ("error", "unknown", "new"):
            # One for all, as far as a column allows it.
            return self.missing if self.missing in allowed else "error"
        return option_of(self.missing, level, "missing", allowed, self.choices.levels)

    def averaged(self, level: str) -> bool:
        """Whether several labels are averaged."""
        levels = list(self.choices.crossed)
        return option_of(self.several, level, "several", ("average", "sum"), levels) == "average"

    def separated(self, level: str) -> str | None:
        """What separates several labels."""
        given = self.separator
        if isinstance(given, Mapping):
            check_levels(given, list(self.choices.crossed), "separator")
            given = given.get(level, "|")
        if given is not None and (not isinstance(given, str) or not given):
            raise ValueError(
                f"Catalogue separator: got {short(given)} for level '{level}'; expected a text, or None"
            )
        return given


def learn_parts(table: Table, choices: Choices, options: Options, common: bool) -> Parts:
    """What the items of a table are."""
    action, column = choices.action
    labels = action_labels(table, column)
    crossed = [
        learn_crossed(
            table,
            level,
            name,
            options.separated(level),
            options.averaged(level),
            options.of(level, ("error", "unknown", "new")),
        )
        for level, name in choices.crossed.items()
    ]
    nested = None
    if choices.nested:
        levels, columns = tuple(choices.nested), tuple(choices.nested.values())
        policies = {options.of(level, ("error", "new")) for level in levels}
        missing = "new" if policies == {"new"} else "error"
        nested = learn_nested(table, levels, columns, missing)
    numeric = []
    for level, columns in choices.numeric.items():
        learned = learn_numeric(table, level, columns, options.of(level, ("error", "unknown")))
        numeric.append((learned, learned.weights(table)))
    parts = Parts(action, labels, tuple(crossed), nested, tuple(numeric), None)
    return parts._replace(below_common=highest(parts)) if common else parts


def action_labels(table: Table, column: str) -> tuple[Hashable, ...]:
    """The labels of items, each there and different from the others."""
    labels = label_column(table, column)
    rows: dict[Hashable | None, int] = {}
    for row, label in enumerate(labels):
        if label is None:
            table.refuse(row, column, None, "is missing; every item needs a label")
        first = rows.setdefault(label, row)
        if first != row:
            table.refuse(
                row, column, label, f"is the label of row {first} too; every item needs its own"
            )
    return tuple(labels)


def joined_parts(parts: Parts, new: Parts) -> Parts:
    """Items and new ones after them."""
    crossed = tuple(
        (crossed, own.join(more, own.shape[0], own.shape[0] + more.shape[0]))
        for (crossed, own), (_, more) in zip(parts.crossed, new.crossed, strict=True)
    )
    numeric = tuple(
        (numeric, np.concatenate([own, more]))
        for (numeric, own), (_, more) in zip(parts.numeric, new.numeric, strict=True)
    )
    nested = None
    if parts.nested is not None and new.nested is not None:
        nested = new.nested[0], np.concatenate([parts.nested[1], new.nested[1]])
    labels = (*parts.labels, *new.labels)
    return Parts(parts.action, labels, crossed, nested, numeric, parts.below_common)


def sizes_of(parts: Parts) -> dict[str, int]:
    """How many vectors the levels have that come from columns."""
    sizes = {}
    if parts.nested is not None:
        tree = parts.nested[0]
        sizes = {name: len(own) for name, own in zip(tree.levels, tree.labels, strict=True)}
    sizes |= {crossed.level: len(crossed.labels) for crossed, _ in parts.crossed}
    return sizes | {numeric.level: len(numeric.columns) for numeric, _ in parts.numeric}
