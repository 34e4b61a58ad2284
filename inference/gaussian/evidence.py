"""The log evidence of a linear-Gaussian hierarchy, from sufficient statistics.

All vectors are integrated out. Levels of a tree go one after the other (`elimination.py`), at O(d^3) a
vector; what is left are the vectors of one level, or else the actions, below levels that are not a tree.
Given these they send a whitened block of a few rows each, `e_i = A_i eps + N(0, I)` with standard normal
`eps` of as many numbers as stand above; stacked,

    -2 log p(y) = n log(2 pi sigma^2) + unexplained
                  + sum_i log det D_i + log det(I + A A') + e' (I + A A')^{-1} e.

Both determinants come from triangular factors of stacked rows, never from sums of squares, so that wide
priors and collinear effects keep their digits in float32. Square roots of covariances may be singular, or
zero: nothing is divided by them. Costs O(n d^2) once, then O(m N min(m, N)) for `m = d` times the number
of actions with rewards, or of vectors below what is not a tree, and `N` numbers above, and the same for
the gradient, in O(m N) memory.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular
from jaxtyping import Float, Int

from ...models.hierarchy import Hierarchy
from .elimination import Rows, factor_of_sum, own_out, to_parents
from .single_arrows import single_arrows
from .sufficient_statistics import RewardStatistics

__all__ = ["GaussianLevel", "gaussian_levels", "log_density_of_rewards", "prior_means"]


class GaussianLevel(eqx.Module):
    """A level as square roots: `z_i = mean_i + sum_p W_p z_p + root_i eps_i`.

    Attributes:
        mean: (), (d,) or (size, d).
        root: a square root of the covariance: (d, d), (size, d, d) or, where it is joint, that of all
            numbers of the level. It may be singular.
        across: where a kernel ties the vectors together, a square root of it, (size, size); then `root` is
            that of one vector. Else None.
        arrows: parent level's name -> its weights as an operator.
        name: the name of the level.
        size: its number of vectors.
        is_joint: whether the root ties all vectors together.
        branching: whether every vector has one parent at most.
    """

    mean: Array
    root: Array
    across: Array | None
    arrows: dict[str, Any]
    name: str = eqx.field(static=True)
    size: int = eqx.field(static=True)
    is_joint: bool = eqx.field(static=True)
    branching: bool = eqx.field(static=True)

    def roots(self, vectors: Int[Array, " k"]) -> Float[Array, "#k d d"]:
        """The square roots of some vectors that are not tied together."""
        return self.root[vectors] if self.root.ndim == 3 else self.root[None]

    def joint_root(self, dim: int) -> Float[Array, "size d n"]:
        """The square root of the covariance of all vectors together, by rows."""
        if self.is_joint:
            root = self.root if self.across is None else jnp.kron(self.across, self.root)
            return root.reshape(self.size, dim, -1)
        own = jnp.broadcast_to(self.root, (self.size, dim, dim))
        identity = jnp.eye(self.size, dtype=own.dtype)
        return jnp.einsum("kde,kl->kdle", own, identity).reshape(self.size, dim, -1)


def gaussian_levels(hierarchy: Hierarchy) -> tuple[GaussianLevel, ...]:
    """The levels of a linear-Gaussian hierarchy, top to bottom."""

    def one(level: Any) -> GaussianLevel:
        cov = level.covariance(hierarchy.dim)
        across, root = cov.factors()
        names = level.name, level.size, cov.is_joint, bool(level.branching)
        return GaussianLevel(level.mean, root, across, level.arrows, *names)

    return tuple(one(level) for level in hierarchy.levels)


def log_density_of_rewards(
    levels: Sequence[GaussianLevel], noise: Float[Array, ""], statistics: RewardStatistics
) -> Float[Array, ""]:
    """The log density of all rewards, given their statistics; `noise` is a standard deviation."""
    contexts = statistics.contexts / noise
    mean = prior_means(levels, statistics)
    residual = statistics.rewards / noise - jnp.einsum("kde,ke->kd", contexts, mean)
    rows, vectors = Rows(contexts, residual), statistics.actions
    log_determinant = jnp.zeros((), residual.dtype)
    while _is_tree(levels):
        *levels, level = levels
        rows, half = own_out(rows, level.roots(vectors))
        (arrows,) = level.arrows.values()
        rows = to_parents(rows, vectors, single_arrows(arrows), levels[-1].size)
        vectors = jnp.arange(levels[-1].size)
        log_determinant += half
    if not levels[-1].is_joint:
        rows, half = own_out(rows, levels[-1].roots(vectors))
        log_determinant += half
    e = rows.e.ravel()
    distance = e @ e
    A = (rows.A @ _shared_roots(levels, vectors, rows.A.shape[-1])).reshape(e.size, -1)
    if A.shape[1]:
        half, distance = _half_log_determinant_and_distance(A, e)
        log_determinant += half
    unexplained = jnp.sum(jnp.square(statistics.unexplained / noise))
    normaliser = statistics.num_rewards * (0.5 * jnp.log(2 * jnp.pi) + jnp.log(noise))
    return -(normaliser + 0.5 * (unexplained + distance) + log_determinant)


def prior_means(
    levels: Sequence[GaussianLevel], statistics: RewardStatistics
) -> Float[Array, "k d"]:
    """The prior mean of every action that has statistics."""
    *above, actions = levels
    dim = statistics.rewards.shape[1]
    means: dict[str, Array] = {}
    for level in above:
        mean = jnp.broadcast_to(level.mean, (level.size, dim))
        parts = [arrows.mix(means[parent]) for parent, arrows in level.arrows.items()]
        means[level.name] = sum(parts, mean)
    mean = jnp.broadcast_to(actions.mean, (actions.size, dim))[statistics.actions]
    return sum(_mixed(actions, means, statistics.actions), mean)


def _is_tree(levels: Sequence[GaussianLevel]) -> bool:
    """Whether the last level can be integrated out by itself; see `block_levels.in_blocks`."""
    return len(levels) > 1 and levels[-1].branching and not levels[-2].is_joint


def _shared_roots(
    levels: Sequence[GaussianLevel], vectors: Int[Array, " k"], dim: int
) -> Float[Array, "k d N"]:
    """The square root of what vectors of the last level share, by rows: `cov(z_i, z_j) = r_i r_j'`.

    As in `linear_model.joint_prior`, a level's rows are its parents', mixed, and its own root in
    columns of its own.
    """
    *above, last = levels
    total = dim * (sum(level.size for level in above) + last.size * last.is_joint)
    rows: dict[str, Array] = {}
    start = 0
    for level in above:
        own = level.joint_root(dim)
        row = jnp.zeros((level.size, dim, total), own.dtype)
        row = row.at[..., start : start + own.shape[-1]].set(own)
        for parent, arrows in level.arrows.items():
            row = row + jax.vmap(arrows.mix, in_axes=-1, out_axes=-1)(rows[parent])
        rows[level.name] = row
        start += own.shape[-1]
    shared = jnp.zeros((len(vectors), dim, total), last.root.dtype)
    if last.is_joint:
        shared = shared.at[..., start:].set(last.joint_root(dim)[vectors])
    return sum(_mixed(last, rows, vectors), shared)


def _mixed(level: GaussianLevel, above: dict[str, Array], vectors: Int[Array, " k"]) -> list[Array]:
    """By parent, the weighted sum of what is above, vectors or rows, for vectors of a level."""

    def from_parent(parent: str) -> Array:
        mix = level.arrows[parent].mix_one
        if above[parent].ndim == 3:
            mix = jax.vmap(mix, in_axes=(None, -1), out_axes=-1)
        return jax.vmap(lambda i: mix(i, above[parent]))(vectors)

    return [from_parent(parent) for parent in level.arrows]


@jax.custom_jvp
def _half_log_determinant_and_distance(
    A: Float[Array, "m N"], e: Float[Array, " m"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """`log det(I + A A') / 2` and `e' (I + A A')^{-1} e`."""
    return _solved(A, e)[:2]


@_half_log_determinant_and_distance.defjvp
def _(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Any, Any]:
    # `d log det / 2 = tr((I + A A')^{-1} A dA')`, and `2 r' (de - dA w)` at the minimum, where a change
    # of `w` makes no difference. QR's own derivative would cost several times as much.
    (A, e), (dA, de) = primals, tangents
    half, distance, r, w, C = _solved(A, e)
    gain = _weighed(A, C)
    return (half, distance), (jnp.sum(gain * dA), 2 * r @ (de - dA @ w))


def _solved(A: Array, e: Array) -> tuple[Array, Array, Array, Array, Array]:
    """Both values, `w` and `r = e - A w` of the least squares `|e - A w|^2 + |w|^2`, and the factor.

    Either `C' C = I + A' A` or, where that is smaller, `C' C = I + A A'`.
    """
    N = A.shape[1]
    if A.shape[0] > N:
        rows = jnp.concatenate([A, jnp.eye(N, dtype=A.dtype)])
        column = jnp.concatenate([e, jnp.zeros(N, e.dtype)])[:, None]
        factor = jnp.linalg.qr(jnp.concatenate([rows, column], axis=1), mode="r")
        C, distance = factor[:N, :N], jnp.square(factor[N, N])
        w = solve_triangular(C, factor[:N, N])
        r = e - A @ w
    else:
        C = factor_of_sum(A.T)
        whitened = solve_triangular(C, e, trans=1)
        distance = whitened @ whitened
        r = solve_triangular(C, whitened)
        w = A.T @ r
    return jnp.log(jnp.abs(jnp.diagonal(C))).sum(), distance, r, w, C


def _weighed(A: Array, C: Array) -> Float[Array, "m N"]:
    """`(I + A A')^{-1} A`, which is `A (I + A' A)^{-1}`.

    By the inverse of the factor, whose singular values are one at least: a triangular solve for as many
    columns as there are actions would be spread over threads, which wait for one another.
    """
    inverse = solve_triangular(C, jnp.eye(len(C), dtype=C.dtype))
    if A.shape[0] > A.shape[1]:
        return A @ (inverse @ inverse.T)
    return inverse @ (inverse.T @ A)
