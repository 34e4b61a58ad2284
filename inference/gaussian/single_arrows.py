"""`SingleArrows`: the weights of vectors that have one parent each, as in a tree."""

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from ...models.operators import Operator
from ...models.weights import single_arrows_of
from .linear_model import written_out

__all__ = ["SingleArrows", "single_arrows"]


class SingleArrows(eqx.Module):
    """The parent of each vector, and the weight of that arrow: `C_i`, or `b_i` for `b_i I`.

    Attributes:
        parent: (size,) positions in the parent level. A vector without a parent names any of them,
            with the weight zero.
        values: (size,) numbers, (size, d, d) matrices, or one number for all.
    """

    parent: Int[Array, " size"]
    values: Array

    def mix_columns(self, parents: Float[Array, "P d"]) -> Float[Array, "d size"]:
        """`C_i psi` of every vector and its parent, vectors last."""
        rows = written_out(parents.T)
        own = jnp.stack([jnp.take(row, self.parent, mode="clip") for row in rows])
        if self.values.ndim < 2:
            return self.values * own
        return jnp.einsum("kde,ek->dk", self.values, own)

    def weight(self, i: Int[Array, "*some"]) -> Array:
        """`C_i` or `b_i` of some vectors."""
        return self.values[i] if self.values.ndim else jnp.broadcast_to(self.values, i.shape)

    def mix_one(self, i: Int[Array, ""], parents: Float[Array, "P d"]) -> Float[Array, " d"]:
        """`C_i psi` of one vector and its parent."""
        return self.push(i, parents[self.parent[i]])

    def push(self, i: Int[Array, ""], v: Float[Array, "d *e"]) -> Float[Array, "d *e"]:
        """`C_i v`."""
        weight = self.weight(i)
        return weight @ v if weight.ndim else weight * v

    def pull(self, i: Int[Array, ""], v: Float[Array, " d"]) -> Float[Array, " d"]:
        """`C_i' v`."""
        weight = self.weight(i)
        return v @ weight if weight.ndim else weight * v


def single_arrows(arrows: Operator) -> SingleArrows:
    """The weights of a level with one arrow at most for each vector, in this form."""
    return SingleArrows(*single_arrows_of(arrows))
