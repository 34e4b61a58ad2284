"""The format of an agent's file: a JSON header, raw arrays, and a checksum over every byte.

    8 bytes   magic
    4 bytes   version of the format
    8 bytes   length of the whole file
    8 bytes   length of the header
    ...       the header in JSON: what the writer gave, and name, type and shape of every array
    ...       the arrays one after the other
    32 bytes  BLAKE2b of everything before

Numbers are little-endian. Reading runs no code and makes no array larger than the file, whoever wrote
it. A file is read as it was written or refused with an `AgentFileError` that says what is wrong.
"""

import errno
import hashlib
import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np

from ...atomic_file import replace_file

__all__ = [
    "DIGEST_SIZE",
    "FORMAT",
    "MAGIC",
    "AgentFileError",
    "digest",
    "from_bytes",
    "read",
    "to_bytes",
    "write",
]

FORMAT = 8
MAGIC = b"\x89mixts\r\n"  # not text, and changed by anything that converts line ends
_FIXED = struct.Struct("<8sIQQ")
DIGEST_SIZE = 32
_TYPES = frozenset(["|b1", "|u1", "|i1", "<i4", "<i8", "<u4", "<u8", "<f2", "<f4", "<f8"])


class AgentFileError(ValueError):
    """A file that holds no agent, or not the one that was asked for, or that is damaged.

    Example:
        >>> from mixts.bandit import Agent
        >>> Agent.load(".")
        Traceback (most recent call last):
        mixts...AgentFileError: . is a folder, not a file; Agent.open opens an agent in a folder
    """


def write(path: Any, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write a header and arrays; a file of that name is replaced whole or not at all."""
    if Path(path).is_dir():
        raise IsADirectoryError(errno.EISDIR, "a folder is there; name a file in it", str(path))
    replace_file(Path(path), to_bytes(header, arrays))


def read(path: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What `write` wrote, bit for bit."""
    if Path(path).is_dir():
        raise AgentFileError(
            f"{path} is a folder, not a file; Agent.open opens an agent in a folder"
        )
    return from_bytes(Path(path).read_bytes(), str(path))


def to_bytes(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> bytes:
    """The content of a file."""
    table, parts = [], []
    for name, array in arrays.items():
        # `ascontiguousarray` alone would make a vector of a number.
        array = np.asarray(array)
        array = np.ascontiguousarray(array).reshape(array.shape)
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        if array.dtype.str not in _TYPES:
            raise TypeError(f"array '{name}' holds {array.dtype}; expected numbers or booleans")
        table.append([name, array.dtype.str, list(array.shape)])
        parts.append(array.tobytes())
    text = _ENCODER.encode({"header": header, "arrays": table}).encode()
    length = _FIXED.size + len(text) + sum(map(len, parts)) + DIGEST_SIZE
    content = b"".join([_FIXED.pack(MAGIC, FORMAT, length, len(text)), text, *parts])
    return content + digest(content)


def from_bytes(content: bytes, name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a file's content; `name` is what errors call it."""
    text, rest = _verified_parts(content, name)
    try:
        node = _DECODER.decode(text.decode())
        header, table = node["header"], node["arrays"]
        if not isinstance(header, dict):
            raise ValueError("its header is not an object")
        return header, _cut(table, rest)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise AgentFileError(
            f"{name} was not written by mixts, though its checksum is right: {error}"
        ) from error


def _verified_parts(content: bytes, name: str) -> tuple[bytes, memoryview]:
    """The header's text and the arrays' bytes of a file that is complete and undamaged."""
    if content[: len(MAGIC)] != MAGIC[: len(content)] or not content:
        raise AgentFileError(f"{name} is not a mixts file: it does not begin like one")
    if len(content) < _FIXED.size + DIGEST_SIZE:
        raise AgentFileError(
            f"{name} is truncated: it has {len(content)} bytes, fewer than any file of mixts; use an "
            "earlier copy"
        )
    _, version, length, header_length = _FIXED.unpack_from(content)
    if version > FORMAT:
        raise AgentFileError(
            f"{name} is of format {version}, and this mixts reads up to format {FORMAT}: "
            "install a newer mixts, or use an earlier copy of the file if none is newer"
        )
    if len(content) < length:
        raise AgentFileError(
            f"{name} is truncated: {len(content):,} of {length:,} bytes are there; use an earlier copy"
        )
    body = memoryview(content)[:-DIGEST_SIZE]
    if len(content) > length or bytes(content[-DIGEST_SIZE:]) != digest(body):
        raise AgentFileError(
            f"{name} is damaged: its checksum does not fit its content; use an earlier copy"
        )
    if version < FORMAT:
        raise AgentFileError(
            f"{name} is of format {version}, and this mixts reads format {FORMAT}: use the mixts that "
            "wrote it"
        )
    if header_length > len(body) - _FIXED.size:
        raise AgentFileError(f"{name} was not written by mixts: its header ends after the file")
    start = _FIXED.size + header_length
    return bytes(body[_FIXED.size : start]), body[start:]


def _cut(table: Any, rest: memoryview) -> dict[str, np.ndarray]:
    """The arrays that the table of a header describes, each checked before memory is taken for it."""
    arrays: dict[str, np.ndarray] = {}
    start = 0
    for row in table:
        name, kind, shape = row
        if not isinstance(name, str) or name in arrays:
            raise ValueError(f"two arrays are called {name!r}, or it is not a name")
        if kind not in _TYPES:
            raise ValueError(f"array '{name}' is of type {kind!r}")
        if not all(type(size) is int and 0 <= size < 2**48 for size in shape) or len(shape) > 16:
            raise ValueError(f"array '{name}' has shape {shape}")
        dtype = np.dtype(kind)
        stop = start + dtype.itemsize * math.prod(shape)
        if stop > len(rest):
            raise ValueError(f"array '{name}' of shape {shape} ends after the file")
        # A copy: a view would keep the whole file in memory, and could not be written to.
        arrays[name] = np.frombuffer(rest[start:stop], dtype).reshape(shape).copy()
        start = stop
    if start != len(rest):
        raise ValueError(f"{len(rest) - start} bytes belong to no array")
    return arrays


def digest(content: Any) -> bytes:
    """The checksum that a file ends in."""
    return hashlib.blake2b(content, digest_size=DIGEST_SIZE).digest()


def _no_constant(word: str) -> None:
    raise ValueError(f"its header holds {word}")


# Made once: a journal has a header in every record.
_ENCODER = json.JSONEncoder(allow_nan=False)
_DECODER = json.JSONDecoder(parse_constant=_no_constant)
