"""The command `mixts bench`: speed, beside other ways to do the same."""

import argparse
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

__all__ = ["run_bench"]

# At the root of a checkout, and beside this package in a wheel.
_FOLDER = Path(__file__).parents[1] / "benchmarks"
_PEERS = ("bayesianbandits", "mabwiser", "numba")


def run_bench(options: argparse.Namespace) -> None:
    """Run some benchmarks, or all, each in a process of its own, to the last even if one misses."""
    known = {path.stem.removeprefix("bench_"): path for path in sorted(_FOLDER.glob("bench_*.py"))}
    for name in options.benchmarks:
        if name not in known:
            options.error(f"unknown benchmark '{name}'; expected some of: {', '.join(known)}")
    missing = [peer for peer in _PEERS if find_spec(peer) is None]
    if missing:
        raise OSError(
            f"{', '.join(missing)} not installed, beside which mixts is measured: "
            "pip install 'mixts[bench]'"
        )
    missed = []
    for name in dict.fromkeys(options.benchmarks or known):
        print(f"== {name}", flush=True)
        if subprocess.run([sys.executable, known[name]], check=False).returncode:
            missed.append(name)
    if missed:
        raise ChildProcessError(
            f"not as fast as it should be, or not measured: {', '.join(missed)}"
        )
