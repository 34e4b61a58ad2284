"""Threads of a simulation: how many there are, and how Ctrl-C stops them."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["cores", "interrupt_sets"]


@contextmanager
def interrupt_sets(stop: threading.Event) -> Iterator[None]:
    """Meanwhile Ctrl-C sets `stop`, and interrupts as usual if that is set already.

    An exception raised in some places, such as the callback of a weak reference, is dropped by Python,
    and Ctrl-C would have no effect. Nothing changes in threads other than the main one, which never get
    the signal, nor where an application has a handler of its own.
    """
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not usual or threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            signal.default_int_handler(number, frame)
        stop.set()

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def cores() -> int:
    """Those that this process may use: a container or `taskset` may allow fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
