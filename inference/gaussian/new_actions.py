"""Actions that join while a bandit runs.

A hierarchy may have *spare* actions behind the real ones: weights of zero, nobody takes them, and so
they say nothing of the levels above. A newcomer's weights take the place of a spare one's, and what is
known of the effects is known of the newcomer at once: with no rewards of its own, its posterior is
`theta_i | z ~ N(mu_i + Gamma_i z, Sigma_{0,i})` under the posterior of `z` (Aouali et al. 2023,
Propositions 1 and 2). Shapes change only when the spare actions run out.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool

from ...models import Hierarchy, Level, Sparse
from ...models.covariance import is_joint, matrices

__all__ = ["action_axes", "carry_over", "extend", "newcomers"]

Tree = TypeVar("Tree")


def newcomers(
    hierarchy: Hierarchy, count: int | None, weights: Any, mean: Any = None, cov: Any = None
) -> Level:
    """New actions as a level of their own, checked against a hierarchy.

    Args:
        hierarchy: what they are to join.
        count: how many there are, where the weights do not say.
        weights: parent level's name -> `(m, parent_size)` numbers, `(m, parent_size, dim, dim)`
            matrices or `Sparse`, as the actions have; the weights alone where there is one parent; None
            where there is none.
        mean: as in `Level`; needed where actions have means of their own.
        cov: as in `Level`; needed where actions have covariances of their own.
    """
    actions, dim = hierarchy.actions, hierarchy.dim
    if not actions.parents and is_joint(actions.cov, actions.size, dim):
        raise ValueError(
            f"level '{actions.name}' has a joint covariance of all its vectors, which says nothing of "
            "new ones; declare how actions share effects, or independent ones"
        )
    parents = _as_declared(hierarchy, weights)
    rows = {_count(rows) for rows in parents.values()} or {count or 1}
    if len(rows) > 1 or (count is not None and rows != {count}):
        given = sorted(rows | ({count} if count is not None else set()))
        raise ValueError(
            f"weights, labels and means are of {' and '.join(map(str, given))} new actions; expected "
            "as many of each"
        )
    size = rows.pop()
    given = {"mean": (mean, actions.mean, 2), "cov": (cov, actions.cov, 3)}
    for what, (value, declared, ndim) in given.items():
        if value is None and declared.ndim == ndim:
            raise ValueError(
                f"every action of level '{actions.name}' has a {what} of its own; pass {what}= for new "
                "ones too"
            )
    level = Level(
        actions.name,
        size,
        parents=parents,
        mean=actions.mean if mean is None else mean,
        cov=actions.cov if cov is None else cov,
        link=actions.link,
    )
    level.check({level.name: level.size for level in hierarchy.levels}, dim)
    return level


def _as_declared(hierarchy: Hierarchy, weights: Any) -> dict[str, Any]:
    """Weights for each parent of the actions, in the form that the actions' own have."""
    declared = hierarchy.actions.parents or {}
    if not isinstance(weights, Mapping):
        if weights is None and not declared:
            return {}
        if len(declared) != 1 or weights is None:
            raise ValueError(
                f"got {type(weights).__name__} as weights; expected a dict with weights for each of "
                f"the parents {sorted(declared)}"
            )
        weights = {next(iter(declared)): weights}
    if set(weights) != set(declared):
        raise ValueError(
            f"got weights for the parents {sorted(weights)}; the actions have {sorted(declared)}"
        )
    return {
        parent: _in_form(weights[parent], declared[parent], hierarchy.dim, parent)
        for parent in declared
    }


def _in_form(weights: Any, declared: Any, dim: int, parent: str) -> Any:
    if isinstance(weights, Sparse) != isinstance(declared, Sparse):
        form = "Sparse" if isinstance(declared, Sparse) else "an array"
        raise ValueError(f"weights for parent '{parent}': expected {form}, as the actions have")
    if isinstance(declared, Sparse):
        return weights
    rows = np.asarray(weights)
    if declared.ndim == 4 and rows.ndim == 2:
        return rows[:, :, None, None] * np.eye(dim)
    if declared.ndim == 2 and rows.ndim == 4:
        raise ValueError(
            f"weights for parent '{parent}' are matrices; the actions have numbers: expected (m, "
            f"{declared.shape[1]})"
        )
    return rows


def _count(weights: Any) -> int:
    return len(weights.indices) if isinstance(weights, Sparse) else len(weights)


def extend(hierarchy: Hierarchy, level: Level | None, start: int, size: int) -> Hierarchy:
    """The hierarchy with `size` actions, those of `level` in place of the ones from `start` on.

    Actions beyond are spare. The labels of the actions are left out: they would be a different
    structure, and so a different program, after each newcomer. On the host, at O(K) copied rows.
    """
    actions, dim = hierarchy.actions, hierarchy.dim
    joined = {
        parent: _join_weights(
            weights, None if level is None else level.parents, parent, start, size
        )
        for parent, weights in (actions.parents or {}).items()
    }
    mean, cov = actions.mean, actions.cov
    if mean.ndim == 2 or (level is not None and not _same(level.mean, mean)):
        rows = None if level is None else np.broadcast_to(level.mean, (level.size, dim))
        each = np.broadcast_to(mean, (actions.size, dim))
        mean = _join_rows(each, rows, start, size, 0.0)
    if cov.ndim == 3 or (level is not None and not _same(level.cov, cov)):
        form = (dim, dim)
        own = (
            None
            if level is None
            else np.broadcast_to(matrices(level.cov, dim), (level.size, *form))
        )
        each = np.broadcast_to(matrices(cov, dim), (actions.size, *form))
        cov = _join_rows(each, own, start, size, np.eye(dim))
    last = replace(actions, size=size, parents=joined, mean=mean, cov=cov, labels=None)
    return Hierarchy([*hierarchy.levels[:-1], last], hierarchy.reward, dim)


def _same(one: Array, other: Array) -> bool:
    """Whether newcomers share what all actions share, and no more needs to be written down."""
    return one.shape == other.shape and np.array_equal(one, other)


def _join_weights(
    weights: Any, new: Mapping[str, Any] | None, parent: str, start: int, size: int
) -> Any:
    own = None if new is None else new[parent]
    if not isinstance(weights, Sparse):
        return _join_rows(weights, own, start, size, 0.0)
    width = max(part.indices.shape[1] for part in (weights, own) if part is not None)

    def wide(part: Any) -> np.ndarray | None:
        if part is None:
            return None
        return np.pad(np.asarray(part), ((0, 0), (0, width - part.shape[1])))

    indices, values = (
        _join_rows(wide(getattr(weights, name)), wide(getattr(own, name, None)), start, size, 0)
        for name in ("indices", "values")
    )
    return Sparse(indices, values, weights.num_parents)


def _join_rows(rows: Any, new: Any, start: int, size: int, spare: Any) -> np.ndarray:
    """`size` rows: the old ones, from `start` on the new ones, and then spare ones."""
    old = np.asarray(rows)
    joined = np.empty((size, *old.shape[1:]), old.dtype)
    joined[:] = spare
    joined[: len(old)] = old
    if new is not None:
        joined[start : start + len(new)] = new
    return joined


def carry_over(old: Tree, fresh: Tree, axes: list[int | None], is_new: Bool[Array, " K"]) -> Tree:
    """`fresh` for new actions, and for everything else what `old` has, bit for bit.

    Args:
        old: what is known now, of as many actions or fewer.
        fresh: the same before any data.
        axes: for each array, which of its axes goes over actions; see `action_axes`.
        is_new: (K,) which actions are new.
    """
    leaves, structure = jax.tree.flatten(fresh)
    kept = [
        before if axis is None else _carry(before, leaf, axis, is_new)
        for before, leaf, axis in zip(jax.tree.leaves(old), leaves, axes, strict=True)
    ]
    return jax.tree.unflatten(structure, kept)


def _carry(old: Array, fresh: Array, axis: int, is_new: Array) -> Array:
    if old.ndim != fresh.ndim:
        return fresh  # what all actions had in common, written out for each
    more = fresh.shape[axis] - old.shape[axis]
    if old.shape[axis] == 1 and more:
        old = jnp.broadcast_to(old, fresh.shape)
    elif more:
        old = jnp.pad(old, [(0, more if i == axis else 0) for i in range(old.ndim)])
    shape = [1] * fresh.ndim
    shape[axis] = len(is_new)
    return jnp.where(is_new.reshape(shape), fresh, old)


def action_axes(make: Callable[[Hierarchy], Any], hierarchy: Hierarchy) -> list[int | None]:
    """For each array of what `make` makes of a hierarchy, the axis that goes over actions, or None.

    Found by making it, in shapes only, for one action more: the axis that changes.
    """
    K = hierarchy.num_actions
    shapes = [
        [
            leaf.shape
            for leaf in jax.tree.leaves(jax.eval_shape(make, extend(hierarchy, None, K, n)))
        ]
        for n in (K, K + 1)
    ]
    return [_changed(few, more) for few, more in zip(*shapes, strict=True)]


def _changed(few: tuple[int, ...], more: tuple[int, ...]) -> int | None:
    axes = [i for i, (a, b) in enumerate(zip(few, more, strict=True)) if a != b]
    assert len(axes) <= 1, "only a joint covariance goes over actions twice, and has no newcomers"
    return axes[0] if axes else None
