"""Declarations as JAX pytrees: arrays are leaves, everything else is structure."""

from typing import Any, TypeVar

import jax

__all__ = ["register_declaration"]

T = TypeVar("T")


def register_declaration(cls: type[T], *, arrays: tuple[str, ...], static: tuple[str, ...]) -> None:
    """Make the frozen dataclass `cls` a pytree whose children are the fields in `arrays`.

    Rebuilding one from its leaves does not run `__init__`, so the checks of a declaration run once,
    when a user writes it down, and never on tracers, batch axes or other stand-ins for numbers.
    """

    def flatten_with_keys(node: Any):
        children = [(jax.tree_util.GetAttrKey(name), getattr(node, name)) for name in arrays]
        return children, tuple(getattr(node, name) for name in static)

    def flatten(node: Any):
        return [getattr(node, name) for name in arrays], tuple(getattr(node, n) for n in static)

    def unflatten(structure: tuple[Any, ...], children: Any) -> T:
        node = object.__new__(cls)
        for name, value in zip((*arrays, *static), (*children, *structure), strict=True):
            object.__setattr__(node, name, value)
        return node

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
