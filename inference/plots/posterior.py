"""Pictures of posteriors: a forest of all vectors, and a level's posterior after more and more rounds."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from ...models import Hierarchy
from ...models.arrays import as_count
from ...models.messages import listed, short
from ..backend import Posterior

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["name_rows", "plot_forest", "plot_learning"]

ROW, LANE = 0.2, 0.11  # inches: of a row, and of each posterior in it
LETTER, ROOMY = 0.085, 20  # inches of a letter, for labels of more letters than this
MOST_LINES = 7  # as many as there are colours
# Which vectors of a level are drawn, in words.
_SHOWN = {
    "top": "the {n} highest means",
    "bottom": "the {n} lowest means",
    "both": "the {high} highest and {low} lowest means",
    "first": "the first {n}",
}


def plot_forest(
    posteriors: Mapping[str, Any] | Posterior,
    *,
    truth: Mapping[str, Any] | None = None,
    levels: Sequence[str] | None = None,
    component: int = 0,
    most: int = 20,
    show: str = "top",
) -> "Figure":
    """One number of every vector: mean and two standard deviations to either side.

    Of a level with more than `most` vectors, those with the highest means of the last posterior are
    drawn, in that order. Labels of more than 40 letters end in an ellipsis.

    Example:
        >>> from mixts.inference import ClosedForm, plot_forest
        >>> from mixts.models import linear
        >>> backend = ClosedForm(linear([[1.0], [1.0]], dim=1))
        >>> figure = plot_forest(backend.posterior(backend.init()))
        >>> [text.get_text() for text in figure.axes[1].get_yticklabels()]
        ['action 0', 'action 1']

    Args:
        posteriors: a posterior, or several by their names: `{"before": ..., "after": ...}`.
        truth: level -> (size, d), drawn as black ticks; levels may be left out.
        levels: which levels to draw, by default all.
        component: which of the d numbers of a vector.
        most: the largest number of vectors of a level that are drawn.
        show: which of more than that: the "top" by mean, the "bottom", "both" ends, or the "first".
    """
    from ...models.picture.look import COLOURS, INK, MARKERS, blank, one_line

    named = _by_name(posteriors)
    first = next(iter(named.values()))
    chosen = _known_levels(list(named.values()), levels, component)
    truths = _checked_truth(truth, first)
    last = list(named.values())[-1]
    rows = {level: _chosen(last, level, component, most, show) for level in chosen}
    labels = {level: [_label(first, level, i) for i in rows[level]] for level in chosen}
    row = ROW + LANE * len(named)
    sizes = [len(rows[level]) for level in chosen]
    longest = max(len(label) for names in labels.values() for label in names)
    width = 6.4 + LETTER * max(longest - ROOMY, 0)
    figure = blank(width, 1.1 + row * sum(sizes) + 0.3 * len(chosen))
    grid = figure.subplots(len(chosen), 1, sharex=True, height_ratios=sizes, squeeze=False)
    for axes, level in zip(grid[:, 0], chosen, strict=True):
        which = rows[level]
        places = np.arange(len(which))
        for i, (name, posterior) in enumerate(named.items()):
            shift = (i + 0.5) / len(named) * 0.8 - 0.4
            mean, deviation = _numbers(posterior, level, component)
            axes.errorbar(
                mean[which],
                places + shift,
                xerr=2 * deviation[which],
                fmt=MARKERS[i % len(MARKERS)],
                color=COLOURS[i % len(COLOURS)],
                markersize=4.5,
                label=one_line(name),
            )
        if level in truths:
            ticks = truths[level][which, component]
            axes.vlines(ticks, places - 0.4, places + 0.4, color=INK, label="truth")
        name_rows(axes, labels[level])
        whole = first.mean[level].shape[0]
        if len(which) < whole:
            axes.set_title(_title(level, len(which), whole, show), loc="left", fontsize="medium")
            if show == "both":
                axes.axhline(len(which) - len(which) // 2 - 0.5, color="0.6", linewidth=0.8)
    grid[-1, 0].set_xlabel(_what(first, component))
    handles, names = grid[0, 0].get_legend_handles_labels()
    if len(handles) > 1:
        figure.legend(handles, names, loc="outside upper center", ncols=4, frameon=False)
    return figure


def plot_learning(
    posteriors: Mapping[int, Any],
    level: str,
    *,
    truth: Any = None,
    component: int = 0,
    most: int = MOST_LINES,
    show: str = "top",
) -> "Figure":
    """The posterior of a level after more and more rounds: means, with two standard deviations.

    Example:
        >>> from mixts.inference import ClosedForm, plot_learning
        >>> from mixts.models import linear
        >>> backend = ClosedForm(linear([[1.0], [1.0]], dim=1))
        >>> states = {0: backend.init(), 1: backend.update(backend.init(), [1.0], 0, 3.0)}
        >>> figure = plot_learning({t: backend.posterior(s) for t, s in states.items()}, "action")
        >>> len(figure.axes[0].lines)
        2

    Args:
        posteriors: round -> posterior after it.
        level: the level, usually one of effects.
        truth: (size, d), drawn as a horizontal line for each vector.
        component: which of the d numbers of a vector.
        most: the largest number of vectors that are drawn; no more than seven, which is as many as can
            be told apart.
        show: which of more than that, as in `plot_forest`, by the means of the last round.
    """
    from ...models.picture.look import COLOURS, DASHES, MARKERS, bare, blank, one_line

    if not isinstance(posteriors, Mapping) or not posteriors:
        raise TypeError(f"got {short(posteriors)}; expected a dictionary from rounds to posteriors")
    _known_levels(list(posteriors.values()), [level], component)
    rounds = np.array(sorted(posteriors))
    last = posteriors[int(rounds[-1])]
    truths = _checked_truth(None if truth is None else {level: truth}, last)
    path = [_numbers(posteriors[int(t)], level, component) for t in rounds]
    means, deviations = np.stack(path, axis=-1)  # (size, rounds) each
    shown = _chosen(last, level, component, min(as_count(most, "most"), MOST_LINES), show)
    figure = blank(6.8, 4.2)
    axes = figure.subplots()
    for k, i in enumerate(shown):
        line: dict[str, Any] = {"color": COLOURS[k], "linestyle": DASHES[k]}
        low, high = means[i] - 2 * deviations[i], means[i] + 2 * deviations[i]
        axes.fill_between(rounds, low, high, color=COLOURS[k], alpha=0.15, linewidth=0)
        axes.plot(rounds, means[i], marker=MARKERS[k], label=_label(last, level, i), **line)
        if level in truths:
            axes.axhline(truths[level][i, component], linewidth=0.8, **line)
    axes.set_xlim(rounds[0], rounds[-1])
    axes.set_xlabel("round" + ("; thin lines are the truth" if level in truths else ""))
    axes.set_ylabel(_what(last, component).replace(", ", ",\n"))
    bare(axes)
    few = len(shown) < len(means)
    title = _title(level, len(shown), len(means), show) if few else one_line(level)
    legend = figure.legend(loc="outside right upper", title=title, frameon=False, handlelength=3.5)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def _by_name(posteriors: Mapping[str, Any] | Posterior) -> dict[str, Any]:
    if isinstance(posteriors, Posterior):
        return {"posterior": posteriors}
    if not isinstance(posteriors, Mapping) or not posteriors:
        raise TypeError(
            f"got {short(posteriors)}; expected a posterior, or a dictionary of them by name"
        )
    return dict(posteriors)


def _known_levels(posteriors: list[Any], levels: Sequence[str] | None, component: int) -> list[str]:
    """The levels to draw, which all posteriors must have, with as many vectors each."""
    for posterior in posteriors:
        if not isinstance(posterior, Posterior):
            raise TypeError(
                f"got {short(posterior)}; expected a Posterior, as `backend.posterior(state)` is"
            )
    first = posteriors[0].mean
    chosen = list(first) if levels is None else list(levels)
    for posterior in posteriors:
        for level in chosen:
            if level not in posterior.mean:
                raise ValueError(f"no level '{level}'; there are {', '.join(posterior.mean)}")
            shape, expected = posterior.mean[level].shape, first[level].shape
            if shape != expected:
                raise ValueError(
                    f"level '{level}' has shape {shape} in one posterior, {expected} in another"
                )
    d = next(iter(first.values())).shape[1]
    if not 0 <= component < d:
        raise ValueError(f"component is {component}; expected 0 to {d - 1}")
    return chosen


def _checked_truth(truth: Mapping[str, Any] | None, posterior: Posterior) -> dict[str, np.ndarray]:
    """Those parts of the truth that are about levels of the posterior, (size, d) each."""
    checked = {}
    for level, values in (truth or {}).items():
        if level not in posterior.mean:
            continue
        checked[level] = np.asarray(values)
        if checked[level].shape != posterior.mean[level].shape:
            raise ValueError(
                f"the truth of level '{level}' has shape {checked[level].shape}; "
                f"expected {posterior.mean[level].shape}"
            )
    return checked


def _numbers(posterior: Posterior, level: str, component: int) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations of one number of every vector, (size,) each."""
    variance = posterior.cov[level][:, component, component]
    return np.asarray(posterior.mean[level][:, component]), np.asarray(jnp.sqrt(variance))


def _chosen(posterior: Posterior, level: str, component: int, most: int, show: str) -> list[int]:
    """The vectors of a level to draw: all of them, or `most` by their means, the highest first."""
    most = as_count(most, "most")
    if show not in _SHOWN:
        raise ValueError(f"show is {short(show)}; expected one of {listed(_SHOWN)}")
    means, _ = _numbers(posterior, level, component)
    if len(means) <= most or show == "first":
        return list(range(min(len(means), most)))
    order = np.argsort(-means, kind="stable")
    low = {"top": 0, "bottom": most, "both": most // 2}[show]
    return [*order[: most - low].tolist(), *order[len(order) - low :].tolist()]


def _title(level: str, count: int, whole: int, show: str) -> str:
    from ...models.picture.look import one_line

    words = _SHOWN[show].format(n=count, high=count - count // 2, low=count // 2)
    return f"{one_line(level)}: {words} of {whole:,}"


def _label(posterior: Posterior, level: str, vector: int) -> str:
    from ...models.picture.look import one_line

    hierarchy: Hierarchy | None = getattr(posterior.backend, "hierarchy", None)
    name = f"{level} {vector}" if hierarchy is None else hierarchy[level].label_of(vector)
    return one_line(name)


def name_rows(axes: "Axes", labels: Sequence[str]) -> None:
    """A row for each label, from top to bottom."""
    from ...models.picture.look import bare

    axes.set_yticks(np.arange(len(labels)), labels)
    for text in axes.get_yticklabels():
        text.set_parse_math(False)  # a label with $ in it is no formula
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_axisbelow(True)
    axes.grid(axis="x", color="0.92", linewidth=0.8)
    bare(axes, "left")


def _what(posterior: Posterior, component: int) -> str:
    """The label of an axis."""
    d = next(iter(posterior.mean.values())).shape[1]
    words = ("first", "second", "third")
    which = words[component] if component < len(words) else f"{component + 1}th"
    number = "mean" if d == 1 else f"{which} number of each vector"
    return f"{number}, with two standard deviations"
