"""One process at a time in a folder: not one that was forked, and none that is long gone."""

import os
import subprocess
import sys

import pytest

from mixts.bandit.agent.storage.lock import FolderInUse, FolderLock


def test_released_twice_it_closes_nobody_elses_file(tmp_path):
    lock = FolderLock(tmp_path)
    assert lock.is_held
    lock.release()
    assert not lock.is_held
    with open(tmp_path / "other", "wb", buffering=0) as other:  # has the number that the lock had
        lock.release()
        assert other.write(b"still open") == 10


def test_one_at_a_time(tmp_path):
    lock = FolderLock(tmp_path)
    with pytest.raises(FolderInUse, match="is in use"):
        FolderLock(tmp_path)
    lock.release()
    FolderLock(tmp_path).release()


_FORKED = """
import os, sys
from pathlib import Path
from mixts.bandit.agent.storage.lock import FolderLock

folder = Path(sys.argv[1])
lock, (ready, begun), (over, ended) = FolderLock(folder), os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    os.write(begun, b"x")
    os.read(over, 1)
    os._exit(1 if lock.is_held else 0)
os.read(ready, 1)
assert lock.is_held
lock.release()
FolderLock(folder).release()  # though the child lives
os.write(ended, b"x")
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_does_not_hold_it(tmp_path):
    subprocess.run([sys.executable, "-c", _FORKED, str(tmp_path)], check=True)
