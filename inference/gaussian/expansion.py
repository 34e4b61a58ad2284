"""Each action's likelihood as a Gaussian, for rewards that are not (Section 3.3).

The log-likelihood of an action's rewards is replaced by its second-order expansion at a point `p`,

    log L_i(theta) ~ -theta' G_i theta / 2 + B_i' theta,
    G_i = sum f'(x' p) x x',  B_i = G_i p + sum (y - f(x' p)) x,

in the notation of canonical families; then the exact algebra takes it. It is kept as `d` rows `U_i`, `e_i`
with `G_i = U_i' U_i` and `B_i = U_i' e_i`: Gaussian rewards `e_i` with unit noise in contexts `U_i`, so
that wide priors and collinear contexts cost no digits. The paper expands at the maximum of the
likelihood, which does not exist while an action's rewards are few or separable. Here `p` is the mode of
the likelihood times a Gaussian prior of the action, which always exists; where an action has no
rewards, `G_i` and `B_i` are zero.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular
from jaxtyping import Bool, Float, Int

from ...models import Reward
from ..buffer import Buffer
from .reduction import reduce_rows
from .square_roots import downdate, solve_rows, transpose, triangle

__all__ = ["Expansion", "GaussianPriors", "Sites", "expand_all", "expand_rows", "fit_sites"]

_MOST_STEPS = 100
_BLOCK = 128  # rows of one action read at a time


class GaussianPriors(NamedTuple):
    """What the likelihood of each of K actions is multiplied by: `N(mean, root root')` less a site.

    Attributes:
        mean: (K, d).
        root: (K, d, d) lower triangular.
        factor: (K, d, d) the rows of a site that is part of that Gaussian and does not count, or zero.
        target: (K, d) what these rows are equal to.
    """

    mean: Float[Array, "K d"]
    root: Float[Array, "K d d"]
    factor: Float[Array, "K d d"]
    target: Float[Array, "K d"]


class Sites(NamedTuple):
    """Gaussian likelihoods of K actions, `exp(-|factor theta - target|^2 / 2)`.

    Attributes:
        mode: (K, d) the point of expansion.
        factor: (K, d, d) `U_i`.
        target: (K, d) `e_i`.
        distance: (K,) from the prior's mean to the mode, in standard deviations of the prior.
        converged: (K,) whether the mode was found.
        concave: (K,) whether no reward's log density curved upwards there.
    """

    mode: Float[Array, "K d"]
    factor: Float[Array, "K d d"]
    target: Float[Array, "K d"]
    distance: Float[Array, " K"]
    converged: Bool[Array, " K"]
    concave: Bool[Array, " K"]

    @property
    def precision(self) -> Float[Array, "K d d"]:
        """`G_i`."""
        return transpose(self.factor) @ self.factor

    @property
    def information(self) -> Float[Array, "K d"]:
        """`B_i`."""
        return jnp.einsum("kde,kd->ke", self.factor, self.target)


class Expansion(NamedTuple):
    """The log density of each action's rewards around a point: `value - |U t - b|^2 / 2 + |b|^2 / 2`.

    `size` is the sum of the absolute values that were added up: rounding moves `value` by so many ulps
    of it. Where rewards are large counts, terms `y x' theta` far larger than the log density cancel.
    Where a reward's log density curves upwards, that is left out of `U`, and `concave` is False.
    """

    value: Float[Array, " K"]
    size: Float[Array, " K"]
    factor: Float[Array, "K d d"]
    residual: Float[Array, "K d"]
    concave: Bool[Array, " K"]


class _Point(NamedTuple):
    """A point of the search in coordinates `v` in which the prior is standard normal."""

    v: Float[Array, "K d"]
    data: Expansion


def fit_sites(
    expand: Callable[[Float[Array, "K d"]], Expansion],
    priors: GaussianPriors,
    start: Float[Array, "K d"],
) -> Sites:
    """Expand every action's likelihood at its mode under its prior.

    Newton's method for all actions at once, each step a least-squares problem solved by QR, O(K d^3)
    and one call of `expand`. A step that lowers an action's log density is taken back and damped
    (Levenberg and Marquardt), so that each converges from any start; the log densities are concave for
    canonical families.
    """
    d, dtype = start.shape[-1], start.dtype
    tolerance = 10 * jnp.finfo(dtype).eps
    own = priors.factor @ priors.root
    kept, lift = downdate(own)
    pull = _times(transpose(own), priors.target - _times(priors.factor, priors.mean))
    column = -_times(lift, pull)

    def theta(v: Array) -> Array:
        return priors.mean + _times(priors.root, v)

    def log_density(point: _Point) -> tuple[Array, Array]:
        distance = 0.5 * jnp.sum(jnp.square(_times(kept, point.v)), axis=-1)
        tilt = jnp.sum(pull * point.v, axis=-1)
        size = point.data.size + distance + jnp.abs(tilt)
        return point.data.value - distance - tilt, size

    def rows(point: _Point) -> tuple[Array, Array]:
        """Least squares whose solution is Newton's step."""
        matrix = jnp.concatenate([kept, point.data.factor @ priors.root], axis=-2)
        residual = [column - _times(kept, point.v), point.data.residual]
        return matrix, jnp.concatenate(residual, axis=-1)

    def unfinished(carry: tuple) -> Array:
        *_, done, count = carry
        return ~done.all() & (count < _MOST_STEPS)

    def step(carry: tuple) -> tuple:
        here, damping, last_gain, done, count = carry
        matrix, residual = rows(here)
        scale = jnp.sqrt(damping[:, None] * jnp.square(matrix).sum(-2))
        damped = jnp.concatenate([matrix, scale[..., None] * jnp.eye(d, dtype=dtype)], axis=-2)
        move = solve_rows(*triangle(damped, jnp.pad(residual, ((0, 0), (0, d)))))
        there = _Point(here.v + move, expand(theta(here.v + move)))

        def along(rows: tuple[Array, Array]) -> Array:
            """The slope of the log density in the direction of the move."""
            return jnp.sum(_times(rows[0], move) * rows[1], axis=-1)

        gain, turned = along((matrix, residual)), jnp.abs(along(rows(there)))
        (old, size), (new, _) = log_density(here), log_density(there)
        # What rounding may hide is judged by the slope. A log density may be finite where its derivatives
        # overflow.
        hidden = tolerance * (1.0 + size)
        better = (new > old + hidden) | ((new >= old - hidden) & ((turned <= gain) | (gain < 1e-2)))
        better &= jnp.isfinite(there.data.factor).all((-2, -1)) & jnp.isfinite(gain)
        better &= jnp.isfinite(there.data.residual).all(-1)
        stalled = (gain < 1e-2) & (gain > last_gain / 4)
        arrived = better & ((gain <= tolerance) | stalled) & (damping < 1.0)
        here = _where(better & ~done, there, here)
        last_gain = jnp.where(better, gain, last_gain)
        damping = jnp.where(better, damping / 10, jnp.maximum(damping * 10, 1e-2))
        return here, damping, last_gain, done | arrived, count + 1

    none = jnp.zeros(len(start), dtype)
    v = solve_triangular(priors.root, (start - priors.mean)[..., None], lower=True)[..., 0]
    carry = (_Point(v, expand(theta(v))), none, none + jnp.inf, none > 0, jnp.int32(0))
    found, _, _, done, _ = jax.lax.while_loop(unfinished, step, carry)
    mode, data = theta(found.v), found.data
    target = _times(data.factor, mode) + data.residual
    distance = jnp.sqrt(jnp.square(found.v).sum(-1))
    return Sites(mode, data.factor, target, distance, done, data.concave)


def expand_all(
    reward: Reward,
    contexts: Float[Array, "n d"],
    actions: Int[Array, " n"],
    rewards: Float[Array, " n"],
    theta: Float[Array, "K d"],
    exposure: Float[Array, " n"] | None = None,
) -> Expansion:
    """Every action's rewards around `theta`; rows of actions out of range add nothing. O(n d^2)."""
    K, d = theta.shape
    where = jnp.where((actions >= 0) & (actions < K), actions, K)
    predictor = jnp.sum(contexts * theta.at[where].get(mode="clip"), axis=-1)
    part = _expand_each(reward, predictor, rewards, exposure)
    reduced = reduce_rows(part.factor[:, None] * contexts, where, part.residual, K)
    none = jnp.zeros(K, contexts.dtype)
    return Expansion(
        none.at[where].add(part.value, mode="drop"),
        none.at[where].add(part.size, mode="drop"),
        reduced.contexts.reshape(K, d, d),
        reduced.rewards.reshape(K, d),
        jnp.ones(K, bool).at[where].min(part.concave, mode="drop"),
    )


def expand_rows(
    reward: Reward,
    buffer: Buffer,
    start: Int[Array, ""],
    stop: Int[Array, ""],
    theta: Float[Array, "1 d"],
) -> Expansion:
    """One action's rewards, rows `start` to `stop`, around `theta`; other rows are not read."""
    block = min(_BLOCK, buffer.capacity)

    def add_block(i: Array, total: Expansion) -> Expansion:
        begin = start + i * block
        first_row = jnp.minimum(begin, buffer.capacity - block)
        index = first_row + jnp.arange(block)
        inside = (index >= begin) & (index < stop)
        x, _, *y = (jax.lax.dynamic_slice_in_dim(c, first_row, block) for c in buffer.columns)
        part = _expand_each(reward, x @ theta[0], *y)
        value, size, factor, residual = (jnp.where(inside, p, 0.0) for p in part[:4])
        matrix = jnp.concatenate([total.factor[0], factor[:, None] * x])
        U, b = triangle(matrix, jnp.concatenate([total.residual[0], residual]))
        concave = total.concave & (part.concave | ~inside).all()
        return Expansion(
            total.value + value.sum(), total.size + size.sum(), U[None], b[None], concave
        )

    d, dtype = theta.shape[-1], theta.dtype
    zero, matrix = jnp.zeros(1, dtype), jnp.zeros((1, d, d), dtype)
    none = Expansion(zero, zero, matrix, jnp.zeros((1, d), dtype), jnp.ones(1, bool))
    return jax.lax.fori_loop(0, -(-(stop - start) // block), add_block, none)


class _Row(NamedTuple):
    """The log density of each reward, its size, and its expansion as a row `factor x`, `residual`."""

    value: Float[Array, " n"]
    size: Float[Array, " n"]
    factor: Float[Array, " n"]
    residual: Float[Array, " n"]
    concave: Bool[Array, " n"]


def _expand_each(
    reward: Reward,
    predictor: Float[Array, " n"],
    rewards: Float[Array, " n"],
    exposure: Float[Array, " n"] | None = None,
) -> _Row:
    """The working responses of iteratively reweighted least squares."""

    def log_density(u: Array) -> Array:
        return jnp.asarray(reward.law_of(u, exposure).log_prob(rewards))

    def score(u: Array) -> Array:
        return jax.grad(lambda v: jnp.sum(log_density(v)))(u)

    first, second = jax.jvp(score, (predictor,), (jnp.ones_like(predictor),))
    value = log_density(predictor)
    # Where the curvature vanishes the slope is kept, by the least curvature that keeps the row finite.
    weight = jnp.maximum(-second, jnp.finfo(value.dtype).eps * jnp.square(first))
    factor = jnp.sqrt(weight)
    residual = jnp.where(weight == 0, 0.0, first / jnp.where(weight == 0, 1.0, factor))
    size = jnp.abs(value) + jnp.abs(rewards * predictor)
    return _Row(value, size, factor, residual, -second >= 0)


def _times(matrices: Float[Array, "K d e"], v: Float[Array, "K e"]) -> Float[Array, "K d"]:
    return jnp.einsum("kde,ke->kd", matrices, v)


def _where(chosen: Bool[Array, " K"], new: _Point, old: _Point) -> _Point:
    """For each action the new point or the old one."""

    def pick(a: Array, b: Array) -> Array:
        return jnp.where(chosen.reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return jax.tree.map(pick, new, old)
