"""Covariances of a level, in any of the forms a user may write, and their square roots.

With `size` vectors of `dim` numbers a covariance is a variance (), a diagonal (dim,), one matrix for
all (dim, dim), a matrix each (size, dim, dim) or, for a level without parents, the joint covariance
(size * dim, size * dim) of all its numbers, the paper's `Sigma_Psi`. Forms stay as small as they were
written: a variance shared by a million vectors is one number.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from .arrays import is_concrete

__all__ = ["check_covariance", "is_diagonal", "is_joint", "matrices", "scale_tril"]

# Asymmetry of a matrix that float32 arithmetic may leave behind, relative to its largest entry.
_ROUNDING = 1e-5


def is_diagonal(cov: Array) -> bool:
    """Whether `cov` is a variance or a diagonal, shared by all vectors of the level."""
    return cov.ndim <= 1


def is_joint(cov: Array, size: int, dim: int) -> bool:
    """Whether `cov` ties all vectors of the level together."""
    return cov.ndim == 2 and cov.shape[-1] == size * dim and size > 1


def scale_tril(cov: Array, dim: int) -> Float[Array, "*batch n n"]:
    """Lower Cholesky factor in matrix form: (dim, dim), (size, dim, dim) or the joint one."""
    if is_diagonal(cov):
        return jnp.diag(jnp.sqrt(jnp.broadcast_to(cov, (dim,))))
    return jnp.linalg.cholesky(cov)


def matrices(cov: Array, dim: int) -> Float[Array, "*batch n n"]:
    """The covariance in matrix form: (dim, dim), (size, dim, dim) or the joint one."""
    return jnp.diag(jnp.broadcast_to(cov, (dim,))) if is_diagonal(cov) else cov


def check_covariance(cov: Array, size: int, dim: int, *, has_parents: bool, what: str) -> None:
    """Refuse a covariance of the wrong shape or, where its values are known, not positive definite."""
    joint = (size * dim, size * dim)
    forms = [(), (dim,), (dim, dim), (size, dim, dim)]
    if not has_parents:
        forms.append(joint)
    if cov.shape not in forms:
        if cov.shape == joint:
            raise ValueError(
                f"{what} has shape {joint}: a joint covariance of all vectors, which only a level "
                f"without parents takes; expected a variance, ({dim},), {(dim, dim)} or "
                f"{(size, dim, dim)}"
            )
        listed = ", ".join(map(str, dict.fromkeys(forms)))
        raise ValueError(
            f"{what} has shape {cov.shape}; expected one of {listed} "
            f"(this level has {size} vectors, dim is {dim})"
        )
    if is_concrete(cov):
        _check_positive_definite(np.asarray(cov, dtype=np.float64), jnp.finfo(cov.dtype), what)


def _check_positive_definite(cov: np.ndarray, precision: Any, what: str) -> None:
    if cov.ndim <= 1:
        if (cov <= 0).any():
            raise ValueError(
                f"{what} holds the variance {cov.min():g}; every variance must be positive"
            )
        return
    transposed = np.swapaxes(cov, -1, -2)
    if (np.abs(cov - transposed) > _ROUNDING * np.abs(cov).max()).any():
        raise ValueError(
            f"{what} is not symmetric (entries differ by up to {np.abs(cov - transposed).max():g}); "
            "pass a symmetric matrix, for instance (cov + cov.T) / 2"
        )
    eigenvalues = np.linalg.eigvalsh(cov)
    lowest, highest = eigenvalues[..., 0], eigenvalues[..., -1]
    if (lowest <= highest * float(precision.eps)).any():
        raise ValueError(
            f"{what} is not positive definite in {precision.dtype} (smallest eigenvalue "
            f"{lowest.min():g}, largest {highest.max():g}); pass a covariance whose every direction "
            "has some variance"
        )
