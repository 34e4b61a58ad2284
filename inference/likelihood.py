"""Each action's likelihood as a Gaussian, for rewards that are not (`sec:glb bandit posterior`).

The log-likelihood of an action's rewards is replaced by its second-order expansion at a point `p`,

    log L_i(theta) ~ -theta' G_i theta / 2 + B_i' theta,
    G_i = sum f'(x' p) x x',  B_i = G_i p + sum (y - f(x' p)) x,

in the notation of canonical families; then the exact algebra takes `G_i` and `B_i`. The paper expands
at the maximum of the likelihood, which does not exist while an action's rewards are few or separable.
Here `p` is the mode of the likelihood times a Gaussian prior of the action, which always exists; where
an action has no rewards, `G_i` and `B_i` are zero and it says nothing.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Bool, Float, Int

from ..models import Reward

__all__ = ["GaussianPriors", "Sites", "fit_sites"]

_MOST_STEPS = 50


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


class _Expansion(NamedTuple):
    """The log density of each action at a point, its gradient and its curvature, from data alone.

    `size` is the sum of the absolute values that were added up: rounding moves `value` by so many ulps
    of it. Where rewards are large counts, terms `y x' theta` far larger than the log density cancel.
    """

    value: Float[Array, " K"]
    size: Float[Array, " K"]
    gradient: Float[Array, "K d"]
    curvature: Float[Array, "K d d"]


def fit_sites(
    reward: Reward,
    contexts: Float[Array, "n d"],
    actions: Int[Array, " n"],
    rewards: Float[Array, " n"],
    priors: GaussianPriors,
    start: Float[Array, "K d"],
) -> Sites:
    """Expand every action's likelihood at its mode under its prior; rows of other actions are ignored.

    Newton's method for all actions at once, O(n d^2 + K d^3) a step. A step that lowers an action's
    log density is taken back and damped (Levenberg), so that each converges from any start; the log
    densities are concave for canonical families.
    """
    tolerance = 10 * jnp.finfo(contexts.dtype).eps

    def with_prior(theta: Array, data: _Expansion) -> _Expansion:
        away = theta - priors.mean
        pull = jnp.einsum("kde,ke->kd", priors.precision, away)
        distance = 0.5 * jnp.sum(away * pull, axis=-1)
        return _Expansion(
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
        data_there = _expand(reward, contexts, actions, rewards, theta + move)
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
    first = _expand(reward, contexts, actions, rewards, start)
    carry = (start, first, jnp.zeros(K, contexts.dtype), jnp.zeros(K, bool), jnp.int32(0))
    mode, data, _, done, _ = jax.lax.while_loop(unfinished, step, carry)
    information = data.gradient + jnp.einsum("kde,ke->kd", data.curvature, mode)
    return Sites(mode, data.curvature, information, done)


def _expand(
    reward: Reward, contexts: Array, actions: Array, rewards: Array, theta: Float[Array, "K d"]
) -> _Expansion:
    """Sums over each action's rewards of the log density and its first two derivatives at `theta`."""
    K, d = theta.shape
    inside = (actions >= 0) & (actions < K)
    where = jnp.where(inside, actions, K)
    if K == 1:
        predictor = contexts @ theta[0]
    else:
        predictor = jnp.sum(contexts * theta.at[where].get(mode="clip"), axis=-1)

    def score(u: Array) -> Array:
        return jax.grad(lambda v: jnp.sum(reward.law(v).log_prob(rewards)))(u)

    first, second = jax.jvp(score, (predictor,), (jnp.ones_like(predictor),))
    value = reward.law(predictor).log_prob(rewards)
    size = jnp.abs(value) + jnp.abs(rewards * predictor)
    if K == 1:  # sums instead of scatters, which are slow on a CPU
        first, second, value, size = (
            jnp.where(inside, part, 0.0) for part in (first, second, value, size)
        )
        gradient, curvature = first @ contexts, (contexts * -second[:, None]).T @ contexts
        return _Expansion(value.sum()[None], size.sum()[None], gradient[None], curvature[None])
    outer = contexts[:, :, None] * contexts[:, None, :]
    zero = jnp.zeros((), contexts.dtype)
    return _Expansion(
        jnp.full(K, zero).at[where].add(value, mode="drop"),
        jnp.full(K, zero).at[where].add(size, mode="drop"),
        jnp.full((K, d), zero).at[where].add(first[:, None] * contexts, mode="drop"),
        jnp.full((K, d, d), zero).at[where].add(-second[:, None, None] * outer, mode="drop"),
    )


def _solve(matrix: Float[Array, "K d d"], vector: Float[Array, "K d"]) -> Float[Array, "K d"]:
    return cho_solve(cho_factor(matrix, lower=True), vector[..., None])[..., 0]
