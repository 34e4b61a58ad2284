"""One page with everything: pictures, tables, settings, versions and commands, and no other file.

`page.html` is the page as a Jinja2 template; this module prepares the values that it shows.
"""

import base64
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from .files import NAMES, svg
from .pieces import declared, versions
from .record import Size
from .result import Result, Verdict, spread

__all__ = ["page"]

# (row, column) -> text and style of a cell.
Cells = dict[tuple[str, str], tuple[str, str]]
VERDICTS: dict[Verdict, tuple[str, str]] = {
    "holds": ("✓", ""),
    "differs": ("✗", "differs"),
    "too close to tell": ("≈", "unsure"),
}


def page(results: Sequence[Result], size: Size, options: str = "") -> str:
    """The page as HTML; `options` is what a command needs besides the name of a figure."""
    shown = [_shown(result) for result in results]
    return _template().render(
        figures=shown, files=NAMES, size=size, versions=versions(), options=options
    )


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html")


def _shown(result: Result) -> dict[str, Any]:
    """What the page shows of a figure."""
    panels = result.figure.panels
    return {
        "figure": result.figure,
        "picture": base64.b64encode(svg(result)).decode(),
        "totals": _totals(result),
        "troubles": _troubles(result),
        "claims": _claims(result),
        "problems": {panel.title: declared(panel.problem) for panel in panels},
    }


def _totals(result: Result) -> Cells:
    """Mean ± standard error of each line in each panel; the lowest of a panel stands out."""
    table = result.summary()
    best = table["mean"] == table.groupby("panel")["mean"].transform("min")
    table = table.assign(style=["best" if one else "" for one in best])
    columns = (table[name] for name in ("policy", "panel", "mean", "se", "style"))
    return {
        (policy, panel): (spread(mean, se, decimals=0 if se >= 10 else 1), style)
        for policy, panel, mean, se, style in zip(*columns, strict=True)
    }


def _troubles(result: Result) -> list[str]:
    """What went wrong in the runs of each policy."""
    return [
        f"{policy} ({panel.title}): {np.sum(counts):,} {kind}"
        for panel in result.figure.panels
        for policy, status in result.played[panel.name].status.items()
        for kind, counts in status.counts.items()
        if np.any(counts)
    ]


def _claims(result: Result) -> Cells:
    """For each ordering and panel: how much less regret, and whether the claim holds."""
    cells = {}
    for panel, low, high, ratio, _, _, verdict in result.orderings():
        symbol, style = VERDICTS[verdict]
        cells[f"{low} below {high}", panel] = f"{symbol} {ratio:.2f}", style
    return cells
