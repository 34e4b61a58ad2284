"""Kernels: how the vectors of a level are correlated with one another, as a function of few numbers.

A level without parents may declare a kernel `C` over its vectors beside the covariance `V` of one of
them: then `cov(z_k, z_l) = C_kl V`, which is `kron(C, V)` of all its numbers in the order vector by vector.
The numbers of a kernel may be known, or NumPyro distributions, to be learned; so may `V`.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import solve_triangular
from jaxtyping import Float
from numpyro.distributions import Distribution

from .arrays import as_numbers, is_concrete
from .covariance import check_positive_definite
from .declaration import Declaration
from .laws import check_law_within, law_name
from .messages import short

__all__ = ["AR1", "GaussianProcess", "Graph", "Kernel", "Relationship"]

SMOOTHNESS = (0.5, 1.5, 2.5, float("inf"))


class Kernel(Declaration):
    """How the vectors of a level are correlated; subclass it to add one.

    A subclass is a declaration with its numbers as fields, each a number or a NumPyro distribution: what
    is a distribution is learned, at the site `<level>_<field>`. `between` has to give a positive definite
    matrix whatever they are.

    Example:
        >>> class Exchangeable(Kernel):
        ...     share: float
        ...     def between(self, size):
        ...         return self.share * jnp.ones((size, size)) + (1 - self.share) * jnp.eye(size)
        >>> list(Exchangeable(dist.Uniform(0, 1)).unknowns)
        ['share']
    """

    @abstractmethod
    def between(self, size: int) -> Float[Array, "size size"]:
        """`C`, of `size` vectors, where its numbers are known."""

    def root(self, size: int) -> Float[Array, "size size"]:
        """The lower Cholesky factor of `between`."""
        return jnp.linalg.cholesky(self.between(size))

    def check(self, size: int, here: str) -> None:
        """Refuse a level of another size than the kernel is made for."""

    @property
    def unknowns(self) -> dict[str, Distribution]:
        """Argument's name -> law of the numbers that are learned."""
        given = self.arguments().items()
        return {name: value for name, value in given if isinstance(value, Distribution)}

    def given(self, values: Mapping[str, Any]) -> "Kernel":
        """The kernel with known numbers in place of those that are learned."""
        return self.remade(**values) if values else self

    def described(self, **also: Any) -> str:
        """The kernel in a few words: its numbers, or their laws."""
        parts = [f"{name} {value}" for name, value in also.items()]
        for name, value in self.arguments().items():
            if isinstance(value, Distribution):
                parts.append(f"{name} ~ {law_name(value)}")
            elif name not in also and np.ndim(value) == 0 and is_concrete(value):
                parts.append(f"{name}={float(value):g}")
        return f"{type(self).__name__}({', '.join(parts)})"

    def __repr__(self) -> str:
        return self.described()


def as_parameter(
    value: Any,
    what: str,
    low: float,
    high: float = float("inf"),
    shapes: tuple[tuple[int, ...], ...] = ((),),
) -> Any:
    """A number of a kernel, or its law, checked to be between two ends."""
    if isinstance(value, Distribution):
        check_law_within(value, list(shapes), low, high, what)
        return value
    number = as_numbers(value, what)
    if number.shape not in shapes:
        raise ValueError(
            f"{what} has shape {number.shape}; expected {' or '.join(map(str, shapes))}"
        )
    # NumPy's: inside `jit` a comparison of JAX's would be staged.
    inside = not is_concrete(number) or _all_between(np.asarray(number), low, high)
    if not inside:
        raise ValueError(
            f"{what} is {short(number.tolist())}; expected more than {low:g}"
            + ("" if np.isinf(high) else f" and less than {high:g}")
        )
    return number


def _all_between(numbers: np.ndarray, low: float, high: float) -> bool:
    return bool(((numbers > low) & (numbers < high)).all())


class AR1(Kernel):
    """Vectors in order, each like the one before: `C_kl = correlation^|k - l|`.

    A stationary autoregression of order one: seasons, weeks, ages. Its variance is that of the level. For
    times that are not evenly spaced use `GaussianProcess` with smoothness 0.5.

    Args:
        correlation: of neighbours, between -1 and 1; or its distribution.

    Example:
        >>> week = Level("week", 52, kernel=AR1(dist.Uniform(0, 1)), scale=dist.HalfNormal(1.0))
        >>> week.site_names()
        ['week', 'week_plate', 'week_scale', 'week_correlation', 'week_base']
    """

    correlation: Any

    def __post_init__(self):
        self.correlation = as_parameter(self.correlation, "AR1 correlation", -1.0, 1.0)

    def between(self, size: int) -> Float[Array, "size size"]:
        places = np.arange(size)
        return jnp.power(self.correlation, np.abs(places[:, None] - places))

    def root(self, size: int) -> Float[Array, "size size"]:
        # `z_k = rho z_{k-1} + sqrt(1 - rho^2) eps_k`, written out.
        places = np.arange(size)
        powers = jnp.power(self.correlation, np.maximum(places[:, None] - places, 0))
        own = jnp.where(places > 0, jnp.sqrt(1 - jnp.square(self.correlation)), 1.0)
        return jnp.tril(powers) * own


class Graph(Kernel):
    """Neighbours on a graph are alike: a conditional autoregression (CAR), `C = (D - strength W)^{-1}`.

    Given all others a vector is centred on `strength` times the mean of its neighbours, weighted by `W`,
    and its variance is that of the level divided by the sum `D_kk` of its weights (Besag 1974).

    Args:
        adjacency: (size, size), `W`: symmetric, not negative, zero on the diagonal; 1 for neighbours. Every
            vector needs a neighbour.
        strength: between -1 and 1; or its distribution. At zero neighbours have nothing in common.

    Example:
        >>> path = np.eye(4, k=1) + np.eye(4, k=-1)  # four districts along a road
        >>> Level("district", 4, kernel=Graph(path, strength=0.9)).kernel
        Graph(4 vertices, strength=0.9)
    """

    adjacency: Any
    strength: Any

    def __post_init__(self):
        self.adjacency = as_numbers(self.adjacency, "Graph adjacency")
        self.strength = as_parameter(self.strength, "Graph strength", -1.0, 1.0)
        _check_adjacency(self.adjacency)

    def between(self, size: int) -> Float[Array, "size size"]:
        root = self.root(size)
        return root @ root.T

    def root(self, size: int) -> Float[Array, "size size"]:
        # The factor of the precision with its rows in reverse order: its inverse, transposed and put
        # in order again, is the lower factor of the covariance.
        precision = jnp.diag(self.adjacency.sum(1)) - self.strength * self.adjacency
        reverse = jnp.linalg.cholesky(precision[::-1, ::-1])
        identity = jnp.eye(size, dtype=reverse.dtype)
        return solve_triangular(reverse, identity, lower=True).T[::-1, ::-1]

    def check(self, size: int, here: str) -> None:
        _check_rows(self.adjacency, size, f"{here}: Graph adjacency", square=True)

    def __repr__(self) -> str:
        return self.described().replace("(", f"({len(self.adjacency)} vertices, ", 1)


class GaussianProcess(Kernel):
    """Vectors at near coordinates are alike: a stationary Gaussian process with a Matérn kernel.

    With the distance `r` in lengthscales, `C(r)` is `exp(-r)` for smoothness 0.5, `(1 + a) exp(-a)` with
    `a = sqrt(3) r` for 1.5, `(1 + a + a^2 / 3) exp(-a)` with `a = sqrt(5) r` for 2.5, and `exp(-r^2 / 2)`
    for infinity.

    Args:
        coordinates: (size,) or (size, p): where each vector is.
        lengthscale: the distance at which vectors differ much: a positive number, (p,) of them, one for
            each coordinate, or a distribution of either.
        smoothness: 0.5, 1.5, 2.5 or infinity.
        nugget: a variance of each vector's own, relative to that of the process; or its distribution. It
            keeps the matrix positive definite where coordinates are close.

    Example:
        >>> ages = GaussianProcess([20.0, 30.0, 50.0], lengthscale=dist.LogNormal(3.0, 0.5))
        >>> ages
        GaussianProcess(3 points, lengthscale ~ LogNormal, smoothness=2.5, nugget=0.0001)
    """

    coordinates: Any
    lengthscale: Any
    smoothness: float = eqx.field(default=2.5, static=True)
    nugget: Any = 1e-4

    def __post_init__(self):
        self.coordinates = as_numbers(self.coordinates, "GaussianProcess coordinates")
        if self.coordinates.ndim not in (1, 2) or not self.coordinates.size:
            raise ValueError(
                f"GaussianProcess coordinates have shape {self.coordinates.shape}; expected (size,) or "
                "(size, p), a row for each vector"
            )
        if isinstance(self.smoothness, bool) or self.smoothness not in SMOOTHNESS:
            raise ValueError(
                f"GaussianProcess smoothness is {short(self.smoothness)}; expected one of "
                f"{', '.join(map(str, SMOOTHNESS))}"
            )
        self.smoothness = float(self.smoothness)
        shapes = ((), *([self.coordinates.shape[1:]] if self.coordinates.ndim == 2 else []))
        what = "GaussianProcess lengthscale"
        self.lengthscale = as_parameter(self.lengthscale, what, 0.0, shapes=shapes)
        self.nugget = as_parameter(self.nugget, "GaussianProcess nugget", 0.0)

    def between(self, size: int) -> Float[Array, "size size"]:
        points = self.coordinates.reshape(len(self.coordinates), -1)
        away = (points[:, None] - points) / self.lengthscale
        squares = jnp.square(away).sum(-1)
        # The root has no derivative at zero, and the kernel has one.
        apart = squares > 0
        r = jnp.where(apart, jnp.sqrt(jnp.where(apart, squares, 1.0)), 0.0)
        a = np.sqrt(2 * self.smoothness) * r if np.isfinite(self.smoothness) else r
        like = {
            0.5: lambda: jnp.exp(-a),
            1.5: lambda: (1 + a) * jnp.exp(-a),
            2.5: lambda: (1 + a + jnp.square(a) / 3) * jnp.exp(-a),
        }.get(self.smoothness, lambda: jnp.exp(-squares / 2))
        return like() + self.nugget * jnp.eye(len(points))

    def check(self, size: int, here: str) -> None:
        _check_rows(self.coordinates, size, f"{here}: GaussianProcess coordinates", square=False)

    def __repr__(self) -> str:
        return self.described().replace("(", f"({len(self.coordinates)} points, ", 1)


class Relationship(Kernel):
    """A known matrix `C`, such as the kinship of animals by their pedigree, times the level's variance.

    Args:
        matrix: (size, size), symmetric and positive definite.

    Example:
        >>> cousins = Relationship([[1.0, 0.125], [0.125, 1.0]])
        >>> Level("animal", 2, kernel=cousins, scale=dist.HalfNormal(1.0)).unknowns({}, dim=1).keys()
        dict_keys(['animal_scale'])
    """

    matrix: Any

    def __post_init__(self):
        self.matrix = as_numbers(self.matrix, "Relationship matrix")
        _check_rows(self.matrix, None, "Relationship matrix", square=True)
        if is_concrete(self.matrix):
            check_positive_definite(self.matrix, "Relationship matrix")

    def between(self, size: int) -> Float[Array, "size size"]:
        return self.matrix

    def check(self, size: int, here: str) -> None:
        _check_rows(self.matrix, size, f"{here}: Relationship matrix", square=True)

    def __repr__(self) -> str:
        return f"Relationship({len(self.matrix)} x {len(self.matrix)})"


def _check_rows(array: Any, size: int | None, what: str, *, square: bool) -> None:
    expected = (size or len(array) if array.ndim else 0,) * (2 if square else 1)
    if array.shape[: len(expected)] != expected or (square and array.ndim != 2):
        want = f"{expected}" if size else "a square matrix"
        want = want if square else f"{size} rows"
        raise ValueError(
            f"{what} has shape {array.shape}; expected {want}, one row for each vector"
        )


def _check_adjacency(adjacency: Array) -> None:
    _check_rows(adjacency, None, "Graph adjacency", square=True)
    if not is_concrete(adjacency):
        return
    numbers = np.asarray(adjacency)
    if not np.array_equal(numbers, numbers.T):
        i, j = np.argwhere(numbers != numbers.T)[0]
        raise ValueError(
            f"Graph adjacency is not symmetric: {numbers[i, j]:g} at {(int(i), int(j))} and "
            f"{numbers[j, i]:g} at {(int(j), int(i))}; neighbours are each other's"
        )
    if (numbers < 0).any() or np.diagonal(numbers).any():
        raise ValueError(
            "Graph adjacency holds negative numbers, or some on its diagonal; expected 1 (or a positive "
            "weight) for neighbours, and 0 elsewhere"
        )
    alone = np.flatnonzero(numbers.sum(1) == 0)
    if alone.size:
        raise ValueError(
            f"Graph adjacency: vertex {int(alone[0])} has no neighbours, and so no variance; connect it, "
            "or give it a level of its own"
        )
