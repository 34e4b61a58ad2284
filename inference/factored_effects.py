"""Effect posteriors that factorise over effects, `Q_t = prod_l Q_{t,l}`.

Aouali et al. 2023, `app:posterior_approximation`. Each effect `psi_l` keeps a mean and a square root of
its own covariance; an observation moves only the parents of the action taken, so that an update costs
the same however many effects there are.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ..models import Hierarchy, Sparse
from ..models.covariance import is_joint, scale_tril
from ..models.level import Level
from .actions import Innovation, Messages
from .linear_model import ActionModel
from .roots import shrink, shrink_by_one, transpose

__all__ = ["FactoredLevel", "absorb", "condition_level", "draw", "factored_prior"]


class FactoredLevel(NamedTuple):
    """Independent Gaussians `N(mean_l, root_l root_l')`, one for each effect of a level."""

    mean: Float[Array, "L d"]
    root: Float[Array, "L d d"]


def factored_prior(hierarchy: Hierarchy, *, blocks_of_precision: bool) -> dict[str, FactoredLevel]:
    """The prior of each effect on its own.

    Where the level has a joint covariance `Sigma_Psi`, an effect's covariance is the block of
    `Sigma_Psi` (the displayed formulas) or, with `blocks_of_precision`, the inverse of the block of
    `Sigma_Psi^{-1}` (the proof).
    """
    return {
        level.name: FactoredLevel(
            jnp.broadcast_to(level.mean, (level.size, hierarchy.dim)),
            _own_roots(level, hierarchy.dim, blocks_of_precision),
        )
        for level in hierarchy.levels[:-1]
    }


def _own_roots(level: Level, dim: int, blocks_of_precision: bool) -> Float[Array, "L d d"]:
    size = level.size
    if not is_joint(level.cov, size, dim):
        return jnp.broadcast_to(scale_tril(level.cov, dim), (size, dim, dim))
    matrix = jnp.linalg.inv(level.cov) if blocks_of_precision else level.cov
    blocks = jnp.einsum("ldle->lde", matrix.reshape(size, dim, size, dim))
    return jnp.linalg.cholesky(jnp.linalg.inv(blocks) if blocks_of_precision else blocks)


def draw(key: Array, levels: dict[str, FactoredLevel]) -> dict[str, Float[Array, "L d"]]:
    """One draw of each effect, independently: a matrix-vector product of size d each."""
    keys = jax.random.split(key, len(levels))
    draws = {}
    for key_level, (name, level) in zip(keys, levels.items(), strict=True):
        noise = jax.random.normal(key_level, level.mean.shape, level.mean.dtype)
        draws[name] = level.mean + jnp.einsum("lde,le->ld", level.root, noise)
    return draws


def absorb(
    model: ActionModel, levels: dict[str, FactoredLevel], innovation: Innovation
) -> dict[str, FactoredLevel]:
    """Take in one innovation: each parent of the action as if it were the only one, at O(d^2) each."""
    new = dict(levels)
    for parent, weights in model.arrows.weights.items():
        level, action = levels[parent], jnp.minimum(innovation.action, model.num_actions - 1)
        if isinstance(weights, Sparse):
            where = weights.indices[action]
            g = weights.values[action][:, None] * innovation.direction
        else:
            where = jnp.arange(level.mean.shape[0])
            own = weights[action]
            g = (
                jnp.einsum("lde,d->le", own, innovation.direction)
                if own.ndim == 3
                else own[:, None] * innovation.direction
            )
        old_mean, old_root = level.mean[where], level.root[where]
        step, covariance, total = jax.vmap(shrink_by_one, in_axes=(0, 0, None))(
            old_root, g, innovation.variance
        )
        residual = innovation.residual - jnp.sum(g * old_mean, axis=-1)
        shift = covariance * (residual / total)[:, None]
        # Added, not set: a padded entry of a sparse row repeats an index and must change nothing.
        new[parent] = FactoredLevel(level.mean.at[where].add(shift), level.root.at[where].add(step))
    return new


def condition_level(
    model: ActionModel, parent: str, prior: FactoredLevel, messages: Messages
) -> FactoredLevel:
    """Each effect of one level given every action's message from `z = 0`, other effects left out."""
    precision, vector = _messages_to(model, parent, prior, messages)
    root, _ = shrink(prior.root, precision)
    surprise = vector - jnp.einsum("lde,le->ld", precision, prior.mean)
    step = jnp.einsum("lde,le->ld", root @ transpose(root), surprise)
    return FactoredLevel(prior.mean + step, root)


def _messages_to(
    model: ActionModel, parent: str, prior: FactoredLevel, messages: Messages
) -> tuple[Float[Array, "L d d"], Float[Array, "L d"]]:
    """`sum_i b_il^2 M_i` and `sum_i b_il k_i` for each effect `l`."""
    weights, vector = model.arrows.weights[parent], messages.vector
    if isinstance(weights, Sparse):
        start = jnp.zeros_like(prior.root), jnp.zeros_like(prior.mean)

        def add_column(sums: tuple[Array, Array], column: tuple[Array, Array]):
            where, b = column
            matrices = jnp.square(b)[:, None, None] * messages.precision
            return (
                sums[0].at[where].add(matrices),
                sums[1].at[where].add(b[:, None] * vector),
            ), None

        sums, _ = jax.lax.scan(add_column, start, (weights.indices.T, weights.values.T))
        return sums
    if weights.ndim == 4:
        left = jnp.einsum("klde,kdf->klef", weights, messages.precision)
        return jnp.einsum("klef,klfg->leg", left, weights), jnp.einsum(
            "klde,kd->le", weights, vector
        )
    return jnp.einsum("kl,kde->lde", weights**2, messages.precision), weights.T @ vector
