"""Each action's likelihood as a Gaussian, for rewards that are not (Section 3.3).

The log-likelihood of an action's rewards is replaced by its second-order expansion at a point `p`,

    log L_i(theta) ~ -theta' G_i theta / 2 + B_i' theta,
    G_i = sum f'(x' p) x x',  B_i = G_i p + sum (y - f(x' p)) x,

in the notation of canonical families; then the exact algebra takes `G_i` and `B_i`. The paper expands
at the maximum of the likelihood, which does not exist while an action's rewards are few or separable.
Here `p` is the mode of the likelihood times a Gaussian prior of the action, which always exists; where
an action has no rewards, `G_i` and `B_i` are zero.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Bool, Float, Int

from ...models import Reward
from ..buffer import Buffer

__all__ = ["Expansion", "GaussianPriors", "Sites", "expand_all", "expand_rows", "fit_sites"]

_MOST_STEPS = 50
_BLOCK = 128  # rows of one action read at a time


class GaussianPriors(NamedTuple):
    """A Gaussian prior `N(mean_i, precision_i^{-1})` for each of K actions."""

    mean: Float[Array, "K d"]
    precision: Float[Array, "K d d"]


class Sites(NamedTuple):
    """Gaussian likelihoods of K actions.

    Attributes:
        mode: (K, d) the point of expansion.
        precision: (K, d, d) `G_i`.
        information: (K, d) `B_i`.
        converged: (K,) whether the mode was found.
    """

    mode: Float[Array, "K d"]
    precision: Float[Array, "K d d"]
    information: Float[Array, "K d"]
    converged: Bool[Array, " K"]


class Expansion(NamedTuple):
    """The log density of each action at a point, its gradient and its curvature, from data alone.

    `size` is the sum of the absolute values that were added up: rounding moves `value` by so many ulps
    of it. Where rewards are large counts, terms `y x' theta` far larger than the log density cancel.
    """

    value: Float[Array, " K"]
    size: Float[Array, " K"]
    gradient: Float[Array, "K d"]
    curvature: Float[Array, "K d d"]


def fit_sites(
    expand: Callable[[Float[Array, "K d"]], Expansion],
    priors: GaussianPriors,
    start: Float[Array, "K d"],
) -> Sites:
    """Expand every action's likelihood at its mode under its prior.

    Newton's method for all actions at once, O(K d^3) and one call of `expand` a step. A step that lowers
    an action's log density is taken back and damped (Levenberg), so that each converges from any
    start; the log densities are concave for canonical families.
    """
    tolerance = 10 * jnp.finfo(start.dtype).eps

    def with_prior(theta: Array, data: Expansion) -> Expansion:
        away = theta - priors.mean
        pull = jnp.einsum("kde,ke->kd", priors.precision, away)
        distance = 0.5 * jnp.sum(away * pull, axis=-1)
        return Expansion(
            data.value - distance,
            data.size + distance,
            data.gradient - pull,
            data.curvature + priors.precision,
        )

    def unfinished(carry: tuple) -> Array:
        _, _, _, done, count = carry
        return ~done.all() & (count < _MOST_STEPS)

    def step(carry: tuple) -> tuple:
        theta, data, damping, done, count = carry
        here = with_prior(theta, data)
        scale = jnp.diagonal(here.curvature, axis1=-2, axis2=-1)
        damped = here.curvature + (damping[:, None] * scale)[..., None] * jnp.eye(theta.shape[-1])
        move = _solve(damped, here.gradient)
        data_there = expand(theta + move)
        there = with_prior(theta + move, data_there)
        gain = jnp.sum(move * here.gradient, axis=-1)
        # What rounding may hide counts as no loss. A log density may be finite where its derivatives
        # overflow.
        better = there.value >= here.value - tolerance * (1.0 + here.size)
        better &= jnp.isfinite(there.curvature).all((-2, -1))
        accept = better & ~done
        small = gain <= tolerance * (1.0 + jnp.abs(here.value))
        arrived = better & small & (damping < 1.0)
        theta, data = jax.tree.map(
            lambda new, old: jnp.where(accept.reshape(-1, *[1] * (new.ndim - 1)), new, old),
            (theta + move, data_there),
            (theta, data),
        )
        damping = jnp.where(better, damping / 10, jnp.maximum(damping * 10, 1e-2))
        return theta, data, damping, done | arrived, count + 1

    K = start.shape[0]
    first = expand(start)
    carry = (start, first, jnp.zeros(K, start.dtype), jnp.zeros(K, bool), jnp.int32(0))
    mode, data, _, done, _ = jax.lax.while_loop(unfinished, step, carry)
    information = data.gradient + jnp.einsum("kde,ke->kd", data.curvature, mode)
    return Sites(mode, data.curvature, information, done)


def expand_all(
    reward: Reward,
    contexts: Float[Array, "n d"],
    actions: Int[Array, " n"],
    rewards: Float[Array, " n"],
    theta: Float[Array, "K d"],
) -> Expansion:
    """Every action's rewards around `theta`; rows of actions out of range add nothing. O(n d^2)."""
    K, d = theta.shape
    where = jnp.where((actions >= 0) & (actions < K), actions, K)
    predictor = jnp.sum(contexts * theta.at[where].get(mode="clip"), axis=-1)
    value, size, first, second = _derivatives(reward, predictor, rewards)
    outer = contexts[:, :, None] * contexts[:, None, :]
    zero = jnp.zeros((), contexts.dtype)
    return Expansion(
        jnp.full(K, zero).at[where].add(value, mode="drop"),
        jnp.full(K, zero).at[where].add(size, mode="drop"),
        jnp.full((K, d), zero).at[where].add(first[:, None] * contexts, mode="drop"),
        jnp.full((K, d, d), zero).at[where].add(-second[:, None, None] * outer, mode="drop"),
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
        x = jax.lax.dynamic_slice_in_dim(buffer.contexts, first_row, block)
        y = jax.lax.dynamic_slice_in_dim(buffer.rewards, first_row, block)
        parts = _derivatives(reward, x @ theta[0], y)
        value, size, first, second = (jnp.where(inside, part, 0.0) for part in parts)
        gradient, curvature = first @ x, (x * -second[:, None]).T @ x
        added = Expansion(value.sum()[None], size.sum()[None], gradient[None], curvature[None])
        return jax.tree.map(jnp.add, total, added)

    d, dtype = theta.shape[-1], theta.dtype
    none = Expansion(*(jnp.zeros(shape, dtype) for shape in ((1,), (1,), (1, d), (1, d, d))))
    return jax.lax.fori_loop(0, -(-(stop - start) // block), add_block, none)


def _derivatives(
    reward: Reward, predictor: Float[Array, " n"], rewards: Float[Array, " n"]
) -> tuple[Array, Array, Array, Array]:
    """The log density of each reward, its size, and its first two derivatives in the predictor."""

    def score(u: Array) -> Array:
        return jax.grad(lambda v: jnp.sum(reward.law(v).log_prob(rewards)))(u)

    first, second = jax.jvp(score, (predictor,), (jnp.ones_like(predictor),))
    value = jnp.asarray(reward.law(predictor).log_prob(rewards))
    return value, jnp.abs(value) + jnp.abs(rewards * predictor), first, second


def _solve(matrix: Float[Array, "K d d"], vector: Float[Array, "K d"]) -> Float[Array, "K d"]:
    return cho_solve(cho_factor(matrix, lower=True), vector[..., None])[..., 0]
