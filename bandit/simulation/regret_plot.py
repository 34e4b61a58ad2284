"""The picture of a simulation: regret over rounds, a line for each policy."""

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ...models.picture.look import COLOURS, DASHES, MARKERS, bare, blank, one_line

if TYPE_CHECKING:
    from .results import Simulation

__all__ = ["draw_line", "plot_regret"]


def plot_regret(simulation: "Simulation") -> Figure:
    """Mean regret up to each round; bands are one standard error to either side."""
    means, errors = simulation.mean(), simulation.standard_error()
    names = [one_line(name) for name in means]
    width = 6.6 + 0.1 * max(map(len, names), default=0)
    figure = blank(width, max(4.2, 0.5 + 0.23 * len(names)))
    axes = figure.subplots()
    rounds = np.arange(1, simulation.horizon + 1)
    lines = [
        draw_line(axes, rounds, mean, errors[name], i, len(means))
        for i, (name, mean) in enumerate(means.items())
    ]
    axes.set_xlabel("round")
    axes.set_ylabel("regret up to the round, mean over runs")
    axes.set_xlim(0, simulation.horizon)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    bare(axes)
    if lines:
        _legend(figure, names, lines)
    return figure


def draw_line(
    axes: Axes, x: np.ndarray, mean: np.ndarray, error: np.ndarray, i: int, lines: int
) -> Line2D:
    """The `i`-th of so many lines, with a band of one standard error to either side."""
    (line,) = axes.plot(x, mean, **_look(i, lines, len(x)))
    axes.fill_between(x, mean - error, mean + error, color=line.get_color(), alpha=0.2, linewidth=0)
    return line


def _look(i: int, lines: int, points: int) -> dict[str, Any]:
    """Colour, dashes and markers of a line; where colours come round again, the others do not."""
    turn = i // len(COLOURS)
    return {
        "color": COLOURS[i % len(COLOURS)],
        "linestyle": DASHES[(i + turn) % len(DASHES)],
        "marker": MARKERS[(i + 2 * turn) % len(MARKERS)],
        "markevery": (points * (i + 1) // (8 * lines), points // 8 + 1),
        "markersize": 5,
        "clip_on": False,
    }


def _legend(figure: Figure, names: list[str], lines: list[Line2D]) -> None:
    """Beside the axes, where it hides nothing; names in the order in which their lines end."""
    final = [float(np.asarray(line.get_ydata())[-1]) for line in lines]
    order = sorted(range(len(lines)), key=lambda i: -final[i])
    legend = figure.legend(
        [lines[i] for i in order],
        [f"{i}" for i in order],
        loc="outside right upper",
        frameon=False,
        handlelength=3.5,
    )
    # Set afterwards: as labels, names that begin with _ would be left out, and $ would be read as TeX.
    for text, i in zip(legend.get_texts(), order, strict=True):
        text.set_parse_math(False)
        text.set_text(names[i])
