"""How many processor cores there are to work on."""

import os

__all__ = ["cores"]


def cores() -> int:
    """Those that this process may use: a container or `taskset` may allow fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
