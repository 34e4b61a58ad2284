"""A pytree in few buffers, because every argument and every result of a compiled call costs time.

A call from Python takes about half a microsecond for each array that goes in and two for each that
comes out, and a policy and its state have dozens of small ones. Joined bit by bit they are one or two;
large arrays stay on their own, where the compiler can change them in place.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

__all__ = ["Packing", "packing_of"]

# Up to so many numbers an array is copied in less time than one more argument takes.
_SMALL = 8192


@dataclass(frozen=True)
class Packing:
    """Where each array of a pytree lies.

    Attributes:
        structure: the pytree without its arrays.
        shapes: of each array.
        types: of each array.
    """

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    types: tuple[Any, ...]

    def pack(self, tree: Any) -> tuple[Array, ...]:
        """The buffers of a pytree of this structure."""
        leaves = jax.tree.leaves(tree)
        joined = [
            jnp.concatenate([_words(leaves[i].ravel()) for i in group]) for group in self._groups()
        ]
        return (*joined, *(leaves[i] for i in self._alone()))

    def unpack(self, buffers: tuple[Array, ...]) -> Any:
        """The pytree in these buffers."""
        groups, leaves = self._groups(), {}
        for buffer, group in zip(buffers, groups, strict=False):
            start = 0
            for i in group:
                stop = start + math.prod(self.shapes[i])
                own = buffer[start:stop].reshape(self.shapes[i])
                leaves[i] = jax.lax.bitcast_convert_type(own, self.types[i])
                start = stop
        leaves |= zip(self._alone(), buffers[len(groups) :], strict=True)
        return jax.tree.unflatten(self.structure, [leaves[i] for i in range(len(self.shapes))])

    def _groups(self) -> list[list[int]]:
        """Positions of the small arrays, those whose numbers are of one width together."""
        groups: dict[int, list[int]] = {}
        for i, dtype in enumerate(self.types):
            if self._is_small(i):
                groups.setdefault(dtype.itemsize, []).append(i)
        return list(groups.values())

    def _alone(self) -> list[int]:
        return [i for i in range(len(self.shapes)) if not self._is_small(i)]

    def _is_small(self, i: int) -> bool:
        # Random keys are no numbers, and True and False have no bits to speak of.
        dtype = self.types[i]
        plain = jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.integer)
        return plain and dtype.itemsize >= 4 and math.prod(self.shapes[i]) <= _SMALL


def _words(numbers: Array) -> Array:
    """The bits of numbers, in floating-point numbers of their width: most are that already."""
    return jax.lax.bitcast_convert_type(numbers, f"float{8 * numbers.dtype.itemsize}")


def packing_of(tree: Any) -> Packing:
    """How a pytree of arrays, or of their shapes and types, is packed."""
    leaves, structure = jax.tree.flatten(tree)
    arrays = [leaf if hasattr(leaf, "dtype") else np.asarray(leaf) for leaf in leaves]
    return Packing(
        structure, tuple(leaf.shape for leaf in arrays), tuple(leaf.dtype for leaf in arrays)
    )
