"""`Numbers`: what a hierarchy leaves unknown besides its vectors, as numbers without limits.

A position holds, by the name of their sites, the unknown numbers after the transforms that take away
their limits: the logarithm of a scale, the free part of a correlation matrix. Chains and particles move
there.
"""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jaxtyping import Float
from numpyro.distributions.transforms import biject_to

from ...models import Hierarchy

__all__ = ["Numbers", "Position", "flat", "number_of"]

Position = dict[str, Array]


class Numbers(eqx.Module):
    """The unknown numbers of a hierarchy, and the hierarchy given them.

    Attributes:
        hierarchy: the declaration, in which they are distributions.
    """

    hierarchy: Hierarchy

    @property
    def sites(self) -> tuple[str, ...]:
        """Their names, in the order of the program."""
        return tuple(self.hierarchy.unknowns.laws)

    def draw(self, key: Array, n: int) -> dict[str, Float[Array, "n ..."]]:
        """`n` positions from the prior."""
        laws = self.hierarchy.unknowns.laws
        keys = dict(zip(laws, jax.random.split(key, len(laws)), strict=True))
        return {
            site: jax.vmap(_transform(law).inv)(law.sample(keys[site], (n,)))
            for site, law in laws.items()
        }

    def values(self, position: Mapping[str, Array]) -> dict[str, Array]:
        """The numbers at a position, as they are declared."""
        laws = self.hierarchy.unknowns.laws
        return {site: _transform(law)(position[site]) for site, law in laws.items()}

    def log_prior(self, position: Mapping[str, Array]) -> Float[Array, ""]:
        """The log density of the prior in the space of positions."""
        total = jnp.zeros(())
        for site, law in self.hierarchy.unknowns.laws.items():
            transform = _transform(law)
            value = transform(position[site])
            jacobian = jnp.sum(transform.log_abs_det_jacobian(position[site], value))
            total += law.log_prob(value) + jacobian
        return total

    def given(self, position: Mapping[str, Array]) -> Hierarchy:
        """The hierarchy with the numbers at a position in place of the unknown ones."""
        return self.hierarchy.unknowns.given(self.values(position))


def number_of(hierarchy: Hierarchy) -> int:
    """How many numbers a hierarchy leaves unknown besides its vectors."""
    shapes = jax.eval_shape(lambda: Numbers(hierarchy).draw(jax.random.key(0), 1))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


def flat(positions: Position) -> tuple[Float[Array, "n p"], Any]:
    """Positions as the rows of a matrix, and what makes a position of a row."""
    _, back = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], positions))
    return jax.vmap(lambda position: ravel_pytree(position)[0])(positions), back


def _transform(law: Any) -> Any:
    """From numbers without limits to those that the law allows."""
    return biject_to(law.support)
