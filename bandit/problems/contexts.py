"""Where contexts come from: one for each round, shared by all actions or with a row for each."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ...inference.random import plain_key
from ...models.arrays import as_count, as_numbers, is_concrete
from ...models.messages import short

__all__ = ["Box", "Contexts", "Drawn", "Sphere", "Table", "as_contexts"]


class Contexts(eqx.Module):
    """A law of contexts.

    Example:
        >>> from mixts.bandit import Contexts
        >>> class Ones(Contexts):
        ...     def draw(self, key):
        ...         return jnp.ones(3)
    """

    @abstractmethod
    def draw(self, key: Array) -> Float[Array, "*K d"]:
        """One context, (d,) or (K, d)."""


class Box(Contexts):
    """Uniform on `[low, high]^dim`, the law of Section 5.1.

    With `rows=K` every action gets a context of its own.

    Example:
        >>> from mixts.bandit import Box
        >>> Box(2, low=0.0, rows=4).draw(jax.random.key(0)).shape
        (4, 2)
    """

    dim: int = eqx.field(static=True)
    low: Any = -1.0
    high: Any = 1.0
    rows: int | None = eqx.field(default=None, static=True)

    def __post_init__(self):
        self.dim = as_count(self.dim, "Box dim")
        low, high = as_numbers(self.low, "Box low"), as_numbers(self.high, "Box high")
        for name, wall in (("low", low), ("high", high)):
            if wall.shape not in ((), (self.dim,)):
                raise ValueError(
                    f"Box {name} has shape {wall.shape}; expected a number or ({self.dim},)"
                )
        if is_concrete(low, high) and not np.all(np.less(low, high)):
            raise ValueError(f"Box low is {self.low} and high {self.high}; expected low below high")
        self.low, self.high = low, high
        _check_rows(self.rows, "Box")

    def draw(self, key: Array) -> Float[Array, "*K d"]:
        """A point of the box."""
        return jax.random.uniform(key, _shape(self), minval=self.low, maxval=self.high)


class Sphere(Contexts):
    """Uniform on the sphere of a radius; with `rows=K`, a point for every action.

    Example:
        >>> from mixts.bandit import Sphere
        >>> context = Sphere(3, radius=2.0).draw(jax.random.key(0))
        >>> round(float(jnp.linalg.norm(context)), 5)
        2.0
    """

    dim: int = eqx.field(static=True)
    radius: Any = 1.0
    rows: int | None = eqx.field(default=None, static=True)

    def __post_init__(self):
        self.dim = as_count(self.dim, "Sphere dim")
        radius = as_numbers(self.radius, "Sphere radius")
        if is_concrete(radius) and not (radius.ndim == 0 and float(radius) > 0):
            raise ValueError(f"Sphere radius is {self.radius}; expected a positive number")
        self.radius = radius
        _check_rows(self.rows, "Sphere")

    def draw(self, key: Array) -> Float[Array, "*K d"]:
        """A point of the sphere: a normal vector, rescaled."""
        normal = jax.random.normal(key, _shape(self))
        return self.radius * normal / jnp.linalg.norm(normal, axis=-1, keepdims=True)


class Table(Contexts):
    """A row of a table, uniformly: users of a data set. Rows are (n, d), or (n, K, d).

    Example:
        >>> from mixts.bandit import Table
        >>> Table([[1.0, 0.0], [1.0, 0.0]]).draw(jax.random.key(0))
        Array([1., 0.], dtype=float32)
    """

    rows: Any

    def __post_init__(self):
        rows = as_numbers(self.rows, "Table rows")
        if rows.ndim not in (2, 3) or rows.shape[0] == 0:
            raise ValueError(
                f"Table rows have shape {rows.shape}; expected (n, d), or (n, K, d) with a row for "
                "every action"
            )
        self.rows = rows

    def draw(self, key: Array) -> Float[Array, "*K d"]:
        """One of the rows."""
        return self.rows[jax.random.randint(key, (), 0, self.rows.shape[0])]


class Drawn(Contexts):
    """Any law, as a function of a key written with `jax.random`.

    Example:
        >>> from mixts.bandit import Drawn
        >>> Drawn(lambda key: jax.random.normal(key, (3,))).draw(jax.random.key(0)).shape
        (3,)
    """

    function: Callable[[Array], Any] = eqx.field(static=True)

    def __post_init__(self):
        if not callable(self.function):
            raise TypeError(f"Drawn: got {short(self.function)}; expected a function of a key")

    def draw(self, key: Array) -> Float[Array, "*K d"]:
        """What the function returns."""
        return jnp.asarray(self.function(plain_key(key)), float)


def as_contexts(contexts: Any, dim: int, num_actions: int, what: str) -> Contexts:
    """A law of contexts from an argument: None, a table of numbers, a function, or a law.

    None is the box `[-1, 1]^dim`. What it draws must be (dim,) or (num_actions, dim).
    """
    law = Box(dim) if contexts is None else contexts
    if not isinstance(law, Contexts):
        law = Drawn(law) if callable(law) else Table(law)
    shape = jax.eval_shape(law.draw, jax.random.key(0)).shape
    if shape not in ((dim,), (num_actions, dim)):
        raise ValueError(
            f"{what} contexts have shape {shape}; expected ({dim},), shared by all actions, or "
            f"({num_actions}, {dim}), a row for each"
        )
    return law


def _shape(law: Box | Sphere) -> tuple[int, ...]:
    return (law.dim,) if law.rows is None else (law.rows, law.dim)


def _check_rows(rows: Any, what: str) -> None:
    if rows is not None:
        as_count(rows, f"{what} rows")
