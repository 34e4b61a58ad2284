"""The picture of a simulation: regret over rounds, a line for each policy."""

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ..models.render import Picture

if TYPE_CHECKING:
    from .simulation import Simulation

__all__ = ["plot_regret"]

# Okabe and Ito's colours, told apart by every eye; in grey, dashes and markers tell lines apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "X", "P")
LONGEST = 40  # letters of a name


def plot_regret(simulation: "Simulation") -> Figure:
    """Mean regret up to each round; bands are one standard error to either side."""
    means, errors = simulation.mean(), simulation.standard_error()
    names = [_shortened(name) for name in means]
    size = 6.6 + 0.1 * max(map(len, names), default=0), max(4.2, 0.5 + 0.23 * len(names))
    figure = Picture(figsize=size, dpi=100, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    rounds = range(1, simulation.horizon + 1)
    lines = []
    for i, (name, mean) in enumerate(means.items()):
        lines += axes.plot(rounds, mean, **_look(i, len(means), simulation.horizon))
        low, high = mean - errors[name], mean + errors[name]
        axes.fill_between(rounds, low, high, color=lines[-1].get_color(), alpha=0.2, linewidth=0)
    axes.set_xlabel("round")
    axes.set_ylabel("regret up to the round, mean over runs")
    axes.set_xlim(0, simulation.horizon)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    if lines:
        _legend(figure, names, lines)
    return figure


def _look(i: int, lines: int, horizon: int) -> dict[str, Any]:
    """Colour, dashes and markers of a line; where colours come round again, the others do not."""
    turn = i // len(COLOURS)
    return {
        "color": COLOURS[i % len(COLOURS)],
        "linestyle": DASHES[(i + turn) % len(DASHES)],
        "marker": MARKERS[(i + 2 * turn) % len(MARKERS)],
        "markevery": (horizon * (i + 1) // (8 * lines), horizon // 8 + 1),
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


def _shortened(name: str) -> str:
    """One line that leaves room for the picture."""
    name = " ".join(name.split())
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
