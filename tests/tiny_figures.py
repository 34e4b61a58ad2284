"""Figures that are played in seconds, and a script that plays one in a process of its own."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from mixts.bandit import LinTS, SyntheticProblem, UniformRandom
from mixts.bandit.experiments import Bound, Figure, Panel, Size, lower

SIZE = Size(runs=3, horizon=40, seed=1)

PLAY = """
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[2])
from tiny_figures import SIZE, tiny
from mixts.bandit.experiments import reproduce

reproduce([tiny()], Path(sys.argv[1]), SIZE, progress=False)
"""


def panel(K: int, **given) -> Panel:
    about = {
        "name": f"tiny K={K}",
        "title": f"K = {K}",
        "problem": partial(SyntheticProblem, K, 2, 2),
        "policies": {"LinTS": LinTS, "chance": UniformRandom},
        "claims": lower(["LinTS"], ["chance"]),
    }
    return Panel(**{**about, **given})


def tiny(**given) -> Figure:
    about = {
        "name": "tiny",
        "title": "Tiny problems",
        "panels": (panel(3), panel(4, bounds={"bound": Bound("mets", 2.0)})),
        "columns": 2,
        "source": "a test",
        "says": "LinTS is better than chance.",
    }
    return Figure(**{**about, **given})


def start(out: Path, cache: Path) -> subprocess.Popen:
    """Play the tiny figure in a process of its own."""
    quickly = {"JAX_COMPILATION_CACHE_DIR": "", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    quickly["MIXTS_CACHE"] = str(cache)
    return subprocess.Popen(
        [sys.executable, "-c", PLAY, str(out), str(Path(__file__).parent)],
        env={**os.environ, **quickly},
    )


def contents(folder: Path) -> dict[str, bytes]:
    """Every file, by its path inside the folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
