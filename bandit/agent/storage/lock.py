"""One process at a time may work in a folder."""

import os
from pathlib import Path
from weakref import WeakSet

__all__ = ["FolderInUse", "FolderLock"]


class FolderInUse(OSError):
    """Another process, or another agent of this one, works in the folder."""


class FolderLock:
    """Held from when it is made until it is released, or until the process ends, however it ends.

    A process made by fork does not hold it: it would keep the folder locked when the first has ended.

    Args:
        folder: where the file `lock` is, or is made.
    """

    def __init__(self, folder: Path):
        self._file: int | None = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(self._file)
        except OSError:
            self.release()
            raise FolderInUse(
                f"{folder} is in use: an agent that was opened there has not been closed, in this process "
                "or another one. Let all requests go through one agent"
            ) from None
        _HELD.add(self)

    @property
    def is_held(self) -> bool:
        """Whether it has not been released, and this is the process that made it."""
        return self._file is not None

    def release(self) -> None:
        """Let others in; once is enough."""
        # What has been closed must not be closed again: its number may be that of another file by now.
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


_HELD: WeakSet[FolderLock] = WeakSet()


def _release_in_child() -> None:
    for lock in tuple(_HELD):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)


def _lock(file: int) -> None:
    """Lock an open file, or raise at once."""
    if os.name == "nt":
        import msvcrt

        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # pyright: ignore[reportAttributeAccessIssue]
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
