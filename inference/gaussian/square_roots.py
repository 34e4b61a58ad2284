"""Square roots of covariances, and how data shrink them.

A covariance `C = Q Q'` is carried as `Q`, which need not be triangular. `shrink_by_one`
conditions a Gaussian on a linear observation, `exchange_rows` puts others in its place; neither
inverts `C`, forms a precision matrix, or can make `C` indefinite.
"""

import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular
from jaxtyping import Float

__all__ = [
    "add_compensated",
    "downdate",
    "exchange_rows",
    "shrink_by_one",
    "solve_rows",
    "transpose",
    "triangle",
]


def transpose(matrix: Float[Array, "*batch d e"]) -> Float[Array, "*batch e d"]:
    """Swap the last two axes."""
    return jnp.swapaxes(matrix, -1, -2)


def shrink_by_one(
    root: Float[Array, "n n"], g: Float[Array, " n"], variance: Float[Array, ""]
) -> tuple[Float[Array, "n n"], Float[Array, " n"], Float[Array, ""]]:
    """Condition `z ~ N(., Q Q')` on `g' z` seen with noise of the given variance, at O(n^2).

    Potter's square-root update: with `w = Q' g` and `t = variance + w'w`, the root moves by
    `-(Q w) w' / (t + sqrt(variance t))`. Returns that step, the covariance `Q w` of `z` with what was
    seen, and the variance `t` of what was seen. A negative variance, below `-w'w`, takes certainty
    away: the square root then has the sign of `t`.
    """
    w = g @ root  # not root.T @ g, which XLA would transpose in memory first
    covariance = root @ w
    total = variance + w @ w
    spread = jnp.copysign(jnp.sqrt(variance * total), total)
    step = jnp.outer(covariance, w / -(total + spread))
    return step, covariance, total


def downdate(rows: Float[Array, "*batch c n"]) -> tuple[Array, Array]:
    """A root `K` with `K'K = I - rows' rows`, for rows that are part of a unit precision; and `K^{-T}`.

    What rounding leaves below an ulp of one counts as one ulp: new rows stand where these stood.
    """
    identity = jnp.eye(rows.shape[-1], dtype=rows.dtype)
    left, V = jnp.linalg.eigh(identity - transpose(rows) @ rows)
    sd = jnp.sqrt(jnp.maximum(left, jnp.finfo(rows.dtype).eps))[..., None]
    return sd * transpose(V), transpose(V) / sd


def triangle(
    matrix: Float[Array, "*batch c n"], column: Float[Array, "*batch c"]
) -> tuple[Float[Array, "*batch n n"], Float[Array, "*batch n"]]:
    """`U`, `b` with `|matrix v - column|^2 = |U v - b|^2` but for a constant: U triangular, by QR."""
    n = matrix.shape[-1]
    factor = jnp.linalg.qr(jnp.concatenate([matrix, column[..., None]], axis=-1), mode="r")
    return factor[..., :n, :n], factor[..., :n, n]


def solve_rows(U: Float[Array, "*batch n n"], b: Float[Array, "*batch n"]) -> Array:
    """`U^{-1} b` for upper triangular `U`."""
    return solve_triangular(U, b[..., None])[..., 0]


def exchange_rows(
    root: Float[Array, "n n"],
    old: tuple[Float[Array, "c n"], Float[Array, " c"]],
    new: tuple[Float[Array, "c n"], Float[Array, " c"]],
) -> tuple[Float[Array, "n n"], Float[Array, " n"]]:
    """Put `new` rows and residuals in the place of `old` ones that `z ~ N(m, Q Q')` was conditioned on.

    Residuals are from `m`. Both are rows of unit noise. With `W = Q' [old; new]'`
    and an orthonormal basis `O` of it, nothing moves outside `O`, and inside it the new precision is
    `I - old + new`: at O(n^2 c). Returns the steps of the root and of the mean.
    """
    c = len(old[0])
    basis, inside = jnp.linalg.qr((jnp.concatenate([old[0], new[0]]) @ root).T)
    before, after = inside[:, :c].T, inside[:, c:].T
    kept, lift = downdate(before)
    column = jnp.concatenate([lift @ -(old[1] @ before), new[1]])
    U, b = triangle(jnp.concatenate([kept, after]), column)
    U, b = (part * jnp.where(jnp.diagonal(U) < 0, -1.0, 1.0)[:, None] for part in (U, b[:, None]))
    identity = jnp.eye(len(U), dtype=root.dtype)
    covariance = root @ basis
    change = solve_triangular(U, identity - U) @ basis.T
    return covariance @ change, covariance @ solve_rows(U, b[:, 0])


def add_compensated(
    total: Float[Array, "*shape"], rounding: Float[Array, "*shape"], step: Float[Array, "*shape"]
) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """`total + step`, and what rounding has kept from being added so far (Kahan's summation).

    A sum of very many steps, each soon too small to register in float32, keeps all its digits. Arrays
    are flat on the way, so that the compiler takes several numbers at a time, however short the rows.
    """
    shape = total.shape
    total, rounding, step = total.ravel(), rounding.ravel(), step.ravel()
    step = step + rounding
    new = total + step
    return new.reshape(shape), (step - (new - total)).reshape(shape)
