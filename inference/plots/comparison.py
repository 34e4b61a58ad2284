"""The picture of a comparison: intervals of a few vectors, and the probabilities of being best."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ...models import Level
from ...models.picture.look import COLOURS, INK, MARKERS, blank, one_line
from ..programs.by_hand import Site
from .posterior import name_rows

if TYPE_CHECKING:
    from ..judging.comparison import Comparison

__all__ = ["plot_comparison"]

BAND = "0.86"
MOST_ACTIONS, FEWEST_ACTIONS, RARE = 8, 4, 0.01
MOST_ABOVE = 8  # vectors of all levels above the actions
LONGEST_LABEL = 24
ROW, LANE, LINE = 0.16, 0.085, 0.22  # inches: of a row, of each backend in it, of a legend's line


class _Style(NamedTuple):
    """How a backend is drawn, and by how much it is moved within a row."""

    name: str
    colour: str
    marker: str
    shift: float


def plot_comparison(comparison: "Comparison") -> Figure:
    """Draw a comparison, in which the reference is a grey band or bar with a black tick.

    Left, the first number of a few vectors: mean and central 90% interval. A hollow mark at the edge is
    a mean beyond it. Right, the probability of being best, of the actions to which some backend gives
    most.
    """
    *levels, last = comparison.hierarchy.levels
    above = [(level, vector) for level in levels for vector in _first(level, len(levels))]
    actions = [(last, action) for action in _likeliest(comparison.best.to_numpy())]
    row = ROW + LANE * len(comparison.posteriors)
    legend = LINE * (len(comparison.posteriors) + 1)
    heights = [max(len(above) * row, legend), max(len(actions) * row, 1.5)]
    figure = blank(10.0, 1.2 + sum(heights))
    grid: Any = figure.subplots(
        2, 2, sharex="col", sharey="row", width_ratios=[1.3, 1.0], height_ratios=heights
    )
    limits = _limits(comparison, above + actions)
    _forest(grid[1, 0], comparison, actions, limits)
    grid[1, 0].set_xlim(limits)
    grid[1, 0].set_xlabel("first number of each vector: mean and central 90% interval")
    _best(grid[1, 1], comparison, [action for _, action in actions])
    if above:
        _forest(grid[0, 0], comparison, above, limits)
        grid[0, 0].spines["bottom"].set_visible(False)
        grid[0, 0].tick_params(axis="x", length=0)
    else:
        grid[0, 0].set_axis_off()
    _legend(grid[0, 1], comparison)
    return figure


def _likeliest(best: np.ndarray) -> list[int]:
    """The actions with the largest probabilities of being best, in the reference's order."""
    best = np.nan_to_num(best)
    most = best.max(axis=1)
    count = int(np.clip((most >= RARE).sum(), min(FEWEST_ACTIONS, len(best)), MOST_ACTIONS))
    chosen = np.argsort(-most, kind="stable")[:count]
    return chosen[np.argsort(-best[chosen, 0], kind="stable")].tolist()


def _first(level: Level | Site, levels: int) -> range:
    return range(min(level.size, max(MOST_ABOVE // levels, 1)))


def _label(level: Level | Site, vector: int) -> str:
    return one_line(level.label_of(vector), LONGEST_LABEL)


def _styles(comparison: "Comparison") -> list[_Style]:
    """The style of every backend but the reference."""
    _, *names = comparison.posteriors
    shifts = (np.arange(len(names)) + 0.5) / max(len(names), 1) * 0.8 - 0.4
    return [
        _Style(name, COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)], float(shifts[i]))
        for i, name in enumerate(names)
    ]


def _legend(axes: Axes, comparison: "Comparison") -> None:
    band = Patch(color=BAND)
    tick = Line2D([], [], color=INK, marker="|", markersize=10, markeredgewidth=1.4, ls="none")
    handles: list[Any] = [(band, tick)]
    handles += [Line2D([], [], **_look(style), linewidth=1.2) for style in _styles(comparison)]
    names = [comparison.reference_label, *list(comparison.posteriors)[1:]]
    axes.set_axis_off()
    axes.legend(handles, names, loc="center", frameon=False)


def _look(style: _Style) -> dict[str, Any]:
    return {"color": style.colour, "marker": style.marker, "markersize": 5}


def _forest(
    axes: Axes,
    comparison: "Comparison",
    rows: list[tuple[Level | Site, int]],
    limits: tuple[float, float],
) -> None:
    """Means and intervals of the first numbers of some vectors; beyond the limits, hollow marks."""
    places = np.arange(len(rows))
    mean, low, high = _numbers(comparison, comparison.reference, rows)
    _reference(axes, places, low, high, mean)
    for style in _styles(comparison):
        mean, low, high = _numbers(comparison, style.name, rows)
        axes.hlines(places + style.shift, low, high, color=style.colour, linewidth=1.2)
        _marks(axes, np.clip(mean, *limits), places, style)
        off = (mean < limits[0]) | (mean > limits[1])
        if off.any():
            edge = np.clip(mean[off], *limits)
            _marks(axes, edge, places[off], style, markerfacecolor="white", label=None)
    for place in range(1, len(rows)):
        if rows[place][0] is not rows[place - 1][0]:
            axes.axhline(place - 0.5, color="0.6", linewidth=0.8)
    name_rows(axes, [_label(*row) for row in rows])


def _numbers(
    comparison: "Comparison", name: str, rows: list[tuple[Level | Site, int]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means and ends of intervals of the first numbers of some vectors."""
    mean, ends = comparison.posteriors[name].mean, comparison.intervals[name]
    low, high = np.array([ends[level.name][:, vector, 0] for level, vector in rows]).T
    return np.array([mean[level.name][vector, 0] for level, vector in rows]), low, high


def _limits(comparison: "Comparison", rows: list[tuple[Level | Site, int]]) -> tuple[float, float]:
    """Room for all intervals, unless a backend is so wrong that the others would become dots."""
    ends = np.array([_numbers(comparison, name, rows)[1:] for name in comparison.posteriors])
    ends = np.where(np.isfinite(ends), ends, np.nan_to_num(ends[0]))
    least, most = ends[0].min(), ends[0].max()
    room = most - least
    margin = 0.03 * room
    low, high = max(ends.min(), least - room), min(ends.max(), most + room)
    return float(low - margin), float(high + margin)


def _best(axes: Axes, comparison: "Comparison", actions: list[int]) -> None:
    """Probabilities of being best, in the rows of the forest beside them."""
    places = np.arange(len(actions))
    level, best = comparison.hierarchy.actions, comparison.best.iloc[actions]
    reference = best[comparison.reference].to_numpy()
    _reference(axes, places, np.zeros(len(actions)), reference, reference)
    for style in _styles(comparison):
        _marks(axes, best[style.name].to_numpy(), places, style)
    shown = "" if len(actions) == level.size else f" The {len(actions)} likeliest of {level.size:,}"
    axes.set_title(f"Which {level.name} is best?{shown}", loc="left", fontsize="medium")
    axes.set_xlabel(f"probability of being best, from {comparison.draws:,} draws")
    name_rows(axes, [_label(level, action) for action in actions])
    axes.tick_params(axis="y", labelleft=False)


def _reference(
    axes: Axes, places: np.ndarray, low: np.ndarray, high: np.ndarray, tick: np.ndarray
) -> None:
    """The reference's grey bands with black ticks."""
    axes.barh(places, high - low, left=low, height=0.88, color=BAND)
    axes.vlines(tick, places - 0.44, places + 0.44, color=INK, linewidth=1.4)


def _marks(
    axes: Axes, values: np.ndarray, places: np.ndarray, style: _Style, **changes: Any
) -> None:
    look = {**_look(style), "linestyle": "none", "label": style.name, "clip_on": False, **changes}
    axes.plot(values, places + style.shift, **look)
