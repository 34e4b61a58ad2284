"""The weights of a level on one parent level as an operator, in each form in which they are stored.

Everything that computes with weights asks an `Operator`. The dense forms are here; what a user writes,
the sparse form and the choice between them are in `mixts.models.weights`.
"""

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from .arrays import is_known

__all__ = ["Matrices", "NumberWeights", "Operator", "Scalars", "join_rows"]


class Operator(eqx.Module):
    """The weights of all vectors of a level on the vectors of one parent level.

    The methods that take `i` are about one vector and its `m` parents `parents_of(i)`, with weights
    `C_l`, which are `b_l I` where weights are numbers.
    """

    values: eqx.AbstractVar[Any]

    @property
    def is_learned(self) -> bool:
        """Whether the weights are unknown: a distribution rather than numbers."""
        return False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape as it is stored, of which the first axis is that of the level's vectors."""
        return self.values.shape

    @abstractmethod
    def mix(self, parents: Float[Array, "P d"]) -> Float[Array, "size d"]:
        """The weighted sum of parents that each vector is centred on, `Gamma_i Psi`."""

    def mix_columns(self, parents: Float[Array, "P d"]) -> Float[Array, "d size"]:
        """`mix` with the vectors of the level last."""
        return self.mix(parents).T

    @abstractmethod
    def parents_of(self, i: Int[Array, ""]) -> Int[Array, " m"]:
        """The parents of one vector. A parent with weight zero may be among them, more than once."""

    @abstractmethod
    def mix_one(self, i: Int[Array, ""], parents: Float[Array, "P d"]) -> Float[Array, " d"]:
        """`Gamma_i Psi` of one vector."""

    @abstractmethod
    def pull(self, i: Int[Array, ""], v: Float[Array, " d"]) -> Float[Array, "m d"]:
        """`C_l' v` for each parent of one vector."""

    @abstractmethod
    def push(self, i: Int[Array, ""], roots: Float[Array, "m d e"]) -> Float[Array, "m d e"]:
        """`C_l Q_l` for each parent of one vector."""

    @abstractmethod
    def check(self, size: int, num_parents: int, dim: int, what: str) -> None:
        """Refuse weights that do not fit a level of `size` vectors under `num_parents` of them."""

    @abstractmethod
    def with_values(self, values: Any) -> Any:
        """Weights as a user writes them, in this form and with other values."""

    @abstractmethod
    def join(self, new: "Operator | None", start: int, size: int) -> Any:
        """Weights, as a user writes them, of `size` vectors: these, then new ones, then zeros."""

    @abstractmethod
    def on_parents(self, num_parents: int) -> Any:
        """Weights, as a user writes them, on so many parents: new ones have the weight zero."""

    @abstractmethod
    def strengths(self, size: int, num_parents: int) -> tuple[np.ndarray, np.ndarray]:
        """(size, m) parents of every vector and how strong each arrow is; 1 where it is learned."""

    @abstractmethod
    def describe(self, num_parents: int) -> str:
        """The form in a few words, and how many arrows are missing."""


class NumberWeights(Operator):
    """Weights that are numbers: `values[i]` holds `b_l`, for `b_l I`, for each parent of vector `i`."""

    def numbers_of(self, i: Int[Array, ""]) -> Float[Array, " m"]:
        """`b_l` for each parent of one vector."""
        return self.values[i]

    def mix_one(self, i: Int[Array, ""], parents: Float[Array, "P d"]) -> Float[Array, " d"]:
        return jnp.einsum("m,md->d", self.numbers_of(i), parents[self.parents_of(i)])

    def pull(self, i: Int[Array, ""], v: Float[Array, " d"]) -> Float[Array, "m d"]:
        return self.numbers_of(i)[:, None] * v

    def push(self, i: Int[Array, ""], roots: Float[Array, "m d e"]) -> Float[Array, "m d e"]:
        return self.numbers_of(i)[:, None, None] * roots


class _Dense(Operator):
    """Weights on every parent."""

    kind: ClassVar[str]

    def parents_of(self, i: Int[Array, ""]) -> Int[Array, " P"]:
        return jnp.arange(self.values.shape[1])

    def check(self, size: int, num_parents: int, dim: int, what: str) -> None:
        numbers, matrices = (size, num_parents), (size, num_parents, dim, dim)
        if self.shape not in (numbers, matrices):
            raise ValueError(
                f"{what} have shape {self.shape}; expected {numbers} or {matrices} "
                f"(this level has {size} vectors, the parent {num_parents}, dim is {dim})"
            )

    def with_values(self, values: Any) -> Any:
        return values

    def join(self, new: Operator | None, start: int, size: int) -> Any:
        return join_rows(self.values, None if new is None else new.values, start, size)

    def on_parents(self, num_parents: int) -> Any:
        columns = np.swapaxes(np.asarray(self.values), 0, 1)
        return np.swapaxes(join_rows(columns, None, 0, num_parents), 0, 1)

    @abstractmethod
    def sizes(self) -> np.ndarray:
        """(size, P) how strong each arrow is."""

    def strengths(self, size: int, num_parents: int) -> tuple[np.ndarray, np.ndarray]:
        strengths = self.sizes()
        return np.broadcast_to(np.arange(strengths.shape[1]), strengths.shape), strengths

    def describe(self, num_parents: int) -> str:
        if not is_known(self.values, 2, 4):
            return "weights"
        missing = float((self.sizes() == 0).mean())
        return f"{self.kind}, {missing:.0%} missing" if missing else self.kind


class Scalars(_Dense, NumberWeights):
    """A number for each vector and parent: `values` is (size, P)."""

    values: Any
    kind = "weights"

    def mix(self, parents: Float[Array, "P d"]) -> Float[Array, "size d"]:
        return self.values @ parents

    def mix_columns(self, parents: Float[Array, "P d"]) -> Float[Array, "d size"]:
        # Written as a transpose, a batch would be left in the other order.
        return jnp.einsum("kl,ld->dk", self.values, parents)

    def mix_one(self, i: Int[Array, ""], parents: Float[Array, "P d"]) -> Float[Array, " d"]:
        return self.values[i] @ parents

    def sizes(self) -> np.ndarray:
        return np.asarray(self.values, float)


class Matrices(_Dense):
    """A matrix for each vector and parent: `values` is (size, P, dim, dim)."""

    values: Any
    kind = "matrices"

    def mix(self, parents: Float[Array, "P d"]) -> Float[Array, "size d"]:
        return jnp.einsum("klde,le->kd", self.values, parents)

    def mix_one(self, i: Int[Array, ""], parents: Float[Array, "P d"]) -> Float[Array, " d"]:
        return jnp.einsum("lde,le->d", self.values[i], parents)

    def pull(self, i: Int[Array, ""], v: Float[Array, " d"]) -> Float[Array, "P d"]:
        return jnp.einsum("mde,d->me", self.values[i], v)

    def push(self, i: Int[Array, ""], roots: Float[Array, "P d e"]) -> Float[Array, "P d e"]:
        return self.values[i] @ roots

    def sizes(self) -> np.ndarray:
        return np.linalg.norm(np.asarray(self.values, float), ord=2, axis=(2, 3))


def join_rows(rows: Any, new: Any, start: int, size: int, spare: Any = 0) -> np.ndarray:
    """`size` rows: the old ones, as many as fit, from `start` on the new ones, and then spare ones."""
    old = np.asarray(rows)[:size]
    joined = np.empty((size, *old.shape[1:]), old.dtype)
    joined[:] = spare
    joined[: len(old)] = old
    if new is not None:
        joined[start : start + len(new)] = new
    return joined
