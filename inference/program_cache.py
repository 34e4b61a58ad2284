"""Compiled programs kept on disk, so that a second process does not compile them again."""

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

__all__ = ["cache_folder", "compile_cache", "keep_programs"]

# Where caches go on this machine, unless MIXTS_CACHE names another folder; MIXTS_CACHE= turns it off.
VARIABLE = "MIXTS_CACHE"
WORTH_KEEPING = 0.3  # seconds of compiling
MOST_BYTES = 2**30  # in the folder; the paper's figures take 63 MB
_FOLDER = "jax_compilation_cache_dir"

# JAX's settings are the process's: of several threads, the first to enter changes them and the last to
# leave restores them.
_lock = threading.Lock()
_inside: list[dict[str, object]] = []


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
    """Keep on disk what is compiled inside the block, and load it from there if it is there.

    JAX keeps the folder below a gigabyte by removing what was not used for longest. A user who has set
    JAX's own cache keeps it. A damaged entry, or a folder that cannot be written to, costs nothing but
    the time to compile.

    Example:
        >>> import jax
        >>> from mixts.bandit import compile_cache
        >>> with compile_cache():
        ...     print(jax.jit(lambda x: 3 * x)(2))
        6
    """
    with _lock:
        ours = _ours()
        _inside.append({name: getattr(jax.config, name) for name in ours})
        if len(_inside) == 1 and not _inside[0][_FOLDER] and _is_usable():
            _configure(ours)
    try:
        yield
    finally:
        with _lock:
            before = _inside.pop()
            if not _inside:
                _configure(before)


def keep_programs() -> None:
    """Keep on disk what this process compiles from now on, as inside `compile_cache`.

    Backends and agents ask for it when they are made: compiling is most of what they take at first.
    """
    with _lock:
        if not _inside and not getattr(jax.config, _FOLDER) and _is_usable():
            _configure(_ours())


def _ours() -> dict[str, object]:
    return {
        _FOLDER: str(cache_folder()),
        "jax_compilation_cache_max_size": MOST_BYTES,
        "jax_persistent_cache_min_compile_time_secs": WORTH_KEEPING,
    }


def _configure(settings: dict[str, object]) -> None:
    changed = {k: value for k, value in settings.items() if getattr(jax.config, k) != value}
    for name, value in changed.items():
        jax.config.update(name, value)
    if changed:
        compilation_cache.reset_cache()


def _is_usable() -> bool:
    """Whether there is a folder that can be written to; its entries all have a time of last use after.

    JAX fails to write beside an entry without one: an entry that was written without a limit of size,
    or by a process that ended between writing the entry and its time.
    """
    folder = cache_folder()
    if folder is None:
        return False
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for entry in folder.glob("*-cache"):
            time = entry.with_name(f"{entry.name.removesuffix('-cache')}-atime")
            if not time.exists():
                time.write_bytes(bytes(8))
    except OSError:
        return False
    return os.access(folder, os.W_OK)
