"""The newest rows of a table that grows for ever, in arrays of bounded length."""

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

__all__ = ["FIRST_ROOM", "Ring"]

FIRST_ROOM = 1024

Self = TypeVar("Self", bound="Ring")


class Ring:
    """The newest `keep` rows: row number `t` is kept in place `t` modulo the room.

    A base of dataclasses, whose columns are arrays with an entry for every row there is room for.

    Attributes:
        keep: how many rows to keep.
        made: how many rows there have been so far: the number of the next one.
        names: those of the columns.
        blank: what a column is filled with where there is no row yet, if not by zeros.
    """

    keep: int
    made: int
    names: tuple[str, ...] = ()
    blank: dict[str, Any] = {}  # noqa: RUF012 (never changed)

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """All arrays by name, each with an entry for every row there is room for."""
        return {name: getattr(self, name) for name in self.names}

    @property
    def room(self) -> int:
        """How many rows the arrays have room for; it doubles until there is room for `keep`."""
        return len(getattr(self, self.names[0]))

    def kept(self) -> np.ndarray:
        """The numbers of the rows that are kept, the oldest first."""
        return np.arange(max(0, self.made - self.room), self.made)

    def copy(self: Self) -> Self:
        """The same rows in new arrays."""
        columns: Any = {name: values.copy() for name, values in self.columns.items()}
        return replace(self, **columns)  # pyright: ignore[reportArgumentType] (a dataclass)

    def places(self, n: int) -> Any:
        """Where the next `n` rows go, at most `keep` of them, with room made for them."""
        room = self.make_room(n)
        start = self.made % room
        is_contiguous = start + n <= room  # several times as fast
        return slice(start, start + n) if is_contiguous else (start + np.arange(n)) % room

    def make_room(self, n: int) -> int:
        """Double the arrays until they have room for the next `n` rows, or for `keep`; returns it."""
        room = self.room
        while room < min(self.made + n, self.keep):
            kept, before, room = self.kept(), room, min(2 * room, self.keep)
            for name, values in self.columns.items():
                grown = np.full((room, *values.shape[1:]), self.blank.get(name, 0), values.dtype)
                grown[kept % room] = values[kept % before]
                setattr(self, name, grown)
        return room
