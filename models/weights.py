"""Weights: how strongly the vectors of a level depend on those of a parent level.

A level of `size` vectors and a parent of `P` vectors are tied by one of

- numbers `b_il` of shape (size, P) (Aouali et al. 2023, Eq. 2): `Scalars`;
- matrices `C_il` of shape (size, P, dim, dim) (Appendix E.2): `Matrices`;
- numbers for `m` of the `P` parents of each vector, by index and value, or one value for all: `Sparse`;
- a NumPyro distribution over any of these, weights that are unknown and learned: `Learned`, or a
  `Sparse` whose values are a distribution.

A user writes arrays, `Sparse` and distributions; `as_operator` makes an operator of any of them.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int
from numpyro.distributions import Distribution

from .arrays import as_array, as_count, as_integers, as_numbers, is_concrete, is_known
from .declaration import Declaration
from .laws import as_one_event, check_parameters, law_name
from .operators import Matrices, NumberWeights, Operator, Scalars, join_rows

__all__ = [
    "Learned",
    "Sparse",
    "Weights",
    "arrows_to",
    "as_operator",
    "as_weights",
    "has_single_arrows",
    "in_form",
    "join_rows",
    "shape_of",
    "single_arrows_of",
    "weights_shape",
]


class Sparse(NumberWeights, Declaration):
    """Weights of few parents out of many, never stored densely.

    Vector `i` has the parents `indices[i]` with the weights `values[i]`. A row with fewer parents
    than the others is padded with zero values (at any index). A parent may appear in a row once.
    `values` may also be a NumPyro distribution: weights to learn on a known pattern. Where all are the
    same, as in a tree, one number says so: then the indices are all that is stored.

    Attributes:
        indices: (size, m) positions in the parent level.
        values: (size, m) weights, one number for all of them, which is 1 by default, or a distribution
            that broadcasts to that shape.
        num_parents: the size of the parent level; by default the largest index plus one. Only the
            models declared by name (`linear`, `glm`, ...) read it: a `Level` knows its parents' sizes.

    Example:
        >>> from mixts.models import Sparse, linear
        >>> genres = Sparse([[0, 2], [1, 2]], [[0.5, 0.5], [1.0, 0.0]], num_parents=3)
        >>> genres
        Sparse(2 of 3 parents for each of 2 vectors)
        >>> linear(genres, dim=2).num_actions
        2
    """

    indices: Any
    values: Any = 1.0
    num_parents: int | None = eqx.field(default=None, static=True)

    def __post_init__(self):
        self.indices = as_integers(self.indices, "Sparse indices")
        if self.indices.ndim != 2:
            raise ValueError(
                f"Sparse indices have shape {self.indices.shape}; expected (size, m), "
                "a row of parent positions for each vector of the level"
            )
        if not self.is_learned:
            self.values = as_numbers(self.values, "Sparse values")
            if self.values.shape not in ((), self.indices.shape):
                raise ValueError(
                    f"Sparse values have shape {self.values.shape} and indices "
                    f"{self.indices.shape}; expected the same shape (size, m), or one number for all"
                )
        if self.indices.shape[1] > 1 and is_concrete(self.indices, self.values):
            used = None if self.is_learned else np.asarray(self.written_out) != 0
            _check_no_repeats(np.asarray(self.indices), used)
        if self.num_parents is not None:
            self.num_parents = as_count(self.num_parents, "Sparse num_parents")
            as_integers(self.indices, "Sparse indices", below=self.num_parents)
        elif is_concrete(self.indices):
            self.num_parents = int(np.asarray(self.indices).max(initial=0)) + 1
        else:
            raise ValueError(
                "Sparse: num_parents is needed where indices are traced (inside jit or vmap); "
                "pass num_parents=<size of the parent level>"
            )

    @property
    def is_learned(self) -> bool:
        return isinstance(self.values, Distribution)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.indices.shape

    @property
    def written_out(self) -> Float[Array, "size m"]:
        """The weight of every arrow."""
        return jnp.broadcast_to(self.values, self.shape)

    def mix(self, parents: Float[Array, "P d"]) -> Float[Array, "size d"]:
        return jnp.einsum("km,kmd->kd", self.written_out, parents[self.indices])

    def numbers_of(self, i: Int[Array, ""]) -> Float[Array, " m"]:
        own = self.values[i] if self.values.ndim else self.values
        return jnp.broadcast_to(own, self.shape[1:])

    def parents_of(self, i: Int[Array, ""]) -> Int[Array, " m"]:
        return self.indices[i]

    def check(self, size: int, num_parents: int, dim: int, what: str) -> None:
        if len(self.indices) != size:
            raise ValueError(
                f"{what} are Sparse with {len(self.indices)} rows; expected {size}, one per vector"
            )
        as_integers(self.indices, f"{what}: Sparse indices", below=num_parents)
        if self.is_learned:
            as_one_event(self.values, [self.shape], what)
            check_parameters(self.values, what)

    def with_values(self, values: Any) -> "Sparse":
        return Sparse(self.indices, values, self.num_parents)

    def law(self, size: int, num_parents: int, dim: int) -> Distribution:
        """The law of learned values as one event, (size, m)."""
        return as_one_event(self.values, [self.shape])

    def in_form_of(self, other: "Sparse") -> "Sparse":
        """The same weights as one number for all, or as one for each, whichever the other has."""
        if self.is_learned or other.is_learned:
            return self
        if other.values.ndim:
            return self.with_values(self.written_out)
        is_same = self.shape[1] == other.shape[1] and bool((self.values == other.values).all())
        return self.with_values(other.values) if is_same else self

    def join(self, new: Operator | None, start: int, size: int) -> "Sparse":
        parts: list[Any] = [self] if new is None else [self, new]
        width = max(part.shape[1] for part in parts)

        def joined(name: str) -> np.ndarray:
            columns = [np.broadcast_to(getattr(part, name), part.shape) for part in parts]
            wide = [np.pad(c, ((0, 0), (0, width - c.shape[1]))) for c in columns]
            return join_rows(wide[0], wide[1] if len(wide) > 1 else None, start, size)

        # One number for all is also that of spare vectors, which nothing is asked of.
        is_shared = all(
            part.values.ndim == 0 and part.values == self.values and part.shape[1] == width
            for part in parts
        )
        values = self.values if is_shared else joined("values")
        return Sparse(joined("indices"), values, self.num_parents)

    def on_parents(self, num_parents: int) -> "Sparse":
        return Sparse(self.indices, self.values, num_parents)

    def strengths(self, size: int, num_parents: int) -> tuple[np.ndarray, np.ndarray]:
        known = 1.0 if self.is_learned else np.asarray(self.values, float)
        return np.asarray(self.indices), np.broadcast_to(known, self.shape)

    def describe(self, num_parents: int) -> str:
        learned = "learned " if self.is_learned else ""
        return f"{learned}{self.shape[-1]} of {num_parents}"

    def __repr__(self) -> str:
        size, m = self.shape[-2:]
        return f"Sparse({m} of {self.num_parents} parents for each of {size} vectors)"


class Learned(eqx.Module):
    """Unknown weights on every parent, numbers or matrices: a distribution over them.

    It has the methods of an `Operator` that need no values, and `law`.
    """

    prior: Distribution
    is_learned = True

    def law(self, size: int, num_parents: int, dim: int, what: str = "weights") -> Distribution:
        """The law of the weights as one event: (size, P) or (size, P, dim, dim)."""
        numbers = size, num_parents
        return as_one_event(self.prior, [numbers, (*numbers, dim, dim)], what)

    def check(self, size: int, num_parents: int, dim: int, what: str) -> None:
        self.law(size, num_parents, dim, what)
        check_parameters(self.prior, what)

    def with_values(self, values: Any) -> Any:
        return values

    def strengths(self, size: int, num_parents: int) -> tuple[np.ndarray, np.ndarray]:
        shape = size, num_parents
        return np.broadcast_to(np.arange(num_parents), shape), np.ones(shape)

    def describe(self, num_parents: int) -> str:
        return f"learned ~ {law_name(self.prior)}"


Weights = Array | Sparse | Distribution


def as_weights(weights: Any, what: str) -> Weights:
    """What a user wrote as weights, converted; a level checks the shape."""
    return weights if isinstance(weights, Sparse | Distribution) else as_numbers(weights, what)


def as_operator(weights: Any) -> Any:
    """The operator of weights, by their form."""
    form = _form_of(weights)
    return weights if form is Sparse else form(weights)


def _form_of(weights: Any) -> type:
    if isinstance(weights, Sparse):
        return Sparse
    if isinstance(weights, Distribution):
        return Learned
    # A stand-in for numbers, such as the None of a pytree of axes, counts as numbers.
    return Matrices if getattr(weights, "ndim", 2) == 4 else Scalars


def has_single_arrows(arrows: Any) -> bool:
    """Whether every vector is known to have one parent at most: the others have weight zero."""
    if arrows.is_learned or len(arrows.shape) < 2:
        return False
    if arrows.shape[1] == 1:
        return True
    if not is_known(arrows.values, 0, 2, 4):
        return False
    _, strengths = arrows.strengths(*arrows.shape[:2])
    return bool((np.count_nonzero(strengths, axis=1) <= 1).all())


def single_arrows_of(arrows: Any) -> tuple[Int[Array, " size"], Array]:
    """The parent of each vector that has one arrow at most, and its weight, or one number for all.

    A vector without an arrow names any parent, with the weight zero.
    """
    if isinstance(arrows, Sparse) and arrows.shape[1] == 1:
        return arrows.indices[:, 0], arrows.values[:, 0] if arrows.values.ndim else arrows.values
    everyone = jnp.arange(arrows.shape[0])
    is_arrow = (arrows.values != 0).reshape(*arrows.shape[:2], -1).any(-1)
    column = jnp.argmax(is_arrow, axis=1)
    parents = jax.vmap(lambda i, j: arrows.parents_of(i)[j])(everyone, column)
    return parents, arrows.values[everyone, column]


def arrows_to(parents: Int[np.ndarray, " m"], size: int, like: Weights) -> Any:
    """A weight of one on one parent for each of m vectors, out of `size`, in the form of others."""
    if isinstance(like, Sparse):
        return Sparse(parents[:, None], 1.0, size)
    weights = np.zeros((len(parents), size))
    weights[np.arange(len(parents)), parents] = 1.0
    return weights


def in_form(weights: Any, like: Weights, dim: int, what: str) -> Any:
    """Weights of new vectors in the form of others, to be joined to them; refused if they cannot be.

    On the host: `Sparse`, or a NumPy array.
    """
    if isinstance(weights, Sparse):
        if not isinstance(like, Sparse):
            raise ValueError(f"{what}: expected an array, as the others have")
        return weights.in_form_of(like)
    numbers = as_array(weights, what)
    new, own = _form_of(numbers), _form_of(like)
    if own is Sparse:
        raise ValueError(f"{what}: expected Sparse, as the others have")
    if new is Matrices and own is Scalars:
        raise ValueError(
            f"{what} are matrices; the others have numbers, as is expected of new ones"
        )
    if new is Scalars and own is Matrices:
        return numbers[:, :, None, None] * np.eye(dim, dtype=numbers.dtype)
    return numbers


def weights_shape(weights: Any) -> tuple[int, ...]:
    """The shape of what a user wrote as weights; of `Sparse` ones, as if they were written out."""
    return shape_of(as_weights(weights, "weights"))


def shape_of(weights: Any) -> tuple[int, ...]:
    """`weights_shape` of weights that were converted."""
    if isinstance(weights, Sparse):
        return weights.shape[0], int(weights.num_parents or 0)
    if isinstance(weights, Distribution):
        return tuple(weights.shape())
    return tuple(weights.shape)


def _check_no_repeats(indices: np.ndarray, used: np.ndarray | None) -> None:
    """A parent named twice in a row would be two arrows where the algebra counts one."""
    # Padding (value 0) may repeat an index: numbers of its own take it out of the comparison.
    padding = -1 - np.arange(indices.shape[1])
    keys = np.sort(indices if used is None else np.where(used, indices, padding), axis=1)
    rows, columns = np.nonzero(keys[:, 1:] == keys[:, :-1])
    if rows.size:
        raise ValueError(
            f"Sparse: row {rows[0]} names parent {keys[rows[0], columns[0]]} more than once; "
            "add the weights up and name each parent once"
        )
