"""Laws of covariance matrices: what a level's unknown covariance may be, and one made for it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints
from numpyro.distributions.transforms import (
    CorrCholeskyTransform,
    CorrMatrixCholeskyTransform,
    Transform,
    biject_to,
)

from .arrays import as_count, as_positive, is_concrete
from .laws import check_parameters, check_positive_law, law_name
from .messages import short

__all__ = ["LKJCovariance", "check_covariance_law"]

_TINY = 1e-30  # of a standard deviation: where a law is asked for its density at zero


class LKJCovariance(dist.Distribution):
    """A covariance `diag(s) R diag(s)` with standard deviations `s` and an LKJ correlation matrix `R`.

    `p(R)` is proportional to `det(R)^(concentration - 1)` (Lewandowski et al. 2009): 1 is flat over
    correlation matrices, larger values favour weak correlations. The density is that of the matrix, over
    its lower triangle. Samplers vary the logarithms of `s`, or whatever is free on its support, and the
    partial correlations.

    Args:
        dim: the number of rows.
        concentration: of the correlations; a positive number.
        scale: the law of the standard deviations, on positive numbers: of shape `()`, for each one on its
            own, or `(dim,)`. `HalfNormal(1.0)` by default.

    Example:
        >>> cov = LKJCovariance(2, concentration=2.0, scale=dist.HalfNormal(0.5))
        >>> Level("shop", 30, cov=cov)  # intercepts and slopes of shops, correlated, to be learned
        Level('shop', 30)
        >>> cov.sample(jax.random.key(0)).shape
        (2, 2)
    """

    arg_constraints = {"concentration": constraints.positive}  # noqa: RUF012 (NumPyro's own form)
    pytree_data_fields = ("concentration", "scale")
    pytree_aux_fields = ("dim",)

    def __init__(
        self,
        dim: int,
        concentration: Any = 1.0,
        scale: dist.Distribution | None = None,
        *,
        validate_args: bool | None = None,
    ):
        self.dim = as_count(dim, "LKJCovariance dim")
        self.concentration = as_positive(concentration, "LKJCovariance concentration")
        law = dist.HalfNormal(1.0) if scale is None else scale
        if not isinstance(law, dist.Distribution):
            raise TypeError(
                f"LKJCovariance scale is {short(scale)}; expected a NumPyro distribution of the standard "
                "deviations, such as HalfNormal(1.0)"
            )
        check_positive_law(law, [(), (self.dim,)], "LKJCovariance scale")
        each = law if law.shape() else law.expand((self.dim,))
        self.scale = each.to_event(len(each.batch_shape))
        super().__init__((), (self.dim, self.dim), validate_args=validate_args)

    @property
    def support(self) -> constraints.Constraint:
        """Positive definite matrices whose standard deviations `scale` allows."""
        return _Covariances(self.scale.support)

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws of the matrix."""
        key_scale, key_root = jax.random.split(key)
        scale = self.scale.sample(key_scale, sample_shape)
        if self.dim == 1:
            return jnp.square(scale)[..., None]
        law = dist.LKJCholesky(self.dim, self.concentration)
        return _matrix(scale, law.sample(key_root, sample_shape))

    def log_prob(self, value: Any, intermediates: Any = None) -> Array:
        """The log density over the lower triangle of the matrix."""
        scale = jnp.sqrt(jnp.diagonal(value, axis1=-2, axis2=-1))
        return jnp.asarray(self.log_density_of_parts(value) - _log_jacobian(scale))

    def log_density_of_parts(self, value: Any) -> Array:
        """The log density of the standard deviations and correlations of a matrix: of what is declared."""
        scale = jnp.sqrt(jnp.diagonal(value, axis1=-2, axis2=-1))
        density: Any = self.scale.log_prob(scale)
        if self.dim > 1:
            root = jnp.linalg.cholesky(value / (scale[..., :, None] * scale[..., None, :]))
            correlations = dist.LKJ(self.dim, self.concentration, validate_args=False)
            # LKJ would factorise once more: it is a transformed law of the factor.
            base, transform = correlations.base_dist, CorrMatrixCholeskyTransform()
            density += base.log_prob(root) + transform.log_abs_det_jacobian(value, root)
        return density

    def log_density_of_root(self, root: Array) -> Array:
        """`log_density_of_parts` of `root root'`, for a lower triangular root, which may be singular."""
        lengths = jnp.sqrt(jnp.square(root).sum(-1) + _TINY)
        density: Any = self.scale.log_prob(lengths)
        if self.dim > 1:
            shares = jnp.abs(jnp.diagonal(root)) / lengths
            determinant = jnp.log(jnp.maximum(shares, _TINY)).sum()
            density += 2 * (self.concentration - 1) * determinant + self._log_normaliser()
        return jnp.asarray(density)

    def _log_normaliser(self) -> Any:
        """The log density of the correlation matrix that is the identity."""
        return dist.LKJ(self.dim, self.concentration, validate_args=False).log_prob(
            jnp.eye(self.dim)
        )


def _matrix(scale: Any, root: Any) -> Array:
    """`diag(s) L L' diag(s)`."""
    rows = scale[..., :, None] * root
    return rows @ jnp.swapaxes(rows, -1, -2)


def _log_jacobian(scale: Any) -> Array:
    """Of the covariance in the standard deviations and the correlations, whose number is d (d - 1) / 2.

    A variance changes by `2 s_i` with `s_i`, a covariance by `s_i s_j` with the correlation.
    """
    return scale.shape[-1] * (jnp.log(2.0) + jnp.log(scale).sum(-1))


class _Covariances(constraints.Constraint):
    """Positive definite matrices whose standard deviations are in a support of vectors."""

    event_dim = 2

    def __init__(self, scales: Any):
        self.scales = scales

    def __call__(self, x: Any) -> Any:
        scale = jnp.sqrt(jnp.diagonal(x, axis1=-2, axis2=-1))
        return constraints.positive_definite(x) & self.scales(scale)

    def feasible_like(self, prototype: Any) -> Any:
        ones = jnp.zeros(jnp.shape(prototype)[:-1])
        scale = biject_to(self.scales)(ones)
        return jnp.square(scale)[..., None] * jnp.eye(jnp.shape(prototype)[-1])

    def eq(self, other: object, static: bool = False) -> Any:
        return isinstance(other, _Covariances) and self.scales.eq(other.scales, static)

    def tree_flatten(self) -> Any:
        return (self.scales,), (("scales",), {})


class _FromParts(Transform[Any]):
    """From free numbers for the standard deviations, and then for the correlations, to a covariance."""

    def __init__(self, scales: Any):
        self.scales = scales

    @property
    def domain(self) -> Any:
        """What it is made from."""
        return constraints.real_vector

    @property
    def codomain(self) -> Any:
        """What it makes."""
        return _Covariances(self.scales)

    def __call__(self, x: Any) -> Array:
        dim = _rows(x.shape[-1])
        scale = biject_to(self.scales)(x[..., :dim])
        if dim == 1:
            return jnp.square(scale)[..., None]
        return _matrix(scale, CorrCholeskyTransform()(x[..., dim:]))

    def _inverse(self, y: Any) -> Array:
        scale = jnp.sqrt(jnp.diagonal(y, axis1=-2, axis2=-1))
        free = biject_to(self.scales).inv(scale)
        if y.shape[-1] == 1:
            return free
        root = jnp.linalg.cholesky(y / (scale[..., :, None] * scale[..., None, :]))
        return jnp.concatenate([free, CorrCholeskyTransform().inv(root)], axis=-1)

    def log_abs_det_jacobian(self, x: Any, y: Any, intermediates: Any = None) -> Array:
        dim = y.shape[-1]
        scale = jnp.sqrt(jnp.diagonal(y, axis1=-2, axis2=-1))
        total = biject_to(self.scales).log_abs_det_jacobian(x[..., :dim], scale)
        if dim > 1:
            root = CorrCholeskyTransform()(x[..., dim:])
            total += CorrCholeskyTransform().log_abs_det_jacobian(x[..., dim:], root)
            total -= CorrMatrixCholeskyTransform().log_abs_det_jacobian(y, root)
        return total + _log_jacobian(scale)

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        dim = _rows(shape[-1])
        return (*shape[:-1], dim, dim)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (*shape[:-2], shape[-1] * (shape[-1] + 1) // 2)

    def tree_flatten(self) -> Any:
        return (self.scales,), (("scales",), {})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _FromParts) and bool(self.scales.eq(other.scales, static=True))


@biject_to.register(_Covariances)
def _biject_to_covariances(constraint: _Covariances) -> _FromParts:
    return _FromParts(constraint.scales)


def _rows(numbers: int) -> int:
    """How many rows a symmetric matrix has whose triangle holds so many numbers."""
    return (int(np.sqrt(8 * numbers + 1)) - 1) // 2


def check_covariance_law(law: dist.Distribution, dim: int, what: str) -> None:
    """Refuse a law of matrices of another size, or of some that are not positive definite."""
    if law.event_shape != (dim, dim) or law.batch_shape:
        raise ValueError(
            f"{what} ~ {law_name(law)} has batch shape {law.batch_shape} and event shape "
            f"{law.event_shape}; expected () and {(dim, dim)}: one covariance matrix, such as "
            f"LKJCovariance({dim})"
        )
    check_parameters(law, what)
    with jax.ensure_compile_time_eval():
        one = jnp.eye(dim)
        wrong = [-one, one + jnp.triu(jnp.full((dim, dim), 0.5), 1)][: 1 + (dim > 1)]
        support: Any = law.support
        allowed = [support(matrix) for matrix in wrong]
    if any(is_concrete(answer) and np.asarray(answer).all() for answer in allowed):
        raise ValueError(
            f"{what} ~ {law_name(law)} can give matrices that are not symmetric and positive definite; "
            "expected a law of covariances, such as LKJCovariance or Wishart"
        )
