"""Where in a state the vectors of a level stand, and new ones in the places of spare ones."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
from jax import Array
from jaxtyping import Int

from ...models import Hierarchy
from .new_vectors import extend

__all__ = ["level_axes", "place"]

Tree = TypeVar("Tree")


def place(old: Tree, fresh: Tree, axes: Sequence[int | None], rows: Int[Array, " n"]) -> Tree:
    """`old` with what `fresh` has of n vectors in given places; those past the end are left out."""

    def placed(before: Array, new: Array, axis: int | None) -> Array:
        if axis is None:
            return before
        where = (*[slice(None)] * axis, rows)
        return before.at[where].set(new.astype(before.dtype), mode="drop")

    leaves, structure = jax.tree.flatten(old)
    pairs = zip(leaves, jax.tree.leaves(fresh), axes, strict=True)
    return jax.tree.unflatten(structure, [placed(*pair) for pair in pairs])


def level_axes(
    make: Callable[[Hierarchy], Any], hierarchy: Hierarchy, name: str
) -> list[int | None]:
    """For each array of what `make` makes of a hierarchy, the axis that goes over a level, or None.

    Found by making it, in shapes only, for one vector more: the axis that changes.
    """
    size = hierarchy[name].size
    shapes = [
        [leaf.shape for leaf in jax.tree.leaves(jax.eval_shape(make, extend(hierarchy, {name: n})))]
        for n in (size, size + 1)
    ]
    return [_changed(few, more) for few, more in zip(*shapes, strict=True)]


def _changed(few: tuple[int, ...], more: tuple[int, ...]) -> int | None:
    axes = [i for i, (a, b) in enumerate(zip(few, more, strict=True)) if a != b]
    assert len(axes) <= 1, "only what is kept jointly goes over vectors twice, and has no newcomers"
    return axes[0] if axes else None
