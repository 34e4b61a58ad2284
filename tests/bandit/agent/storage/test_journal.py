"""The journal file: what was appended is read, an unfinished end is dropped, damage is refused."""

import errno
import itertools
import os
import threading
import time

import numpy as np
import pytest

from mixts.bandit.agent.storage.file import AgentFileError
from mixts.bandit.agent.storage.journal import Journal, JournalError, read_journal


def filled(path, count=5, **options) -> Journal:
    journal = Journal(path, 10, **options)
    for i in range(count):
        number = journal.append({"i": i, "text": "naïve"}, {"x": np.arange(i, dtype=np.float32)})
        assert number == 11 + i
        journal.wait(number)
    return journal


def ends_of(path, count=5) -> list[int]:
    """Write records; where each begins, and where the last ends."""
    journal, ends = Journal(path, 10), [0]
    for i in range(count):
        journal.append({"i": i}, {"x": np.arange(i, dtype=np.float32)})
        ends.append(path.stat().st_size)
    journal.close()
    return ends


def read(path, is_last=True):
    return read_journal(path, 11, is_last=is_last)


def test_appended_is_read(tmp_path):
    path = tmp_path / "journal"
    for fsync in (True, False):
        filled(path, fsync=fsync).close()
        records, length = read(path, is_last=False)
        assert length == path.stat().st_size
        assert [record.number for record in records] == list(range(11, 16))
        for i, record in enumerate(records):
            assert record.header == {"i": i, "text": "naïve"}
            np.testing.assert_array_equal(record.arrays["x"], np.arange(i))
        path.unlink()


def test_an_empty_journal_is_read(tmp_path):
    Journal(tmp_path / "journal", 10).close()
    assert read(tmp_path / "journal") == ([], 0)


def test_an_unfinished_end_is_dropped(tmp_path):
    """Wherever it was cut: all records before that one are there, and no other."""
    path = tmp_path / "journal"
    ends = ends_of(path)
    content = path.read_bytes()
    for cut in range(0, len(content), 3):
        path.write_bytes(content[:cut])
        records, length = read(path)
        assert length == max(end for end in ends if end <= cut)
        assert len(records) == ends.index(length)
        if cut not in ends:
            with pytest.raises(
                AgentFileError, match=r"is truncated: record 1[1-5] is not finished"
            ):
                read(path, is_last=False)


def test_room_that_was_never_filled_is_dropped(tmp_path):
    """A file system may make a file longer before what belongs there is on the disk."""
    path = tmp_path / "journal"
    *_, start, _ = ends_of(path)
    content = path.read_bytes()
    for tail in (b"\0" * 4096, content[start : start + 30] + b"\0" * (len(content) - start - 30)):
        path.write_bytes(content[:start] + tail)
        records, length = read(path)
        assert (len(records), length) == (4, start)


def test_a_flipped_bit_is_refused(tmp_path):
    path = tmp_path / "journal"
    ends_of(path, 2)
    content = path.read_bytes()
    for position in range(0, 8 * len(content), 3):  # 3 and 8 have no common divisor
        spoilt = bytearray(content)
        spoilt[position // 8] ^= 1 << position % 8
        path.write_bytes(spoilt)
        with pytest.raises(AgentFileError):
            read(path)


def test_records_that_are_missing_or_moved_are_refused(tmp_path):
    path = tmp_path / "journal"
    ends = ends_of(path)
    content = path.read_bytes()
    parts = [content[a:b] for a, b in itertools.pairwise(ends)]
    for wrong in ([0, 2, 3], [1, 0], [0, 0, 1], [1, 2]):
        path.write_bytes(b"".join(parts[i] for i in wrong))
        with pytest.raises(AgentFileError, match=r"record \d+ where \d+ should be"):
            read(path)
    path.write_bytes(content)
    with pytest.raises(AgentFileError, match="record 11 where 7 should be"):
        read_journal(path, 7, is_last=True)


def test_it_goes_on_in_another_file(tmp_path):
    journal = filled(tmp_path / "one")
    journal.continue_in(tmp_path / "two")
    assert journal.append({}, {}) == 16
    journal.wait(16)
    journal.close()
    assert len(read(tmp_path / "one", is_last=False)[0]) == 5
    assert [record.number for record in read_journal(tmp_path / "two", 16, is_last=False)[0]] == [
        16
    ]


def test_waiting_threads_share_an_fsync(tmp_path, monkeypatch):
    journal, calls = Journal(tmp_path / "journal", 0), []

    def slow(file):
        calls.append(file)
        time.sleep(0.05)

    monkeypatch.setattr(os, "fsync", slow)
    numbers = [journal.append({}, {}) for _ in range(20)]
    threads = [threading.Thread(target=journal.wait, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_leaves_no_record(tmp_path, monkeypatch):
    """Half a record is written, then the disk is full: it is taken back, and no more comes."""
    journal, write = filled(tmp_path / "journal"), os.write
    before = (tmp_path / "journal").read_bytes()
    written = []

    def half(file, content):
        if written:
            full()
        written.append(write(file, content[: len(content) // 2]))
        return written[-1]

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(
        JournalError, match=r"No space left.*nothing was changed.*opened again"
    ) as found:
        journal.append({}, {})
    assert found.value.errno == errno.ENOSPC
    assert written
    monkeypatch.undo()
    assert (tmp_path / "journal").read_bytes() == before
    with pytest.raises(JournalError, match="has failed before"):
        journal.append({}, {})
    journal.close()
    assert len(read(tmp_path / "journal")[0]) == 5


def test_a_full_disk_does_not_keep_others_waiting(tmp_path, monkeypatch):
    """What was written before can still be put on the disk."""
    journal = Journal(tmp_path / "journal", 0)
    number = journal.append({}, {})
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(JournalError, match="No space left"):
        journal.append({}, {})
    journal.wait(number)
    assert "No space left" in journal.trouble
    journal.close()


def test_interrupted_while_it_writes(tmp_path, monkeypatch):
    """Whether the record is there is not known, so there must be no other with its number."""
    journal, write = Journal(tmp_path / "journal", 0), os.write

    def interrupted(file, content):
        write(file, content)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        journal.append({}, {})
    monkeypatch.undo()
    with pytest.raises(JournalError, match="interrupted while it wrote"):
        journal.append({}, {})
    journal.close()
    assert len(read_journal(tmp_path / "journal", 1, is_last=True)[0]) == 1


def test_a_disk_that_fails_to_keep_is_not_asked_again(tmp_path, monkeypatch):
    """After a failed fsync the system may have dropped what it could not write."""
    journal = filled(tmp_path / "journal")
    number = journal.append({}, {})
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(JournalError, match="latest changes may be lost"):
        journal.wait(number)
    monkeypatch.undo()
    with pytest.raises(JournalError, match="has failed before"):
        journal.wait(number)
    journal.wait(number - 1)  # was safe before
    with pytest.raises(JournalError, match="has failed before"):
        journal.append({}, {})
    journal.close()


def test_a_closed_journal_takes_nothing(tmp_path):
    journal = filled(tmp_path / "journal")
    journal.close()
    journal.close()
    with pytest.raises(JournalError, match="was closed"):
        journal.append({}, {})


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        Journal(tmp_path / "nowhere" / "journal", 0)
