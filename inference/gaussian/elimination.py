"""Levels of a tree integrated out of what rewards say, from the actions up.

What is said of a vector `z` is a few rows, `e = A z + N(0, I)`. With `z = W z_p + T eps` they say of the
parent `e = A W z_p + N(0, D)`, `D = I + A T T' A'`: whitened, `own_out`, they are rows about the parent,
and the determinant of `D` is this vector's share of the evidence. All rows about one parent, of however
many children, are then rotated into `d + 1` of them, `gather`: their triangular factor, as that of the
rows of rewards is. Nothing is squared, and nothing grows with the number of vectors but O(d^2) numbers for
each; a level of K vectors costs O(K d^3).
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular
from jaxtyping import Float, Int

from .single_arrows import SingleArrows
from .square_roots import transpose
from .sufficient_statistics import reward_statistics

__all__ = ["Rows", "factor_of_sum", "own_out", "to_parents"]

_FEW = 6  # columns


class Rows(NamedTuple):
    """What is said of each of k vectors: `e = A z + N(0, I)`.

    Attributes:
        A: (k, r, d).
        e: (k, r).
    """

    A: Float[Array, "k r d"]
    e: Float[Array, "k r"]


def own_out(rows: Rows, roots: Float[Array, "#k d d"]) -> tuple[Rows, Float[Array, ""]]:
    """Rows about vectors less what they have of their own, and `log det D / 2` of all of them.

    The roots, which may be singular, are those of their covariances given their parents.
    """
    C = factor_of_sum(transpose(rows.A @ roots))  # `C' C = D`
    half = jnp.log(jnp.abs(jnp.diagonal(C, axis1=-2, axis2=-1))).sum()
    white = _solve_transposed(C, jnp.concatenate([rows.A, rows.e[..., None]], axis=-1))
    return Rows(white[..., :-1], white[..., -1]), half


def to_parents(
    rows: Rows, vectors: Int[Array, " k"], arrows: SingleArrows, num_parents: int
) -> Rows:
    """Rows about some vectors, given their parents, as rows about every vector of the parent level."""
    weight = arrows.weight(vectors)
    A = weight[:, None, None] * rows.A if weight.ndim == 1 else rows.A @ weight
    stacked = jnp.concatenate([A, rows.e[..., None]], axis=-1)
    gathered = gather(stacked, arrows.parent[vectors], num_parents)
    return Rows(gathered[..., :-1], gathered[..., -1])


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def gather(
    rows: Float[Array, "k r n"], parent: Int[Array, " k"], num_parents: int
) -> Float[Array, "P n n"]:
    """A factor `R` for each parent: `R' R` is the sum of `M' M` over its children's rows `M`.

    Another factor of the same sum would say the same, so that no derivative is needed but the sum's.
    """
    flat, children = rows.reshape(-1, rows.shape[-1]), jnp.repeat(parent, rows.shape[1])
    return reward_statistics(flat[:, :-1], children, flat[:, -1], num_parents).factors


@gather.defjvp
def _(num_parents: int, primals: Any, tangents: Any) -> tuple[Array, Array]:
    # With rows `M = Q R` of a child and `dR` the sum of `Q' dM`, `dR' R + R' dR` is the derivative of the
    # sum of `M' M`. Unlike that of a triangular factor it exists where `R` is singular, as it is wherever
    # rewards are few: any `Q` will do.
    (rows, parent), (d_rows, _) = primals, tangents
    R = gather(rows, parent, num_parents)
    Q = rows @ jnp.linalg.pinv(R)[parent]
    return R, jax.ops.segment_sum(transpose(Q) @ d_rows, parent, num_parents)


def factor_of_sum(B: Float[Array, "*batch m n"]) -> Float[Array, "*batch n n"]:
    """Upper triangular `C` with `C' C = I + B' B`.

    That of a few columns is computed for the whole batch at once, where LAPACK would be called for each.
    """
    n = B.shape[-1]
    identity = jnp.broadcast_to(jnp.eye(n, dtype=B.dtype), (*B.shape[:-2], n, n))
    stacked = jnp.concatenate([B, identity], axis=-2)
    return _gram_schmidt(stacked) if n <= _FEW else jnp.linalg.qr(stacked, mode="r")


def _gram_schmidt(rows: Float[Array, "*batch m n"]) -> Float[Array, "*batch n n"]:
    """The triangular factor of QR, by modified Gram-Schmidt, which is as exact as reflections for it.

    No column may be zero.
    """
    n = rows.shape[-1]
    rest = [rows[..., j] for j in range(n)]
    factor = [[jnp.zeros(rows.shape[:-2], rows.dtype)] * n for _ in range(n)]
    for j in range(n):
        factor[j][j] = jnp.sqrt(jnp.sum(jnp.square(rest[j]), axis=-1))
        unit = rest[j] / factor[j][j][..., None]
        for k in range(j + 1, n):
            factor[j][k] = jnp.sum(unit * rest[k], axis=-1)
            rest[k] = rest[k] - factor[j][k][..., None] * unit
    return jnp.stack([jnp.stack(row, axis=-1) for row in factor], axis=-2)


def _solve_transposed(
    C: Float[Array, "*batch n n"], b: Float[Array, "*batch n k"]
) -> Float[Array, "*batch n k"]:
    """`x` with `C' x = b` for upper triangular `C`; with few rows for the whole batch at once."""
    n = C.shape[-1]
    if n > _FEW:
        return solve_triangular(C, b, trans=1)
    rows: list[Array] = []
    for j in range(n):
        known = (C[..., i, j, None] * rows[i] for i in range(j))
        rows.append((b[..., j, :] - sum(known, jnp.zeros(()))) / C[..., j, j, None])
    return jnp.stack(rows, axis=-2)
