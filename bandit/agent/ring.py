"""The newest rows of a table that grows for ever, in arrays of bounded length."""

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

__all__ = ["FIRST_ROOM", "Ring"]

FIRST_ROOM = 1024

# So many times the room, and at least so many rows, are reserved when arrays are made: they grow in place,
# for to copy a hundred thousand rows would take milliseconds in the middle of a call.
_RESERVED, _FEWEST = 16, 1 << 17

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

    def __post_init__(self) -> None:
        self._reserved: dict[str, np.ndarray] = {}

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
        before = room = self.room
        while room < min(self.made + n, self.keep):
            room = min(2 * room, self.keep)
        if room > before:
            # All columns at once: an interrupt must not leave them of different lengths.
            vars(self).update({name: self._longer(name, room) for name in self.names})
        return room

    def _longer(self, name: str, room: int) -> np.ndarray:
        """A column with more room, in which every row is at its place."""
        values, blank = getattr(self, name), self.blank.get(name, 0)
        before, whole = len(values), self._reserved.get(name)
        if whole is None or values.base is not whole or len(whole) < room:
            # The system gives memory for what is written alone, so most of this takes none yet.
            rows = min(self.keep, max(_RESERVED * room, _FEWEST))
            whole = np.zeros((rows, *values.shape[1:]), values.dtype)
            whole[:before] = values
            self._reserved[name] = whole
        if blank:
            whole[before:room] = blank
        if self.made > before:  # rows are no longer at the places they began with
            kept = self.kept()
            whole[kept % room] = values[kept % before]
        return whole[:room]
