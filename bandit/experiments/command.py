"""The command `mixts reproduce`."""

import argparse
import difflib
import shlex
import time

from .paper import check_ratings
from .pieces import pieces_of
from .record import Figure, Size
from .reproduction import all_figures, reproduce
from .result import Result, spread

__all__ = ["run_reproduce"]

QUICK = Size(runs=4, horizon=300)


def run_reproduce(options: argparse.Namespace) -> None:
    """List the figures, or play some, print a summary and write the files."""
    # Workers of a cluster may have been started in another folder.
    known = all_figures(options.ratings and options.ratings.absolute())
    if options.list:
        width = max(map(len, known))
        for name, figure in known.items():
            print(f"{name:{width}}  {figure.title} ({len(figure.panels)} panels; {figure.source})")
        return
    chosen = _chosen(options, known)
    if options.ratings is not None:
        try:  # before anything is played
            check_ratings(options.ratings)
        except ValueError as error:
            raise OSError(str(error)) from error
    standard = QUICK if options.quick else Size()
    size = Size(options.runs or standard.runs, options.horizon or standard.horizon, options.seed)
    began = time.monotonic()
    print(
        f"Figures: {len(chosen)}, pieces: {len(pieces_of(chosen, size))}, each {size.runs} runs x "
        f"{size.horizon:,} rounds. If it is stopped, start it again to continue.",
        flush=True,
    )
    given = {"scheduler": options.scheduler, "options": _flags(options)}
    for result in reproduce(chosen, options.out, size, beside=known.values(), **given):
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


def _flags(options: argparse.Namespace) -> str:
    """The options of the command line, as they would be given again."""
    flags = ["--quick"] if options.quick else []
    for name in ("runs", "horizon", "ratings", "seed"):
        value = getattr(options, name)
        if value is not None and (name, value) != ("seed", 0):
            flags += [f"--{name}", str(value)]
    return f" {shlex.join(flags)}" if flags else ""


def _print(result: Result) -> None:
    """Totals, and the orderings that are not as claimed."""
    table = result.summary()
    totals = [spread(mean, se) for mean, se in zip(table["mean"], table["se"], strict=True)]
    wide = table.assign(total=totals).pivot(index="policy", columns="panel", values="total")
    wide = wide.loc[table["policy"].unique(), table["panel"].unique()].fillna("")
    print(f"\n{result.figure.name}: {result.figure.title}\n")
    print(wide.rename_axis(index=None, columns=None).to_string())
    orderings = result.orderings()
    others = [ordering for ordering in orderings if ordering.verdict != "holds"]
    if orderings:
        holding = len(orderings) - len(others)
        print(f"\n{holding} of {len(orderings)} claimed orderings hold.")
    for other in others:
        print(
            f"  {other.verdict}: {other.lower} below {other.higher} ({other.panel}): "
            f"difference {spread(other.difference, other.se)}"
        )
