"""The file format: what is written is read bit for bit, and what is spoilt is refused."""

import json
import os
import stat
import struct
import tracemalloc

import numpy as np
import pytest

from mixts.bandit.agent.storage import file as agent_file
from mixts.bandit.agent.storage.file import FORMAT, AgentFileError, from_bytes, to_bytes

HEADER = {"seed": 7, "names": ["naïve", "", "a/b"], "share": 0.1, "none": None, "deep": {"x": [1]}}
ARRAYS = {
    "root": np.arange(12.0).reshape(2, 3, 2),
    "": np.float32(1.5) * np.ones((), np.float32),
    "empty": np.zeros((0, 3)),
    "flags": np.array([True, False]),
    "odd": np.array([np.nan, -0.0, np.inf, 5e-324]),
    "transposed": np.arange(6, dtype=np.int32).reshape(2, 3).T,
    "big-endian": np.arange(3, dtype=">f8"),
}


def same(arrays) -> bool:
    return list(arrays) == list(ARRAYS) and all(
        arrays[name].shape == array.shape
        and arrays[name].dtype == array.dtype.newbyteorder("<")
        and arrays[name].tobytes() == np.ascontiguousarray(array, arrays[name].dtype).tobytes()
        for name, array in ARRAYS.items()
    )


def test_written_is_read(tmp_path):
    path = tmp_path / "agent"
    agent_file.write(path, {}, {})
    assert agent_file.read(str(path)) == ({}, {})
    agent_file.write(path, HEADER, ARRAYS)
    header, arrays = agent_file.read(path)
    assert header == HEADER
    assert same(arrays)
    arrays["root"][0] = 1.0  # may be written to
    assert os.listdir(tmp_path) == ["agent"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "agent"
    agent_file.write(path, HEADER, ARRAYS)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        agent_file.write(path, {}, {})
    assert agent_file.read(path)[0] == HEADER
    assert os.listdir(tmp_path) == ["agent"]


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([None]), np.array([1j])])
def test_only_numbers_are_written(array):
    with pytest.raises(TypeError, match=r"array .x. holds .*; expected numbers"):
        to_bytes({}, {"x": array})


def test_every_truncation_is_refused():
    content = to_bytes(HEADER, ARRAYS)
    for length in range(len(content)):
        with pytest.raises(AgentFileError, match=r"is truncated|is not a mixts file"):
            from_bytes(content[:length], "file")


def test_every_flipped_bit_is_refused():
    content = to_bytes({"seed": 1}, {"x": np.ones(2)})
    for position in range(8 * len(content)):
        spoilt = bytearray(content)
        spoilt[position // 8] ^= 1 << position % 8
        with pytest.raises(AgentFileError, match=r"^file "):
            from_bytes(bytes(spoilt), "file")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a mixts file"),
        (b"PK\x03\x04" + b"0" * 200, "not a mixts file"),
        (b'{"seed": 1}', "not a mixts file"),
        (to_bytes(HEADER, ARRAYS) + b"0", "is damaged"),
        (to_bytes(HEADER, ARRAYS)[:-40], r"is truncated: [\d,]+ of [\d,]+ bytes"),
    ],
)
def test_what_is_wrong_is_said(content, message):
    with pytest.raises(AgentFileError, match=message):
        from_bytes(content, "file")


def sealed(content: bytes) -> bytes:
    """The content with a length and a checksum that fit, as by somebody who means harm."""
    content = content[:12] + struct.pack("<Q", len(content) + 32) + content[20:]
    return content + agent_file.digest(content)


def crafted(text: bytes, rest: bytes = b"", header_length: int | None = None) -> bytes:
    length = len(text) if header_length is None else header_length
    return sealed(
        struct.pack("<8sIQQ", agent_file.MAGIC, agent_file.FORMAT, 0, length) + text + rest
    )


def test_a_version_from_the_future_is_named():
    content = to_bytes(HEADER, ARRAYS)[:-32]
    newer = sealed(content[:8] + struct.pack("<I", 12) + content[12:])
    with pytest.raises(
        AgentFileError, match=rf"format 12.* reads up to format {FORMAT}.*newer mixts"
    ):
        from_bytes(newer, "file")


def table(*rows) -> bytes:
    return json.dumps({"header": {}, "arrays": rows}).encode()


@pytest.mark.parametrize(
    "content",
    [
        crafted(b"not json"),
        crafted(b"\xff\xfe"),
        crafted(b"[]"),
        crafted(b"{}"),
        crafted(b'{"header": [], "arrays": []}'),
        crafted(b'{"header": {"x": NaN}, "arrays": []}'),
        crafted(b"[" * 100_000),
        crafted(b'{"header": {}, "arrays": 3}'),
        crafted(table(3)),
        crafted(table(["x", "<f8"])),
        crafted(table(["x", "<f8", 3])),
        crafted(table(["x", "|O", [1]]), b"0" * 8),
        crafted(table(["x", ["|O"], [1]]), b"0" * 8),
        crafted(table(["x", "<f8", [-1]])),
        crafted(table(["x", "<f8", [1.0]]), b"0" * 8),
        crafted(table(["x", "<f8", [True]]), b"0" * 8),
        crafted(table(["x", "<f8", [10**12]]), b"0" * 8),
        crafted(table(["x", "<f8", [10**40]]), b"0" * 8),
        crafted(table(["x", "<f8", [0, 10**40]])),
        crafted(table(["x", "<f8", [0] * 100])),
        crafted(table(["x", "<f8", [1]]), b"0" * 9),
        crafted(table(["x", "<f8", [1]], ["x", "<f8", [1]]), b"0" * 16),
        crafted(table([1, "<f8", [1]]), b"0" * 8),
        crafted(table(), header_length=10**9),
    ],
)
def test_a_crafted_file_does_no_harm(content):
    tracemalloc.start()
    try:
        with pytest.raises(AgentFileError, match="was not written by mixts"):
            from_bytes(content, "file")
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_types_that_numpy_would_accept_but_we_do_not():
    """A type of many numbers would make of eight bytes in the file any number in memory."""
    for kind in ("(1000000,)f8", "f8,O", "<M8[s]", "<U9"):
        with pytest.raises(AgentFileError, match="of type"):
            from_bytes(crafted(table(["x", kind, [1]]), b"0" * 8), "file")


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(AgentFileError, match=r"is a folder, not a file; Agent\.open"):
        agent_file.read(tmp_path)
    with pytest.raises(IsADirectoryError, match="name a file in it"):
        agent_file.write(tmp_path, {}, {})
