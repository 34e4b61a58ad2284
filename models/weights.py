"""Weights: how strongly the vectors of a level depend on those of a parent level.

A level of `size` vectors and a parent of `P` vectors are tied by one of

- scalars `b_il` of shape (size, P) (Aouali et al. 2023, Eq. 2);
- matrices `C_il` of shape (size, P, dim, dim) (Appendix E.2);
- `Sparse` scalars: `m` parents out of `P` for each vector, by index and value;
- a NumPyro distribution over any of the above: weights that are unknown and learned.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float
from numpyro.distributions import Distribution

from .arrays import as_count, as_integers, as_numbers, is_concrete
from .pytrees import register_declaration

__all__ = ["Sparse", "Weights", "as_weights", "check_weights", "is_learned", "law", "mix"]


@dataclass(frozen=True, eq=False)
class Sparse:
    """Weights of few parents out of many, never stored densely.

    Row `i` says that vector `i` has the parents `indices[i]` with the weights `values[i]`. A row with
    fewer parents than the others is padded with zero values (at any index). A parent may stand in a
    row once. `values` may also be a NumPyro distribution: weights to learn on a known pattern.

    Attributes:
        indices: (size, m) positions in the parent level.
        values: (size, m) weights, or a distribution that broadcasts to that shape.
        num_parents: the size of the parent level; by default the largest index plus one. Only the
            models declared by name (`linear`, `glm`, ...) read it: a `Level` knows its parents' sizes.
    """

    indices: Any
    values: Any
    num_parents: int | None = None

    def __post_init__(self):
        indices = as_integers(self.indices, "Sparse indices")
        if indices.ndim != 2:
            raise ValueError(
                f"Sparse indices have shape {indices.shape}; expected (size, m), "
                "a row of parent positions for each vector of the level"
            )
        values = self.values
        if not isinstance(values, Distribution):
            values = as_numbers(values, "Sparse values")
            if values.shape != indices.shape:
                raise ValueError(
                    f"Sparse values have shape {values.shape} and indices {indices.shape}; "
                    "expected the same shape (size, m)"
                )
        if is_concrete(indices, values):
            _check_no_repeats(np.asarray(indices), values)
        if self.num_parents is None:
            if not is_concrete(indices):
                raise ValueError(
                    "Sparse: num_parents is needed where indices are traced (inside jit or vmap); "
                    "pass num_parents=<size of the parent level>"
                )
            count = int(np.asarray(indices).max()) + 1 if indices.size else 1
            object.__setattr__(self, "num_parents", count)
        else:
            count = as_count(self.num_parents, "Sparse num_parents")
            object.__setattr__(self, "num_parents", count)
            as_integers(indices, "Sparse indices", below=count)
        object.__setattr__(self, "indices", indices)
        object.__setattr__(self, "values", values)

    def __repr__(self) -> str:
        size, m = self.indices.shape[-2:]
        return f"Sparse({m} of {self.num_parents} parents for each of {size} vectors)"


register_declaration(Sparse, arrays=("indices", "values"), static=("num_parents",))

Weights = Array | Sparse | Distribution


def _check_no_repeats(indices: np.ndarray, values: Any) -> None:
    """A parent named twice in a row would be two arrows where the algebra counts one."""
    order = np.argsort(indices, axis=1)
    ordered = np.take_along_axis(indices, order, axis=1)
    learned = isinstance(values, Distribution)
    used = np.ones(indices.shape, bool) if learned else np.asarray(values) != 0
    used = np.take_along_axis(used, order, axis=1)
    # Padding (value 0) may repeat an index: push it out of the comparison, then compare neighbours.
    keys = np.where(used, ordered, -1 - np.arange(indices.shape[1]))
    keys.sort(axis=1)
    rows, columns = np.nonzero(keys[:, 1:] == keys[:, :-1])
    if rows.size:
        raise ValueError(
            f"Sparse: row {rows[0]} names parent {keys[rows[0], columns[0]]} more than once; "
            "add the weights up and name each parent once"
        )


def is_learned(weights: Weights) -> bool:
    """Whether the weights are unknown: a distribution rather than numbers."""
    return isinstance(weights, Distribution) or (
        isinstance(weights, Sparse) and isinstance(weights.values, Distribution)
    )


def as_weights(weights: Any, what: str) -> Weights:
    """Convert what a user wrote into weights; shapes are checked against levels by `check_weights`."""
    if isinstance(weights, Sparse | Distribution):
        return weights
    return as_numbers(weights, what)


def weights_shape(weights: Any) -> tuple[int, ...]:
    """The shape of what a user wrote as weights."""
    if isinstance(weights, Sparse):
        return tuple(weights.indices.shape)
    if isinstance(weights, Distribution):
        return tuple(weights.shape())
    return tuple(as_numbers(weights, "weights").shape)


def sizes(weights: Any) -> tuple[int, int]:
    """The (size, parent size) that weights imply, for models declared by weights alone."""
    if isinstance(weights, Sparse):
        return weights.indices.shape[0], int(weights.num_parents or 0)
    shape = weights_shape(weights)
    if len(shape) not in (2, 4):
        raise ValueError(
            f"weights have shape {shape}; expected (K, L): a row for each action and a column "
            "for each effect"
        )
    return shape[0], shape[1]


def check_weights(weights: Weights, size: int, parent_size: int, dim: int, what: str) -> None:
    """Refuse weights that do not fit a level of `size` vectors under a parent of `parent_size`."""
    scalars, matrices = (size, parent_size), (size, parent_size, dim, dim)
    if isinstance(weights, Sparse):
        rows, m = weights.indices.shape
        if rows != size:
            raise ValueError(f"{what} are Sparse with {rows} rows; expected {size}, one per vector")
        as_integers(weights.indices, f"{what}: Sparse indices", below=parent_size)
        if isinstance(weights.values, Distribution):
            _check_broadcasts(weights.values, [(size, m)], what)
    elif isinstance(weights, Distribution):
        _check_broadcasts(weights, [scalars, matrices], what)
    elif weights.shape not in (scalars, matrices):
        raise ValueError(
            f"{what} have shape {weights.shape}; expected {scalars} or {matrices} "
            f"(this level has {size} vectors, the parent {parent_size}, dim is {dim})"
        )


def _check_broadcasts(prior: Distribution, shapes: list[tuple[int, ...]], what: str) -> None:
    if _target(prior, shapes) is None:
        raise ValueError(
            f"{what}: the distribution has shape {prior.shape()}; "
            f"expected one that broadcasts to {' or '.join(map(str, shapes))}"
        )


def _target(prior: Distribution, shapes: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The first of `shapes` that `prior` can be expanded to without touching its event."""
    for shape in shapes:
        split = len(shape) - prior.event_dim
        if split < 0 or tuple(prior.event_shape) != shape[split:]:
            continue
        try:
            if np.broadcast_shapes(prior.batch_shape, shape[:split]) == shape[:split]:
                return shape
        except ValueError:
            continue
    return None


def law(weights: Weights, size: int, parent_size: int, dim: int) -> Distribution:
    """The law of learned weights as one event: (size, P), (size, P, dim, dim) or Sparse (size, m)."""
    if isinstance(weights, Sparse):
        prior, shapes = weights.values, [weights.indices.shape]
    else:
        prior, shapes = weights, [(size, parent_size), (size, parent_size, dim, dim)]
    assert isinstance(prior, Distribution), "checked by is_learned"
    shape = _target(prior, shapes)
    assert shape is not None, "checked at declaration"
    batch = shape[: len(shape) - prior.event_dim]
    return prior.expand(batch).to_event(len(batch))


def mix(weights: Array | Sparse, parents: Float[Array, "P d"]) -> Float[Array, "size d"]:
    """The weighted sum of parents that each vector of a level is centred on, `Gamma_i Psi`."""
    if isinstance(weights, Sparse):
        return jnp.einsum("km,kmd->kd", weights.values, parents[weights.indices])
    if weights.ndim == 4:
        return jnp.einsum("klde,le->kd", weights, parents)
    return weights @ parents
