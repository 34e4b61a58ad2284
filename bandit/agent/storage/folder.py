"""An agent that lives in a folder: a snapshot of all it knew, and a journal of what happened since.

    lock                            held while an agent is open
    snapshot-00000000000000000120   the agent after record 120 (`agent_storage`)
    journal-00000000000000000120    the records from 121 on (`journal`)

Opening takes the newest sound snapshot and does again what the journals from there on say. A decision
is recorded with the action that was chosen, so that it stays what it was even where other hardware would
round otherwise; everything else is computed again, by the same calls in the same order.

A snapshot goes on in a new journal first and is then written; older files go when it is on the disk. At
every moment some snapshot and all journals from it on are there. The snapshot before the newest is
kept as well, should the newest be damaged.
"""

import os
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from ...atomic_file import sync_folder
from ...policies.policy import Policy
from ..state import AgentState
from .declaration import decode, encode, foreign_parts, named_arrays
from .file import AgentFileError
from .journal import Journal, JournalError, Record, read_journal
from .lock import FolderLock
from .snapshot import read_state, write_state

__all__ = ["AgentFolder", "Recorded", "open_folder"]

_CALLS = frozenset(["decide", "update", "reward", "add_actions", "remove_actions"])
_KEPT = 2  # snapshots


@runtime_checkable
class Recorded(Protocol):
    """What an agent must have to live in a folder."""

    _lock: Any
    _journal: Any

    def state(self) -> AgentState:
        """Everything it knows."""
        ...

    def redo(self, change: str, arguments: dict[str, Any]) -> None:
        """Make a change again."""


SomeAgent = TypeVar("SomeAgent", bound=Recorded)


def open_folder(
    folder: Any,
    make: Callable[[], SomeAgent] | None,
    restore: Callable[[AgentState], SomeAgent],
    policy: Policy | None,
    *,
    fsync: bool,
    snapshot_every: int,
) -> SomeAgent:
    """The agent in a folder, as it was when it last answered; a new one where there is none.

    Args:
        folder: it is made if it is not there.
        make: makes a new agent; None if there must be one.
        restore: makes an agent from a state.
        policy: what the agent was made with, or None: see `agent_storage.read_state`.
        fsync: see `Journal`.
        snapshot_every: after how many records to write a snapshot.
    """
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise AgentFileError(f"{path} is a file, not a folder; Agent.load reads what `save` wrote")
    if make is None and not path.exists():
        raise AgentFileError(f"{path} holds no agent; hand in a policy to begin with")
    path.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(path)
    try:
        _sweep(path)
        if _numbers(path, "snapshot"):
            agent, number = _recover(path, restore, policy)
        elif make is None:
            raise AgentFileError(f"{path} holds no agent; hand in a policy to begin with")
        else:
            agent, number = _begin(path, make()), 0
        base = _numbers(path, "journal")[-1]
        journal = Journal(_file(path, "journal", base), number, fsync=fsync)
    except BaseException:
        lock.release()
        raise
    agent._journal = AgentFolder(path, agent, journal, lock, base, snapshot_every)
    return agent


class AgentFolder:
    """Writes down what an open agent is asked; see `agent_guard.Journal`."""

    def __init__(
        self,
        path: Path,
        agent: Recorded,
        journal: Journal,
        lock: FolderLock,
        base: int,
        snapshot_every: int,
    ):
        self._path, self._agent, self._journal, self._lock = path, agent, journal, lock
        self._base, self._every = base, snapshot_every
        self._snapshotting = threading.Lock()
        self._saved = _numbers(path, "snapshot")[-1]
        self._tried = self._saved

    @property
    def number(self) -> int:
        """How many changes have been written down, in all journals."""
        return self._journal.number

    @property
    def trouble(self) -> str | None:
        """Why nothing more is written down, or None."""
        return self._journal.trouble

    def check_process(self) -> None:
        """Refuse to go on in a process made by fork, where two would write to one journal."""
        if not self._lock.is_held and self._journal.trouble is None:
            raise JournalError(
                f"{self._path} was opened by the process that this one was forked from, and is that "
                "one's alone: open agents after the fork, or let all requests go through one process"
            )

    def record(self, method: str, arguments: dict[str, Any]) -> int:
        """Write down a change that is about to be made; its number. The agent's lock is held."""
        node = encode(arguments)
        if foreign_parts(node):
            raise TypeError(f"{method}: {foreign_parts(node)[0]} cannot be written to a journal")
        arrays = {
            name: np.asarray(leaf)
            for name, leaf in named_arrays(arguments).items()
            if not isinstance(leaf, bool | int | float | str)
        }
        return self._journal.append({"call": method, "arguments": node}, arrays)

    def wait(self, ticket: int) -> None:
        """Return when the change is safe."""
        self._journal.wait(ticket)
        if self._journal.number - self._tried < self._every:
            return
        if self._snapshotting.acquire(blocking=False):
            try:
                self._tried = self._journal.number
                self._snapshot()
            except OSError as error:
                # The change itself is safe, and must be acknowledged: the journal only grows longer.
                warnings.warn(
                    f"no snapshot could be written to {self._path}: {error}", stacklevel=2
                )
            finally:
                self._snapshotting.release()

    def spoil(self, error: BaseException) -> None:
        """A change that was written down has failed: nothing more is taken in."""
        self._journal.spoil(error)

    def snapshot(self) -> None:
        """Write all the agent knows, so that opening it has little to do again."""
        self.check_process()
        with self._snapshotting:
            self._snapshot()

    def _snapshot(self) -> None:
        with self._agent._lock:
            number = self._journal.number
            if number == self._saved:
                return
            state = self._agent.state()
            if number != self._base:
                self._journal.continue_in(_file(self._path, "journal", number))
                self._base = number
        write_state(_file(self._path, "snapshot", number), state)
        self._saved = self._tried = number
        _prune(self._path)

    def close(self) -> None:
        """Put everything on the disk, and let others open the folder."""
        with self._snapshotting, self._agent._lock:
            try:
                self._journal.close()
            finally:
                self._lock.release()


def _begin(path: Path, agent: SomeAgent) -> SomeAgent:
    """A new agent's first snapshot. A journal without one is of a beginning that was interrupted."""
    for number in _numbers(path, "journal"):
        if read_journal(_file(path, "journal", number), number + 1, is_last=True)[0]:
            raise AgentFileError(
                f"{path} has journals but no snapshot to begin with; use an earlier copy of the folder"
            )
    _file(path, "journal", 0).touch()
    sync_folder(path)
    write_state(_file(path, "snapshot", 0), agent.state())
    return agent


def _recover(
    path: Path, restore: Callable[[AgentState], SomeAgent], policy: Policy | None
) -> tuple[SomeAgent, int]:
    """The agent after its last record, and the number of that."""
    state, number = _newest_sound(path, policy)
    agent = restore(state)
    journals = [n for n in _numbers(path, "journal") if n >= number]
    if not journals or journals[0] != number:
        raise AgentFileError(
            f"{path} has no journal that begins after record {number}, where the snapshot ends: a part "
            "of it is missing; use an earlier copy of the folder"
        )
    for base in journals:
        file = _file(path, "journal", base)
        if base != number:
            raise AgentFileError(
                f"{file} begins after record {base}, but the one before it ends with {number}: a part "
                "of the journal is missing; use an earlier copy of the folder"
            )
        records, length = read_journal(file, base + 1, is_last=base == journals[-1])
        for record in records:
            _redo(agent, record, file)
        number += len(records)
        if length < file.stat().st_size:
            _cut(file, length)
    return agent, number


def _newest_sound(path: Path, policy: Policy | None) -> tuple[AgentState, int]:
    first_error: AgentFileError | None = None
    for number in reversed(_numbers(path, "snapshot")):
        try:
            return read_state(_file(path, "snapshot", number), policy), number
        except AgentFileError as error:
            first_error = first_error or error
    assert first_error is not None
    raise first_error


def _redo(agent: Recorded, record: Record, file: Path) -> None:
    """Make a change again."""
    try:
        call, arguments = record.header["call"], decode(record.header["arguments"], record.arrays)
        if call not in _CALLS:
            raise ValueError(f"{call!r} is nothing that an agent does")
        agent.redo(call, arguments)
    except Exception as error:
        raise AgentFileError(
            f"{file}, record {record.number} cannot be done again: {error}"
        ) from error


def _cut(file: Path, length: int) -> None:
    """Remove a record that was never finished, before others are added after it."""
    with open(file, "r+b") as opened:
        opened.truncate(length)
        os.fsync(opened.fileno())


def _file(path: Path, kind: str, number: int) -> Path:
    return path / f"{kind}-{number:020}"


def _numbers(path: Path, kind: str) -> list[int]:
    """The numbers of all files of a kind, in order."""
    names = (file.name.removeprefix(f"{kind}-") for file in path.glob(f"{kind}-*"))
    return sorted(int(name) for name in names if name.isdecimal())


def _prune(path: Path) -> None:
    """Remove what no snapshot that is kept needs."""
    oldest = _numbers(path, "snapshot")[-_KEPT:][0]
    for kind in ("snapshot", "journal"):
        for number in _numbers(path, kind):
            if number < oldest:
                _file(path, kind, number).unlink()


def _sweep(path: Path) -> None:
    """Remove snapshots that were not finished."""
    for file in path.glob(".snapshot-*"):
        file.unlink()
