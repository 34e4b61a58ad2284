"""The levels of a catalogue: what all have in common, trees, crossed labels, numbers and actions."""

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpyro.distributions as dist
from jaxtyping import Float, Int

from ..level import Level
from ..weights import Sparse
from .crossed import Crossed
from .nested import Nested
from .numeric import Numeric

__all__ = ["ALL", "Parts", "action_weights", "highest", "levels_of"]

ALL = "all"  # the label of what all actions have in common


class Parts(NamedTuple):
    """What the items of a catalogue were found to be.

    Attributes:
        action: the name of the actions' level.
        labels: of the actions.
        crossed: the columns of labels, and the weights of the items on them.
        nested: the tree, or None, and the position of the node above each item.
        numeric: the columns of numbers, and the weights of the items on them.
        below_common: the level whose vectors have what all actions have in common as a parent, or None.
    """

    action: str
    labels: tuple[Hashable, ...]
    crossed: tuple[tuple[Crossed, Sparse], ...]
    nested: tuple[Nested, Int[np.ndarray, " K"]] | None
    numeric: tuple[tuple[Numeric, Float[np.ndarray, "K columns"]], ...]
    below_common: str | None

    @property
    def common(self) -> bool:
        """Whether there is a vector that all actions have in common."""
        return self.below_common is not None

    @property
    def names(self) -> list[str]:
        """The names of all levels, top to bottom."""
        above = [*(["common"] if self.common else [])]
        above += [] if self.nested is None else self.nested[0].levels
        above += [crossed.level for crossed, _ in self.crossed]
        return [*above, *(numeric.level for numeric, _ in self.numeric), self.action]


def highest(parts: Parts) -> str:
    """The level that the common vector is best put above, so that a tree stays one.

    That is the top of the tree. Without a tree it is a single column with one label for each item, which is
    a tree too, and else the actions.
    """
    if parts.nested is not None:
        return parts.nested[0].levels[0]
    if len(parts.crossed) == 1 and not parts.numeric:
        crossed, weights = parts.crossed[0]
        if weights.values.ndim == 0:
            return crossed.level
    return parts.action


def levels_of(
    parts: Parts, unit: float, wide: float, laws: Mapping[str, Mapping[str, Any]]
) -> list[Level]:
    """The levels, with a learned scale where `laws` says nothing else.

    Args:
        parts: what the items were found to be.
        unit: of the prior of a scale.
        wide: the variance of what all have in common.
        laws: level's name -> arguments of `Level`: mean, cov, scale, ...
    """
    levels = []
    if parts.common:
        given = laws.get("common", {})
        law = {"cov": wide} if not {"cov", "scale"} & set(given) else {}
        levels.append(Level("common", 1, labels=[ALL], **law, **given))

    def add(name: str, labels: Any, parents: dict[str, Any]) -> None:
        given = laws.get(name, {})
        law = {} if {"cov", "scale"} & set(given) else {"scale": dist.HalfNormal(unit)}
        if parts.below_common == name:
            parents = parents | {"common": _ones(len(labels))}
        levels.append(Level(name, len(labels), parents=parents, labels=labels, **law, **given))

    if parts.nested is not None:
        tree = parts.nested[0]
        for depth, name in enumerate(tree.levels):
            above = {}
            if depth:
                indices, size = tree.parents[depth - 1], len(tree.labels[depth - 1])
                above = {tree.levels[depth - 1]: Sparse(indices[:, None], 1.0, size)}
            add(name, tree.labels[depth], above)
    for crossed, _ in parts.crossed:
        add(crossed.level, crossed.labels, {})
    for numeric, _ in parts.numeric:
        add(numeric.level, numeric.columns, {})
    add(parts.action, parts.labels, action_weights(parts))
    return levels


def action_weights(parts: Parts) -> dict[str, Any]:
    """The weights of the actions on the levels right above them."""
    weights: dict[str, Any] = {}
    if parts.nested is not None:
        tree, positions = parts.nested
        weights[tree.levels[-1]] = Sparse(positions[:, None], 1.0, len(tree.labels[-1]))
    weights |= {crossed.level: own for crossed, own in parts.crossed}
    weights |= {numeric.level: own for numeric, own in parts.numeric}
    if parts.below_common == parts.action:
        weights["common"] = _ones(len(parts.labels))
    return weights


def _ones(count: int) -> Sparse:
    return Sparse(np.zeros((count, 1), np.int32), 1.0, 1)
