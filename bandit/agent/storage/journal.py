"""An append-only file of records, of which a crash can lose none that was on the disk.

A record has a head of 20 bytes and a body:

    4 bytes  mark
    8 bytes  number of the record: one more than that of the record before
    4 bytes  length of the body
    4 bytes  CRC-32 of the three
    ...      the body, in the format of `file`, which ends in a checksum of its own

A process or a machine that stops while it writes leaves an unfinished record at the end, for which no
call has returned: it is dropped. Anything else that is wrong is damage, and refused.
"""

import os
import struct
import threading
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...atomic_file import sync_folder
from .file import DIGEST_SIZE, AgentFileError, from_bytes, to_bytes

__all__ = ["Journal", "JournalError", "Record", "read_journal"]

_HEAD = struct.Struct("<4sQI")
_CRC = struct.Struct("<I")
_MARK = b"mxj\n"
_HEAD_SIZE = _HEAD.size + _CRC.size


class JournalError(OSError):
    """A journal that cannot be written to: the change was not made, or may be lost.

    Example:
        >>> from mixts.bandit import JournalError
        >>> isinstance(JournalError("No space left on device"), OSError)
        True
    """


class Record(NamedTuple):
    """One change, in plain values and arrays."""

    number: int
    header: dict[str, Any]
    arrays: dict[str, np.ndarray]


def read_journal(path: Path, first: int, *, is_last: bool) -> tuple[list[Record], int]:
    """The records of a journal, and how many bytes they have.

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
    # A file system may extend a file with zeros before it writes what belongs there.
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
    is_blank = stop == len(content) and not any(content[-DIGEST_SIZE:])
    return None if stop > len(content) or is_blank else stop


class Journal:
    """Appends records, and waits until they are on the disk.

    `append` writes, in the order of calls; `wait` returns when a record will survive a crash of the
    machine. Threads that wait at the same time share one `fsync`. Whoever appends must hold a lock.

    After an error nothing more is appended: the disk may be full or gone, and how the file ends is not
    known. Open it again to find out.

    Args:
        path: the file; records are added at its end.
        number: that of the last record before.
        fsync: whether `wait` waits for the disk. Without, a record survives the end of the process,
            but perhaps not a loss of power.
    """

    def __init__(self, path: Path, number: int, *, fsync: bool = True):
        self._fsync = fsync
        self._syncing = threading.Lock()
        self._written = self._synced = number
        self._error: BaseException | None = None
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
        return None if self._error is None else f"{self._path} has failed before ({self._error})"

    def append(self, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> int:
        """Write one record; its number. If it raises, there is no such record."""
        self._check_usable()
        body = to_bytes(header, arrays)
        head = _HEAD.pack(_MARK, self._written + 1, len(body))
        record = memoryview(head + _CRC.pack(zlib.crc32(head)) + body)
        # After an interrupt such as Control-C no other record may have the same number.
        self._error = InterruptedError("interrupted while it wrote")
        try:
            end = os.fstat(self._file).st_size
            try:
                while record:
                    record = record[os.write(self._file, record) :]
            except OSError:
                os.ftruncate(self._file, end)  # it might be there as a whole
                raise
        except OSError as error:
            raise self._failure(error, "nothing was changed") from error
        self._written += 1
        self._error = None
        return self._written

    def wait(self, number: int) -> None:
        """Return when a record is on the disk; if it raises, the record may be lost."""
        if self._synced < number:
            with self._syncing:
                if self._synced < number:
                    if self._sync_failed or self._closed:
                        self._check_usable()
                    self._sync()

    def _sync(self) -> None:
        upto = self._written
        try:
            if self._fsync:
                os.fsync(self._file)
        except OSError as error:
            # The system may discard what it failed to write: a second try would prove nothing.
            self._sync_failed = True
            raise self._failure(error, "the latest changes may be lost") from error
        self._synced = upto

    def continue_in(self, path: Path) -> None:
        """Continue in a new file, with all records before on the disk; the caller holds the lock."""
        self._check_usable()
        with self._syncing:
            self._sync()
            old = self._file
            try:
                self._open(path)
            except OSError as error:
                raise self._failure(error, "nothing was changed") from error
            os.close(old)

    def close(self) -> None:
        """Wait for the disk and close the file."""
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
        """Append nothing more: a change was recorded but, for this reason, not made."""
        self._error = error

    def _failure(self, error: OSError, outcome: str) -> JournalError:
        self._error = error
        return JournalError(
            error.errno,
            f"{self._path} cannot be written to ({error.strerror or error}): {outcome}. No change "
            "is accepted until the agent is opened again",
        )

    def _check_usable(self) -> None:
        if self.trouble is not None:
            raise JournalError(
                f"{self.trouble}; no change is accepted until the agent is opened again"
            )
