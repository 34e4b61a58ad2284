"""The picture of a simulation: regret over rounds, a line for each policy."""

from typing import TYPE_CHECKING

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..models.render import Picture

if TYPE_CHECKING:
    from .simulation import Simulation

__all__ = ["plot_regret"]

# Okabe and Ito's colours, told apart by every eye; in grey, dashes and markers tell lines apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "X", "P")


def plot_regret(simulation: "Simulation") -> Figure:
    """Mean regret up to each round; bands are one standard error to either side."""
    means, errors = simulation.mean(), simulation.standard_error()
    figure = Picture(figsize=(6.4, 4.2), dpi=100, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    rounds = range(1, simulation.horizon + 1)
    for i, (name, mean) in enumerate(means.items()):
        colour = COLOURS[i % len(COLOURS)]
        axes.plot(
            rounds,
            mean,
            color=colour,
            linestyle=DASHES[i % len(DASHES)],
            marker=MARKERS[i % len(MARKERS)],
            markevery=(
                simulation.horizon * (i + 1) // (8 * len(means)),
                simulation.horizon // 8 + 1,
            ),
            markersize=5,
            label=name,
        )
        axes.fill_between(
            rounds, mean - errors[name], mean + errors[name], color=colour, alpha=0.2, linewidth=0
        )
    axes.set_xlabel("round")
    axes.set_ylabel("regret up to the round, mean over runs")
    axes.set_xlim(0, simulation.horizon)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    if means:
        order = sorted(range(len(means)), key=lambda i: -list(means.values())[i][-1])
        handles, labels = axes.get_legend_handles_labels()
        axes.legend([handles[i] for i in order], [labels[i] for i in order], frameon=False)
    return figure
