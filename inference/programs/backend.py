"""What `Nuts` and `Svi` share: a program, and a buffer of all observations."""

from abc import abstractmethod
from dataclasses import fields
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ...models import Hierarchy
from ...models.arrays import as_count
from ..backend import Backend
from ..buffer import reserve
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
        one = lambda k: self.target.unknowns(self.position(k, state), state.buffer)  # noqa: E731
        return jax.lax.map(one, jax.random.split(key, n), batch_size=64)

    def sample_scores(self, key: Array, state: State, context: Any) -> Float[Array, " K"]:
        """`x' theta_i` for every action, of one posterior draw."""
        context = as_context(self.target, context)
        theta = self.sample(key, state)[self.target.action_site]
        return jnp.sum(theta * context, axis=-1)


@jax.jit
def _sample(backend: ProgramBackend, key: Array, state: Any) -> dict[str, Array]:
    return backend.target.vectors(backend.position(key, state), state.buffer)
