"""`reproduce`: play what is missing of some figures, and write everything about them."""

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tqdm.auto import tqdm

from ...inference.progress import task
from ..atomic_file import replace_file
from .beyond import beyond_figures
from .cluster import play_on_cluster
from .deep_trees import deep_trees
from .drifting import drifting
from .here import play_here
from .paper import paper_figures
from .pieces import Piece, Store, pieces_of
from .record import Figure, Size
from .result import Result, load_result
from .unknown_scales import unknown_scales

__all__ = ["all_figures", "reproduce"]

BAR = "{desc}: {percentage:3.0f}%|{bar}| {elapsed} gone, {remaining} left{postfix}"


def all_figures(ratings: Path | None = None) -> dict[str, Figure]:
    """Every figure by name: the paper's, and then those of claims it does not plot.

    Args:
        ratings: MovieLens ratings, as in `MovieLensProblem`.

    Example:
        >>> from mixts.bandit.experiments import all_figures
        >>> all_figures()["synthetic"].source
        'Figure 2'
    """
    others = *beyond_figures(), deep_trees(), unknown_scales(), drifting()
    return {figure.name: figure for figure in (*paper_figures(ratings), *others)}


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

    Each finished piece is a file in `out/pieces`, written whole. A call that was killed continues where
    it stopped, and ends with the same files, byte for byte, as one that was not.

    Args:
        figures: what to play.
        out: the folder.
        size: how much to play of each.
        scheduler: the address of a Dask scheduler whose workers play; None plays on this machine.
        progress: whether to show a progress bar with the time left.
        beside: figures that the page shows too if all their pieces are in `out` already.
        options: what the commands on the page need besides the names of figures.

    Example:
        >>> import tempfile
        >>> from mixts.bandit import SyntheticProblem, UniformRandom
        >>> from mixts.bandit.experiments import Figure, Panel, Size, reproduce
        >>> panel = Panel("small", "K = 3", lambda: SyntheticProblem(3), {"chance": UniformRandom})
        >>> figure = Figure("example", "An example", (panel,), source="Section 5", says="Nothing.")
        >>> (result,) = reproduce([figure], tempfile.mkdtemp(), Size(2, 5), progress=False)
    """
    from .files import sweep, write_figure

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
    results = []
    with task("drawing", len(figures), "figures", None if progress else False) as drawing:
        for figure in figures:
            drawing.say(f"drawing {figure.name}")
            result = load_result(figure, size, store)
            if result is None:
                raise OSError(
                    f"a piece of '{figure.name}' is gone from {store.folder} or damaged, though it was "
                    "written; start again"
                )
            write_figure(result, out / figure.name)
            results.append(result)
            drawing.advance()
        drawing.say("drawing the page")
        _write_page(out, size, store, results, beside, options)
    sweep([out, store.folder, *(out / figure.name for figure in figures)], began)
    return results


def _check_writable(folder: Path) -> float:
    """Fail now and not after the first piece; returns the time by the clock of the disk."""
    probe = folder / f".writable.{secrets.token_hex(8)}"
    try:
        probe.touch()
        return probe.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)


def _write_page(
    out: Path,
    size: Size,
    store: Store,
    results: Sequence[Result],
    beside: Sequence[Figure],
    options: str,
) -> None:
    """The page of all figures of this size, in the order of `beside`, and the files that it links to."""
    from .files import is_written, write_figure
    from .page import page

    shown = {result.figure.name: result for result in results}
    for figure in beside:
        folder = out / figure.name
        complete = all(store.path(piece).is_file() for piece in pieces_of([figure], size))
        if figure.name in shown or not complete or not folder.is_dir():
            continue
        result = load_result(figure, size, store)
        if result is not None:
            shown[figure.name] = result
            if not is_written(result, folder):
                write_figure(result, folder)
    order = {figure.name: i for i, figure in enumerate(beside)}
    ordered = sorted(shown.values(), key=lambda result: order.get(result.figure.name, -1))
    replace_file(out / "index.html", page(ordered, size, options).encode())


@contextmanager
def _bar(
    pieces: Sequence[Piece], missing: Sequence[Piece], *, shown: bool
) -> Iterator[Callable[[Piece, float], None]]:
    """A bar over all pieces, weighted by how long they take; gives the function that advances it."""
    total, left = (sum(piece.seconds for piece in part) for part in (pieces, missing))
    shares = {(piece.panel.name, piece.policy): 0.0 for piece in missing}
    look = {
        "desc": "compiling" if missing else "playing",
        "bar_format": BAR,
        "disable": not shown,
        "smoothing": 0.05,
    }
    with tqdm(total=total, initial=total - left, **look) as bar:

        def tick(piece: Piece, share: float) -> None:
            shares[piece.panel.name, piece.policy] += share
            done = len(pieces) - sum(share < 0.999 for share in shares.values())
            bar.set_description_str("playing", refresh=False)
            bar.set_postfix_str(f"{done} of {len(pieces)} pieces", refresh=False)
            bar.update(min(piece.seconds * share, total - bar.n))

        yield tick
