"""What `Nuts` and `Svi` share: a program, and a buffer of all observations."""

from abc import abstractmethod
from dataclasses import fields
from typing import Any, TypeVar

import equinox as eqx
import jax
from jax import Array
from jaxtyping import Float

from ...models import Hierarchy
from ...models.arrays import as_count
from ..backend import Backend
from ..buffer import Buffer, reserve
from ..compiling import jit_loop
from ..observation import as_context
from .target import Position, Target, as_target

__all__ = ["ProgramBackend"]

State = TypeVar("State", bound=Any)


class ProgramBackend(Backend[State]):
    """A backend for a hierarchy or any NumPyro program. Its state is a NamedTuple with a `buffer`.

    A field of a subclass that is annotated as `int` must be at least one.
    """

    program: Any
    actions: str = eqx.field(default="action", static=True)
    dim: int | None = eqx.field(default=None, static=True)

    def __post_init__(self):
        kind = type(self).__name__
        self.program = as_target(self.program, self.actions, self.dim, kind)
        for field in fields(self):
            if field.type is int:
                count = as_count(getattr(self, field.name), f"{kind} {field.name}")
                setattr(self, field.name, count)

    @property
    def target(self) -> Target:
        """The program, with the names and shapes of its sites."""
        return self.program

    @property
    def hierarchy(self) -> Hierarchy | None:
        """The hierarchy behind the program, or None for a program written by hand."""
        return self.target.hierarchy

    @property
    def problem(self) -> Hierarchy | Target:
        """The hierarchy, or the target of a program written by hand."""
        return self.hierarchy or self.target

    def reserve(self, state: State, more: int) -> State:
        """The same state with room for `more` observations; do it once before a `lax.scan`."""
        return state._replace(buffer=reserve(state.buffer, more))

    @abstractmethod
    def position(self, key: Array, state: State) -> Position:
        """One posterior draw of all unconstrained unknowns."""

    def sample(self, key: Array, state: State) -> dict[str, Float[Array, "_ d"]]:
        """One joint posterior draw of every level."""
        return _sample(self, key, state)

    def sample_unknowns(self, key: Array, state: State, n: int) -> dict[str, Float[Array, "n ..."]]:
        """`n` joint posterior draws of every site, by the names that a user knows."""
        positions = self.positions(key, state, n)
        one = lambda z: self.target.unknowns(z, state.buffer)  # noqa: E731
        return jax.lax.map(one, positions, batch_size=64)

    def sample_scores(self, key: Array, state: State, context: Any) -> Float[Array, " K"]:
        """The score of every action, `x' theta_i` or the program's own, of one posterior draw."""
        return _scores(self, key, state, as_context(self.target, context))

    def positions(self, key: Array, state: State, n: int) -> Position:
        """`n` posterior draws of all unconstrained unknowns."""
        return jax.vmap(lambda k: self.position(k, state))(jax.random.split(key, n))

    def sample_many(self, key: Array, state: State, n: int) -> dict[str, Float[Array, "n size d"]]:
        """`n` joint posterior draws of every level."""
        return _many_vectors(self.target, self.positions(key, state, n), state.buffer)

    def sample_many_scores(
        self, key: Array, state: State, context: Any, n: int
    ) -> Float[Array, "n K"]:
        """The scores of every action in `n` posterior draws."""
        context = as_context(self.target, context)
        return _many_scores(self.target, self.positions(key, state, n), context, state.buffer)


@jit_loop
def _sample(backend: ProgramBackend, key: Array, state: Any) -> dict[str, Array]:
    return backend.target.vectors(backend.position(key, state), state.buffer)


@jit_loop
def _scores(backend: ProgramBackend, key: Array, state: Any, context: Array) -> Array:
    return backend.target.scores(backend.position(key, state), context, state.buffer)


@jax.jit
def _many_vectors(target: Target, positions: Position, buffer: Buffer) -> dict[str, Array]:
    return jax.lax.map(lambda z: target.vectors(z, buffer), positions, batch_size=64)


@jax.jit
def _many_scores(target: Target, positions: Position, context: Array, buffer: Buffer) -> Array:
    return jax.lax.map(lambda z: target.scores(z, context, buffer), positions, batch_size=64)
