"""Vectors that join a hierarchy while a bandit runs: actions, and nodes above them.

A level may have *spare* vectors behind the real ones: never chosen, and without children, they change
nothing else. A newcomer takes the place of a spare one, and what is known of its parents is known of it at
once: with no rewards of its own, its posterior is `theta_i | z ~ N(mu_i + Gamma_i z, Sigma_{0,i})` under
the posterior of `z` (Aouali et al. 2023, Propositions 1 and 2). So what is kept of it given its parents is
what the prior has. That is all there is to do where a level is kept in blocks (`block_levels`), as actions
always are. Shapes change only when the spare vectors run out.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool
from numpyro.distributions import Distribution

from ...models import Hierarchy, Level
from ...models.arrays import as_array, as_numbers
from ...models.covariance import as_covariance, check_covariance
from ...models.level import are_single, check_mean
from ...models.spreads import refuse_distribution
from ...models.weights import as_operator, in_form, join_rows, shape_of

__all__ = [
    "NewVectors",
    "Rows",
    "alone",
    "carry_over",
    "extend",
    "first_of",
    "newcomers",
    "on_parents",
    "rows_of",
]

Tree = TypeVar("Tree")


class Rows(NamedTuple):
    """What is declared of some vectors: weights on each parent, and a mean and a covariance or None."""

    parents: dict[str, Any]
    mean: Any = None
    cov: Any = None

    def declared(self, others: Level, size: int) -> Level:
        """A level of `size` such vectors; what is None they share with the others."""
        own = {"mean": self.mean, "cov": self.cov}
        changes = {what: given for what, given in own.items() if given is not None}
        return others.remade(
            size=size, parents=self.parents, branching=others.branching, labels=None, **changes
        )


class NewVectors(NamedTuple):
    """New vectors of a level, checked against the hierarchy that they are to join.

    Weights and means are NumPy's: a compiled call takes these in faster than they become JAX's one by one.

    Attributes:
        name: of the level.
        size: how many there are.
        rows: what is declared of them.
    """

    name: str
    size: int
    rows: Rows

    @property
    def parents(self) -> dict[str, Any]:
        """Parent level's name -> weights."""
        return self.rows.parents

    def on_parents(self, sizes: Mapping[str, int]) -> "NewVectors":
        """The same where parent levels have other sizes."""
        changed = _on_sizes(self.parents, sizes)
        if not changed:
            return self
        return self._replace(rows=self.rows._replace(parents=self.parents | changed))

    def declared(self, others: Level) -> Level:
        """A level of these vectors alone, like the others."""
        return self.rows.declared(others, self.size)


def newcomers(
    hierarchy: Hierarchy,
    count: int | None,
    weights: Any,
    mean: Any = None,
    cov: Any = None,
    *,
    name: str | None = None,
    sizes: Mapping[str, int] | None = None,
) -> NewVectors:
    """New vectors of a level, checked against a hierarchy.

    What they share with the others was checked when that was declared.

    Args:
        hierarchy: what they are to join.
        count: how many there are, where the weights do not say.
        weights: parent level's name -> `(m, parent_size)` numbers, `(m, parent_size, dim, dim)`
            matrices or `Sparse`, as the others have; the weights alone where there is one parent; None
            where there is none.
        mean: as in `Level`; needed where the others have means of their own.
        cov: as in `Level`; needed where the others have covariances of their own.
        name: the level they join; by default that of the actions.
        sizes: how many vectors levels have, where that is not what the hierarchy has room for.
    """
    name, dim = hierarchy.actions.name if name is None else name, hierarchy.dim
    others = hierarchy[name]
    each = "action" if others is hierarchy.actions else "node"
    if others.drift is not None and others.walk(dim).is_own:
        raise ValueError(
            f"every {each} of level '{name}' drifts by a covariance of its own; declare a drift that all "
            f"share, so that new {each}s have one too"
        )
    if others.is_joint(dim):
        raise ValueError(
            f"level '{name}' has a joint covariance of all its vectors, which says nothing of "
            f"new ones; declare how {each}s share effects, or independent ones"
        )
    parents = _as_declared(others, weights, dim, f"the {each}s")
    rows = {shape_of(own)[0] for own in parents.values()} or {count or 1}
    if len(rows) > 1 or (count is not None and rows != {count}):
        given = sorted(rows | ({count} if count is not None else set()))
        raise ValueError(
            f"weights, labels and means are of {' and '.join(map(str, given))} new {each}s; expected "
            "as many of each"
        )
    size = rows.pop()
    needed = {"mean": mean is None and others.has_own_means}
    needed["cov"] = cov is None and others.has_own_covs
    for what, is_missing in needed.items():
        if is_missing:
            raise ValueError(
                f"every {each} of level '{name}' has a {what} of its own; pass {what}= for new ones too"
            )
    here, known = f"level '{name}'", {level.name: level.size for level in hierarchy.levels}
    known |= sizes or {}
    for parent, own in parents.items():
        what = f"{here}: weights for parent '{parent}'"
        as_operator(own).check(size, known[parent], dim, what)
    if others.branching and not are_single([as_operator(own) for own in parents.values()]):
        raise ValueError(
            f"every {each} of level '{name}' so far has one parent at most, which is why the levels above "
            f"are kept as a tree; some of the new ones have more, and would tie their parents together. "
            f"Declare a hierarchy that has the new {each}s, and move the agent to it by Agent.migrate: it "
            f"learns again from all that it has seen. Where such {each}s are to be expected, declare the "
            "level with branching=False from the start"
        )
    if mean is not None:
        mean = as_array(mean, f"{here}: mean")
        check_mean(mean, size, dim, here)
    if cov is not None and others.scale is not None:
        raise ValueError(
            f"{here} learns one scale for all its vectors; leave cov out, and new ones share it"
        )
    if cov is not None:
        refuse_distribution(cov, here)
        cov = as_numbers(cov, f"{here}: cov")
        check_covariance(cov, size, dim, has_parents=bool(parents), what=f"{here}: cov")
    return NewVectors(name, size, Rows(parents, mean, cov))


def _as_declared(others: Level, weights: Any, dim: int, whose: str) -> dict[str, Any]:
    """Weights for each parent of a level, in the form that the others' have."""
    declared = others.parents or {}
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
            f"got weights for the parents {sorted(weights)}; {whose} have {sorted(declared)}"
        )
    return {
        parent: in_form(weights[parent], like, dim, f"weights for parent '{parent}'")
        for parent, like in declared.items()
    }


def extend(
    hierarchy: Hierarchy,
    sizes: Mapping[str, int],
    new: Mapping[str, tuple[NewVectors, int]] | None = None,
) -> Hierarchy:
    """The hierarchy with levels of other sizes, and with newcomers in some places.

    Vectors beyond the known ones are spare; where a size is smaller, the last ones are left out. The
    labels of these levels are left out: they would be a different structure, and so a different
    program, after each newcomer. On the host, at O(size) copied rows.

    Args:
        hierarchy: what to begin with.
        sizes: level's name -> its new size.
        new: level's name -> newcomers, and the place of the first of them.
    """
    levels = []
    for level in hierarchy.levels:
        level, own, start = on_parents(level, sizes), None, 0
        if new is not None and level.name in new:
            given, start = new[level.name]
            own = given.on_parents(sizes).declared(level)
        if level.name in sizes:
            level = _joined(level, own, start, sizes[level.name], hierarchy.dim)
        levels.append(level)
    return hierarchy.remade(levels=levels)


def on_parents(level: Level, sizes: Mapping[str, int]) -> Level:
    """A level whose parent levels have other sizes: on new parents it has weights of zero."""
    parents = dict(level.parents or {})
    changed = _on_sizes(parents, sizes)
    return level.remade(parents=parents | changed, branching=level.branching) if changed else level


def _on_sizes(parents: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
    """Weights for parent levels of other sizes, of those whose size changes."""
    return {
        parent: as_operator(weights).on_parents(sizes[parent])
        for parent, weights in parents.items()
        if parent in sizes and shape_of(weights)[1] != sizes[parent]
    }


def _joined(level: Level, new: Level | None, start: int, size: int, dim: int) -> Level:
    """`size` vectors: those of a level, with new ones in place of those from `start` on."""
    theirs = {} if new is None else new.arrows
    joined = {
        parent: arrows.join(theirs.get(parent), start, size)
        for parent, arrows in level.arrows.items()
    }
    mean, cov = level.mean, level.cov
    if level.has_own_means or (new is not None and not _same(new.mean, mean)):
        rows = None if new is None else np.broadcast_to(new.mean, (new.size, dim))
        each = np.broadcast_to(mean, (level.size, dim))
        mean = join_rows(each, rows, start, size)
    if level.has_own_covs or (new is not None and not _same(new.cov, cov)):
        declared, rows = level.covariance(dim), None
        if new is not None:
            own = new.covariance(dim).matrices()
            rows = np.broadcast_to(own, (new.size, dim, dim))
        each = np.broadcast_to(declared.matrices(), (level.size, dim, dim))
        cov = join_rows(each, rows, start, size, spare=np.eye(dim))
    known = {} if level.scale is not None else {"cov": cov}
    return level.remade(size=size, parents=joined, mean=mean, labels=None, **known)


def _same(one: Any, other: Any) -> bool:
    """Whether newcomers share what all vectors share, and no more needs to be written down."""
    if isinstance(one, Distribution) or isinstance(other, Distribution):
        return one is other
    return one.shape == other.shape and np.array_equal(one, other)


def carry_over(
    old: Tree, fresh: Tree, axes: Sequence[Mapping[str, int]], is_new: Mapping[str, Bool[Any, " _"]]
) -> Tree:
    """`fresh` for new vectors, and for everything else what `old` has, bit for bit.

    Args:
        old: what is known now, of as many vectors or fewer.
        fresh: the same before any data.
        axes: for each array, which of its axes go over which levels; see `level_axes`.
        is_new: level's name -> which of its vectors are new.
    """
    leaves, structure = jax.tree.flatten(fresh)
    kept = [
        _carry(before, leaf, [(axis, is_new[name]) for name, axis in own.items()])
        for before, leaf, own in zip(jax.tree.leaves(old), leaves, axes, strict=True)
    ]
    return jax.tree.unflatten(structure, kept)


def _carry(old: Array, fresh: Array, is_new: list[tuple[int, Array]]) -> Array:
    if is_new and old.ndim != fresh.ndim:
        return fresh  # what all vectors had in common, written out for each
    for axis, _ in is_new:
        more = fresh.shape[axis] - old.shape[axis]
        if old.shape[axis] == 1 and more:
            old = jnp.repeat(old, fresh.shape[axis], axis)
        elif more:
            old = jnp.pad(old, [(0, more if i == axis else 0) for i in range(old.ndim)])
    for axis, mask in is_new:
        shape = [1] * fresh.ndim
        shape[axis] = len(mask)
        old = jnp.where(mask.reshape(shape), fresh, old)
    return old


def rows_of(hierarchy: Hierarchy, new: NewVectors, size: int) -> Rows | None:
    """New vectors in `size` rows in the form in which the others are declared, spare ones last.

    None if they have no such form: a mean or a covariance of their own, or more parents each.
    """
    others, dim, (parents, mean, cov) = hierarchy[new.name], hierarchy.dim, new.rows
    if others.has_own_means:
        mean = join_rows(np.broadcast_to(mean, (new.size, dim)), None, new.size, size)
    elif mean is None or _same(mean, others.mean):
        mean = None
    else:
        return None
    if others.has_own_covs:
        own = as_covariance(cov, new.size, dim).matrices()
        each = np.broadcast_to(own, (new.size, dim, dim))
        cov = join_rows(each, None, new.size, size, spare=np.eye(dim))
    elif cov is None or _same(cov, others.cov):
        cov = None
    else:
        return None
    if size > new.size:
        parents = {p: as_operator(own).join(None, new.size, size) for p, own in parents.items()}
    shapes = [[np.shape(leaf) for leaf in jax.tree.leaves(p)] for p in (parents, others.parents)]
    shared_or_own = [
        ours == theirs or (ours[:1], theirs[:1], ours[1:]) == ((size,), (others.size,), theirs[1:])
        for ours, theirs in zip(*shapes, strict=False)
    ]
    is_alike = len(shapes[0]) == len(shapes[1]) and all(shared_or_own)
    return Rows(parents, mean, cov) if is_alike else None


def first_of(hierarchy: Hierarchy, name: str) -> NewVectors:
    """The first vector of a level, as a newcomer would be declared."""
    others, dim = hierarchy[name], hierarchy.dim
    parents = dict(others.parents or {})
    weights = jax.tree.map(lambda leaf: leaf[:1] if leaf.ndim else leaf, parents)
    mean = others.mean[:1] if others.has_own_means else None
    own = others.covariance(dim).matrices()[:1] if others.has_own_covs else None
    return newcomers(hierarchy, 1, weights or None, mean, own, name=name)


def alone(hierarchy: Hierarchy, name: str) -> Callable[[Hierarchy, Level], Hierarchy]:
    """What makes a hierarchy in which newcomers are all there is of a level.

    Levels below have one vector each, which is not a child of any newcomer; those above are as they
    are. It is a hierarchy of the same structure, so that an array of anything made of it has the same
    axes; and it can be made inside `jit`, of a hierarchy like the one that is given here.
    """
    place = [level.name for level in hierarchy.levels].index(name)
    small = {level.name: 1 for level in hierarchy.levels[place:]}
    below = [
        on_parents(_without_parents(_joined(level, None, 0, 1, hierarchy.dim)), small)
        for level in hierarchy.levels[place + 1 :]
    ]

    def of_newcomers(like: Hierarchy, level: Level) -> Hierarchy:
        rest = [on_parents(each, {name: level.size}) for each in below]
        return like.remade(levels=[*like.levels[:place], level, *rest])

    return of_newcomers


def _without_parents(level: Level) -> Level:
    weights = jax.tree.map(np.zeros_like, dict(level.parents or {}))
    return level.remade(parents=weights, branching=level.branching)
