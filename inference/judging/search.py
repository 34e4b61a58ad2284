"""The search of `empirical_bayes`: a start from the data, an ascent of the evidence, and what it found."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from ...models import Data
from ..gaussian.evidence import log_density_of_rewards, prior_means
from ..gaussian.reduction import weighed_rows
from ..gaussian.sufficient_statistics import RewardStatistics, reward_statistics
from .declared_unknowns import DeclaredUnknowns
from .free_numbers import FreeNumbers
from .parts import Part

__all__ = [
    "FACTOR",
    "FLAT",
    "NOTHING",
    "STEPS",
    "Point",
    "Search",
    "ascend",
    "best_multiple",
    "has_converged",
    "one_unit",
    "start",
]

# A variance that can be made this many times larger or smaller ...
FACTOR = 1000.0
# ... without losing this much log evidence is not determined by the data.
FLAT = 0.1
# No evidence is lost below this.
NOTHING = 1e-6
# A search has converged where the slope of the log evidence is below this, in units of the start.
_SLOPE = 1e-4
# What standard deviations are first tried at, in units of the data, and declared weights multiplied by.
_TRIED = 10.0 ** np.arange(-3.0, 2.0)
_TRIED_WEIGHTS = 10.0 ** np.arange(-6.0, 7.0)
# What is added to numbers on the real line first.
STEPS = np.arange(-4.0, 5.0)
# A spread below the first, in units of the start, is tried again from the second.
_SMALL, _AGAIN = 0.03, 0.3
# The length of the first step, in units of the start: a longer one may lead to where nothing is finite.
_FIRST_STEP = 0.1


class Point(NamedTuple):
    """Free numbers, minus their log evidence and prior and its slope, and the steps that led there."""

    vector: np.ndarray
    loss: float
    slope: np.ndarray
    steps: int = 0


class Search:
    """The log evidence, and the log density of what has a law, as a function of free numbers."""

    def __init__(self, numbers: FreeNumbers, statistics: RewardStatistics):
        self.numbers, self.statistics = numbers, statistics
        declared, self.unravel = ravel_pytree(numbers.declared())
        self.declared = np.asarray(declared)
        ends = np.cumsum([numbers.size for numbers in numbers.declared()])
        starts = [0, *ends[:-1]]
        self.places = {
            part: slice(int(a), int(b))
            for part, a, b in zip(numbers.parts, starts, ends, strict=True)
        }

    def at(self, vector: np.ndarray, steps: int = 0) -> Point:
        """The evidence at some free numbers."""
        loss, slope = _loss_and_slope(jnp.asarray(vector), self.numbers, self.statistics)
        return Point(np.asarray(vector), float(loss), np.asarray(slope), steps)

    def shaped(self, vector: np.ndarray, part: Part) -> np.ndarray:
        """The free numbers of one part, in their shape."""
        return np.asarray(self.unravel(jnp.asarray(vector))[self.numbers.parts.index(part)])

    def widened(self, vector: np.ndarray, precision: float) -> np.ndarray:
        """The vector with spreads no smaller than a `Level` takes; see `FreeNumbers.least`."""
        for part in self.places:
            if part.is_spread:
                numbers = self.numbers.least(part, self.shaped(vector, part), precision)
                vector = self.with_part(vector, part, numbers)
        return vector

    def with_part(self, vector: np.ndarray, part: Part, numbers: Any) -> np.ndarray:
        """The vector with other numbers for one part."""
        changed = np.array(vector)
        changed[self.places[part]] = np.ravel(numbers)
        return changed


@jax.jit
def _loss_and_slope(
    vector: Array, numbers: FreeNumbers, statistics: RewardStatistics
) -> tuple[Array, Array]:
    def loss(vector: Array) -> Array:
        _, unravel = ravel_pytree(numbers.declared())
        free = unravel(vector)
        return -log_density_of_rewards(*numbers.at(free), statistics) - numbers.log_prior(free)

    return jax.value_and_grad(loss)(vector)


@jax.jit
def _predicted(vector: Array, numbers: FreeNumbers, statistics: RewardStatistics) -> Array:
    """What is expected of the rewards that stand for all, before any is seen."""
    _, unravel = ravel_pytree(numbers.declared())
    mean = prior_means(numbers.at(unravel(vector))[0], statistics)
    return jnp.einsum("kde,ke->kd", statistics.contexts, mean).ravel()


@jax.jit
def _pulled(
    vector: Array, cotangent: Array, numbers: FreeNumbers, statistics: RewardStatistics
) -> Array:
    """The transpose of the derivative of `_predicted`."""
    return jax.vjp(lambda v: _predicted(v, numbers, statistics), vector)[1](cotangent)[0]


# The start ---------------------------------------------------------------------------------------


def start(
    unknowns: DeclaredUnknowns, data: Data, parts: tuple[Part, ...]
) -> tuple[Search, Point, np.ndarray]:
    """The problem in units of the data, a start, and how large steps from it should be.

    Means start at least squares and the noise at the variance within actions; the other spreads one by
    one at the best of several orders of magnitude. Nothing depends on what was declared for them,
    except where it makes no difference: then it stays.
    """
    data = jax.tree.map(lambda rows: jnp.asarray(np.asarray(rows)), data)
    contexts, rewards, exposure = jax.tree.map(
        lambda rows: rows.astype(float), (data.contexts, data.rewards, data.exposure)
    )
    rows, _ = weighed_rows(contexts, data.actions, rewards, exposure)
    every = reward_statistics(*rows, unknowns.hierarchy.num_actions)
    statistics = every.select(jnp.asarray(np.unique(np.asarray(data.actions))))
    n, factors = max(len(data), 1), np.asarray(statistics.factors)
    *sizes, reward_size = np.sqrt(np.sum(factors**2, axis=(0, 1)) / n)
    units = 1.0 / np.where(np.array(sizes) > 0, sizes, 1.0)
    plain = Search(FreeNumbers.of(unknowns, parts, 1.0, units), statistics)
    vector, residual = _least_squares(plain)
    unexplained = np.sum(np.square(statistics.unexplained))
    unit = np.sqrt((np.sum(residual**2) + unexplained) / n)
    unit = unit if unit > 1e-10 * reward_size else reward_size or 1.0
    search = Search(FreeNumbers.of(unknowns, parts, unit, unit * units), statistics)
    ranks = np.abs(np.diagonal(statistics.contexts, axis1=1, axis2=2)) * units > 1e-9
    within = unexplained / max(n - ranks.sum(), 1) / unit**2
    scales = np.ones_like(vector)
    for part, place in search.places.items():
        if part.what == "mean":
            vector[place] /= unit
            scales[place] = 1 / np.sqrt(max(len(factors), 1))
        elif part.is_spread:
            noise = np.sqrt(within) if within > 0 else 0.7
            one = one_unit(search.shaped(vector, part))
            first = (noise if part.what == "noise" else 0.7) * one
            vector = search.with_part(vector, part, first)
    tried = [part for part in parts if part.what in ("cov", "weights", "number")]
    tried += [part for part in parts if part.what == "noise" and not within > 0]
    point = search.at(vector)
    for part in tried:
        point = best_multiple(search, point, part)
    for part, place in search.places.items():
        if part.what not in ("mean", "number"):
            scales[place] = np.abs(point.vector[place]).max()
    return search, point, scales


def _least_squares(search: Search) -> tuple[np.ndarray, np.ndarray]:
    """The free numbers with means by least squares, nearest to those declared, and the residuals."""
    from scipy.sparse.linalg import LinearOperator, lsmr

    numbers, statistics, vector = search.numbers, search.statistics, search.declared.copy()
    places = [place for part, place in search.places.items() if part.what == "mean"]
    which = np.concatenate([np.arange(vector.size)[place] for place in places] or [[]]).astype(int)
    expected = np.asarray(_predicted(vector, numbers, statistics))
    residual = np.asarray(statistics.rewards).ravel() - expected
    if not which.size:
        return vector, residual

    def forward(step: np.ndarray) -> np.ndarray:
        moved = vector.copy()
        moved[which] += step.ravel()
        return np.asarray(_predicted(moved, numbers, statistics)) - expected

    def back(rows: np.ndarray) -> np.ndarray:
        return np.asarray(_pulled(vector, rows.ravel(), numbers, statistics))[which]

    shape = residual.size, which.size
    design = LinearOperator(shape, matvec=forward, rmatvec=back, dtype=float)  # pyright: ignore
    step = lsmr(design, residual, atol=1e-12, btol=1e-12, maxiter=200)[0]
    moved = residual - forward(step)
    vector[which] += step
    return vector, moved


def best_multiple(search: Search, point: Point, part: Part) -> Point:
    """The best of several multiples of one unit, or of the declared weights; numbers take steps."""
    declared = search.shaped(search.declared, part)
    if part.what == "number":
        tried = [declared + step for step in STEPS]
    else:
        one = one_unit(declared) if part.is_spread else declared
        tried = [m * one for m in (_TRIED if part.is_spread else _TRIED_WEIGHTS)]
    points = [search.at(search.with_part(point.vector, part, numbers)) for numbers in tried]
    finite = [found for found in points if np.isfinite(found.loss)]
    if not finite:
        return point
    losses = [found.loss for found in finite]
    if max(losses) - min(losses) < NOTHING:
        return search.at(search.with_part(point.vector, part, declared))
    return min([*finite, point], key=lambda found: found.loss)


# The ascent --------------------------------------------------------------------------------------


def has_converged(point: Point, scales: np.ndarray) -> bool:
    """Whether the slope is zero, up to rounding."""
    return bool(np.abs(point.slope * scales).max() <= _SLOPE + 1e-10 * abs(point.loss))


def ascend(search: Search, first: Point, scales: np.ndarray, max_steps: int) -> Point:
    """The top of the evidence, never below what was declared, or where the steps ran out.

    Where a spread has become small the ascent is repeated from a larger one, since the slope is zero at
    zero even where the evidence rises away from it.
    """
    best = _climb(search, first, scales, max_steps)
    declared = search.at(search.declared, best.steps)
    if declared.loss < best.loss - NOTHING:
        best = _climb(search, declared, scales, max_steps)
    for repetition in range(4):
        again = _raise_small(search, best, scales)
        if best.steps >= max_steps or (again is None and has_converged(best, scales)):
            break
        found = _climb(search, again or best, scales, max_steps, _FIRST_STEP / 10**repetition)
        gain = best.loss - found.loss
        best = (found if gain > 0 else best)._replace(steps=found.steps)
        if gain < NOTHING and has_converged(best, scales):
            break
    return best


def _climb(
    search: Search,
    first: Point,
    scales: np.ndarray,
    max_steps: int,
    first_step: float = _FIRST_STEP,
) -> Point:
    """L-BFGS, whose first step has the given length, in units of the start."""
    from scipy.optimize import minimize

    units = first_step * scales

    def evaluate(x: np.ndarray) -> tuple[float, np.ndarray]:
        point = search.at(x * units)
        return point.loss, point.slope * units

    left = max(max_steps - first.steps, 1)
    options = {"maxiter": left, "maxfun": 20 * left, "ftol": 1e-15, "maxcor": 30}
    options["gtol"] = 0.01 * _SLOPE * first_step
    found = minimize(evaluate, first.vector / units, jac=True, method="L-BFGS-B", options=options)
    return search.at(found.x * units, first.steps + int(found.nit))


def _raise_small(search: Search, point: Point, scales: np.ndarray) -> Point | None:
    """The same with small spreads made larger, or None if there are none."""
    raised = point.vector.copy()
    for part, place in search.places.items():
        if part.is_spread:
            numbers = search.shaped(raised, part)
            own = search.shaped(scales, part)
            small = (one_unit(numbers) > 0) & (np.abs(numbers) < _SMALL * own)
            raised[place] = np.where(small, _AGAIN * own, numbers).ravel()
    if np.array_equal(raised, point.vector):
        return None
    return search.at(raised, point.steps)


def one_unit(numbers: np.ndarray) -> np.ndarray:
    """Free numbers of the same shape for a spread of one unit."""
    one = np.ones(()) if numbers.ndim < 2 else np.eye(numbers.shape[-1])
    return np.broadcast_to(one, numbers.shape)


# What was found ----------------------------------------------------------------------------------
