"""Pieces on this machine: as many at a time as there are cores."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from ...inference.program_cache import compile_cache
from ..simulation.workers import cores
from .pieces import Piece, Store, play

__all__ = ["play_here"]


class _Stopped(Exception):
    """Raised in a thread that is to leave off."""


def play_here(pieces: Sequence[Piece], store: Store, tick: Callable[[Piece, float], None]) -> None:
    """Play and keep all pieces, the longest first.

    `tick` is told how much more of a piece is done, as a share of it. Interrupted, or when a piece
    fails, pieces on their way are given up, those that are being compiled when that is through; those
    that are finished are kept.
    """
    stop = threading.Event()

    def one(piece: Piece) -> None:
        rounds = piece.size.runs * piece.size.horizon
        told = 0.0

        def progress(more: int) -> None:
            nonlocal told
            if stop.is_set():
                raise _Stopped
            share = min(more / rounds, 0.99 - told)
            told += share
            tick(piece, share)

        if not stop.is_set():
            store.save(piece, play(piece, progress))
            tick(piece, 1.0 - told)

    ordered = sorted(pieces, key=lambda piece: -piece.seconds)
    with compile_cache(), ThreadPoolExecutor(cores()) as pool:
        futures = [pool.submit(one, piece) for piece in ordered]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            stop.set()
            for future in futures:
                future.cancel()
            raise
