"""Compiled programs kept on disk, so that a second process does not compile them again."""

import contextlib
import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache
from jax.stages import Compiled, Lowered

__all__ = ["cache_folder", "compile_cache", "compile_or_take"]

# Where caches go on this machine, unless MIXTS_CACHE names another folder; MIXTS_CACHE= turns it off.
VARIABLE = "MIXTS_CACHE"
WORTH_KEEPING = 0.3  # seconds of compiling
MOST_BYTES = 2**30  # in the folder; the paper's figures take 63 MB
_FOLDER = "jax_compilation_cache_dir"
_SECONDS = "jax_persistent_cache_min_compile_time_secs"

# JAX's settings are the process's: of several threads, the first to come in sets them and the last to
# leave puts them back.
_lock = threading.Lock()
_inside: list[dict[str, object]] = []
_turns: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)


def cache_folder() -> Path | None:
    """The folder for compiled programs; None if it was turned off."""
    chosen = os.environ.get(VARIABLE)
    if chosen is not None:
        return Path(chosen) if chosen else None
    base = os.environ.get("XDG_CACHE_HOME")
    if not base:
        try:
            base = Path.home() / ".cache"
        except RuntimeError:  # a user without a home
            return None
    return Path(base) / "mixts" / "compiled"


@contextlib.contextmanager
def compile_cache() -> Iterator[None]:
    """Keep what is compiled inside the block on disk, and take it from there if it is there.

    A user who has set JAX's own cache keeps it. A folder that cannot be written to costs nothing but
    the time to compile.
    """
    with _lock:
        _enter()
    try:
        yield
    finally:
        with _lock:
            _leave()


def compile_or_take(program: Lowered, options: dict[str, Any]) -> Compiled:
    """Compile a program, or take it from disk where it is kept.

    Threads with the same program take turns, and those with others do not wait for them. JAX writes a
    file while others may read it, and what they had read by then would be damaged.
    """
    if not getattr(jax.config, _FOLDER):
        return program.compile(compiler_options=options)
    with _lock:
        turn = _turns[hash(program.as_text())]
    with turn:
        return program.compile(compiler_options=options)


def _enter() -> None:
    before = {name: getattr(jax.config, name) for name in (_FOLDER, _SECONDS)}
    folder = cache_folder()
    if not _inside and folder is not None and not before[_FOLDER] and _usable(folder):
        _make_room(folder)
        compilation_cache.reset_cache()
        jax.config.update(_FOLDER, str(folder))
        jax.config.update(_SECONDS, WORTH_KEEPING)
    _inside.append(before)


def _leave() -> None:
    before = _inside.pop()
    if not _inside:
        for name, value in before.items():
            if getattr(jax.config, name) != value:
                jax.config.update(name, value)
                compilation_cache.reset_cache()


def _usable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _make_room(folder: Path) -> None:
    """Remove what was kept longest ago, by versions that are gone perhaps, where all is too much."""
    kept = [(file, stat) for file in folder.glob("*-cache") if (stat := _look_at(file)) is not None]
    total = sum(stat.st_size for _, stat in kept)
    for file, stat in sorted(kept, key=lambda each: each[1].st_mtime):
        if total <= MOST_BYTES:
            break
        with contextlib.suppress(OSError):  # another process may have removed it
            file.unlink()
        total -= stat.st_size


def _look_at(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except OSError:  # another process may have removed it
        return None
