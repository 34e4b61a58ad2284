"""What a reward of any law says of its predictor, as a Gaussian with the same mean and variance.

A reward depends on the vectors through one number, its predictor `u = x' theta_a`, of which everything else
says `u ~ N(m, v)`: the cavity. With the reward, `u` has the *tilted* density

    p(y | u) N(u; m, v) / Z,   Z = integral of p(y | u) N(u; m, v) du,

and the Gaussian of its mean and variance, divided by the cavity, is what is passed on (Minka 2001,
"Expectation propagation for approximate Bayesian inference"). `Z` is the reward's share of the evidence.
All three are one-dimensional integrals, taken by Gauss-Hermite quadrature around the mode of the tilted
density (Liu and Pierce 1994): exact for Gaussian rewards, and to six digits for clicks and counts under
any cavity that is not wider than about five. Where a log density is not known to be concave a second pass
goes around the moments of the first.

Everything is in units of the cavity, `z = (u - m) / sqrt(v)`, and the moments are those of derivatives,

    E[z] = E[l'(z)],   Var[z] = 1 + E[l''(z)] + Var[l'(z)],

wherever a reward says little: differences of nearly equal numbers would lose a small message in float32.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from ...models import Reward

__all__ = ["Matched", "log_likelihood", "log_normaliser", "match_moments"]

LogLikelihood = Callable[[Float[Array, "*any"]], Float[Array, "*any"]]

_NODES = 32
_MOST_STEPS = 60  # of the search of a mode
_NEAR = 1e-2  # how near to the mode is near enough, in its own standard deviations
_WIDEST = 1e6  # how far away a mode is looked for, in standard deviations of the cavity
_LITTLE = 0.1  # a reward that changes the variance by less than this share says little
_LEAST = 1e-20  # a message below this says nothing


class Matched(NamedTuple):
    """The tilted density of some predictors, in units of their cavities `N(m, v)`.

    Attributes:
        log_normaliser: `log Z`.
        shift: how far the mean is from `m`, in units of `sqrt(v)`.
        ratio: the variance over `v`.
        shrink: `1 - ratio`, with all its digits; below zero where a log density that is not concave
            makes the predictor less certain.
    """

    log_normaliser: Float[Array, "*n"]
    shift: Float[Array, "*n"]
    ratio: Float[Array, "*n"]
    shrink: Float[Array, "*n"]

    def as_observation(
        self, mean: Float[Array, "*n"], variance: Float[Array, "*n"]
    ) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
        """The Gaussian reward, and the variance of its noise, that move the cavity in the same way.

        A message that takes certainty away has a noise of negative variance.
        """
        small = jnp.abs(self.shrink) < _LEAST
        shrink = jnp.where(small, _LEAST, self.shrink)
        reward = mean + jnp.sqrt(variance) * (self.shift / shrink)
        return reward, variance * (self.ratio / shrink)

    def as_message(
        self, mean: Float[Array, "*n"], variance: Float[Array, "*n"]
    ) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
        """The precision and the information that are added to those of the cavity."""
        precision = self.shrink / (self.ratio * variance)
        return precision, precision * mean + self.shift / (self.ratio * jnp.sqrt(variance))


def log_likelihood(
    reward: Reward, rewards: Float[Array, "*n"], exposure: Float[Array, "*n"] | None = None
) -> LogLikelihood:
    """The log density of rewards as a function of their predictors."""
    return lambda predictor: jnp.asarray(reward.law_of(predictor, exposure).log_prob(rewards))


def match_moments(
    density: LogLikelihood,
    mean: Float[Array, "*n"],
    variance: Float[Array, "*n"],
    *,
    is_log_concave: bool = False,
) -> Matched:
    """The tilted densities of some rewards under their cavities `N(mean, variance)`.

    Costs the derivatives of `density` at 32 nodes for each reward, and at a few points to find the mode;
    twice the nodes where it is not known to be concave.
    """
    sd = jnp.sqrt(variance)

    def in_units(z: Array) -> Array:
        return density(mean + sd * z)

    center, width = _mode(in_units, mean)
    found = _integrate(in_units, center, width)
    if is_log_concave:
        # Quadrature may lose the little that a reward says of the variance, but it is never negative.
        least = jnp.minimum(1e-4 * jnp.square(found.shift), 1e-6)
        return found._replace(
            ratio=jnp.minimum(found.ratio, 1.0), shrink=jnp.maximum(found.shrink, least)
        )
    return _integrate(in_units, found.shift, jnp.sqrt(found.ratio))


def log_normaliser(
    density: LogLikelihood,
    matched: Matched,
    mean: Float[Array, "*n"],
    variance: Float[Array, "*n"],
) -> Float[Array, "*n"]:
    """`log Z` again, with nodes around moments that are known: differentiable in what `density` holds."""
    sd = jnp.sqrt(variance)
    width = jnp.sqrt(matched.ratio)
    _, terms = _terms(lambda z: density(mean + sd * z), matched.shift, width)
    return jax.nn.logsumexp(terms, axis=0) + jnp.log(width / np.sqrt(np.pi))


def _derivatives(density: LogLikelihood, z: Array) -> tuple[Array, Array]:
    """The first two derivatives of the log density of each reward."""

    def slope(z: Array) -> Array:
        return jax.grad(lambda z: jnp.sum(density(z)))(z)

    return jax.jvp(slope, (z,), (jnp.ones_like(z),))


def _integrate(
    density: LogLikelihood, center: Float[Array, "*n"], width: Float[Array, "*n"]
) -> Matched:
    """The moments of the tilted densities, by nodes placed as for `N(center, width^2)`."""
    z, terms = _terms(density, center, width)
    highest = jnp.max(terms, axis=0)
    p = jnp.exp(terms - jnp.where(jnp.isfinite(highest), highest, 0.0))
    total = jnp.sum(p, axis=0)
    log_normaliser = highest + jnp.log(total * width / np.sqrt(np.pi))

    def expected(values: Array) -> Array:
        return jnp.sum(jnp.where(p > 0, p * values, 0.0), axis=0) / total

    slope, bend = _derivatives(density, z)
    shift, direct = expected(slope), expected(z)
    shrink = -expected(bend) - expected(jnp.square(slope - shift))
    ratio = expected(jnp.square(z - direct))
    says_little = jnp.abs(1 - ratio) < _LITTLE
    return Matched(
        log_normaliser,
        jnp.where(says_little, shift, direct),
        jnp.where(says_little, 1 - shrink, ratio),
        jnp.where(says_little, shrink, 1 - ratio),
    )


def _terms(
    density: LogLikelihood, center: Float[Array, "*n"], width: Float[Array, "*n"]
) -> tuple[Float[Array, "m *n"], Float[Array, "m *n"]]:
    """Nodes placed as for `N(center, width^2)`, and the logarithms of what they add to the integral."""
    points, weights = np.polynomial.hermite.hermgauss(_NODES)
    shape = (_NODES, *[1] * center.ndim)
    t = jnp.asarray(points.reshape(shape), center.dtype)
    log_weights = jnp.asarray((np.log(weights) + points**2).reshape(shape), center.dtype)
    z = center + np.sqrt(2) * width * t
    terms = log_weights + density(z) - 0.5 * jnp.square(z)
    # A node where the density of a reward is zero, or overflows, has no weight.
    return z, jnp.where(jnp.isnan(terms), -jnp.inf, terms)


class _Search(NamedTuple):
    """A point, between which two the mode lies, the last step, and whether it is near enough."""

    z: Float[Array, "*n"]
    low: Float[Array, "*n"]
    high: Float[Array, "*n"]
    step: Float[Array, "*n"]
    curvature: Float[Array, "*n"]
    near: Bool[Array, "*n"]
    steps: Array


def _mode(
    density: LogLikelihood, like: Float[Array, "*n"]
) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
    """About where each tilted density is highest, and the standard deviation that its curvature says.

    The mode solves `z = l'(z)`, and of a concave `l` it lies between zero and `l'(0)`. Newton's steps that
    leave these bounds, or are not half as long as the last, give way to halving them.
    """

    def from_here(z: Array) -> tuple[Array, Array]:
        slope, bend = _derivatives(density, z)
        return slope - z, jnp.maximum(1 - bend, 1 / 16)

    def step(search: _Search) -> _Search:
        slope, curvature = from_here(search.z)
        is_below = slope > 0
        low = jnp.where(is_below, search.z, search.low)
        high = jnp.where(is_below, search.high, search.z)
        newton = slope / curvature
        reached = search.z + newton
        usable = (reached > low) & (reached < high) & (jnp.abs(newton) < 0.5 * search.step)
        z = jnp.where(usable, reached, 0.5 * (low + high))
        near = usable & (jnp.abs(newton) * jnp.sqrt(curvature) < _NEAR)
        near |= (slope == 0) | search.near
        moved = jnp.where(search.near, search.z, jnp.where(slope == 0, search.z, z))
        step = jnp.abs(z - search.z)
        return _Search(moved, low, high, step, curvature, near, search.steps + 1)

    def unfinished(search: _Search) -> Array:
        return ~search.near.all() & (search.steps < _MOST_STEPS)

    slope, curvature = from_here(jnp.zeros_like(like))
    end = jnp.nan_to_num(slope, nan=0.0, posinf=_WIDEST, neginf=-_WIDEST)
    end = jnp.clip(end, -_WIDEST, _WIDEST)
    low, high = jnp.minimum(end, 0.0), jnp.maximum(end, 0.0)
    first = jnp.where(jnp.isfinite(slope), slope / curvature, 0.5 * end)
    near = jnp.abs(first) * jnp.sqrt(curvature) < _NEAR
    start = _Search(first, low, high, jnp.abs(first) + 1.0, curvature, near, jnp.int32(0))
    found = jax.lax.while_loop(unfinished, step, start)
    return found.z, 1 / jnp.sqrt(found.curvature)
