"""Pictures of posteriors: a forest of all vectors, and how what is known of a level grew."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...models import Hierarchy
from ...models.picture.look import COLOURS, DASHES, INK, MARKERS, bare, blank
from ..backend import Posterior

__all__ = ["plot_forest", "plot_learning"]

ROW, LANE = 0.2, 0.11  # inches: of a row, and of each posterior in it
MOST_LINES = len(COLOURS)


def plot_forest(
    posteriors: Mapping[str, Any] | Posterior,
    *,
    truth: Mapping[str, Any] | None = None,
    levels: Sequence[str] | None = None,
    component: int = 0,
    most: int = 20,
) -> Figure:
    """One number of every vector: mean and two standard deviations to either side.

    Args:
        posteriors: a posterior, or several by their names: `{"before": ..., "after": ...}`.
        truth: level -> (size, d), drawn as black ticks; levels may be left out.
        levels: which levels to draw, by default all.
        component: which of the d numbers of a vector.
        most: how many vectors of a level are drawn at most, from the first on.
    """
    named = _by_name(posteriors)
    first = next(iter(named.values()))
    chosen = _known_levels(list(named.values()), levels)
    _check_component(first, component)
    truths = _checked_truth(truth, first)
    sizes = [min(first.mean[level].shape[0], most) for level in chosen]
    row = ROW + LANE * len(named)
    figure = blank(6.4, 1.1 + row * sum(sizes) + 0.3 * len(chosen))
    grid = figure.subplots(len(chosen), 1, sharex=True, height_ratios=sizes, squeeze=False)
    for axes, level, size in zip(grid[:, 0], chosen, sizes, strict=True):
        for i, (name, posterior) in enumerate(named.items()):
            shift = (i + 0.5) / len(named) * 0.8 - 0.4
            mean, deviation = _numbers(posterior, level, component)
            axes.errorbar(
                mean[:size],
                np.arange(size) + shift,
                xerr=2 * deviation[:size],
                fmt=MARKERS[i % len(MARKERS)],
                color=COLOURS[i % len(COLOURS)],
                markersize=4.5,
                label=name,
            )
        if level in truths:
            ticks = truths[level][:size, component]
            axes.vlines(
                ticks, np.arange(size) - 0.4, np.arange(size) + 0.4, color=INK, label="truth"
            )
        _name_rows(axes, first, level, size)
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
) -> Figure:
    """What is known of a level after more and more rounds: means, with two standard deviations.

    Args:
        posteriors: round -> posterior after it.
        level: the level, as a rule one of effects.
        truth: (size, d), drawn as a horizontal line for each vector.
        component: which of the d numbers of a vector.
        most: how many vectors are drawn at most, from the first on; at most seven can be told apart.
    """
    if not isinstance(posteriors, Mapping) or not posteriors:
        raise TypeError(f"got {posteriors!r}; expected a dictionary from rounds to posteriors")
    _known_levels(list(posteriors.values()), [level])
    rounds = np.array(sorted(posteriors))
    last = posteriors[int(rounds[-1])]
    _check_component(last, component)
    truths = _checked_truth(None if truth is None else {level: truth}, last)
    path = [_numbers(posteriors[int(t)], level, component) for t in rounds]
    means, deviations = (
        np.stack(numbers, 1) for numbers in zip(*path, strict=True)
    )  # (size, rounds)
    shown = min(len(means), most, MOST_LINES)
    figure = blank(6.8, 4.2)
    axes = figure.subplots()
    for i in range(shown):
        colour = COLOURS[i]
        low, high = means[i] - 2 * deviations[i], means[i] + 2 * deviations[i]
        axes.fill_between(rounds, low, high, color=colour, alpha=0.15, linewidth=0)
        name = _label(last, level, i)
        axes.plot(
            rounds, means[i], color=colour, linestyle=DASHES[i], marker=MARKERS[i], label=name
        )
        if level in truths:
            axes.axhline(
                truths[level][i, component], color=colour, linestyle=DASHES[i], linewidth=0.8
            )
    axes.set_xlim(rounds[0], rounds[-1])
    axes.set_xlabel("round" + ("; thin lines are the truth" if level in truths else ""))
    axes.set_ylabel(_what(last, component).replace(", ", ",\n"))
    bare(axes)
    title = level if shown == len(means) else f"{level}: the first {shown} of {len(means):,}"
    figure.legend(loc="outside right upper", title=title, frameon=False, handlelength=3.5)
    return figure


def _by_name(posteriors: Mapping[str, Any] | Posterior) -> dict[str, Any]:
    if isinstance(posteriors, Posterior):
        return {"posterior": posteriors}
    if not isinstance(posteriors, Mapping) or not posteriors:
        raise TypeError(
            f"got {posteriors!r}; expected a posterior, or a dictionary of them by name"
        )
    return dict(posteriors)


def _known_levels(posteriors: list[Any], levels: Sequence[str] | None) -> list[str]:
    """The levels to draw, which all posteriors must have, with as many vectors each."""
    for posterior in posteriors:
        if not isinstance(posterior, Posterior):
            raise TypeError(
                f"got {posterior!r}; expected a Posterior, as `backend.posterior(state)` is"
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
    return chosen


def _check_component(posterior: Posterior, component: int) -> None:
    d = next(iter(posterior.mean.values())).shape[1]
    if not 0 <= component < d:
        raise ValueError(f"component is {component}; expected 0 to {d - 1}")


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


def _label(posterior: Posterior, level: str, vector: int) -> str:
    hierarchy: Hierarchy | None = getattr(posterior.backend, "hierarchy", None)
    return f"{level} {vector}" if hierarchy is None else hierarchy[level].label_of(vector)


def _name_rows(axes: Axes, posterior: Posterior, level: str, size: int) -> None:
    axes.set_yticks(np.arange(size), [_label(posterior, level, i) for i in range(size)])
    axes.set_ylim(size - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_axisbelow(True)
    axes.grid(axis="x", color="0.92", linewidth=0.8)
    bare(axes, "left")
    whole = posterior.mean[level].shape[0]
    if size < whole:
        axes.set_title(f"{level}: the first {size} of {whole:,}", loc="left", fontsize="medium")


def _what(posterior: Posterior, component: int) -> str:
    """What a picture shows, in words."""
    d = next(iter(posterior.mean.values())).shape[1]
    words = ("first", "second", "third")
    which = words[component] if component < len(words) else f"{component + 1}th"
    number = "mean" if d == 1 else f"{which} number of each vector"
    return f"{number}, with two standard deviations"
