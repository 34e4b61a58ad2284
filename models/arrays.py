"""Numbers a user wrote down: converted once, and checked by value when their values are known."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from .messages import short

__all__ = [
    "as_array",
    "as_count",
    "as_integers",
    "as_numbers",
    "as_positive",
    "as_probability",
    "is_concrete",
    "is_known",
]


def is_concrete(*values: Any) -> bool:
    """Whether every leaf holds values now, rather than standing for some inside `jit` or `vmap`."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(values))


def is_known(numbers: Any, *ndims: int) -> bool:
    """Whether numbers of these many axes are there to be read: not traced, stacked or a stand-in."""
    is_array = isinstance(numbers, Array | np.ndarray)
    return is_array and is_concrete(numbers) and numbers.ndim in ndims


def as_array(value: Any, what: str) -> np.ndarray:
    """`value` as a NumPy array of its own in JAX's current precision; NaN and infinity are refused."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):
        array = np.asarray(None)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{what}: got {short(value)}; expected a number or an array of numbers")
    numbers = array.astype(np.float64)
    precision = jnp.result_type(float)
    with np.errstate(over="ignore"):
        rounded = numbers.astype(precision)  # a copy: the caller may change what is theirs
    finite = np.isfinite(rounded)
    if not finite.all():
        position = tuple(int(i) for i in np.argwhere(~finite)[0])
        where = f" at position {position}" if position else ""
        raise ValueError(
            f"{what}: holds {numbers[position]}{where}; every entry must be a finite {precision}"
        )
    return rounded


def as_numbers(value: Any, what: str) -> Array:
    """`value` as a floating-point array in JAX's current precision; NaN and infinity are refused.

    Numbers known inside `jit` stay known: they are converted there and then, not staged.
    """
    if isinstance(value, Tracer):
        return value if jnp.issubdtype(value.dtype, jnp.floating) else value.astype(float)
    numbers = as_array(value, what)
    with jax.ensure_compile_time_eval():
        if isinstance(value, jax.Array):
            return jnp.asarray(value, dtype=float)
        return jnp.asarray(numbers)


def as_integers(value: Any, what: str, *, below: int | None = None) -> Array:
    """`value` as an integer array with entries in `[0, below)`, checked where values are known."""
    if isinstance(value, Tracer):
        if not jnp.issubdtype(value.dtype, jnp.integer):
            raise TypeError(f"{what}: got numbers of type {value.dtype}; expected whole numbers")
        return value
    try:
        array = np.asarray(value)
    except ValueError:
        raise TypeError(f"{what}: got {short(value)}; expected an array of whole numbers") from None
    if array.size == 0:
        array = array.astype(np.int32)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{what}: got numbers of type {array.dtype}; expected whole numbers")
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    highest = np.iinfo(np.int32).max if below is None else below - 1
    if low < 0 or high > highest:
        wrong = low if low < 0 else high
        raise ValueError(f"{what}: holds {wrong}; every entry must be from 0 to {highest}")
    with jax.ensure_compile_time_eval():
        if isinstance(value, jax.Array):
            return jnp.asarray(value, dtype=jnp.int32)
        return jnp.array(array, dtype=jnp.int32)


def as_positive(value: Any, what: str) -> Array:
    """`value` as one positive number."""
    number = as_numbers(value, what)
    if number.ndim:
        raise ValueError(f"{what} has shape {number.shape}; expected one number")
    if is_concrete(number) and float(number) <= 0:
        raise ValueError(f"{what} is {float(number):g}; expected a positive number")
    return number


def as_probability(value: Any, what: str) -> Array:
    """One number from zero to one."""
    number = as_numbers(value, what)
    if number.ndim:
        raise ValueError(f"{what} has shape {number.shape}; expected one number")
    if is_concrete(number) and not 0 <= float(number) <= 1:
        raise ValueError(f"{what} is {float(number):g}; expected a probability, from 0 to 1")
    return number


def as_count(value: Any, what: str) -> int:
    """`value` as a whole number of at least one."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value < 2**63:
        raise ValueError(f"{what}: got {short(value)}; expected a whole number of at least 1")
    return int(value)
