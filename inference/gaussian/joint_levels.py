"""The joint posterior of all levels above the actions, `Q_t = N(mean, root root')`.

Aouali et al. 2023, Proposition 1, for any depth: `z` is every level above the actions,
concatenated (see `linear_model`).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular
from jaxtyping import Float

from ..random import standard_normal
from .action_blocks import Innovation, Messages
from .linear_model import ActionModel, GaussianVector
from .square_roots import add_compensated, shrink, shrink_by_one

__all__ = [
    "JointEffects",
    "JointSums",
    "absorb",
    "action_covariances",
    "add_up",
    "before_data",
    "condition_effects",
    "draw",
    "exchange",
    "given_sums",
    "level_covariances",
    "without_own",
]

# Rows of `Gamma` written out at a time, in numbers, when all actions are swept.
_SWEEP_NUMBERS = 4_000_000


class JointEffects(NamedTuple):
    """`N(mean, root root')`; `carry` is what rounding has kept from being added to `root`.

    The root takes ever smaller steps, in float32 soon too small to register. Compensated summation
    keeps them: without it a million updates put the covariance off by 3e-3, with it by 3e-5.
    """

    mean: Float[Array, " N"]
    root: Float[Array, "N N"]
    carry: Float[Array, "N N"]


def before_data(prior: GaussianVector) -> JointEffects:
    """The prior of `z`."""
    return JointEffects(prior.mean, prior.root, jnp.zeros_like(prior.root))


def absorb(
    model: ActionModel, effects: JointEffects, innovation: Innovation
) -> tuple[JointEffects, Float[Array, ""]]:
    """Take in one innovation at O(N^2); also the log density of its residual."""
    g = model.arrows.row_transposed(innovation.action, innovation.direction)
    step, covariance, total = shrink_by_one(effects.root, g, innovation.variance)
    residual = innovation.residual - g @ effects.mean
    mean = effects.mean + covariance * (residual / total)
    root, carry = add_compensated(effects.root, effects.carry, step)
    log_density = -0.5 * (jnp.log(2 * jnp.pi * total) + residual**2 / total)
    return JointEffects(mean, root, carry), log_density


def draw(key: Array, effects: GaussianVector) -> Float[Array, " N"]:
    """One joint draw of `z`."""
    noise = standard_normal(key, effects.mean.shape, effects.mean.dtype)
    return effects.mean + effects.root @ noise


class JointSums(NamedTuple):
    """All that actions have said of `z`, added up: what the posterior follows from.

    Attributes:
        precision: (N, N) `sum_i Gamma_i' M_i Gamma_i`.
        information: (N,) `sum_i Gamma_i' k_i`.
    """

    precision: Float[Array, "N N"]
    information: Float[Array, " N"]


def add_up(model: ActionModel, messages: Messages) -> JointSums:
    """The sums of one message from every action, at O(K d N^2)."""

    def add_chunk(sums: JointSums, chunk: Array) -> tuple[JointSums, None]:
        gamma = jax.vmap(model.arrows.dense_row)(chunk)
        M = messages.precision.at[chunk].get(mode="fill", fill_value=0.0)
        k = messages.vector.at[chunk].get(mode="fill", fill_value=0.0)
        weighed = jnp.einsum("kde,kdn->ken", M, gamma)
        precision = sums.precision + jnp.einsum("kdn,kdm->nm", gamma, weighed)
        return JointSums(precision, sums.information + jnp.einsum("kd,kdn->n", k, gamma)), None

    size, dtype = model.arrows.num_above, model.root.dtype
    zero = JointSums(jnp.zeros((size, size), dtype), jnp.zeros(size, dtype))
    sums, _ = jax.lax.scan(add_chunk, zero, _sweep(model))
    return sums


def exchange(
    model: ActionModel,
    sums: JointSums,
    action: Array,
    precision: Float[Array, "d d"],
    vector: Float[Array, " d"],
) -> JointSums:
    """The sums after one action has changed its message by `precision` and `vector`."""
    gamma = model.arrows.dense_row(action)
    return JointSums(
        sums.precision + gamma.T @ precision @ gamma, sums.information + vector @ gamma
    )


def given_sums(prior: GaussianVector, sums: JointSums) -> JointEffects:
    """The posterior of `z`, from messages about its distance from zero, at O(N^3)."""
    root, _ = shrink(prior.root, sums.precision)
    surprise = sums.information - sums.precision @ prior.mean
    mean = prior.mean + root @ (surprise @ root)
    return JointEffects(mean, root, jnp.zeros_like(root))


def condition_effects(
    model: ActionModel, effects: JointEffects, messages: Messages
) -> tuple[JointEffects, Float[Array, ""]]:
    """Take in a message from every action, about distances from `effects.mean`.

    Costs O(K d N^2 + N^3). Also returns this level's part of the log evidence
    (see `actions.log_evidence`).
    """
    sums = add_up(model, messages)
    root, chol = shrink(effects.root, sums.precision)
    informed = sums.information @ root
    log_determinant = 2 * jnp.log(jnp.diagonal(chol)).sum()
    whitened = solve_triangular(chol, informed, lower=True, trans=1)
    log_evidence = -0.5 * (whitened @ whitened + log_determinant)
    mean = effects.mean + root @ informed
    return JointEffects(mean, root, jnp.zeros_like(root)), log_evidence


def without_own(
    model: ActionModel,
    effects: JointEffects,
    action: Array,
    precision: Float[Array, "d d"],
    vector: Float[Array, " d"],
) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Mean and covariance of an action given all rewards but its own.

    Its own message, `precision` `M` and `vector` `k`, is taken out of what is known of
    `xi = Gamma_a z`: with covariance `V`, that leaves `V (I - M V)^{-1}`.
    """
    alone = model.select(action)
    prior = alone.root[:, :, 0] @ alone.root[:, :, 0].T
    if not model.arrows.weights:
        return alone.mean[:, 0], prior
    rows = model.arrows.dense_row(action) @ effects.root
    V, xi = rows @ rows.T, model.arrows.row(action, model.arrows.split(effects.mean))
    identity = jnp.eye(model.dim, dtype=V.dtype)
    kept = jnp.linalg.solve((identity - precision @ V).T, V.T).T
    return alone.mean[:, 0] + xi + kept @ (precision @ xi - vector), prior + kept


def _sweep(model: ActionModel) -> Array:
    """All actions in chunks of bounded size; positions past the last action pad the last chunk."""
    width = model.dim * max(model.arrows.num_above, 1)
    chunk = max(1, min(model.num_actions, _SWEEP_NUMBERS // width))
    chunks = -(-model.num_actions // chunk)
    return jnp.arange(chunks * chunk).reshape(chunks, chunk)


def level_covariances(
    model: ActionModel, effects: GaussianVector
) -> dict[str, Float[Array, "size d d"]]:
    """The marginal covariance of every vector above the actions."""
    rows, start = {}, 0
    for name, size in model.arrows.layout:
        stop = start + size * model.dim
        own = effects.root[start:stop].reshape(size, model.dim, -1)
        rows[name] = jnp.einsum("kdn,ken->kde", own, own)
        start = stop
    return rows


def action_covariances(
    model: ActionModel, root: Float[Array, "d d K"], effects: GaussianVector
) -> Float[Array, "K d d"]:
    """Marginal covariances of the actions (Lemma 3).

    `S_i + (S_i Lambda_0 Gamma_i) Sigma_bar (S_i Lambda_0 Gamma_i)'`, the second term as a square.
    """
    above = model.arrows.split(effects.mean)

    def one(action: Array) -> Float[Array, "d d"]:
        Q = root[:, :, action]
        gamma = model.slope(action, above) @ effects.root
        weighted = jax.vmap(lambda v: model.weigh_one(action, v), 1, 1)(gamma)
        moved = Q @ (Q.T @ weighted)
        return Q @ Q.T + moved @ moved.T

    chunk = _sweep(model).shape[1]
    return jax.lax.map(one, jnp.arange(model.num_actions), batch_size=chunk)
