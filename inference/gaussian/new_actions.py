"""Actions that join while a bandit runs.

A hierarchy may have *spare* actions behind the real ones: with weights of zero and never chosen, they
do not change the levels above. A newcomer's weights take the place of a spare one's, and what is
known of the effects is known of the newcomer at once: with no rewards of its own, its posterior is
`theta_i | z ~ N(mu_i + Gamma_i z, Sigma_{0,i})` under the posterior of `z` (Aouali et al. 2023,
Propositions 1 and 2). Shapes change only when the spare actions run out.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Int

from ...models import Hierarchy, Level
from ...models.weights import in_form, join_rows, weights_shape

__all__ = ["action_axes", "carry_over", "extend", "first_action", "newcomers", "place", "same_form"]

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
    if not actions.parents and actions.covariance(dim).is_joint:
        raise ValueError(
            f"level '{actions.name}' has a joint covariance of all its vectors, which says nothing of "
            "new ones; declare how actions share effects, or independent ones"
        )
    parents = _as_declared(hierarchy, weights)
    rows = {weights_shape(own)[0] for own in parents.values()} or {count or 1}
    if len(rows) > 1 or (count is not None and rows != {count}):
        given = sorted(rows | ({count} if count is not None else set()))
        raise ValueError(
            f"weights, labels and means are of {' and '.join(map(str, given))} new actions; expected "
            "as many of each"
        )
    size = rows.pop()
    needed = {"mean": mean is None and actions.has_own_means}
    needed["cov"] = cov is None and actions.covariance(dim).is_own
    for what, is_missing in needed.items():
        if is_missing:
            raise ValueError(
                f"every action of level '{actions.name}' has a {what} of its own; pass {what}= for new "
                "ones too"
            )
    level = Level(
        actions.name,
        size,
        branching=_as_branching(actions, parents),
        parents=parents,
        mean=actions.mean if mean is None else mean,
        cov=actions.cov if cov is None else cov,
        link=actions.link,
    )
    level.check({level.name: level.size for level in hierarchy.levels}, dim)
    return level


def _as_branching(actions: Level, parents: dict[str, Any]) -> bool:
    """Whether new actions are kept as those of a tree: as the others are."""
    if actions.branching and not Level(actions.name, 1, parents=parents).branching:
        raise ValueError(
            f"every action of level '{actions.name}' has one parent at most, and some of the new ones have "
            "more; declare the level with branching=False, or migrate the agent to another hierarchy"
        )
    return bool(actions.branching)


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
        parent: in_form(weights[parent], like, hierarchy.dim, f"weights for parent '{parent}'")
        for parent, like in declared.items()
    }


def extend(hierarchy: Hierarchy, level: Level | None, start: int, size: int) -> Hierarchy:
    """The hierarchy with `size` actions, those of `level` in place of the ones from `start` on.

    Actions beyond are spare. The labels of the actions are left out: they would be a different
    structure, and so a different program, after each newcomer. On the host, at O(K) copied rows.
    """
    actions, dim = hierarchy.actions, hierarchy.dim
    new = {} if level is None else level.arrows
    joined = {
        parent: arrows.join(new.get(parent), start, size)
        for parent, arrows in actions.arrows.items()
    }
    mean, cov = actions.mean, actions.cov
    if actions.has_own_means or (level is not None and not _same(level.mean, mean)):
        rows = None if level is None else np.broadcast_to(level.mean, (level.size, dim))
        each = np.broadcast_to(mean, (actions.size, dim))
        mean = join_rows(each, rows, start, size)
    declared = actions.covariance(dim)
    if declared.is_own or (level is not None and not _same(level.cov, cov)):
        rows = None
        if level is not None:
            own = level.covariance(dim).matrices()
            rows = np.broadcast_to(own, (level.size, dim, dim))
        each = np.broadcast_to(declared.matrices(), (actions.size, dim, dim))
        cov = join_rows(each, rows, start, size, spare=np.eye(dim))
    last = actions.remade(size=size, parents=joined, mean=mean, cov=cov, labels=None)
    return hierarchy.remade(levels=[*hierarchy.levels[:-1], last])


def _same(one: Array, other: Array) -> bool:
    """Whether newcomers share what all actions share, and no more needs to be written down."""
    return one.shape == other.shape and np.array_equal(one, other)


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


def same_form(hierarchy: Hierarchy, level: Level, size: int) -> Level | None:
    """Newcomers as `size` actions in the form in which the others are declared, spare ones last.

    None if they have no such form: a mean or a covariance of their own, or more parents each.
    """
    actions, dim = hierarchy.actions, hierarchy.dim
    changes: dict[str, Any] = {}
    if actions.has_own_means:
        changes["mean"] = np.broadcast_to(level.mean, (level.size, dim))
    elif not _same(level.mean, actions.mean):
        return None
    if actions.covariance(dim).is_own:
        own = level.covariance(dim).matrices()
        changes["cov"] = np.broadcast_to(own, (level.size, dim, dim))
    elif not _same(level.cov, actions.cov):
        return None
    if changes:
        level = level.remade(**changes)
    if size > level.size:
        alone = hierarchy.remade(levels=[*hierarchy.levels[:-1], level])
        level = extend(alone, None, level.size, size).actions
    shapes = [[np.shape(leaf) for leaf in jax.tree.leaves(part)] for part in (level, actions)]
    shared_or_own = [
        ours == theirs or (ours[:1], theirs[:1], ours[1:]) == ((size,), (actions.size,), theirs[1:])
        for ours, theirs in zip(*shapes, strict=False)
    ]
    return level if len(shapes[0]) == len(shapes[1]) and all(shared_or_own) else None


def first_action(hierarchy: Hierarchy) -> Level:
    """The first action, as a newcomer would be declared."""
    actions, dim = hierarchy.actions, hierarchy.dim
    weights = jax.tree.map(lambda leaf: leaf[:1], dict(actions.parents or {}))
    mean = actions.mean[:1] if actions.has_own_means else None
    declared = actions.covariance(dim)
    cov = np.broadcast_to(declared.matrices(), (actions.size, dim, dim))[:1]
    return newcomers(hierarchy, 1, weights or None, mean, cov if declared.is_own else None)


def place(old: Tree, fresh: Tree, axes: list[int | None], rows: Int[Array, " n"]) -> Tree:
    """`old` with what `fresh` has of n actions in given places; those past the end are left out."""

    def placed(before: Array, new: Array, axis: int | None) -> Array:
        if axis is None:
            return before
        where = (*[slice(None)] * axis, rows)
        return before.at[where].set(new.astype(before.dtype), mode="drop")

    leaves, structure = jax.tree.flatten(old)
    pairs = zip(leaves, jax.tree.leaves(fresh), axes, strict=True)
    return jax.tree.unflatten(structure, [placed(*pair) for pair in pairs])


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
