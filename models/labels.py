"""Names of levels, and labels: what a user calls vectors, actions and the components of a context."""

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from jax import Array

from .messages import short

__all__ = ["RESERVED_NAMES", "as_hashable", "as_label", "as_labels", "check_name", "label_index"]

LONGEST_NAME = 100  # letters
RESERVED_NAMES = ("reward", "reward_noise", "observation")
_CONVERTED = "biufUS"  # kinds of NumPy's numbers and strings that Python has too, without loss


def as_label(value: Any) -> Any:
    """A label as Python's own number or string, where NumPy or JAX has given it."""
    if isinstance(value, np.generic | np.ndarray | Array) and value.ndim == 0:
        return value.item() if value.dtype.kind in _CONVERTED else value
    return value


def as_labels(labels: Any, size: int, here: str, each: str = "vector") -> tuple[Hashable, ...]:
    """`size` different labels, each of them hashable; errors begin with `here`.

    Labels are different if they are not equal, as keys of a dict are: so 1 and True are the same.
    """
    given = as_hashable(labels, size, here, each)
    if len(given) != size or len(set(given)) != size:
        raise ValueError(
            f"{here}: got {len(given)} labels, {len(set(given))} of them different; expected {size} "
            f"different ones, one per {each}"
        )
    return given


def as_hashable(labels: Any, size: int, here: str, each: str = "vector") -> tuple[Hashable, ...]:
    """Labels, each of them hashable and equal to itself; some may be the same."""
    several = isinstance(labels, Iterable) and not isinstance(labels, str | bytes)
    given = tuple(map(as_label, labels)) if several else ()
    wrong = [label for label in given if not _is_hashable(label) or label != label]
    if not several or wrong:
        what = f"hold {short(wrong[0])}" if wrong else f"are {short(labels)}"
        raise TypeError(
            f"{here}: labels {what}; expected a sequence of {size} strings, or other hashable values "
            f"that are equal to themselves, one per {each}"
        )
    return given


def _is_hashable(label: Any) -> bool:
    try:
        hash(label)
    except TypeError:
        return False
    return True


def label_index(labels: Iterable[Hashable]) -> np.ndarray:
    """Labels as one axis of a table: of one type where they are of one, and else as they are."""
    given = list(labels)
    kinds = set(map(type, given))
    if kinds in ({str}, {int}, {float}, {bool}):
        return np.asarray(given)
    rows = np.empty(len(given), object)
    rows[:] = given  # one by one: tuples stay what they are
    return rows


def check_name(name: Any) -> None:
    """Refuse a name of a level that no NumPyro site can have."""
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(
            f"level name {short(name)}; expected letters, digits and underscores, such as 'movie': it "
            "becomes the name of a NumPyro site"
        )
    if len(name) > LONGEST_NAME:
        raise ValueError(
            f"level name {short(name, 40)} has {len(name):,} letters; expected at most {LONGEST_NAME}"
        )
    if name in RESERVED_NAMES:
        raise ValueError(
            f"level name '{name}' is reserved (as are {', '.join(RESERVED_NAMES)}); the program has "
            "a site or plate of that name: choose another"
        )
