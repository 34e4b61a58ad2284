"""The joint posterior of all levels above the actions, `Q_t = N(mean, root root')`.

Aouali et al. 2023, Prop. `thm:pt_gaussian`, for any depth: `z` is every level above the actions,
concatenated (see `linear_model`).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular
from jaxtyping import Float

from .actions import Innovation, Messages
from .linear_model import ActionModel, GaussianVector
from .roots import shrink, shrink_by_one

__all__ = [
    "JointEffects",
    "absorb",
    "action_covariances",
    "before_data",
    "condition_effects",
    "draw",
    "level_covariances",
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
    step = step + effects.carry
    root = effects.root + step
    carry = step - (root - effects.root)
    log_density = -0.5 * (jnp.log(2 * jnp.pi * total) + residual**2 / total)
    return JointEffects(mean, root, carry), log_density


def draw(key: Array, effects: JointEffects) -> Float[Array, " N"]:
    """One joint draw of `z`."""
    noise = jax.random.normal(key, effects.mean.shape, effects.mean.dtype)
    return effects.mean + effects.root @ noise


def condition_effects(
    model: ActionModel, effects: JointEffects, messages: Messages
) -> tuple[JointEffects, Float[Array, ""]]:
    """Take in a message from every action, about distances from `effects.mean`.

    Adds `sum_i Gamma_i' M_i Gamma_i` to the precision and `sum_i Gamma_i' k_i` to the information, at
    O(K d N^2 + N^3). Also returns this level's part of the log evidence (see `actions.log_evidence`).
    """

    def add_chunk(carry: tuple[Array, Array], chunk: Array) -> tuple[tuple[Array, Array], None]:
        precision, information = carry
        gamma = jax.vmap(model.arrows.dense_row)(chunk)
        M = messages.precision.at[chunk].get(mode="fill", fill_value=0.0)
        k = messages.vector.at[chunk].get(mode="fill", fill_value=0.0)
        weighed = jnp.einsum("kde,kdn->ken", M, gamma)
        precision += jnp.einsum("kdn,kdm->nm", gamma, weighed)
        return (precision, information + jnp.einsum("kd,kdn->n", k, gamma)), None

    zero = jnp.zeros_like(effects.root), jnp.zeros_like(effects.mean)
    (precision, information), _ = jax.lax.scan(add_chunk, zero, _sweep(model))
    root, chol = shrink(effects.root, precision)
    informed = root.T @ information
    log_determinant = 2 * jnp.log(jnp.diagonal(chol)).sum()
    whitened = solve_triangular(chol, informed, lower=True, trans=1)
    log_evidence = -0.5 * (whitened @ whitened + log_determinant)
    mean = effects.mean + root @ informed
    return JointEffects(mean, root, jnp.zeros_like(root)), log_evidence


def _sweep(model: ActionModel) -> Array:
    """All actions in chunks of bounded size; positions past the last action pad the last chunk."""
    width = model.dim * max(model.arrows.num_above, 1)
    chunk = max(1, min(model.num_actions, _SWEEP_NUMBERS // width))
    chunks = -(-model.num_actions // chunk)
    return jnp.arange(chunks * chunk).reshape(chunks, chunk)


def level_covariances(
    model: ActionModel, effects: JointEffects
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
    model: ActionModel, root: Float[Array, "d d K"], effects: JointEffects
) -> Float[Array, "K d d"]:
    """Marginal covariances of the actions (`lemma:gaussian_covariance`).

    `S_i + (S_i Lambda_0 Gamma_i) Sigma_bar (S_i Lambda_0 Gamma_i)'`, the second term as a square.
    """

    def one(action: Array) -> Float[Array, "d d"]:
        Q = root[:, :, action]
        gamma = model.arrows.dense_row(action) @ effects.root
        weighted = jax.vmap(lambda v: model.weigh_one(action, v), 1, 1)(gamma)
        moved = Q @ (Q.T @ weighted)
        return Q @ Q.T + moved @ moved.T

    chunk = _sweep(model).shape[1]
    return jax.lax.map(one, jnp.arange(model.num_actions), batch_size=chunk)
