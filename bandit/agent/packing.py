"""A pytree in few arrays, because every array that goes into or out of a compiled call costs time.

A policy and its state have two dozen small arrays. Joined bit by bit they are one or two; large ones stay
on their own, where the compiler can change them in place. With 100 actions of 2 dimensions and 3
effects, `act` and `reward` together take 3.4 times as long if policy and state are passed to the compiled
functions as pytrees, 2.0 times as long if they are passed as flat lists of arrays, and 1.2 times as
long if only the other arguments are passed one by one instead of in one array (`programs`).
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

__all__ = ["Packing", "packing_of"]

# Copying an array of at most so many numbers takes less time than one more argument.
_SMALL = 8192


@dataclass(frozen=True)
class Packing:
    """Where each array of a pytree is stored.

    Attributes:
        structure: the pytree without its arrays.
        shapes: of each array.
        types: of each array.
    """

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    types: tuple[Any, ...]

    def pack(self, tree: Any) -> tuple[Array, ...]:
        """The arrays that hold a pytree of this structure."""
        leaves, (groups, alone) = jax.tree.leaves(tree), self._layout()
        joined = [jnp.concatenate([_as_floats(leaves[i].ravel()) for i in g]) for g in groups]
        return (*joined, *(leaves[i] for i in alone))

    def unpack(self, packed: tuple[Array, ...]) -> Any:
        """The pytree that these arrays hold."""
        (groups, alone), leaves = self._layout(), {}
        for joined, group in zip(packed, groups, strict=False):
            start = 0
            for i in group:
                stop = start + math.prod(self.shapes[i])
                own = joined[start:stop].reshape(self.shapes[i])
                leaves[i] = jax.lax.bitcast_convert_type(own, self.types[i])
                start = stop
        leaves |= zip(alone, packed[len(groups) :], strict=True)
        return jax.tree.unflatten(self.structure, [leaves[i] for i in range(len(self.shapes))])

    @property
    def tree(self) -> Any:
        """The pytree in shapes and types alone."""
        pairs = zip(self.shapes, self.types, strict=True)
        return jax.tree.unflatten(self.structure, [jax.ShapeDtypeStruct(*pair) for pair in pairs])

    def packed(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """The shapes and types of the arrays that hold it."""
        return jax.eval_shape(self.pack, self.tree)

    def _layout(self) -> tuple[list[list[int]], list[int]]:
        """Positions of the small arrays, in groups of one width, and of all others."""
        groups: dict[int, list[int]] = {}
        alone = []
        for i, (shape, dtype) in enumerate(zip(self.shapes, self.types, strict=True)):
            # Random keys and booleans cannot be converted bit by bit.
            is_number = jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.integer)
            if is_number and dtype.itemsize >= 4 and math.prod(shape) <= _SMALL:
                groups.setdefault(dtype.itemsize, []).append(i)
            else:
                alone.append(i)
        return list(groups.values()), alone


def _as_floats(numbers: Array) -> Array:
    """The bits of numbers as floating-point numbers of the same width."""
    return jax.lax.bitcast_convert_type(numbers, f"float{8 * numbers.dtype.itemsize}")


def packing_of(tree: Any) -> Packing:
    """The packing of a pytree of arrays, or of their shapes and types."""
    leaves, structure = jax.tree.flatten(tree)
    # As JAX takes them in: Python's numbers and NumPy's are float64, which may not be switched on.
    shaped = Array | jax.ShapeDtypeStruct
    arrays = [leaf if isinstance(leaf, shaped) else jnp.asarray(leaf) for leaf in leaves]
    return Packing(
        structure, tuple(leaf.shape for leaf in arrays), tuple(leaf.dtype for leaf in arrays)
    )
