"""Square roots of covariances, and how data shrink them.

A covariance `C = Q Q'` is carried as `Q`, which need not be triangular. `shrink` and `shrink_by_one`
condition a Gaussian on linear observations; neither inverts `C` nor can make it indefinite.
"""

import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular
from jaxtyping import Float

__all__ = ["add_compensated", "shrink", "shrink_by_many", "shrink_by_one", "transpose"]


def transpose(matrix: Float[Array, "*batch d e"]) -> Float[Array, "*batch e d"]:
    """Swap the last two axes."""
    return jnp.swapaxes(matrix, -1, -2)


def shrink_by_one(
    root: Float[Array, "n n"], g: Float[Array, " n"], variance: Float[Array, ""]
) -> tuple[Float[Array, "n n"], Float[Array, " n"], Float[Array, ""]]:
    """Condition `z ~ N(., Q Q')` on `g' z` seen with noise of the given variance, at O(n^2).

    Potter's square-root update: with `w = Q' g` and `t = variance + w'w`, the root moves by
    `-(Q w) w' / (t + sqrt(variance t))`. Returns that step, the covariance `Q w` of `z` with what was
    seen, and the variance `t` of what was seen.
    """
    w = g @ root  # not root.T @ g, which XLA would transpose in memory first
    covariance = root @ w
    total = variance + w @ w
    step = jnp.outer(covariance, w / -(total + jnp.sqrt(variance * total)))
    return step, covariance, total


def shrink_by_many(
    root: Float[Array, "n n"], rows: Float[Array, "c n"], residual: Float[Array, " c"]
) -> tuple[Float[Array, "n n"], Float[Array, " n"], Float[Array, ""]]:
    """Condition `z ~ N(m, Q Q')` on `rows z` seen with unit noise, `residual` off, at O(c n (c + n)).

    Andrews' square-root update: with `W = Q' rows'` and `I + W'W = C C'`, the root moves by
    `-Q W C^{-T} (C + I)^{-1} W'`. `[I; W] = [V_1; V_2] C'` with orthonormal columns, by QR, so that it
    is `-Q V_2 (I + V_1')^{-1} V_2'`: wide priors and rows that repeat one another cost no digits, as they
    would if `I + W'W` were formed. Returns that step, that of the mean, and the log density of the
    residuals.
    """
    identity = jnp.eye(len(rows), dtype=root.dtype)
    V, R = jnp.linalg.qr(jnp.concatenate([identity, (rows @ root).T]))
    sign = jnp.where(jnp.diagonal(R) < 0, -1.0, 1.0).astype(root.dtype)
    V_1, V_2, R = V[: len(rows)] * sign, V[len(rows) :] * sign, R * sign[:, None]
    whitened = solve_triangular(R, residual, trans=1)
    covariance = root @ V_2
    step = covariance @ -solve_triangular(identity + V_1.T, V_2.T, lower=True)
    log_density = -0.5 * (whitened @ whitened + len(rows) * jnp.log(2 * jnp.pi))
    return step, covariance @ whitened, log_density - jnp.log(jnp.diagonal(R)).sum()


def shrink(
    root: Float[Array, "*batch n n"], precision: Float[Array, "*batch n n"]
) -> tuple[Float[Array, "*batch n n"], Float[Array, "*batch n n"]]:
    """Condition `z ~ N(., Q Q')` on data of the given precision matrix, singular or not, at O(n^3).

    With `I + Q' precision Q = C C'`, which is never singular, the new root is `Q C^{-T}`. Returns it
    and `C`, whose determinant is that of the old covariance's root over the new one's.
    """
    identity = jnp.eye(root.shape[-1], dtype=root.dtype)
    chol = jnp.linalg.cholesky(identity + transpose(root) @ precision @ root)
    return transpose(solve_triangular(chol, transpose(root), lower=True)), chol


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
