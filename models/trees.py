"""Trees by name: every node has one parent in the level above, and the leaves are the actions."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax import Array

from .arrays import as_count, as_integers
from .hierarchy import Hierarchy
from .labels import as_label, label_index
from .level import Level
from .messages import listed, short
from .rewards import Gaussian, Reward
from .weights import Sparse

__all__ = ["tree"]

_SEVERAL = (list, tuple, set, np.ndarray)


def tree(
    parents: Sequence[Any],
    dim: int,
    *,
    root_mean: Any = 0.0,
    root_cov: Any = 1.0,
    root_scale: Any = None,
    covs: Any = 1.0,
    scales: Any = None,
    reward: Reward | None = None,
    names: Sequence[str] | None = None,
    labels: Sequence[Any] | None = None,
    num_roots: int | None = None,
) -> Hierarchy:
    """Actions below a tree of any depth (HierTS; Hong et al. 2022, "Deep Hierarchy in Bandits").

    The vectors of the first level are `N(root_mean, root_cov)`; any other is Gaussian around that of its
    parent, with the covariance of its level. A parent is one index in memory, and `ClosedForm` keeps
    every level in blocks. Effects that cross, several parents, weights other than one, intercepts or
    links are declared level by level, by `Level`.

    Args:
        parents: for each level below the first, top to bottom, the parent of every node: its position in
            the level above or, where `labels` has that level's, its label. Whole numbers are positions.
        dim: the length of every vector and of a context.
        root_mean: the prior mean of the first level: a number, `(dim,)` or `(size, dim)`.
        root_cov: its prior covariance, in any form that `Level` takes.
        root_scale: instead, a NumPyro distribution of an unknown standard deviation.
        covs: the covariance of a node given its parent: one for every level below the first, or a list
            with one for each of them, None where the scale is learned.
        scales: NumPyro distributions of unknown standard deviations instead: one for every level below
            the first, or a list with one for each of them, None where the covariance is known.
        reward: the reward of an action in a context; `Gaussian(1.0)` by default.
        names: of all levels; by default "level_0", "level_1", ..., and "action" for the last.
        labels: for each level the names of its nodes, or None.
        num_roots: the number of nodes of the first level, where it has no labels and the last of them
            have no children; by default the largest parent plus one.

    Example:
        >>> from mixts.models import tree
        >>> tree([[0, 0, 1], [0, 0, 1, 2, 2]], dim=2, covs=[0.5, 0.1])
        Hierarchy of 3 levels, dim 2
          level_0  2 x  Normal(0; cov 1)
          level_1  3 x  Normal(level_0 (1 of 2); cov 0.5)
          action   5 x  Normal(level_1 (1 of 3); cov 0.1)
          reward   Gaussian(noise=1) of context . action
    """
    below = _as_levels(parents)
    depth = len(below)
    default = [*(f"level_{i}" for i in range(depth)), "action"]
    names = default if names is None else _one_each(names, depth + 1, "names")
    nodes = [None] * (depth + 1) if labels is None else _one_each(labels, depth + 1, "labels")
    covs, scales = _for_each(covs, depth, "covs"), _for_each(scales, depth, "scales")
    size = _num_roots(below[0], nodes[0], num_roots, _where(names[1]))
    prior = {"mean": root_mean, "cov": root_cov, "scale": root_scale}
    levels = [Level(names[0], size, labels=nodes[0], **prior)]
    for own, name, cov, scale, called in zip(
        below, names[1:], covs, scales, nodes[1:], strict=True
    ):
        above = levels[-1]
        positions = _positions(own, _where(name), above)
        arrows = {above.name: Sparse(indices=positions[:, None], num_parents=above.size)}
        given = {"cov": 1.0 if cov is None else cov, "scale": scale, "labels": called}
        levels.append(Level(name, len(positions), parents=arrows, **given))
    return Hierarchy(levels, Gaussian() if reward is None else reward, dim)


def _where(name: Any) -> str:
    return f"tree: level {short(name)}"


def _as_levels(parents: Any) -> list[Any]:
    """The parents of each level below the first, as arrays of one axis: positions or labels."""
    if not isinstance(parents, list | tuple) or not parents:
        raise TypeError(
            f"tree: parents is {short(parents)}; expected a list with the parents of each level below the "
            "first, such as [[0, 0, 1]] for three actions below two nodes"
        )
    return [_as_row(row, f"tree: parents[{i}]") for i, row in enumerate(parents)]


def _as_row(row: Any, here: str) -> np.ndarray:
    try:
        array = np.asarray(row)
    except ValueError:  # entries of different lengths
        array = label_index(row)
    if array.ndim == 2 and not hasattr(row, "dtype"):
        array = label_index(row)  # tuples, which may be labels
    if array.ndim == 1 and array.dtype == object:
        array = label_index(array)  # numbers, of a column that could have held others
    if array.ndim == 2:
        raise ValueError(
            f"{here} has shape {array.shape}; expected one parent for each node. Of a matrix with a one in "
            "each row, that is its argmax(1); several parents are declared by Level"
        )
    if array.ndim != 1:
        raise TypeError(
            f"{here} is {short(row)}; expected the parent of every node of that level, such as [0, 0, 1]"
        )
    if not array.size:
        raise ValueError(f"{here} is empty; expected at least one node in every level")
    return array


def _num_roots(row: np.ndarray, labels: Any, num_roots: Any, here: str) -> int:
    """How many nodes the first level has; `Level` checks its labels, if it has any."""
    if num_roots is not None:
        return as_count(num_roots, "tree: num_roots")
    if labels is not None:
        return len(labels) if hasattr(labels, "__len__") else 1
    _positions(row, here)  # checks them
    return int(row.max()) + 1  # of what was given: inside `jit` all else is traced


def _positions(row: np.ndarray, here: str, above: Level | None = None) -> Array | np.ndarray:
    """Parents as positions in the level above, of any size if it is not given."""
    if row.dtype.kind in "iufb":
        where = "the level above" if above is None else f"level '{above.name}'"
        size = None if above is None else above.size
        return as_integers(row, f"{here}: parents in {where}", below=size)
    labels = (above and above.labels) or ()
    places = {label: position for position, label in enumerate(labels)}
    parents = row.tolist()
    try:
        return np.array([places[as_label(parent)] for parent in parents], np.int32)
    except (KeyError, TypeError):
        wrong = [i for i, parent in enumerate(parents) if not _is_key(parent, places)]
        node = max(wrong, key=lambda i: isinstance(parents[i], _SEVERAL))
        raise _no_parent(parents[node], f"{here}: node {node}", labels) from None


def _is_key(parent: Any, places: dict[Any, int]) -> bool:
    try:
        return as_label(parent) in places
    except TypeError:  # not hashable
        return False


def _no_parent(parent: Any, here: str, labels: Sequence[Any]) -> ValueError:
    if isinstance(parent, _SEVERAL):
        return ValueError(
            f"{here} has the parents {short(parent)}; in a tree every node has one. Where some have "
            "several, declare the levels by Level, with weights for each parent"
        )
    known = f"has {listed(labels)}" if labels else "has no labels: pass labels=[...]"
    return ValueError(
        f"{here} has the parent {short(parent)}; expected its position in the level above, or its label "
        f"there, which {known}"
    )


def _one_each(given: Any, count: int, what: str) -> list[Any]:
    if not isinstance(given, list | tuple) or len(given) != count:
        size = f"{len(given)} entries" if isinstance(given, list | tuple) else short(given)
        raise ValueError(
            f"tree: {what}: got {size}; expected a list of {count}, one for each level, top to bottom"
        )
    return list(given)


def _for_each(given: Any, depth: int, what: str) -> list[Any]:
    """An option of every level below the first."""
    if isinstance(given, list | tuple):
        if len(given) == depth:
            return list(given)
    elif np.ndim(given) != 1:
        return [given] * depth
    raise ValueError(
        f"tree: {what}: got {short(given)}; expected one for all levels below the first, or a list of "
        f"{depth}, one for each of them, top to bottom"
    )
