"""The log evidence of a linear-Gaussian hierarchy, from sufficient statistics.

All vectors are integrated out. Actions given the levels above send a whitened block of at most `d` rows
each, `e_i = A_i eps + N(0, I)` with standard normal `eps` of as many numbers as stand above; stacked,

    -2 log p(y) = n log(2 pi sigma^2) + unexplained + sum_i log det D_i + log det(I + A A') + e' (I + A A')^{-1} e.

Both determinants come from triangular factors of stacked rows, never from sums of squares, so that wide
priors and collinear effects keep their digits in float32. Square roots of covariances may be singular, or
zero: nothing is divided by them. Costs O(n d^2) once, then O(m N min(m, N)) for `m = d` times the number
of actions with rewards and `N` numbers above, and the same for the gradient, in O(m N) memory.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular
from jaxtyping import Float

from ...models.hierarchy import Hierarchy
from .square_roots import transpose
from .sufficient_statistics import RewardStatistics

__all__ = ["GaussianLevel", "gaussian_levels", "log_density_of_rewards"]


class GaussianLevel(eqx.Module):
    """A level as square roots: `z_i = mean_i + sum_p W_p z_p + root_i eps_i`.

    Attributes:
        mean: (), (d,) or (size, d).
        root: a square root of the covariance: (d, d), (size, d, d) or, where it is joint, that of all
            numbers of the level. It may be singular.
        arrows: parent level's name -> its weights as an operator.
        name: the name of the level.
        size: its number of vectors.
        is_joint: whether the root ties all vectors together.
    """

    mean: Array
    root: Array
    arrows: dict[str, Any]
    name: str = eqx.field(static=True)
    size: int = eqx.field(static=True)
    is_joint: bool = eqx.field(static=True)

    def joint_root(self, dim: int) -> Float[Array, "size d n"]:
        """The square root of the covariance of all vectors together, by rows."""
        if self.is_joint:
            return self.root.reshape(self.size, dim, -1)
        own = jnp.broadcast_to(self.root, (self.size, dim, dim))
        identity = jnp.eye(self.size, dtype=own.dtype)
        return jnp.einsum("kde,kl->kdle", own, identity).reshape(self.size, dim, -1)


def gaussian_levels(hierarchy: Hierarchy) -> tuple[GaussianLevel, ...]:
    """The levels of a linear-Gaussian hierarchy, top to bottom."""

    def one(level: Any) -> GaussianLevel:
        cov = level.covariance(hierarchy.dim)
        return GaussianLevel(
            level.mean, cov.scale_tril(), level.arrows, level.name, level.size, cov.is_joint
        )

    return tuple(one(level) for level in hierarchy.levels)


def log_density_of_rewards(
    levels: tuple[GaussianLevel, ...], noise: Float[Array, ""], statistics: RewardStatistics
) -> Float[Array, ""]:
    """The log density of all rewards, given their statistics; `noise` is a standard deviation."""
    contexts = statistics.contexts / noise
    mean, own, factor = _actions_in_standard_normals(levels, statistics)
    residual = statistics.rewards / noise - jnp.einsum("kde,ke->kd", contexts, mean)
    # What an action has of its own: `D = I + B B'` with `B = contexts own`, and `D = C' C`.
    own_part = contexts @ own
    chol = _factor_of_sum(transpose(own_part))
    log_determinant = jnp.log(jnp.abs(jnp.diagonal(chol, axis1=-2, axis2=-1))).sum()
    residual = solve_triangular(chol, residual[..., None], trans=1)[..., 0].ravel()
    distance = residual @ residual
    if factor.shape[-1]:
        shared = solve_triangular(chol, contexts @ factor, trans=1)
        A = shared.reshape(residual.size, -1)
        half, distance = _half_log_determinant_and_distance(A, residual)
        log_determinant += half
    unexplained = jnp.sum(jnp.square(statistics.unexplained / noise))
    normaliser = statistics.count * (0.5 * jnp.log(2 * jnp.pi) + jnp.log(noise))
    return -(normaliser + 0.5 * (unexplained + distance) + log_determinant)


def _actions_in_standard_normals(
    levels: tuple[GaussianLevel, ...], statistics: RewardStatistics
) -> tuple[Float[Array, "k d"], Float[Array, "k d d"], Float[Array, "k d N"]]:
    """Each action with statistics as `mean + own eps_i + factor eps`, `eps` shared by all."""
    *above, actions = levels
    k, dim = statistics.rewards.shape
    means: dict[str, Array] = {}
    rows: dict[str, Array] = {}
    widths = [level.size * dim for level in above] + [actions.size * dim] * actions.is_joint
    total, start = sum(widths), 0
    for level in above:
        mean = jnp.broadcast_to(level.mean, (level.size, dim))
        own = level.joint_root(dim)
        row = jnp.zeros((level.size, dim, total), own.dtype)
        row = row.at[..., start : start + own.shape[-1]].set(own)
        for parent, arrows in level.arrows.items():
            mean = mean + arrows.mix(means[parent])
            row = row + jax.vmap(arrows.mix, in_axes=-1, out_axes=-1)(rows[parent])
        means[level.name], rows[level.name] = mean, row
        start += own.shape[-1]
    which = statistics.actions
    mean = jnp.broadcast_to(actions.mean, (actions.size, dim))[which]
    factor = jnp.zeros((k, dim, total), mean.dtype)
    for parent, arrows in actions.arrows.items():
        mean = mean + jax.vmap(lambda i, a=arrows, p=parent: a.mix_one(i, means[p]))(which)
        mix = jax.vmap(arrows.mix_one, in_axes=(None, -1), out_axes=-1)
        factor = factor + jax.vmap(lambda i, mix=mix, p=parent: mix(i, rows[p]))(which)
    if actions.is_joint:
        factor = factor.at[..., start:].set(actions.joint_root(dim)[which])
        return mean, jnp.zeros((k, dim, dim), mean.dtype), factor
    own = jnp.broadcast_to(actions.root, (actions.size, dim, dim))[which]
    return mean, own, factor


def _factor_of_sum(B: Float[Array, "*batch m n"]) -> Float[Array, "*batch n n"]:
    """Upper triangular `C` with `C' C = I + B' B`."""
    n = B.shape[-1]
    identity = jnp.broadcast_to(jnp.eye(n, dtype=B.dtype), (*B.shape[:-2], n, n))
    return jnp.linalg.qr(jnp.concatenate([B, identity], axis=-2), mode="r")


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
        C = _factor_of_sum(A.T)
        whitened = solve_triangular(C, e, trans=1)
        distance = whitened @ whitened
        r = solve_triangular(C, whitened)
        w = A.T @ r
    return jnp.log(jnp.abs(jnp.diagonal(C))).sum(), distance, r, w, C


def _weighed(A: Array, C: Array) -> Float[Array, "m N"]:
    """`(I + A A')^{-1} A`, which is `A (I + A' A)^{-1}`."""
    if A.shape[0] > A.shape[1]:
        return solve_triangular(C, solve_triangular(C, A.T, trans=1)).T
    return solve_triangular(C, solve_triangular(C, A, trans=1))
