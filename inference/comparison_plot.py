"""The picture of a comparison: intervals of a few vectors on the left, who is best on the right."""

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ..models import Level
from ..models.render import Picture

if TYPE_CHECKING:
    from .comparison import Comparison

__all__ = ["plot_comparison"]

# Okabe and Ito's colours, told apart by every eye; in grey, the markers tell backends apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
BAND, INK = "0.86", "#222222"
MOST_ACTIONS = 8
MOST_ABOVE = 8  # vectors of all levels above the actions
LONGEST_LABEL = 24
ROW, PER_BACKEND = 0.16, 0.085  # inches


def plot_comparison(comparison: "Comparison") -> Figure:
    """Draw a comparison, in which the reference is a grey band or bar with a black tick.

    Left, the first number of a few vectors: mean and central 90% interval. Right, the probability of
    being best, of those actions to which some backend gives most.
    """
    actions = _likeliest(comparison)
    rows = [
        (level, vector)
        for level in comparison.hierarchy.levels
        for vector in (actions if level is comparison.hierarchy.actions else _first(comparison, level))
    ]
    backends = len(comparison.posteriors)
    height = 1.3 + max(len(rows) * (ROW + PER_BACKEND * backends), 2.0)
    figure = Picture(figsize=(10.0, height), dpi=100, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=[1.25, 1.0])
    handles = _forest(left, comparison, rows)
    _best(right, comparison, actions)
    names = [f"{comparison.reference} (reference)", *list(comparison.posteriors)[1:]]
    figure.legend(handles, names, loc="outside upper center", ncols=4, frameon=False)
    return figure


def _likeliest(comparison: "Comparison") -> list[int]:
    """The actions with the largest probabilities of being best, by the reference's order."""
    best = comparison.best.to_numpy()
    order = np.argsort(-np.nan_to_num(best).max(axis=1), kind="stable")[:MOST_ACTIONS]
    order = order[np.argsort(-np.nan_to_num(best[order, 0]), kind="stable")]
    return [int(action) for action in order]


def _first(comparison: "Comparison", level: Level) -> list[int]:
    above = len(comparison.hierarchy.levels) - 1
    return list(range(min(level.size, max(MOST_ABOVE // above, 1))))


def _label(level: Level, vector: int) -> str:
    label = level.labels[vector] if level.labels else f"{level.name} {vector}"
    return label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 1]}…"


def _styles(comparison: "Comparison") -> list[dict[str, Any]]:
    """Colour, marker and place within a row of every backend but the reference."""
    count = len(comparison.posteriors) - 1
    shifts = (np.arange(count) + 0.5) / max(count, 1) * 0.76 - 0.38
    return [
        {
            "color": COLOURS[i % len(COLOURS)],
            "marker": MARKERS[i % len(MARKERS)],
            "shift": float(shift),
        }
        for i, shift in enumerate(shifts)
    ]


def _forest(axes: Axes, comparison: "Comparison", rows: list[tuple[Level, int]]) -> list[Any]:
    places = np.arange(len(rows))

    def numbers(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        posterior, ends = comparison.posteriors[name], comparison.intervals[name]
        mean = np.array([posterior.mean[level.name][vector, 0] for level, vector in rows])
        low, high = np.array([ends[level.name][:, vector, 0] for level, vector in rows]).T
        return mean, low, high

    reference, *others = comparison.posteriors
    mean, low, high = numbers(reference)
    band = axes.barh(places, high - low, left=low, height=0.86, color=BAND, label=reference)
    (tick,) = _ticks(axes, mean, places)
    handles: list[Any] = [(band, tick)]
    for name, style in zip(others, _styles(comparison), strict=True):
        mean, low, high = numbers(name)
        # Not `xerr`, which refuses an interval that leaves its mean out, as a skewed one may.
        shifted = places + style["shift"]
        axes.hlines(shifted, low, high, color=style["color"], linewidth=1.2)
        (marks,) = axes.plot(
            mean,
            shifted,
            linestyle="none",
            color=style["color"],
            marker=style["marker"],
            markersize=4.5,
            label=name,
        )
        handles.append(marks)
    for place in places[1:]:
        if rows[place][0] is not rows[place - 1][0]:
            axes.axhline(place - 0.5, color=INK, linewidth=0.8)
    axes.set_yticks(places, [_label(*row) for row in rows])
    axes.set_title("First number of each vector", loc="left", fontsize="medium")
    axes.set_xlabel("mean and central 90% interval")
    _finish(axes, len(rows))
    return handles


def _best(axes: Axes, comparison: "Comparison", actions: list[int]) -> None:
    places = np.arange(len(actions))
    level = comparison.hierarchy.actions
    best = comparison.best.iloc[actions]
    reference, *others = comparison.posteriors
    axes.barh(places, best[reference], height=0.86, color=BAND, label=reference)
    _ticks(axes, best[reference].to_numpy(), places)
    for name, style in zip(others, _styles(comparison), strict=True):
        axes.plot(
            best[name],
            places + style["shift"],
            linestyle="none",
            color=style["color"],
            marker=style["marker"],
            markersize=4.5,
            label=name,
        )
    axes.set_yticks(places, [_label(level, action) for action in actions])
    axes.set_title(f"Which {level.name} is best?", loc="left", fontsize="medium")
    axes.set_xlabel(f"probability of being best, from {comparison.draws:,} draws")
    axes.set_xlim(left=0.0)
    _finish(axes, len(actions))


def _ticks(axes: Axes, values: np.ndarray, places: np.ndarray) -> list[Any]:
    """The reference's black ticks, as high as its bands."""
    return axes.plot(values, places, "|", color=INK, markersize=14, markeredgewidth=1.6)


def _finish(axes: Axes, rows: int) -> None:
    axes.set_ylim(rows - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_axisbelow(True)
    axes.grid(axis="x", color="0.92", linewidth=0.8)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
