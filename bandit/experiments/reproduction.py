"""`reproduce`: play what is missing of some figures, and write everything about them."""

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tqdm.auto import tqdm

from ..atomic_file import replace_file
from .beyond import beyond_figures
from .cluster import play_on_cluster
from .files import is_written, sweep, write_figure
from .here import play_here
from .page import page
from .paper import paper_figures
from .pieces import Piece, Store, pieces_of
from .record import Figure, Size
from .result import Result, load_result

__all__ = ["all_figures", "reproduce"]

_FORMAT = "{desc}: {percentage:3.0f}%|{bar}| {elapsed} gone, {remaining} left{postfix}"


def all_figures(ratings: Path | None = None) -> dict[str, Figure]:
    """Every figure by name: the paper's, and then those of claims it does not plot.

    Args:
        ratings: MovieLens ratings, as `MovieLensProblem` takes them.
    """
    return {figure.name: figure for figure in (*paper_figures(ratings), *beyond_figures())}


def reproduce(
    figures: Iterable[Figure],
    out: str | os.PathLike[str],
    size: Size = Size(),
    *,
    scheduler: str | None = None,
    progress: bool = True,
    beside: Iterable[Figure] = (),
    options: str = "",
) -> list[Result]:
    """Play some figures and write pictures, tables and one page about them into `out`.

    Each finished piece is a file in `out/pieces`, written whole. A call that was killed goes on where
    it was, and ends with the same files, byte for byte, as one that was not.

    Args:
        figures: what to play.
        out: the folder.
        size: how much to play of each.
        scheduler: the address of a Dask scheduler whose workers play; None plays on this machine.
        progress: whether to show a progress bar with the time left.
        beside: figures that the page shows too if all their pieces are in `out` already.
        options: what the commands on the page need besides the names of figures.
    """
    figures, beside, out = list(figures), list(beside), Path(out)
    store = Store(out / "pieces")
    store.folder.mkdir(parents=True, exist_ok=True)
    began = _check_writable(store.folder)
    pieces = pieces_of(figures, size)
    missing = [piece for piece in pieces if store.load(piece) is None]
    with _bar(pieces, missing, shown=progress) as tick:
        if scheduler is None:
            play_here(missing, store, tick)
        elif missing:
            play_on_cluster(missing, store, tick, scheduler)
    results = [_loaded(figure, size, store) for figure in figures]
    for result in results:
        write_figure(result, out / result.figure.name)
    _write_page(out, size, store, results, beside, options)
    sweep([out, store.folder, *(out / figure.name for figure in figures)], began)
    return results


def _check_writable(folder: Path) -> float:
    """Better now than after the first piece; when that was, in the clock of the disk."""
    probe = folder / f".writable.{secrets.token_hex(8)}"
    try:
        probe.touch()
        return probe.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)


def _loaded(figure: Figure, size: Size, store: Store) -> Result:
    result = load_result(figure, size, store)
    if result is None:
        raise OSError(
            f"a piece of '{figure.name}' is gone from {store.folder} or damaged, though it was written; "
            "start again"
        )
    return result


def _write_page(
    out: Path,
    size: Size,
    store: Store,
    results: Sequence[Result],
    beside: Sequence[Figure],
    options: str,
) -> None:
    """All figures of this size that are there, in the order of `beside`, with the files it links to."""
    shown = {result.figure.name: result for result in results}
    for figure in beside:
        complete = all(store.path(piece).is_file() for piece in pieces_of([figure], size))
        written = (out / figure.name).is_dir()
        if figure.name not in shown and complete and written:
            result = load_result(figure, size, store)
            if result is not None:
                shown[figure.name] = result
                if not is_written(result, out / figure.name):
                    write_figure(result, out / figure.name)
    order = [figure.name for figure in beside]
    ordered = sorted(
        shown.values(), key=lambda r: order.index(r.figure.name) if r.figure.name in order else -1
    )
    replace_file(out / "index.html", page(ordered, size, options).encode())


@contextmanager
def _bar(
    pieces: Sequence[Piece], missing: Sequence[Piece], *, shown: bool
) -> Iterator[Callable[[Piece, float], None]]:
    """A bar over all pieces, each weighed by how long it takes; gives what tells it of progress."""
    total, left = (sum(piece.seconds for piece in part) for part in (pieces, missing))
    shares = {(piece.panel.name, piece.policy): 0.0 for piece in missing}
    with tqdm(
        desc="playing",
        total=total,
        initial=total - left,
        bar_format=_FORMAT,
        disable=not shown,
        smoothing=0.05,
    ) as bar:

        def tick(piece: Piece, share: float) -> None:
            shares[piece.panel.name, piece.policy] += share
            unfinished = sum(share < 0.999 for share in shares.values())
            bar.set_postfix_str(
                f"{len(pieces) - unfinished} of {len(pieces)} pieces", refresh=False
            )
            bar.update(min(piece.seconds * share, total - bar.n))

        yield tick
