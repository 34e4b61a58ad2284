"""A figure in pieces: one policy on one panel, played in one go and kept in one file.

A piece depends on nothing but its description: it gives the same bits wherever and whenever it is played,
with the same versions on the same kind of processor. The name of its file holds a digest of that
description, so a file that was written for another description or version is not used.
"""

import hashlib
import json
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

__all__ = [
    "Piece",
    "Store",
    "content",
    "declared",
    "made_with",
    "pieces_of",
    "play",
    "problem_of",
    "versions",
]

# Of everything that mixts plays. To be raised by a change of mixts after which the same description gives
# other numbers: another order of random draws, another update, another default.
VERSION = 2
RUNS_AT_ONCE = 10  # side by side, rounds of clicks wait for the slowest: few waste little
PROBLEM_SECONDS, COMPILE_SECONDS = 1.0, 6.0


class Piece(NamedTuple):
    """One policy on one panel.

    Example:
        >>> from functools import partial
        >>> from mixts.bandit import SyntheticProblem, UniformRandom
        >>> from mixts.bandit.experiments import Panel, Piece, Size
        >>> panel = Panel("small", "K = 3", partial(SyntheticProblem, 3), {"chance": UniformRandom})
        >>> Piece(panel, "chance", Size(runs=4)).description["problem"]
        'SyntheticProblem(3)'
    """

    panel: Panel
    policy: str
    size: Size

    @property
    def seconds(self) -> float:
        """About how long one core takes; used to estimate the time left."""
        rounds = self.size.runs * self.size.horizon
        return PROBLEM_SECONDS + COMPILE_SECONDS + rounds * self.panel.round_seconds

    @property
    def description(self) -> dict[str, Any]:
        """Everything that the piece depends on."""
        return {
            "panel": self.panel.name,
            "panel version": self.panel.version,
            "policy": self.policy,
            **self.size._asdict(),
            "problem": declared(self.panel.problem),
            "maker": declared(self.panel.policies[self.policy]),
            "data": content(self.panel.data),
            **made_with(),
        }

    @property
    def file_name(self) -> str:
        """A readable name, and a digest of the description."""
        names = [re.sub(r"[^A-Za-z0-9=]+", "-", name) for name in (self.panel.name, self.policy)]
        digest = _digest(json.dumps(self.description, sort_keys=True).encode())
        return "--".join([*(name.strip("-") for name in names), digest]) + ".npz"


def pieces_of(figures: Iterable[Figure], size: Size) -> list[Piece]:
    """Every piece once, though panels may share them."""
    found: dict[tuple[str, str], Piece] = {}
    for panel in (panel for figure in figures for panel in figure.panels):
        for policy in panel.policies:
            piece = Piece(panel, policy, size)
            same = found.setdefault((panel.name, policy), piece)
            if same.description != piece.description:
                raise ValueError(
                    f"'{policy}' of panel '{panel.name}' is declared in two ways; expected a name of its "
                    "own for each problem, and for each policy of a panel"
                )
    return list(found.values())


def play(piece: Piece, progress: Callable[[int], None] | None = None) -> Simulation:
    """Play a piece; `progress` as in `simulate`."""
    problem = problem_of(piece.panel)
    policies = {piece.policy: piece.panel.maker(piece.policy, problem)}
    runs, horizon, seed = piece.size
    report = progress or False
    return simulate(
        problem, policies, horizon, runs, seed, progress=report, runs_at_once=RUNS_AT_ONCE
    )


_making = threading.Lock()
_made: dict[tuple[str, str, str], Problem] = {}


def problem_of(panel: Panel) -> Problem:
    """The panel's problem, made once for all its policies.

    If a panel reads a file that does not give a problem, this is an `OSError`: the file is the user's.
    """
    with _making:  # fitting a mixture changes settings of the whole process for a while
        key = panel.name, content(panel.data), repr(panel.problem)
        try:
            return _made[key] if key in _made else _made.setdefault(key, panel.problem())
        except (ValueError, RuntimeError) as error:
            if panel.data is None:
                raise
            raise OSError(f"'{panel.data}' gives no problem for '{panel.name}': {error}") from error


class Store(NamedTuple):
    """The folder of finished pieces."""

    folder: Path

    def path(self, piece: Piece) -> Path:
        """The file of the piece."""
        return self.folder / piece.file_name

    def load(self, piece: Piece) -> Simulation | None:
        """The result of a piece; None if its file is missing or damaged, and it has to be played."""
        try:
            return Simulation.load(self.path(piece))
        except (FileNotFoundError, ValueError):
            return None

    def save(self, piece: Piece, played: Simulation) -> None:
        """Write the file of a piece, whole or not at all."""
        played.save(self.path(piece))


@cache
def versions() -> dict[str, str]:
    """The versions of Python and of the packages that results depend on."""
    names = ("mixts", "jax", "jaxlib", "numpy", "numpyro", "scikit-learn", "scipy")
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in names}


def made_with() -> dict[str, Any]:
    """What has to be the same for the same numbers, whatever is played."""
    float64 = bool(jnp.result_type(float) == np.float64)
    return {"version": VERSION, "packages": versions(), "float64": float64}


def declared(value: Any) -> str:
    """The text of a declaration: about as in Python, the same in every process, and in one line.

    Functions appear by name, files without their folder, and arrays with all their numbers.
    """
    if isinstance(value, partial):
        given = [declared(one) for one in value.args]
        given += [f"{name}={declared(one)}" for name, one in value.keywords.items()]
        return f"{declared(value.func)}({', '.join(given)})"
    if callable(value) and hasattr(value, "__name__"):
        return value.__name__
    with np.printoptions(threshold=sys.maxsize, floatmode="unique"):
        text = repr(value.name if isinstance(value, Path) else value)
    return " ".join(re.sub(r" at 0x[0-9a-fA-F]+", "", text).split())


def content(path: Path | None) -> str:
    """A digest of the ratings in a file or folder; '' if there is none."""
    if path is None:
        return ""
    files = sorted(path.glob("ratings.*")) if path.is_dir() else [path]
    return "".join(_content_of(file, file.stat().st_mtime_ns) for file in files)


@cache
def _content_of(file: Path, changed: int) -> str:
    return _digest(file.read_bytes())


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()
