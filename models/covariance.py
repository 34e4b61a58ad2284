"""Covariances of a level, in any of the forms a user may write.

With `size` vectors of `dim` numbers a covariance is a variance (), a diagonal (dim,), one matrix for
all (dim, dim), a matrix each (size, dim, dim) or, for a level without parents, the joint covariance
(size * dim, size * dim) of all its numbers, the paper's `Sigma_Psi`. Forms stay as small as they were
written: a variance shared by a million vectors is one number.

A user writes arrays; `as_covariance` makes an operator of any of them, and everything else asks that.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular
from jaxtyping import Float

from .arrays import is_concrete

__all__ = [
    "Covariance",
    "Joint",
    "Kronecker",
    "Precision",
    "as_covariance",
    "check_covariance",
    "check_positive_definite",
    "variance_of_each",
]

# Asymmetry of a matrix that float32 arithmetic may leave behind, relative to its largest entry.
_ROUNDING = 1e-5


def _least_variance(dtype: Any) -> float:
    """What stands for a variance of zero: its inverse has a finite square."""
    return float(jnp.finfo(dtype).tiny) ** 0.42


class Precision(eqx.Module):
    """`Lambda_i`, the inverse of each vector's covariance, as small as it was declared.

    Attributes:
        values: () or (d, 1), to multiply with; (d, d, 1) or (d, d, K), matrices, vectors last.
    """

    values: Array

    @property
    def _are_matrices(self) -> bool:
        return self.values.ndim == 3

    def weigh(self, v: Float[Array, "d K"]) -> Float[Array, "d K"]:
        """`Lambda_i v_i` for every vector."""
        if not self._are_matrices:
            return self.values * v
        if self.values.shape[-1] == 1:
            return self.values[:, :, 0] @ v
        # A chain of products and sums, as in `linear_model.contract`, in one pass over memory.
        return sum((self.values[i] * v[i] for i in range(1, len(v))), self.values[0] * v[0])

    def weigh_rows(self, matrices: Float[Array, "K d e"]) -> Float[Array, "K d e"]:
        """`Lambda_i A_i` for every vector, vectors first."""
        if not self._are_matrices:
            return self.values * matrices
        return jnp.moveaxis(self.values, -1, 0) @ matrices

    def select(self, i: Array) -> "Precision":
        """That of one vector."""
        own = self._are_matrices and self.values.shape[-1] > 1
        return Precision(self.values[..., i][..., None] if own else self.values)


class Covariance(eqx.Module):
    """The covariance of a level's vectors given their parents; here, matrices in `values`.

    Attributes:
        is_diagonal: whether it is a variance or a diagonal, shared by all vectors.
        is_own: whether every vector has a matrix of its own.
        is_joint: whether it ties all vectors of the level together.
    """

    values: Array
    dim: int = eqx.field(static=True)
    is_diagonal: ClassVar[bool] = False
    is_own: ClassVar[bool] = False
    is_joint: ClassVar[bool] = False
    form: ClassVar[str]

    def matrices(self) -> Float[Array, "*batch n n"]:
        """The matrix form: (dim, dim), (size, dim, dim) or the joint one."""
        return self.values

    def scale_tril(self) -> Float[Array, "*batch n n"]:
        """The lower Cholesky factor of the matrix form."""
        return jnp.linalg.cholesky(self.values)

    def factors(self) -> tuple[Array | None, Array]:
        """`scale_tril` as a Kronecker product, of a root over the vectors, or None, and one within each."""
        return None, self.scale_tril()

    def roots(self, size: int, *, of_precision: bool = False) -> Float[Array, "size d d"]:
        """A square root of the covariance of each vector on its own.

        Of a joint covariance that is the root of a diagonal block or, with `of_precision`, of the
        inverse of a diagonal block of the joint precision.
        """
        return jnp.broadcast_to(self.scale_tril(), (size, self.dim, self.dim))

    def joint_root(self, size: int) -> Float[Array, "size d n"]:
        """A square root of the covariance of all vectors together, by rows."""
        identity = jnp.eye(size, dtype=self.values.dtype)
        blocks = jnp.einsum("kde,kl->kdle", self.roots(size), identity)
        return blocks.reshape(size, self.dim, -1)

    def spread(self) -> tuple[Float[Array, "d d _"], Precision]:
        """A root and the precision of each vector, vectors last, or a last axis of one for all."""
        tril = self.scale_tril().reshape(-1, self.dim, self.dim)
        identity = jnp.broadcast_to(jnp.eye(self.dim, dtype=tril.dtype), tril.shape)
        inverse = solve_triangular(tril, identity, lower=True)
        precision = jnp.swapaxes(inverse, -1, -2) @ inverse
        return jnp.moveaxis(tril, 0, -1), Precision(jnp.moveaxis(precision, 0, -1))

    def describe(self) -> str:
        """The form in a few words."""
        return self.form


class Diagonal(Covariance):
    """A variance () or a diagonal (dim,), the same for all vectors."""

    is_diagonal = True
    form = "diagonal cov"

    def matrices(self) -> Float[Array, "d d"]:
        return jnp.diag(jnp.broadcast_to(self.values, (self.dim,)))

    def scale_tril(self) -> Float[Array, "d d"]:
        return jnp.diag(jnp.sqrt(jnp.broadcast_to(self.values, (self.dim,))))

    def spread(self) -> tuple[Float[Array, "d d 1"], Precision]:
        # A variance of zero is one so small that rounding does not see it: what is known of a vector
        # given its parents is kept by its precision.
        values = jnp.where(self.values > 0, self.values, _least_variance(self.values.dtype))
        shared = values if values.ndim == 0 else values[:, None]
        return Diagonal(values, self.dim).scale_tril()[..., None], Precision(1.0 / shared)

    def describe(self) -> str:
        return f"cov {float(self.values):.3g}" if self.values.ndim == 0 else self.form


class Shared(Covariance):
    """One matrix (dim, dim) for all vectors."""

    form = "full cov"


class Own(Covariance):
    """A matrix for each vector, (size, dim, dim)."""

    is_own = True
    form = "cov per vector"


class Joint(Covariance):
    """The covariance (size * dim, size * dim) of all numbers of the level."""

    is_joint = True
    form = "joint cov"

    def roots(self, size: int, *, of_precision: bool = False) -> Float[Array, "size d d"]:
        matrix = jnp.linalg.inv(self.values) if of_precision else self.values
        blocks = jnp.einsum("ldle->lde", matrix.reshape(size, self.dim, size, self.dim))
        return jnp.linalg.cholesky(jnp.linalg.inv(blocks) if of_precision else blocks)

    def joint_root(self, size: int) -> Float[Array, "size d n"]:
        return self.scale_tril().reshape(size, self.dim, size * self.dim)


class Kronecker(Covariance):
    """A kernel over the vectors times the covariance of one: `cov(z_k, z_l) = C_kl V`.

    Attributes:
        values: `V`, (), (dim,) or (dim, dim).
        across: (size, size), the lower Cholesky factor of `C`.
        kernel: the kernel in a few words.
    """

    across: Array
    kernel: str = eqx.field(static=True)
    is_joint = True
    form = "joint cov"

    def _tril(self) -> Float[Array, "d d"]:
        """The root of `V`."""
        return as_covariance(self.values, 1, self.dim).scale_tril()

    def factors(self) -> tuple[Array | None, Array]:
        return self.across, self._tril()

    def matrices(self) -> Float[Array, "n n"]:
        return jnp.kron(
            self.across @ self.across.T, as_covariance(self.values, 1, self.dim).matrices()
        )

    def scale_tril(self) -> Float[Array, "n n"]:
        return jnp.kron(self.across, self._tril())

    def roots(self, size: int, *, of_precision: bool = False) -> Float[Array, "size d d"]:
        # Diagonal blocks of the covariance are `C_kk V`, those of the precision `(C^-1)_kk V^-1`.
        root = self.across
        if of_precision:
            root = solve_triangular(root, jnp.eye(size, dtype=root.dtype), lower=True).T
        lengths = jnp.linalg.norm(root, axis=1)
        share = 1 / lengths if of_precision else lengths
        return share[:, None, None] * self._tril()

    def joint_root(self, size: int) -> Float[Array, "size d n"]:
        return self.scale_tril().reshape(size, self.dim, size * self.dim)

    def describe(self) -> str:
        return f"{as_covariance(self.values, 1, self.dim).describe()}, {self.kernel}"


def as_covariance(cov: Array, size: int, dim: int) -> Covariance:
    """The operator of a covariance: the only place that tells the forms apart."""
    if cov.ndim <= 1:
        return Diagonal(cov, dim)
    if cov.ndim == 3:
        return Own(cov, dim)
    joint = cov.shape[-1] == size * dim and size > 1
    return Joint(cov, dim) if joint else Shared(cov, dim)


def variance_of_each(variance: Float[Array, "*shape"], size: int, dim: int) -> Array:
    """The covariance, in one of its forms, of variances (), (dim,), (size, 1) or (size, dim)."""
    if variance.ndim < 2:
        return variance
    each = jnp.broadcast_to(variance, (size, dim))
    return each[..., None] * jnp.eye(dim, dtype=variance.dtype)


def check_covariance(
    cov: Array, size: int, dim: int, *, has_parents: bool, what: str, may_be_zero: bool = True
) -> None:
    """Refuse a covariance of the wrong shape or, where its values are known, not positive definite."""
    joint = (size * dim, size * dim)
    forms = [(), (dim,), (dim, dim), (size, dim, dim), *([] if has_parents else [joint])]
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
        check_positive_definite(cov, what, may_be_zero=may_be_zero)


def check_positive_definite(values: Array, what: str, *, may_be_zero: bool = False) -> None:
    """Refuse variances that are not positive, and matrices that are not symmetric and positive definite."""
    cov, precision = np.asarray(values, dtype=np.float64), jnp.finfo(values.dtype)
    if cov.ndim <= 1:
        if not may_be_zero and (cov <= 0).any():
            raise ValueError(
                f"{what} holds the variance {cov.min():g}; every variance must be positive"
            )
        if (cov < 0).any():
            raise ValueError(
                f"{what} holds the variance {cov.min():g}; every variance must be positive, or zero where "
                "vectors are exactly what their parents and mean say"
            )
        return
    asymmetry = np.abs(cov - np.swapaxes(cov, -1, -2)).max()
    if asymmetry > _ROUNDING * np.abs(cov).max():
        raise ValueError(
            f"{what} is not symmetric (entries differ by up to {asymmetry:g}); "
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
