"""One page with everything: pictures, tables, settings, versions and commands, and no other file."""

import base64
import re
from collections.abc import Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from .files import TABLES, svg
from .pieces import versions
from .record import Size
from .result import Line, Ordering, Result, Verdict

__all__ = ["page"]

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; }
body { max-width: 64rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 3rem; border-top: 1px solid #ccc; padding-top: 1.5rem; }
img { display: block; width: 100%; height: auto; margin: 1rem 0; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 14px; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .75rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
td.best { font-weight: bold; } td.differs { background: #fbe3d6; } td.unsure { color: #666; }
code { font-size: 14px; background: #f3f3f3; padding: .1rem .3rem; border-radius: 3px; }
blockquote { margin: 1rem 0; padding-left: 1rem; border-left: 3px solid #0072b2; color: #444; }
details { font-size: 14px; } summary { color: #555; cursor: pointer; }
.note { color: #555; font-size: 14px; }
"""
_VERDICTS: dict[Verdict, tuple[str, str]] = {
    "holds": ("✓", ""),
    "differs": ("✗", ' class="differs"'),
    "too close to tell": ("≈", ' class="unsure"'),
}
_LEGEND = (
    '<p class="note">Numbers are the second policy’s regret over the first’s. ✓ it is higher and ✗ lower '
    "by more than two standard errors of the difference run by run; ≈ too close to tell.</p>"
)


def page(results: Sequence[Result], size: Size, options: str = "") -> str:
    """The page as HTML; `options` is what a command needs besides the name of a figure."""
    contents = "".join(
        f'<li><a href="#{escape(r.figure.name)}">{escape(r.figure.title)}</a></li>' for r in results
    )
    settings = {
        "runs": f"{size.runs:,}",
        "rounds of a run": f"{size.horizon:,}",
        "seed": f"{size.seed}",
    }
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>mixts: figures of Mixed-Effect Thompson Sampling</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>Mixed-Effect Thompson Sampling, played again</h1>
<p>The experiments of Aouali, Kveton and Katariya (AISTATS 2023), and of claims that the paper does not
plot. Lines are means over runs of the regret up to a round; bands are one standard error to either side.
Policies of a panel met the same instances, contexts and chance.</p>
<ul>{contents}</ul>
{"".join(_figure(result, options) for result in results)}
<h2>How it was made</h2>
{_pairs(settings)}
{_pairs(versions())}
</body>
</html>
"""


def _figure(result: Result, options: str) -> str:
    figure = result.figure
    picture = base64.b64encode(svg(result)).decode()
    files = ", ".join(
        f'<a href="{quote(figure.name)}/{name}">{name}</a>'
        for name in ("regret.png", "regret.svg", *(f"{table}.csv" for table in TABLES), "regret.nc")
    )
    return f"""
<h2 id="{escape(figure.name)}">{escape(figure.title)}</h2>
<img alt="{escape(f"Regret: {figure.title}")}" src="data:image/svg+xml;base64,{picture}">
<h3>Regret of {result.size.horizon:,} rounds</h3>
{_totals(result)}
<h3>What the paper says (<code>{escape(figure.source)}</code>)</h3>
<blockquote>{escape(figure.says)}</blockquote>
{_claims(result)}
{_problems(result)}
<p class="note">Command: <code>{escape(f"mixts reproduce {figure.name}{options}")}</code>.
Files: {files}.</p>
"""


def _totals(result: Result) -> str:
    """Mean ± standard error, a row for each line and a column for each panel; the lowest stands out."""
    panels = result.figure.panels
    lowest = [min(line.mean[-1] for line in result.lines[panel.name].values()) for panel in panels]
    names = dict.fromkeys(name for panel in panels for name in result.lines[panel.name])
    rows = []
    for name in names:
        cells = []
        for panel, least in zip(panels, lowest, strict=True):
            line = result.lines[panel.name].get(name)
            cells.append("<td></td>" if line is None else _total(line, least))
        rows.append(f"<tr><td>{escape(name)}</td>{''.join(cells)}</tr>")
    return _table(["", *(panel.title for panel in panels)], rows) + _troubles(result)


def _total(line: Line, least: float) -> str:
    """As many decimals as the standard error has to tell."""
    mean, error = line.mean[-1], line.error[-1]
    decimals = 0 if error >= 10 else 1
    best = ' class="best"' if mean == least else ""
    spread = "" if np.isnan(error) else f" ± {error:,.{decimals}f}"
    return f"<td{best}>{mean:,.{decimals}f}{spread}</td>"


def _troubles(result: Result) -> str:
    """What policies had trouble with, if they had."""
    said = [
        f"{policy} ({panel.title}): {counts.sum():,} {kind}"
        for panel in result.figure.panels
        for policy, troubles in result.played[panel.name].troubles.items()
        for kind, counts in troubles.items()
        if counts.any()
    ]
    return f'<p class="note">Troubles: {escape("; ".join(said))}.</p>' if said else ""


def _claims(result: Result) -> str:
    """A row for each ordering, a column for each panel: how much less regret, and whether it holds."""
    orderings = result.orderings()
    panels = [panel.title for panel in result.figure.panels]
    rows = []
    for pair in dict.fromkeys((ordering.lower, ordering.higher) for ordering in orderings):
        found = {o.panel: o for o in orderings if (o.lower, o.higher) == pair}
        cells = [_verdict(found[panel]) if panel in found else "<td></td>" for panel in panels]
        rows.append(f"<tr><td>{escape(' below '.join(pair))}</td>{''.join(cells)}</tr>")
    return (_table(["ordering", *panels], rows) + _LEGEND) if rows else ""


def _verdict(ordering: Ordering) -> str:
    symbol, look = _VERDICTS[ordering.verdict]
    return f"<td{look}>{symbol} {ordering.ratio:.2f}</td>"


def _problems(result: Result) -> str:
    """What each panel's problem was declared with."""
    pairs = {panel.title: _declaration(panel.problem) for panel in result.figure.panels}
    rows = [
        f"<tr><td>{escape(title)}</td><td><code>{escape(said)}</code></td></tr>"
        for title, said in pairs.items()
    ]
    return f"<details><summary>Problems</summary>{_table(['panel', 'problem'], rows)}</details>"


def _declaration(value: Any) -> str:
    """As it would be written in Python, about: the same in every process, and in one line."""
    if isinstance(value, partial):
        given = [_declaration(one) for one in value.args]
        given += [f"{name}={_declaration(one)}" for name, one in value.keywords.items()]
        return f"{_declaration(value.func)}({', '.join(given)})"
    if callable(value) and hasattr(value, "__name__"):
        return value.__name__
    said = repr(value.name if isinstance(value, Path) else value)
    return " ".join(re.sub(r" at 0x[0-9a-fA-F]+", "", said).split())


def _table(header: list[str], rows: list[str]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _pairs(values: dict[str, str]) -> str:
    rows = "".join(f"<tr><td>{escape(k)}</td><td>{escape(v)}</td></tr>" for k, v in values.items())
    return f"<table>{rows}</table>"
