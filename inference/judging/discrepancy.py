"""How far one posterior is from another, number by number: what `compare` tabulates."""

from typing import NamedTuple

import numpy as np
from jax import Array
from jaxtyping import Float

from ...models import Hierarchy
from ..backend import Posterior
from ..programs.by_hand import Program

__all__ = ["Distances", "Summary", "distances", "errors", "summarise"]

INTERVAL = 0.9


class Summary(NamedTuple):
    """What is compared of a posterior: by level, its numbers in a row."""

    mean: dict[str, Float[np.ndarray, " N"]]
    sd: dict[str, Float[np.ndarray, " N"]]
    draws: dict[str, Float[np.ndarray, "n N"]]  # each number's, in rising order
    intervals: dict[str, Float[np.ndarray, "2 size d"]]
    best: Float[np.ndarray, " K"]


def summarise(
    posterior: Posterior, hierarchy: Hierarchy | Program, context: Array, key: Array, n: int
) -> Summary:
    """Moments of a posterior, and `n` draws with what follows from them."""
    drawn = {name: np.asarray(value) for name, value in posterior.draw(key, n).items()}
    best = _probabilities_of_best(np.asarray(posterior.draw_scores(key, n, context)))
    mean, sd, draws, intervals = {}, {}, {}, {}
    tail = (1.0 - INTERVAL) / 2
    for name in (level.name for level in hierarchy.levels):
        variances = np.diagonal(np.asarray(posterior.cov[name]), axis1=-2, axis2=-1)
        mean[name] = np.asarray(posterior.mean[name], dtype=float).ravel()
        with np.errstate(invalid="ignore"):
            sd[name] = np.sqrt(variances.astype(float)).ravel()
        draws[name] = np.sort(drawn[name].reshape(n, -1), axis=0)
        ends = np.quantile(draws[name], [tail, 1.0 - tail], axis=0)
        intervals[name] = ends.reshape(2, *drawn[name].shape[1:])
    return Summary(mean, sd, draws, intervals, best)


def _probabilities_of_best(scores: Float[np.ndarray, "n K"]) -> Float[np.ndarray, " K"]:
    """How often each action scores highest; actions with the same score share the draw."""
    highest = scores == scores.max(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return (highest / highest.sum(axis=1, keepdims=True)).mean(axis=0)


class Distances(NamedTuple):
    """How far each number of a level is from the reference's."""

    shift: Float[np.ndarray, " N"]
    ratio: Float[np.ndarray, " N"]
    wasserstein: Float[np.ndarray, " N"]
    coverage: Float[np.ndarray, " N"]


def distances(level: str, found: Summary, standard: Summary) -> Distances:
    """Of two samples of one size, the Wasserstein-1 distance pairs their sorted numbers."""
    mean, sd, draws = standard.mean[level], standard.sd[level], standard.draws[level]
    low, high = found.intervals[level].reshape(2, -1)
    # A posterior that has collapsed or has no numbers shows as infinity or NaN, and in the status.
    with np.errstate(divide="ignore", invalid="ignore"):
        return Distances(
            shift=np.abs(found.mean[level] - mean) / sd,
            ratio=found.sd[level] / sd,
            wasserstein=np.abs(found.draws[level] - draws).mean(0, dtype=float) / sd,
            coverage=((draws >= low) & (draws <= high)).mean(0),
        )


def errors(parts: list[Distances]) -> dict[str, float]:
    """The columns from `mean_error` to `coverage`."""
    shift, ratio, wasserstein, coverage = (
        np.concatenate(each) for each in zip(*parts, strict=True)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        typical_ratio = np.exp(np.log(ratio).mean())
    return {
        "mean_error": np.sqrt(np.mean(shift**2)),
        "mean_error_max": shift.max(),
        "sd_ratio": typical_ratio,
        "sd_ratio_min": ratio.min(),
        "sd_ratio_max": ratio.max(),
        "wasserstein": wasserstein.mean(),
        "coverage": coverage.mean(),
    }
