"""Contexts that name their components: put in the order that a hierarchy declares, or refused."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from jax import Array

from .arrays import as_numbers
from .labels import as_label
from .messages import listed

__all__ = ["as_contexts", "in_order", "index_names"]


def as_contexts(value: Any, components: Sequence[Hashable] | None, what: str) -> Array:
    """Contexts as an array of numbers; those with names are matched by name."""
    return as_numbers(in_order(value, components, what), what)


def in_order(value: Any, components: Sequence[Hashable] | None, what: str) -> Any:
    """One context or many, components last and in the order declared; what has no names as it is.

    Names are the keys of a dict, the index of a pandas `Series` or the columns of a table, pandas' or
    another's; a list may hold several of these. Positions as names, 0, 1, ... in order, are none.

    Args:
        value: what a user gives as a context, or as many.
        components: the names in the order of a vector's numbers, or None where none are declared.
        what: what errors call it.
    """
    if isinstance(value, np.ndarray | Array):
        return value
    if isinstance(value, list | tuple):
        has_names = any(_names(part) is not None for part in value)
        return [in_order(part, components, what) for part in value] if has_names else value
    names = _names(value)
    if names is None:
        return value
    order = _order(names, components, what)
    if isinstance(value, Mapping):
        numbers = [np.asarray(part) for part in value.values()]
        return np.stack([numbers[i] for i in order], axis=-1)
    return np.asarray(value)[..., order]


def index_names(value: Any) -> list[Any] | None:
    """The names of the rows of a pandas object; None where they are numbered 0, 1, ... or not named."""
    return _unless_numbered(getattr(value, "index", None), value)


def _names(value: Any) -> list[Any] | None:
    """The names of the components of a context, or None."""
    if isinstance(value, Mapping):
        return list(value)
    if getattr(value, "columns", None) is not None:
        return _unless_numbered(value.columns, value)
    if len(getattr(value, "coords", ())):  # of xarray
        return list(value.coords)
    return index_names(value)


def _unless_numbered(names: Any, value: Any) -> list[Any] | None:
    # The index of a list or a string is a method.
    if names is None or callable(names) or not hasattr(value, "__array__"):
        return None
    given = [as_label(name) for name in names]
    return None if given == list(range(len(given))) else given


def _order(names: list[Any], components: Sequence[Hashable] | None, what: str) -> list[int]:
    """The place of each component among the names."""
    if components is None:
        raise ValueError(
            f"{what}: its components are named {listed(names)}, and there are no names to match them by; "
            "declare Hierarchy(..., components=[...]), whose method `contexts` puts them in order, or hand "
            "in a plain array, such as .to_numpy(), in the order of the hierarchy's vectors"
        )
    missing = [name for name in components if name not in names]
    unknown = [name for name in names if name not in components]
    wrong = [f"{listed(missing)} missing"] if missing else []
    wrong += [f"{listed(unknown)} unknown"] if unknown else []
    if wrong or len(names) != len(components):
        found = " and ".join(wrong) or "some given twice"
        raise ValueError(
            f"{what}: its components are named {listed(names)}; expected {listed(components)}, each "
            f"once, in any order: {found}"
        )
    return [names.index(name) for name in components]
