"""Pieces on this machine: as many at a time as there are cores."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from ...inference.program_cache import compile_cache
from ..simulation.workers import cores
from .pieces import Piece, Store, play

__all__ = ["play_here"]


class _Stopped(Exception):
    """Raised in a thread to end its simulation."""


def play_here(pieces: Sequence[Piece], store: Store, tick: Callable[[Piece, float], None]) -> None:
    """Play and save all pieces, the longest first.

    `tick` is called with a piece and the share of it that was played since the last call. When a piece
    fails or the user interrupts, finished pieces are kept and the others stop; one that is being
    compiled stops after that.
    """
    stop = threading.Event()

    def one(piece: Piece) -> None:
        rounds, done = piece.size.runs * piece.size.horizon, 0.0

        def progress(more: int) -> None:
            nonlocal done
            if stop.is_set():
                raise _Stopped
            share = min(more / rounds, 0.99 - done)
            done += share
            tick(piece, share)

        if not stop.is_set():
            store.save(piece, play(piece, progress))
            tick(piece, 1.0 - done)

    ordered = sorted(pieces, key=lambda piece: -piece.seconds)
    with compile_cache(), ThreadPoolExecutor(cores()) as pool:
        futures = [pool.submit(one, piece) for piece in ordered]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
