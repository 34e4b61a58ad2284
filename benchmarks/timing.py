"""Timing things side by side on a noisy machine: repeat in turns, take the minimum, report ratios."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path


def fastest(calls: Mapping[str, Callable[[], object]], repeats: int = 10) -> dict[str, float]:
    """The least seconds of each call over `repeats` rounds in which all take turns.

    Taking turns puts the same disturbances on all of them. Each is called once before, to compile.
    """
    for call in calls.values():
        call()
    seconds = dict.fromkeys(calls, float("inf"))
    for _ in range(repeats):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    return seconds


def peak_memory() -> int:
    """The most bytes this process has held so far.

    Not `getrusage`, which gives a child process the peak of the parent that started it.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmHWM: peak memory is measured on Linux only")


def verdict(what: str, measured: float, limit: float) -> bool:
    """Print one measured ratio against the most it may be."""
    good = measured <= limit
    print(f"{'ok  ' if good else 'MISS'}  {what}: {measured:.3g} (at most {limit:g})")
    return good


def at_least(what: str, measured: float, limit: float) -> bool:
    """Print one measured ratio against the least it may be."""
    good = measured >= limit
    print(f"{'ok  ' if good else 'MISS'}  {what}: {measured:.4g} (at least {limit:g})")
    return good
