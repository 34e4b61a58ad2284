"""`SingleArrows`: the weights of vectors that have one parent each, as in a tree."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from ...models.operators import Operator

__all__ = ["SingleArrows", "single_arrows"]


class SingleArrows(eqx.Module):
    """The parent of each vector, and the weight of that arrow: `C_i`, or `b_i` for `b_i I`.

    Attributes:
        parent: (size,) positions in the parent level. A vector without a parent names any of them,
            with the weight zero.
        values: (size,) numbers, or (size, d, d) matrices.
    """

    parent: Int[Array, " size"]
    values: Array

    def mix_columns(self, parents: Float[Array, "P d"]) -> Float[Array, "d size"]:
        """`C_i psi` of every vector and its parent, vectors last."""
        own = parents.T[:, self.parent]
        return (
            self.values * own
            if self.values.ndim == 1
            else jnp.einsum("kde,ek->dk", self.values, own)
        )

    def mix_one(self, i: Int[Array, ""], parents: Float[Array, "P d"]) -> Float[Array, " d"]:
        """`C_i psi` of one vector and its parent."""
        return self.push(i, parents[self.parent[i]])

    def push(self, i: Int[Array, ""], v: Float[Array, "d *e"]) -> Float[Array, "d *e"]:
        """`C_i v`."""
        return self.values[i] * v if self.values.ndim == 1 else self.values[i] @ v

    def pull(self, i: Int[Array, ""], v: Float[Array, " d"]) -> Float[Array, " d"]:
        """`C_i' v`."""
        return self.values[i] * v if self.values.ndim == 1 else v @ self.values[i]


def single_arrows(arrows: Operator) -> SingleArrows:
    """The weights of a level with one arrow at most for each vector, in this form."""
    everyone = jnp.arange(arrows.shape[0])
    is_arrow = (arrows.values != 0).reshape(*arrows.shape[:2], -1).any(-1)
    column = jnp.argmax(is_arrow, axis=1)
    parents = jax.vmap(lambda i, j: arrows.parents_of(i)[j])(everyone, column)
    return SingleArrows(parents, arrows.values[everyone, column])
