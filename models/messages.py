"""What a user gave, in a message: short, however large it is."""

import reprlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from jax import Array

__all__ = ["listed", "short"]

_LETTERS = 200  # of a value
_NAMES = 12  # of a list of names


class _Short(reprlib.Repr):
    """Python's own shortened form of nested values; numbers in arrays are not written out."""

    def __init__(self):
        super().__init__()
        self.maxstring = self.maxother = self.maxlong = _LETTERS
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = 6

    def repr1(self, x: Any, level: int) -> str:
        if isinstance(x, np.ndarray | Array) and x.size > self.maxlist:
            return f"<array of shape {x.shape} and type {x.dtype}>"
        return super().repr1(x, level)


def short(value: Any, most: int = _LETTERS) -> str:
    """A value as Python writes it, cut to a length that fits a message.

    Example:
        >>> from mixts.models.messages import short
        >>> short("up"), short(list(range(1000)))
        ("'up'", '[0, 1, 2, 3, 4, 5, ...]')
    """
    text = _Short().repr(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def listed(values: Iterable[Any], most: int = _NAMES) -> str:
    """The first few of some values, and how many more there are.

    Example:
        >>> from mixts.models.messages import listed
        >>> listed(["Heat", "Up", "Big"], most=2)
        "'Heat', 'Up' and 1 more"
    """
    given = list(values)
    first = ", ".join(short(value, 80) for value in given[:most])
    return first if len(given) <= most else f"{first} and {len(given) - most:,} more"
