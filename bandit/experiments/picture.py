"""The picture of a figure, in the paper's arrangement."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ...models.picture.look import bare, blank
from ..simulation.regret_plot import draw_line
from .result import Result

__all__ = ["draw"]

PANEL = 3.3, 2.7  # inches
LEGEND_COLUMN, LEGEND_LINE = 2.1, 0.28
LETTER = 0.1  # of the title


def draw(result: Result) -> Drawing:
    """Mean regret over rounds in every panel; bands are one standard error to either side.

    A figure with an axis of its own (`Figure.across`) is one panel: total regret against the values.
    Panels with the same lines share a legend below; others have one each.
    """
    figure = result.figure
    names = [list(lines) for lines in result.lines.values()]
    shared = all(others == names[0] for others in names)
    columns = 1 if figure.across else figure.columns
    rows = 1 if figure.across else -(-len(figure.panels) // columns)
    width = max(columns * PANEL[0], 5.5, LETTER * len(figure.title))
    abreast = max(1, int(width / LEGEND_COLUMN))
    height = rows * PANEL[1] + 0.5 + LEGEND_LINE * -(-len(names[0]) // abreast) * shared
    drawing = blank(width, height)
    drawing.suptitle(figure.title, fontsize=12)
    grid = drawing.subplots(rows, columns, squeeze=False)
    if figure.across:
        lines = _draw_across(grid[0, 0], result)
    else:
        lines = _draw_panels(grid, result, legends=not shared)
    for axes in grid.flat:
        bare(axes)
        axes.set_yscale("log") if figure.logarithmic else axes.set_ylim(bottom=0)
    if shared:
        place = {"loc": "outside lower center", "ncols": min(abreast, len(lines))}
        drawing.legend(lines, names[0], **place, frameon=False, handlelength=3.5)
    return drawing


def _draw_panels(grid: np.ndarray, result: Result, *, legends: bool) -> list[Line2D]:
    """Draws every panel; returns the lines of the first, for a legend."""
    first: list[Line2D] = []
    for axes, panel in zip(grid.flat, result.figure.panels, strict=False):
        lines = result.lines[panel.name]
        drawn = [
            draw_line(axes, line.rounds, line.mean, line.error, i, len(lines))
            for i, line in enumerate(lines.values())
        ]
        first = first or drawn
        axes.set_title(panel.title, fontsize=10)
        axes.set_xlim(0, result.size.horizon)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        if legends:
            axes.legend(drawn, list(lines), frameon=False, fontsize=8, loc="upper left")
    for axes in grid[-1]:
        axes.set_xlabel("round")
    for axes in grid[:, 0]:
        axes.set_ylabel("regret")
    for axes in grid.flat[len(result.figure.panels) :]:
        axes.set_axis_off()
    return first


def _draw_across(axes: Axes, result: Result) -> list[Line2D]:
    """Draws totals against the values of the panels; returns the lines."""
    panels = [result.lines[panel.name] for panel in result.figure.panels]
    values = np.asarray([panel.value for panel in result.figure.panels], float)
    drawn = []
    for i, name in enumerate(panels[0]):
        mean = np.asarray([lines[name].mean[-1] for lines in panels])
        error = np.asarray([lines[name].error[-1] for lines in panels])
        drawn.append(draw_line(axes, values, mean, error, i, len(panels[0])))
        drawn[-1].set_markevery(1)
    axes.set_xticks(values)
    axes.set_xlabel(result.figure.across or "")
    axes.set_ylabel(f"regret of {result.size.horizon:,} rounds")
    return drawn
