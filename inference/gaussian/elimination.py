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
    e = solve_triangular(C, rows.e[..., None], trans=1)[..., 0]
    half = jnp.log(jnp.abs(jnp.diagonal(C, axis1=-2, axis2=-1))).sum()
    return Rows(solve_triangular(C, rows.A, trans=1), e), half


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
    """Upper triangular `C` with `C' C = I + B' B`."""
    n = B.shape[-1]
    identity = jnp.broadcast_to(jnp.eye(n, dtype=B.dtype), (*B.shape[:-2], n, n))
    return jnp.linalg.qr(jnp.concatenate([B, identity], axis=-2), mode="r")
