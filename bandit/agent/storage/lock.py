"""One agent at a time may be open in a folder."""

import os
from pathlib import Path
from weakref import WeakSet

__all__ = ["FolderInUse", "FolderLock"]


class FolderInUse(OSError):
    """A folder in which another agent is open, in this process or another one.

    Example:
        >>> from mixts.bandit import FolderInUse
        >>> isinstance(FolderInUse("agent is in use"), OSError)
        True
    """


class FolderLock:
    """Held from when it is made until it is released, or until the process ends, however it ends.

    A process made by fork does not hold it, or the folder would stay locked after the first has ended.

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
        """Unlock the folder; a second call does nothing."""
        # A file must not be closed twice: its number may be that of another file by then.
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


_HELD: WeakSet[FolderLock] = WeakSet()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: [lock.release() for lock in tuple(_HELD)])


def _lock(file: int) -> None:
    """Lock an open file, or raise at once."""
    if os.name == "nt":
        import msvcrt

        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # pyright: ignore[reportAttributeAccessIssue]
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
