"""The command `mixts reproduce`."""

import argparse
import difflib
import shlex
import time
from pathlib import Path

import numpy as np

from .paper import check_ratings
from .pieces import pieces_of
from .record import Figure, Size
from .reproduction import all_figures, reproduce
from .result import Result

__all__ = ["run_reproduce"]

QUICK = Size(runs=4, horizon=300)


def run_reproduce(options: argparse.Namespace) -> None:
    """List the figures, or play some and write what came out."""
    # Workers of a cluster may have been started in another folder.
    known = all_figures(options.ratings and options.ratings.absolute())
    if options.list:
        _list(known)
        return
    chosen = _chosen(options, known)
    if options.ratings is not None:
        _check_ratings(options.ratings)
    size = _size(options)
    began = time.monotonic()
    print(
        f"Figures: {len(chosen)}, pieces: {len(pieces_of(chosen, size))}, each {size.runs} runs x "
        f"{size.horizon:,} rounds. Stopped, it goes on from there when started again.",
        flush=True,
    )
    results = reproduce(
        chosen,
        options.out,
        size,
        scheduler=options.scheduler,
        beside=known.values(),
        options=_flags(options),
    )
    for result in results:
        _print(result)
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    print(f"\n{minutes} min {seconds} s. Open {options.out / 'index.html'}")


def _chosen(options: argparse.Namespace, known: dict[str, Figure]) -> list[Figure]:
    names = options.figures
    if not names:
        options.error(
            "no figure given; expected names, or: all (mixts reproduce --list shows them)"
        )
    for name in names:
        if name not in (*known, "all"):
            near = difflib.get_close_matches(name, [*known, "all"], 1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            options.error(
                f"unknown figure '{name}'; {hint}expected all or some of: {', '.join(known)}"
            )
    return [known[name] for name in (known if "all" in names else dict.fromkeys(names))]


def _check_ratings(path: Path) -> None:
    """Complain of a missing, damaged or small file now, before anything is played."""
    try:
        check_ratings(path)
    except ValueError as error:
        raise OSError(str(error)) from error


def _size(options: argparse.Namespace) -> Size:
    standard = QUICK if options.quick else Size()
    return Size(options.runs or standard.runs, options.horizon or standard.horizon, options.seed)


def _flags(options: argparse.Namespace) -> str:
    """What was said on the command line besides names, as it would be said again."""
    given = ["--quick"] if options.quick else []
    for name in ("runs", "horizon", "ratings"):
        if getattr(options, name) is not None:
            given += [f"--{name}", str(getattr(options, name))]
    if options.seed:
        given += ["--seed", str(options.seed)]
    return f" {shlex.join(given)}" if given else ""


def _list(known: dict[str, Figure]) -> None:
    width = max(map(len, known))
    for name, figure in known.items():
        panels = len(figure.panels)
        print(f"{name:{width}}  {figure.title} ({panels} panels; {figure.source})")


def _print(result: Result) -> None:
    """Totals, and the orderings that did not come out as claimed."""
    table = result.summary()
    said = [_spread(mean, se) for mean, se in zip(table["mean"], table["se"], strict=True)]
    wide = table.assign(total=said).pivot(index="policy", columns="panel", values="total")
    wide = wide.loc[table["policy"].unique(), table["panel"].unique()].fillna("")
    print(f"\n{result.figure.name}: {result.figure.title}\n")
    print(wide.rename_axis(index=None, columns=None).to_string())
    orderings = result.orderings()
    if not orderings:
        return
    held = sum(ordering.verdict == "holds" for ordering in orderings)
    print(f"\n{held} of {len(orderings)} claimed orderings hold.")
    for ordering in orderings:
        if ordering.verdict != "holds":
            print(
                f"  {ordering.verdict}: {ordering.lower} below {ordering.higher} ({ordering.panel}): "
                f"difference {_spread(ordering.difference, ordering.se)}"
            )


def _spread(mean: float, error: float) -> str:
    """With its standard error, which a single run does not have."""
    return f"{mean:,.1f}" + ("" if np.isnan(error) else f" ± {error:,.1f}")
