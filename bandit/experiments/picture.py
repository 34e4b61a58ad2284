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

_PANEL = 3.3, 2.7  # inches
_LEGEND_COLUMN, _LEGEND_LINE = 2.1, 0.28
_LETTER = 0.1  # of the title


def draw(result: Result) -> Drawing:
    """Mean regret over rounds in every panel; bands are one standard error to either side.

    A figure with an axis of its own (`Figure.across`) is one panel: total regret against the values.
    Panels that hold the same lines share a legend below; others have one each.
    """
    figure = result.figure
    held = [list(lines) for lines in result.lines.values()]
    shared = all(names == held[0] for names in held)
    columns = 1 if figure.across else figure.columns
    rows = 1 if figure.across else -(-len(figure.panels) // columns)
    width = max(columns * _PANEL[0], 5.5, _LETTER * len(figure.title))
    abreast = max(1, int(width / _LEGEND_COLUMN))
    height = rows * _PANEL[1] + 0.5 + _LEGEND_LINE * -(-len(held[0]) // abreast) * shared
    drawing = blank(width, height)
    drawing.suptitle(figure.title, fontsize=12)
    grid = drawing.subplots(rows, columns, squeeze=False)
    if figure.across:
        lines = _draw_across(grid[0, 0], result)
        grid[0, 0].set_ylabel(f"regret of {result.size.horizon:,} rounds")
    else:
        lines = _draw_panels(grid, result, legends=not shared)
    for axes in grid.flat:
        bare(axes)
        axes.set_yscale("log") if figure.logarithmic else axes.set_ylim(bottom=0)
    if shared:
        drawing.legend(
            lines,
            held[0],
            loc="outside lower center",
            ncols=min(abreast, len(lines)),
            frameon=False,
            handlelength=3.5,
        )
    return drawing


def _draw_panels(grid: np.ndarray, result: Result, *, legends: bool) -> list[Line2D]:
    """The lines of the first panel, for a legend."""
    panels = result.figure.panels
    drawn = []
    for axes, panel in zip(grid.flat, panels, strict=False):
        lines = result.lines[panel.name]
        drawn.append(
            [
                draw_line(axes, line.rounds, line.mean, line.error, i, len(lines))
                for i, line in enumerate(lines.values())
            ]
        )
        axes.set_title(panel.title, fontsize=10)
        axes.set_xlim(0, result.size.horizon)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        if legends:
            axes.legend(drawn[-1], list(lines), frameon=False, fontsize=8, loc="upper left")
    for axes in grid[-1]:
        axes.set_xlabel("round")
    for axes in grid[:, 0]:
        axes.set_ylabel("regret")
    for axes in grid.flat[len(panels) :]:
        axes.set_axis_off()
    return drawn[0]


def _draw_across(axes: Axes, result: Result) -> list[Line2D]:
    panels = result.figure.panels
    values = np.asarray([panel.value for panel in panels], float)
    names = list(result.lines[panels[0].name])
    drawn = []
    for i, name in enumerate(names):
        lines = [result.lines[panel.name][name] for panel in panels]
        mean = np.asarray([line.mean[-1] for line in lines])
        error = np.asarray([line.error[-1] for line in lines])
        drawn.append(draw_line(axes, values, mean, error, i, len(names)))
        drawn[-1].set_markevery(1)
    axes.set_xticks(values)
    axes.set_xlabel(result.figure.across or "")
    return drawn
