"""Any linear-Gaussian hierarchy as one Gaussian vector above a block-diagonal level of actions.

Given their parents, the levels above the actions are jointly Gaussian whatever their depth and however
their arrows cross. Concatenated, top to bottom, they are the paper's `Psi` (Aouali et al. 2023,
Appendix D.1) and every model of the paper is

    z = m + R eps,  theta_i = mu_i + Gamma_i z + T_i eps_i,  y = x' theta_a + sigma eps_y,

with standard normal `eps`: two levels, so that one algebra serves all. `R` follows from the levels by
substitution from the top; nothing is factorised but the levels' own covariances.

Arrays over actions have the actions last, (d, d, K): a round reads them all, and so reads them in order.
"""

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ...models.covariance import Covariance, Precision
from ...models.hierarchy import Hierarchy
from ...models.level import Level
from ...models.weights import Sparse

__all__ = [
    "ActionModel",
    "Arrows",
    "GaussianVector",
    "action_model",
    "contract",
    "dot",
    "joint_prior",
    "joint_root",
    "level_model",
    "untie_actions",
    "written_out",
]


class Arrows(eqx.Module):
    """The weights of the actions on the vectors above: `Gamma_i` for all `i`, in declared form.

    Attributes:
        weights: parent level's name -> its weights as an operator.
        layout: (level name, size) of every level above, top to bottom: the order inside `z`.
        dim: `d`.
    """

    weights: dict[str, Any]
    layout: tuple[tuple[str, int], ...] = eqx.field(static=True)
    dim: int = eqx.field(static=True)

    @property
    def num_above(self) -> int:
        """`N`: how many numbers `z` has."""
        return self.dim * sum(size for _, size in self.layout)

    def split(self, z: Float[Array, " N"]) -> dict[str, Float[Array, "_ d"]]:
        """`z` as the vectors of each level above."""
        vectors, start = {}, 0
        for name, size in self.layout:
            vectors[name] = z[start : start + size * self.dim].reshape(size, self.dim)
            start += size * self.dim
        return vectors

    def all_rows(self, above: dict[str, Float[Array, "_ d"]]) -> Float[Array, "d K"]:
        """`Gamma_i z` for every action `i`, `z` given as the vectors of each level above."""
        parts = (arrows.mix_columns(above[parent]) for parent, arrows in self.weights.items())
        return functools.reduce(operator.add, parts)

    def row(self, action: Array, above: dict[str, Float[Array, "_ d"]]) -> Float[Array, " d"]:
        """`Gamma_a z` for one action, `z` given as the vectors of each level above."""
        total = jnp.zeros(self.dim, jnp.result_type(float))
        for parent, arrows in self.weights.items():
            total += arrows.mix_one(action, above[parent])
        return total

    def row_transposed(self, action: Array, v: Float[Array, " d"]) -> Float[Array, " N"]:
        """`Gamma_a' v` for one action."""
        blank = jnp.zeros(self.num_above, v.dtype)
        return jax.linear_transpose(lambda z: self.row(action, self.split(z)), blank)(v)[0]

    def dense_row(self, action: Array) -> Float[Array, "d N"]:
        """`Gamma_a` written out."""
        dtype = jnp.result_type(float)
        basis = jnp.eye(self.dim, dtype=dtype)
        return jax.vmap(lambda v: self.row_transposed(action, v))(basis)


class GaussianVector(NamedTuple):
    """`N(mean, root root')`; the root need not be triangular."""

    mean: Float[Array, " N"]
    root: Float[Array, "N N"]


class ActionModel(eqx.Module):
    """The actions given `z`, and the rewards given the actions.

    Attributes:
        arrows: `Gamma_i`.
        mean: (d, K) `mu_i`, or (d, 1) where all are equal.
        root: (d, d, K) `T_i` with `Sigma_{0,i} = T_i T_i'`, or (d, d, 1).
        precision: `Lambda_{0,i} = Sigma_{0,i}^{-1}`, as an operator.
        noise_variance: `sigma^2`.
        num_actions: `K`.
        link: the elementwise `g` of Appendix E.3, or None.
        drifts: whether the actions, or levels above, are random walks: see `drift`.
    """

    arrows: Arrows
    mean: Array
    root: Array
    precision: Precision
    noise_variance: Array
    num_actions: int = eqx.field(static=True)
    link: Callable[[Array], Array] | None = eqx.field(default=None, static=True)
    drifts: bool = eqx.field(default=False, static=True)

    @property
    def dim(self) -> int:
        """`d`."""
        return self.arrows.dim

    def weigh(self, v: Float[Array, "d K"]) -> Float[Array, "d K"]:
        """`Lambda_{0,i} v_i` for every action."""
        return self.precision.weigh(v)

    def weigh_one(self, action: Array, v: Float[Array, " d"]) -> Float[Array, " d"]:
        """`Lambda_{0,a} v` for one action."""
        return self.precision.select(action).weigh(v[:, None])[:, 0]

    def select(self, action: Array) -> "ActionModel":
        """The model of one action alone; its arrows stay those of all."""

        def own(array: Array) -> Array:
            return array[..., action][..., None] if array.shape[-1] > 1 else array

        mean, root, precision = own(self.mean), own(self.root), self.precision.select(action)
        noise_variance, link = self.noise_variance, self.link
        return ActionModel(self.arrows, mean, root, precision, noise_variance, 1, link, self.drifts)

    def displacements(self, above: dict[str, Float[Array, "_ d"]]) -> Float[Array, "d K"]:
        """How far every action is centred from `mu_i`, given the levels above.

        `Gamma_i z`, or `g(mu_i + Gamma_i z) - mu_i` where there is a link.
        """
        rows = self.arrows.all_rows(above)
        return rows if self.link is None else self.link(self.mean + rows) - self.mean

    def slope(self, action: Array, above: dict[str, Float[Array, "_ d"]]) -> Float[Array, "d N"]:
        """The derivative of one action's displacement in `z`, at the given levels above."""
        rows = self.arrows.dense_row(action)
        if self.link is None:
            return rows
        at = self.select(action).mean[:, 0] + self.arrows.row(action, above)
        _, steepness = jax.jvp(self.link, (at,), (jnp.ones_like(at),))
        return steepness[:, None] * rows

    def weigh_rows(self, matrices: Float[Array, "K d e"]) -> Float[Array, "K d e"]:
        """`Lambda_{0,i} A_i` for every action, actions first."""
        return self.precision.weigh_rows(matrices)


def contract(matrix: Float[Array, "d e K"], v: Float[Array, "d #K"]) -> Float[Array, "e K"]:
    """`sum_d matrix[d, e, k] v[d, k]`, in one pass over memory.

    A chain of products and sums over the leading axis fuses into a single loop; XLA's own reduction
    over a leading axis is tens of times slower on a CPU.
    """
    return functools.reduce(operator.add, (matrix[i] * v[i] for i in range(v.shape[0])))


def dot(v: Float[Array, "d #K"], w: Float[Array, "d #K"]) -> Float[Array, " K"]:
    """`v_k' w_k` for every `k`; see `contract`."""
    return functools.reduce(operator.add, (v[i] * w[i] for i in range(v.shape[0])))


def written_out(rows: Float[Array, "d K"]) -> Float[Array, "d K"]:
    """The same numbers, which the compiler has to compute before they are used.

    XLA merges a computation with what uses it, and repeats it for each use: it would draw a parent once for
    each of its children, and a random number once for each sum that it is a part of. It does not look
    inside a product of matrices.
    """
    identity = jnp.eye(len(rows), dtype=rows.dtype)
    return jnp.matmul(identity, rows, precision=jax.lax.Precision.HIGHEST)


def action_model(hierarchy: Hierarchy) -> ActionModel:
    """The last level of a linear-Gaussian hierarchy and its rewards."""
    noise_variance = jnp.square(getattr(hierarchy.reward, "noise", 1.0))
    return level_model(hierarchy.levels, hierarchy.dim, noise_variance)


def level_model(levels: Sequence[Level], dim: int, noise_variance: Any = 1.0) -> ActionModel:
    """The last of some levels given those before it, observed with noise of that variance."""
    *above, level = levels
    root, precision = level.covariance(dim).spread()
    return ActionModel(
        arrows=Arrows(level.arrows, tuple((each.name, each.size) for each in above), dim),
        mean=jnp.atleast_2d(jnp.broadcast_to(level.mean, (*level.mean.shape[:-1], dim))).T,
        root=root,
        precision=precision,
        noise_variance=jnp.asarray(noise_variance, root.dtype),
        num_actions=level.size,
        link=level.link,
        drifts=level.drift is not None,
    )


def untie_actions(hierarchy: Hierarchy) -> Hierarchy:
    """The same law with actions that are independent given the levels above.

    It is the hierarchy itself, except for a single level of actions with a joint covariance `Sigma`:
    that becomes `theta = z + eps` with `z ~ N(mu, Sigma - c I)` and `eps ~ N(0, c I)`, for half the
    smallest eigenvalue `c`. The law does not depend on `c`, so no gradient flows through it.
    """
    action, dim = hierarchy.actions, hierarchy.dim
    if action.parents or not action.covariance(dim).is_joint:
        return hierarchy
    cov = action.covariance(dim).matrices()
    c = jax.lax.stop_gradient(jnp.linalg.eigvalsh(cov)[0] / 2)
    shared = Level(
        f"{action.name}_shared",
        action.size,
        mean=action.mean,
        cov=cov - c * jnp.eye(action.size * dim, dtype=cov.dtype),
    )
    itself = Sparse(np.arange(action.size)[:, None], np.ones((action.size, 1)))
    own = Level(action.name, action.size, parents={shared.name: itself}, cov=c)
    return hierarchy.remade(levels=[shared, own])


def joint_prior(levels: Sequence[Level], dim: int) -> GaussianVector:
    """The joint prior of some levels, each of which has its parents among them: `z`."""
    means: dict[str, Array] = {}
    for level in levels:
        mean = jnp.broadcast_to(level.mean, (level.size, dim))
        for parent, arrows in level.arrows.items():
            mean = mean + arrows.mix(means[parent])
        means[level.name] = mean
    if not means:
        return GaussianVector(jnp.zeros(0), jnp.zeros((0, 0)))
    mean = jnp.concatenate([mean.ravel() for mean in means.values()])
    return GaussianVector(mean, joint_root(levels, dim, [lv.covariance(dim) for lv in levels]))


def joint_root(
    levels: Sequence[Level], dim: int, covariances: Sequence[Covariance | None]
) -> Float[Array, "N n"]:
    """A root of the covariance of some levels, of whose own parts the covariances are given.

    A level is `z_k = mu_k + sum_p W_p z_p + T_k eps_k`, so its rows of the root are its parents' rows,
    mixed, and its own `T_k` in columns of its own: where all have some, a lower triangular matrix.
    """
    total = dim * sum(lv.size for lv, own in zip(levels, covariances, strict=True) if own)
    rows: dict[str, Array] = {}
    start = 0
    for level, own in zip(levels, covariances, strict=True):
        row = jnp.zeros((level.size, dim, total))
        if own is not None:
            stop = start + level.size * dim
            row = row.at[..., start:stop].set(own.joint_root(level.size))
            start = stop
        for parent, arrows in level.arrows.items():
            row = row + jax.vmap(arrows.mix, in_axes=-1, out_axes=-1)(rows[parent])
        rows[level.name] = row
    return jnp.concatenate([row.reshape(-1, total) for row in rows.values()])
