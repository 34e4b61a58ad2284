"""A figure in pieces: one policy on one panel, played in one go and kept in one file.

A piece depends on nothing but its own description: it gives the same bits wherever and whenever it is
played, with the same versions on the same kind of processor. The name of its file holds a digest of that
description and of the code that plays it, so what an older version left is never taken for its own.
"""

import contextlib
import hashlib
import inspect
import json
import marshal
import platform
import re
import sys
import threading
from collections.abc import Callable, Iterable
from functools import cache, partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ..problems.environment import Problem
from ..simulation.loop import simulate
from ..simulation.results import Simulation
from .record import Figure, Panel, Size

__all__ = ["Piece", "Store", "content", "made_with", "pieces_of", "play", "problem_of", "versions"]

_RUNS_AT_ONCE = 10  # side by side, rounds of clicks wait for the slowest: few waste little
_PROBLEM_SECONDS, _COMPILE_SECONDS = 1.0, 6.0


class Piece(NamedTuple):
    """One policy on one panel."""

    panel: Panel
    policy: str
    size: Size

    @property
    def seconds(self) -> float:
        """About how long one core takes; only the time left is estimated by it."""
        rounds = self.size.runs * self.size.horizon
        return _PROBLEM_SECONDS + _COMPILE_SECONDS + rounds * self.panel.round_seconds

    @property
    def identity(self) -> str:
        """Everything that the piece depends on, as text."""
        about = {
            "panel": self.panel.name,
            "policy": self.policy,
            **self.size._asdict(),
            "data": content(self.panel.data),
            "declared in": _declared_in(self.panel, self.policy),
            **made_with(),
        }
        return json.dumps(about, sort_keys=True)

    @property
    def file_name(self) -> str:
        """A name that a reader understands, and the digest of the identity."""
        digest = _digest(self.identity.encode())
        return f"{_slug(self.panel.name)}--{_slug(self.policy)}--{digest}.npz"


def pieces_of(figures: Iterable[Figure], size: Size) -> list[Piece]:
    """Every piece once, though panels may share them."""
    panels = [panel for figure in figures for panel in figure.panels]
    found: dict[tuple[str, str], Piece] = {}
    for panel in panels:
        for policy in panel.policies:
            piece = Piece(panel, policy, size)
            same = found.setdefault((panel.name, policy), piece)
            if same.identity != piece.identity:
                raise ValueError(
                    f"'{policy}' of panel '{panel.name}' is declared in two ways; expected a name of its "
                    "own for each problem, and for each policy of a panel"
                )
    return list(found.values())


def play(piece: Piece, progress: Callable[[int], None] | None = None) -> Simulation:
    """Play a piece; `progress` as `simulate` takes it."""
    problem = problem_of(piece.panel)
    return simulate(
        problem,
        {piece.policy: piece.panel.maker(piece.policy, problem)},
        piece.size.horizon,
        piece.size.runs,
        piece.size.seed,
        progress=progress or False,
        runs_at_once=_RUNS_AT_ONCE,
    )


_making = threading.Lock()
_made: dict[tuple[str, str, str], Problem] = {}


def problem_of(panel: Panel) -> Problem:
    """The panel's problem, made once for all its policies."""
    with _making:  # fitting a mixture changes settings of the whole process for a while
        key = panel.name, content(panel.data), repr(panel.problem)
        if key not in _made:
            _made[key] = _make(panel)
        return _made[key]


def _make(panel: Panel) -> Problem:
    """A panel that reads a file fails as a file that cannot be read does: what is in it is the user's."""
    try:
        return panel.problem()
    except (ValueError, RuntimeError) as error:
        if panel.data is None:
            raise
        raise OSError(f"'{panel.data}' gives no problem for '{panel.name}': {error}") from error


class Store:
    """The folder of finished pieces."""

    def __init__(self, folder: Path):
        self.folder = folder

    def path(self, piece: Piece) -> Path:
        """Where the piece is, or would be."""
        return self.folder / piece.file_name

    def load(self, piece: Piece) -> Simulation | None:
        """What was played; None if it is not there or damaged, and has to be played."""
        try:
            return Simulation.load(self.path(piece))
        except (FileNotFoundError, ValueError):
            return None

    def save(self, piece: Piece, played: Simulation) -> None:
        """Keep it: whole or not at all."""
        played.save(self.path(piece))


def made_with() -> dict[str, Any]:
    """What has to be the same for the same numbers, whatever is played."""
    float64 = jnp.result_type(float) == np.float64
    return {"versions": versions(), "code": code_digest(), "float64": float64}


@cache
def versions() -> dict[str, str]:
    """What results depend on, besides mixts's own code."""
    names = ("mixts", "jax", "jaxlib", "numpy", "numpyro", "scikit-learn", "scipy")
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in names}


@cache
def code_digest() -> str:
    """Of every module of mixts."""
    root = Path(__file__).parents[2]
    files = [
        path
        for folder in ("models", "inference", "bandit")
        for path in sorted((root / folder).rglob("*.py"))
    ]
    names = "".join(path.relative_to(root).as_posix() for path in files)
    return _digest(names.encode(), *(path.read_bytes() for path in files))


def _declared_in(panel: Panel, policy: str) -> list[str]:
    """Digests of what holds a piece's functions, which a user may have changed, and what they are given."""
    parts = []
    for function in (panel.problem, panel.policies[policy]):
        inner, given = _innermost(function)
        # Ratings count by what is in them, not by where they are.
        parts += [
            _source_digest(inner),
            *(_said(value) for value in given if str(value) != str(panel.data)),
        ]
    return parts


def _innermost(function: Any) -> tuple[Any, list[Any]]:
    """The class or function inside partial applications and wrappers, and the arguments they hold."""
    given = []
    while not (isinstance(function, type) or hasattr(function, "__code__")):
        if isinstance(function, partial):
            given += [*function.args, *function.keywords, *function.keywords.values()]
        inner = function.func if isinstance(function, partial) else getattr(function, "make", None)
        if inner is None:
            break
        function = inner
    return function, [*given, *_held(function)]


def _held(function: Any) -> list[Any]:
    """What a function written in place has taken from around it: default values and closed-over ones."""
    defaults = [
        *(getattr(function, "__defaults__", None) or ()),
        *(getattr(function, "__kwdefaults__", None) or {}).values(),
    ]
    with contextlib.suppress(ValueError):  # a name that has no value yet
        return defaults + [
            cell.cell_contents for cell in getattr(function, "__closure__", None) or ()
        ]
    return defaults


def _said(value: Any) -> str:
    """An argument as text, the same in every process: all of an array, and no addresses."""
    with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
        said = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))
    function = inspect.unwrap(value) if callable(value) else None
    return f"{said} {_source_digest(function)}" if hasattr(function, "__code__") else said


@cache  # a running program does not change with its source
def _source_digest(function: Any) -> str:
    """Of the file that declares it; of what it was compiled to, if it was typed into a shell."""
    with contextlib.suppress(TypeError, OSError):
        return _digest(Path(inspect.getsourcefile(function) or "").read_bytes())
    return _digest(marshal.dumps(getattr(function, "__code__", None)))


def content(path: Path | None) -> str:
    """A digest of the ratings in a file or folder; '' if there is none."""
    if path is None:
        return ""
    files = sorted(path.glob("ratings.*")) if path.is_dir() else [path]
    return _digest(*(_content_of(file, file.stat().st_mtime_ns).encode() for file in files))


@cache
def _content_of(file: Path, changed: int) -> str:
    return _digest(file.read_bytes())


def _digest(*parts: bytes) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9=]+", "-", text).strip("-")
