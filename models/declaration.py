"""What a user declares: a frozen pytree that knows what it was made with."""

import inspect
from typing import Any, TypeVar

import equinox as eqx

__all__ = ["Declaration"]

D = TypeVar("D", bound="Declaration")


class Declaration(eqx.Module):
    """The base of levels, hierarchies, rewards, backends and policies.

    A field is a child of the pytree unless it is marked static, so none can be forgotten. Values are
    checked when a declaration is written down; rebuilding one from its leaves, as JAX does inside
    `jit` and `vmap`, runs no check.

    What is kept under the name of an argument must be something that the constructor takes: then a
    declaration can be made again with other arguments, and written to a file.

    Example:
        >>> from mixts.models import Level
        >>> level = Level("movie", 3, cov=0.5)
        >>> wider = level.remade(cov=2.0)
        >>> float(wider.cov), wider.size
        (2.0, 3)
    """

    def arguments(self) -> dict[str, Any]:
        """What it was made with, by the names of the constructor's arguments."""
        names = inspect.signature(type(self)).parameters
        return {name: getattr(self, name) for name in names}

    def remade(self: D, **changes: Any) -> D:
        """The same with other arguments, checked anew."""
        return type(self)(**(self.arguments() | changes))

    # One is the same as itself alone, as any object is: so `jax.jit(backend.update)` works, which
    # keeps its compiled programs by the method and the object it belongs to.
    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other
