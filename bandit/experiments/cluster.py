"""Pieces on many machines: a Dask cluster plays them, and their files are written here."""

import gc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..simulation.results import Simulation
from .pieces import Piece, Store, content, made_with, play

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["ClusterError", "play_on_cluster"]

ANSWER_SECONDS, WORKER_SECONDS = 10, 60  # to wait for the scheduler, and for its first worker


class ClusterError(OSError):
    """The cluster cannot be used: not there, without workers, or with another mixts."""


def play_on_cluster(
    pieces: Sequence[Piece], store: Store, tick: Callable[[Piece, float], None], address: str
) -> None:
    """Have the workers of the scheduler at `address` play all pieces, and save them here.

    A piece whose worker is lost is played again by another. Every worker must have the same versions as
    this process, and the same ratings at the same path; otherwise this is an error and nothing is saved.
    """
    ordered = sorted(pieces, key=lambda piece: -piece.seconds)
    with _connected(address) as client:
        from distributed import as_completed

        here, futures = made_with(), {}
        for i, piece in enumerate(ordered):
            given = piece, here, content(piece.panel.data)
            futures[client.submit(_play, *given, key=piece.file_name, priority=-i)] = piece
        try:
            for future in as_completed(futures, loop=client.loop):
                piece = futures[future]
                store.save(piece, future.result())
                tick(piece, 1.0)
                future.release()
        except BaseException:
            client.cancel(list(futures))
            raise


def _play(piece: Piece, expected: dict[str, Any], ratings: str) -> Simulation:
    """Runs on a worker."""
    other = {name: value for name, value in made_with().items() if value != expected[name]}
    if other:
        wanted = {name: expected[name] for name in other}
        raise ClusterError(
            f"a worker has {other}; expected {wanted}, as here: install the same mixts and the same "
            "packages on every worker"
        )
    try:
        found = content(piece.panel.data)
    except OSError:
        found = None
    if found != ratings:
        raise ClusterError(
            f"a worker has no '{piece.panel.data}', or one with another content; expected the same file "
            "as here: copy it to that path on every worker"
        )
    return play(piece)


@contextmanager
def _connected(address: str) -> "Iterator[Client]":
    try:
        from distributed import Client
        from distributed.scheduler import KilledWorker
    except ImportError as error:
        raise ClusterError(
            f"--scheduler needs Dask, which is not installed ({error}): pip install 'mixts[cluster]'"
        ) from error
    client, why = None, ""
    try:
        client = Client(address, timeout=ANSWER_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        why = str(error) or type(error).__name__
    if client is None:
        # Now: a client that failed to start and is collected while another starts blocks both for ever.
        gc.collect()
        raise ClusterError(
            f"no Dask scheduler answers at '{address}' ({why}); expected the address that "
            "`dask scheduler` prints, such as tcp://10.0.0.1:8786"
        )
    with client:
        try:
            client.wait_for_workers(1, timeout=WORKER_SECONDS)
        except TimeoutError as error:
            raise ClusterError(
                f"the Dask scheduler at '{address}' has had no worker for {WORKER_SECONDS} seconds; "
                f"start one: dask worker {address}"
            ) from error
        try:
            yield client
        except KilledWorker as error:
            raise ClusterError(f"workers of '{address}' die again and again: {error}") from error
        except CancelledError as error:
            raise ClusterError(
                f"the connection to the scheduler at '{address}' was lost"
            ) from error
