"""A folder that holds an agent: a snapshot of its state, and a journal of the changes since.

    lock                            held while an agent is open
    snapshot-00000000000000000120   the agent after record 120 (`snapshot`)
    journal-00000000000000000120    the records from 121 on (`journal`)

Opening reads the newest valid snapshot and makes the changes of the journals after it again. A decision
is recorded with the action that was chosen, so that it stays the same even where other hardware rounds
differently; everything else is computed again, by the same calls in the same order.

For a snapshot, first a new journal is begun and then the snapshot is written; older files are removed
when it is on the disk. So at every moment there is a snapshot with all journals after it. The snapshot
before the newest is kept as well, in case the newest is damaged.
"""

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ....inference.progress import task
from ...atomic_file import sync_folder
from ...policies.policy import Policy
from ..state import AgentState
from .declaration import decode, encode, foreign_parts, named_arrays
from .file import AgentFileError
from .journal import Journal, JournalError, Record, read_journal
from .lock import FolderLock
from .snapshot import read_state, write_state

__all__ = ["AgentFolder", "repeat"]

_CHANGES = frozenset(
    (
        *("decide", "update", "reward", "discount", "reserve"),
        *("add_actions", "remove_actions", "reopen_actions"),
    )
)
_KEPT = 2  # snapshots


class AgentFolder:
    """Reads an agent from a folder, and writes the changes of the open agent to it.

    Locked when it is made. Then `newest_state` and `replay`, or `begin`; then `follow`.

    Args:
        folder: where; it is made if there is none.
        fsync: see `Journal`.
        snapshot_every: after how many records to write a snapshot.
        must_exist: whether to refuse a folder that is not there.
    """

    def __init__(self, folder: Any, *, fsync: bool, snapshot_every: int, must_exist: bool):
        self.path, self._fsync, self._every = Path(folder), fsync, snapshot_every
        if self.path.exists() and not self.path.is_dir():
            raise AgentFileError(
                f"{folder} is a file, not a folder; Agent.load reads what `save` wrote"
            )
        if must_exist and not self.path.exists():
            raise self.no_agent()
        self.path.mkdir(parents=True, exist_ok=True)
        self.lock = FolderLock(self.path)
        self._snapshotting = threading.Lock()
        self._last = self._saved = self._tried = 0  # numbers of records

    def no_agent(self) -> AgentFileError:
        """The error that there is no agent in the folder."""
        return AgentFileError(f"{self.path} holds no agent; hand in a policy to begin with")

    # Opening.

    def newest_state(self, policy: Policy | None) -> AgentState | None:
        """The newest snapshot that can be read; None if there is none, an error if all are damaged."""
        for file in self.path.glob(".snapshot-*"):  # not finished
            file.unlink()
        errors = []
        for number in reversed(self._numbers("snapshot")):
            try:
                state = read_state(self._file("snapshot", number), policy)
            except AgentFileError as error:
                errors.append(error)
            else:
                self._last = number
                return state
        if errors:
            raise errors[0]
        return None

    def begin(self, state: AgentState) -> None:
        """Write the first snapshot of a new agent and an empty journal."""
        for number in self._numbers("journal"):  # of a beginning that was interrupted
            if read_journal(self._file("journal", number), number + 1, is_last=True)[0]:
                raise AgentFileError(
                    f"{self.path} has journals but no snapshot to begin with; use an earlier copy of the "
                    "folder"
                )
        self._file("journal", 0).touch()
        sync_folder(self.path)
        write_state(self._file("snapshot", 0), state)

    def replay(self, redo: Callable[[str, dict[str, Any]], None]) -> None:
        """Make all changes since the newest snapshot again."""
        journals = [n for n in self._numbers("journal") if n >= self._last]
        if not journals or journals[0] != self._last:
            raise AgentFileError(
                f"{self.path} has no journal that begins after record {self._last}, where the snapshot "
                "ends: a part of it is missing; use an earlier copy of the folder"
            )
        for base in journals:
            file = self._file("journal", base)
            if base != self._last:
                raise AgentFileError(
                    f"{file} begins after record {base}, but the one before it ends with {self._last}: "
                    "a part of the journal is missing; use an earlier copy of the folder"
                )
            records, length = read_journal(file, base + 1, is_last=base == journals[-1])
            with task("Agent.open: changes since the snapshot", len(records), "changes") as bar:
                for record in records:
                    repeat(redo, record, file)
                    bar.advance()
            self._last += len(records)
            if length < file.stat().st_size:  # a record that was never finished
                with open(file, "r+b") as opened:
                    opened.truncate(length)
                    os.fsync(opened.fileno())

    def follow(self, agent_lock: Any, state: Callable[[], AgentState]) -> None:
        """Begin to write changes of an agent, given its lock and what returns its state."""
        self._agent_lock, self._state = agent_lock, state
        self._base = self._numbers("journal")[-1]
        self._saved = self._tried = self._numbers("snapshot")[-1]
        self.journal = Journal(self._file("journal", self._base), self._last, fsync=self._fsync)

    # While the agent is open.

    def check_process(self) -> None:
        """Refuse to continue in a process made by fork, where two would write to one journal."""
        if not self.lock.is_held and self.journal.trouble is None:
            raise JournalError(
                f"{self.path} was opened by the process that this one was forked from, and is that "
                "one's alone: open agents after the fork, or let all requests go through one process"
            )

    def record(self, change: str, arguments: dict[str, Any]) -> None:
        """Append a change that is about to be made to the journal; the agent's lock is held."""
        node = encode(arguments)
        if foreign_parts(node):
            raise TypeError(f"{change}: {foreign_parts(node)[0]} cannot be written to a journal")
        arrays = {
            name: np.asarray(leaf)
            for name, leaf in named_arrays(arguments).items()
            if not isinstance(leaf, bool | int | float | str)
        }
        self.journal.append({"call": change, "arguments": node}, arrays)

    def wait(self, number: int) -> None:
        """Return when a record is on the disk; write a snapshot if it is due."""
        self.journal.wait(number)
        is_due = self.journal.number - self._tried >= self._every
        if is_due and self._snapshotting.acquire(blocking=False):
            try:
                self._tried = self.journal.number
                self._write_snapshot()
            except OSError as error:
                # The change itself is on the disk, and the call must succeed: the journal only grows.
                warnings.warn(f"no snapshot could be written to {self.path}: {error}", stacklevel=2)
            finally:
                self._snapshotting.release()

    def snapshot(self) -> None:
        """Write the agent's state, so that opening it has few changes to make again."""
        self.check_process()
        with self._snapshotting:
            self._write_snapshot()

    @contextmanager
    def replacing(self) -> Iterator[Callable[[Callable[[], AgentState]], None]]:
        """While nobody writes a snapshot or changes the agent: what writes a state in place of its own.

        From then on the folder holds that state, and no earlier one to fall back on. If what follows
        fails, nothing more is recorded, for the agent would differ from its folder.
        """
        self.check_process()
        has_begun = False

        def write(state: Callable[[], AgentState]) -> None:
            nonlocal has_begun
            new = state()
            number = self._next_journal()
            has_begun = True
            self._keep(number, new, kept=1)

        with self._snapshotting, self._agent_lock:
            if self.journal.trouble is not None:
                raise JournalError(f"{self.journal.trouble}; open the agent again")
            try:
                yield write
            except BaseException as error:
                if has_begun and not isinstance(error, OSError):
                    self.journal.spoil(error)
                raise

    def _write_snapshot(self) -> None:
        with self._agent_lock:
            if self.journal.number == self._saved:
                return
            state, number = self._state(), self._next_journal()
        self._keep(number, state, _KEPT)

    def _next_journal(self) -> int:
        """Continue in a journal that begins after all changes so far: the number of the last."""
        number = self.journal.number
        if number != self._base:
            self.journal.continue_in(self._file("journal", number))
            self._base = number
        return number

    def _keep(self, number: int, state: AgentState, kept: int) -> None:
        """Write a snapshot after the given record, and remove what is older than the newest few."""
        write_state(self._file("snapshot", number), state)
        self._saved = self._tried = number
        oldest = self._numbers("snapshot")[-kept:][0]
        for kind in ("snapshot", "journal"):
            for old in self._numbers(kind):
                if old < oldest:
                    self._file(kind, old).unlink()

    def close(self) -> None:
        """Write everything to the disk, and let others open the folder."""
        with self._snapshotting, self._agent_lock:
            try:
                self.journal.close()
            finally:
                self.lock.release()

    def _file(self, kind: str, number: int) -> Path:
        return self.path / f"{kind}-{number:020}"

    def _numbers(self, kind: str) -> list[int]:
        """The numbers of all files of a kind, in order."""
        names = (file.name.removeprefix(f"{kind}-") for file in self.path.glob(f"{kind}-*"))
        return sorted(int(name) for name in names if name.isdecimal())


def repeat(redo: Callable[[str, dict[str, Any]], None], record: Record, file: Path) -> None:
    """Make the change of a record again."""
    try:
        change, arguments = record.header["call"], decode(record.header["arguments"], record.arrays)
        if change not in _CHANGES:
            raise ValueError(f"{change!r} is nothing that an agent does")
        redo(change, arguments)
    except Exception as error:
        raise AgentFileError(
            f"{file}, record {record.number} cannot be done again: {error}"
        ) from error
