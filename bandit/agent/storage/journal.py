"""An append-only record of what happened, of which a crash can take nothing that was acknowledged.

A journal is a file of records, each a head of 20 bytes and a body:

    4 bytes  mark
    8 bytes  number of the record: one more than that of the record before
    4 bytes  length of the body
    4 bytes  CRC-32 of the three
    ...      the body, in the format of `agent_file`, which ends in a checksum of its own

A process or a machine that stops while it writes leaves an unfinished record at the end, which nobody
was promised: it is dropped. Anything else that is wrong is damage, and refused.
"""

import os
import struct
import threading
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...atomic_file import sync_folder
from .file import AgentFileError, from_bytes, to_bytes

__all__ = ["Journal", "JournalError", "Record", "read_journal"]

_HEAD = struct.Struct("<4sQI")
_CRC = struct.Struct("<I")
_MARK = b"mxj\n"
_HEAD_SIZE = _HEAD.size + _CRC.size
_CHECKSUM = 32  # what a body ends in
_INTERRUPTED = InterruptedError("interrupted while it wrote")


class JournalError(OSError):
    """A journal that cannot be written to: what was asked has not been done, or may be lost."""


class Record(NamedTuple):
    """One thing that happened, in plain values and arrays."""

    number: int
    header: dict[str, Any]
    arrays: dict[str, np.ndarray]


def read_journal(path: Path, first: int, *, is_last: bool) -> tuple[list[Record], int]:
    """The records of a journal, and how many bytes they take.

    Args:
        path: the file.
        first: the number its first record must have.
        is_last: whether it may end in an unfinished record, which is left out.
    """
    content, records, start = path.read_bytes(), [], 0
    while start < len(content):
        number = first + len(records)
        stop = _end_of(content, start, number, path)
        if stop is None:
            if not is_last:
                raise AgentFileError(f"{path} is truncated: record {number} is not finished")
            break
        body = content[start + _HEAD_SIZE : stop]
        records.append(Record(number, *from_bytes(body, f"{path}, record {number}")))
        start = stop
    return records, start


def _end_of(content: bytes, start: int, number: int, path: Path) -> int | None:
    """Where a record ends; None if it was never finished."""
    head = content[start : start + _HEAD.size]
    # Blank bytes are room that a file system gave the file before what belongs there came.
    if len(content) - start < _HEAD_SIZE or not (any(head) or any(content[start:])):
        return None
    mark, found, length = _HEAD.unpack(head)
    (crc,) = _CRC.unpack_from(content, start + _HEAD.size)
    if mark != _MARK or crc != zlib.crc32(head):
        raise AgentFileError(
            f"{path} is damaged at byte {start:,}, where record {number} should begin; use an earlier "
            "copy of the folder"
        )
    if found != number:
        raise AgentFileError(
            f"{path} has record {found} where {number} should be: a part of the journal is missing; "
            "use an earlier copy of the folder"
        )
    stop = start + _HEAD_SIZE + length
    unfinished = stop > len(content) or (
        stop == len(content) and not any(content[-_CHECKSUM:])  # as above
    )
    return None if unfinished else stop


class Journal:
    """Appends records, and says when they are on the disk.

    `append` writes, in the order of calls; `wait` returns when a record will survive a crash of the
    machine. Threads that wait at the same time share one `fsync`. Whoever appends must hold a lock.

    After an error nothing more is appended: the disk may be full or gone, and what the file ends in
    is not known. Open it again to find out.

    Args:
        path: the file; records are added at its end.
        number: that of the last record before.
        fsync: whether `wait` waits for the disk. Without, a record survives the end of the process
            (the system writes it when it pleases), but perhaps not a loss of power.
    """

    def __init__(self, path: Path, number: int, *, fsync: bool = True):
        self._fsync = fsync
        self._syncing = threading.Lock()
        self._written = self._synced = number
        self._trouble: BaseException | None = None
        self._sync_failed = self._closed = False
        self._open(path)

    def _open(self, path: Path) -> None:
        self._path = path
        self._file: int = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        sync_folder(path.parent)

    @property
    def number(self) -> int:
        """The number of the last record."""
        return self._written

    @property
    def trouble(self) -> str | None:
        """Why nothing more is appended, or None."""
        if self._closed:
            return f"{self._path} was closed"
        return (
            None if self._trouble is None else f"{self._path} has failed before ({self._trouble})"
        )

    def append(self, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> int:
        """Write one record; its number. If it raises, there is no such record."""
        self._check_sound()
        body = to_bytes(header, arrays)
        head = _HEAD.pack(_MARK, self._written + 1, len(body))
        record = head + _CRC.pack(zlib.crc32(head)) + body
        # If anything, Control-C included, comes between, the next record must not have the same number.
        self._trouble = _INTERRUPTED
        try:
            self._write(record)
        except OSError as error:
            raise self._fail(error, "nothing was changed") from error
        self._written += 1
        self._trouble = None
        return self._written

    def _write(self, record: bytes) -> None:
        end = os.fstat(self._file).st_size
        try:
            left = memoryview(record)
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:
            # What is left of it would be dropped when the journal is read; but not if it is all there.
            os.ftruncate(self._file, end)
            raise

    def wait(self, number: int) -> None:
        """Return when a record is on the disk; if it raises, the record may be lost."""
        if self._synced >= number:
            return
        with self._syncing:
            if self._synced >= number:
                return
            if self._sync_failed or self._closed:
                self._check_sound()
            self._sync()

    def _sync(self) -> None:
        upto = self._written
        try:
            if self._fsync:
                os.fsync(self._file)
        except OSError as error:
            # What the system failed to write once it may forget: another try would prove nothing.
            self._sync_failed = True
            raise self._fail(error, "the latest changes may be lost") from error
        self._synced = upto

    def continue_in(self, path: Path) -> None:
        """Go on in a new file; all that was written before is on the disk. For whoever may append."""
        self._check_sound()
        with self._syncing:
            self._sync()
            old = self._file
            try:
                self._open(path)
            except OSError as error:
                raise self._fail(error, "nothing was changed") from error
            os.close(old)

    def close(self) -> None:
        """Put everything on the disk and let go of the file."""
        with self._syncing:
            if self._closed:
                return
            try:
                if not self._sync_failed:
                    self._sync()
            finally:
                self._closed = True
                os.close(self._file)

    def spoil(self, error: BaseException) -> None:
        """Append nothing more: a change was written down but, for this reason, not made."""
        self._trouble = error

    def _fail(self, error: OSError, outcome: str) -> JournalError:
        self._trouble = error
        return JournalError(
            error.errno,
            f"{self._path} cannot be written to ({error.strerror or error}): {outcome}. Nothing more is "
            "taken in until the agent is opened again",
        )

    def _check_sound(self) -> None:
        if self.trouble is not None:
            raise JournalError(
                f"{self.trouble}; nothing more is taken in until the agent is opened again"
            )
