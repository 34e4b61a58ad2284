"""Levels that drift: from one round to the next, vectors take steps of a random walk.

What a vector differs by from the weighted sum of its parents, its own part, is

    v_i - sum_l W_il parent_l  ->  the same + N(0, rounds drift_i):

a movie gets better, a genre goes out of fashion and all its movies with it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

if TYPE_CHECKING:
    from .hierarchy import Hierarchy

__all__ = ["sample_step"]


def sample_step(
    hierarchy: "Hierarchy", key: Array, values: Mapping[str, Array], rounds: Any = 1.0
) -> dict[str, Float[Array, "size d"]]:
    """Every level's vectors so many rounds later, drawn given what they are now."""
    after: dict[str, Array] = {}
    for number, level in enumerate(hierarchy.levels):
        if level.learned_weights or level.link is not None:
            why = "learns its weights" if level.learned_weights else "has a link"
            raise ValueError(
                f"level '{level.name}' {why}, and what drifts needs known weights and no link: leave "
                "drift out, or draw the world by hand in a Problem of your own"
            )
        moved = jnp.asarray(values[level.name])
        for parent, arrows in level.arrows.items():
            moved = moved + arrows.mix(after[parent] - jnp.asarray(values[parent]))
        if level.drift is not None:
            noise = jax.random.normal(jax.random.fold_in(key, number), moved.shape, moved.dtype)
            roots = level.walk(hierarchy.dim).roots(level.size)
            moved = moved + jnp.sqrt(rounds) * jnp.einsum("kde,ke->kd", roots, noise)
        after[level.name] = moved
    return after
