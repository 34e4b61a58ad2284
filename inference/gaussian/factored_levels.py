"""Effect posteriors that factorise over effects, `Q_t = prod_l Q_{t,l}`.

Aouali et al. 2023, Appendix E.1. Each effect `psi_l` keeps a mean and a square root
of its own covariance; an observation moves only the parents of the action taken, so that an update
costs the same however many effects there are.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from ...models import Hierarchy, Sparse
from ...models.covariance import is_joint, scale_tril
from ...models.level import Level
from ..random import standard_normal
from .action_blocks import Innovation, Messages
from .linear_model import ActionModel
from .square_roots import shrink, shrink_by_one, transpose

__all__ = [
    "FactoredLevel",
    "FactoredSums",
    "absorb",
    "add_up",
    "condition_level",
    "draw",
    "exchange",
    "factored_prior",
    "given_sums",
    "location_covariance",
]


class FactoredLevel(NamedTuple):
    """Independent Gaussians `N(mean_l, root_l root_l')`, one for each effect of a level."""

    mean: Float[Array, "L d"]
    root: Float[Array, "L d d"]


class FactoredSums(NamedTuple):
    """All that actions have said of each effect of a level, added up.

    Attributes:
        precision: (L, d, d) `sum_i b_il^2 M_i`.
        information: (L, d) `sum_i b_il k_i`.
    """

    precision: Float[Array, "L d d"]
    information: Float[Array, "L d"]


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
        noise = standard_normal(key_level, level.mean.shape, level.mean.dtype)
        draws[name] = level.mean + jnp.einsum("lde,le->ld", level.root, noise)
    return draws


def absorb(
    model: ActionModel, levels: dict[str, FactoredLevel], innovation: Innovation
) -> dict[str, FactoredLevel]:
    """Take in one innovation: each parent as if it were the action's only one, at O(d^2) each."""
    new = dict(levels)
    for parent, weights in model.arrows.weights.items():
        level = levels[parent]
        where, b = _own_arrows(weights, innovation.action)
        g = _pull(b, innovation.direction)
        old = FactoredLevel(level.mean[where], level.root[where])
        step, covariance, total = jax.vmap(shrink_by_one, in_axes=(0, 0, None))(
            old.root, g, innovation.variance
        )
        residual = innovation.residual - jnp.sum(g * old.mean, axis=-1)
        shift = covariance * (residual / total)[:, None]
        # Added, not set: a padded entry of a sparse row repeats an index and must change nothing.
        new[parent] = FactoredLevel(level.mean.at[where].add(shift), level.root.at[where].add(step))
    return new


def condition_level(
    model: ActionModel, parent: str, level: FactoredLevel, messages: Messages
) -> FactoredLevel:
    """Each effect of one level given every action's message from `z = 0`, the others left out."""
    return given_sums(level, add_up(model, parent, level, messages))


def given_sums(prior: FactoredLevel, sums: FactoredSums) -> FactoredLevel:
    """Each effect on its own, from what was said of it."""
    root, _ = shrink(prior.root, sums.precision)
    surprise = sums.information - jnp.einsum("lde,le->ld", sums.precision, prior.mean)
    step = jnp.einsum("lde,le->ld", root @ transpose(root), surprise)
    return FactoredLevel(prior.mean + step, root)


def add_up(
    model: ActionModel, parent: str, level: FactoredLevel, messages: Messages
) -> FactoredSums:
    """The sums of one message from every action to each effect of a level."""
    weights, M, k = model.arrows.weights[parent], messages.precision, messages.vector
    if isinstance(weights, Sparse):
        zero = FactoredSums(jnp.zeros_like(level.root), jnp.zeros_like(level.mean))

        def add_column(sums: FactoredSums, column: tuple[Array, Array]):
            where, b = column
            added = FactoredSums(
                sums.precision.at[where].add(jnp.square(b)[:, None, None] * M),
                sums.information.at[where].add(b[:, None] * k),
            )
            return added, None

        sums, _ = jax.lax.scan(add_column, zero, (weights.indices.T, weights.values.T))
        return sums
    if weights.ndim == 4:
        left = jnp.einsum("klde,kdf->klef", weights, M)
        precision = jnp.einsum("klef,klfg->leg", left, weights)
        return FactoredSums(precision, jnp.einsum("klde,kd->le", weights, k))
    return FactoredSums(jnp.einsum("kl,kde->lde", weights**2, M), weights.T @ k)


def exchange(
    model: ActionModel,
    prior: dict[str, FactoredLevel],
    levels: dict[str, FactoredLevel],
    sums: dict[str, FactoredSums],
    action: Int[Array, ""],
    precision: Float[Array, "d d"],
    vector: Float[Array, " d"],
) -> tuple[dict[str, FactoredLevel], dict[str, FactoredSums]]:
    """Effects and sums after one action has changed its message: its parents move, at O(d^3) each."""
    levels, sums = dict(levels), dict(sums)
    for parent, weights in model.arrows.weights.items():
        where, b = _own_arrows(weights, action)
        new = FactoredSums(
            sums[parent].precision.at[where].add(_press(b, precision)),
            sums[parent].information.at[where].add(_pull(b, vector)),
        )
        take = lambda leaf, where=where: leaf[where]  # noqa: E731
        moved = given_sums(jax.tree.map(take, prior[parent]), jax.tree.map(take, new))
        levels[parent] = FactoredLevel(
            levels[parent].mean.at[where].set(moved.mean),
            levels[parent].root.at[where].set(moved.root),
        )
        sums[parent] = new
    return levels, sums


def location_covariance(
    model: ActionModel, levels: dict[str, FactoredLevel], action: Array
) -> Float[Array, "d d"]:
    """The covariance of `Gamma_a z` for independent effects: `sum_l C_al Sigma_l C_al'`."""
    total = jnp.zeros((model.dim, model.dim), model.root.dtype)
    for parent, weights in model.arrows.weights.items():
        where, b = _own_arrows(weights, action)
        roots = levels[parent].root[where]
        blocks = roots @ transpose(roots)
        if b.ndim == 3:
            total += jnp.einsum("mde,mef,mgf->dg", b, blocks, b)
        else:
            total += jnp.einsum("m,mde->de", jnp.square(b), blocks)
    return total


def _own_arrows(weights: Array | Sparse, action: Array) -> tuple[Int[Array, " m"], Array]:
    """The parents of one action and its weights on them, (m,) or (m, d, d)."""
    if isinstance(weights, Sparse):
        return weights.indices[action], weights.values[action]
    return jnp.arange(weights.shape[1]), weights[action]


def _pull(b: Array, v: Float[Array, " d"]) -> Float[Array, "m d"]:
    """`C_l' v` for each parent."""
    return jnp.einsum("mde,d->me", b, v) if b.ndim == 3 else b[:, None] * v


def _press(b: Array, M: Float[Array, "d d"]) -> Float[Array, "m d d"]:
    """`C_l' M C_l` for each parent."""
    if b.ndim == 3:
        return jnp.einsum("mde,df,mfg->meg", b, M, b)
    return jnp.square(b)[:, None, None] * M
