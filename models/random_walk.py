"""Levels that drift: from one round to the next, vectors take steps of a random walk.

What a vector differs by from the weighted sum of its parents, its own part, is

    v_i - sum_l W_il parent_l  ->  the same + N(0, rounds drift_i):

a movie gets better, a genre goes out of fashion and all its movies with it.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jaxtyping import Float, Int

from .arrays import is_concrete
from .messages import short

if TYPE_CHECKING:
    from .hierarchy import Hierarchy
    from .level import Level

__all__ = ["as_rounds", "displacements", "sample_step"]


def sample_step(
    hierarchy: "Hierarchy", key: Array, values: Mapping[str, Array], rounds: Any = 1.0
) -> dict[str, Float[Array, "size d"]]:
    """Every level's vectors so many rounds later, drawn given what they are now."""
    after: dict[str, Array] = {}
    for number, level in enumerate(hierarchy.levels):
        _check_linear(level)
        moved = jnp.asarray(values[level.name])
        for parent, arrows in level.arrows.items():
            moved = moved + arrows.mix(after[parent] - jnp.asarray(values[parent]))
        if level.drift is not None:
            noise = jax.random.normal(jax.random.fold_in(key, number), moved.shape, moved.dtype)
            roots = level.walk(hierarchy.dim).roots(level.size)
            moved = moved + jnp.sqrt(rounds) * jnp.einsum("kde,ke->kd", roots, noise)
        after[level.name] = moved
    return after


def displacements(
    hierarchy: "Hierarchy", last: int, sample: Callable[[str, dist.Distribution], Array]
) -> Float[Array, "rounds K d"]:
    """By how much actions have moved after 0, 1, ..., `last` rounds, given a function that samples sites.

    The steps of a level are standard normal numbers in a site `<level>_steps`, (last, size, d).
    """
    dim = hierarchy.dim
    moved: dict[str, Array] = {}
    for level in hierarchy.levels:
        _check_linear(level)
        own = jnp.zeros((last + 1, level.size, dim))
        if level.drift is not None and last:
            steps = sample(
                f"{level.name}_steps",
                dist.Normal(0.0, 1.0).expand([last, level.size, dim]).to_event(3),
            )
            steps = jnp.einsum("kde,tke->tkd", level.walk(dim).roots(level.size), steps)
            own = own.at[1:].set(jnp.cumsum(steps, axis=0))
        for parent, arrows in level.arrows.items():
            own = own + jax.vmap(arrows.mix)(moved[parent])
        moved[level.name] = own
    return moved[hierarchy.actions.name]


def as_rounds(rounds: Any, n: int) -> Int[np.ndarray, " n"]:
    """The round of each row, checked."""
    if not is_concrete(rounds):
        raise ValueError(
            "program rounds: got a traced array; expected numbers that are known, which decide how many "
            "steps there are"
        )
    given = np.asarray(rounds)
    if given.shape != (n,):
        raise ValueError(
            f"program rounds have shape {given.shape}; expected ({n},), one for each row"
        )
    if (n and (given.astype(float) != np.floor(given)).any()) or (given < 0).any():
        raise ValueError(
            f"program rounds are {short(rounds)}; expected whole numbers from 0: in which round each row "
            "was seen, where vectors are in round 0 what their sites say"
        )
    return given.astype(np.int32)


def _check_linear(level: "Level") -> None:
    if level.learned_weights or level.link is not None:
        why = "learns its weights" if level.learned_weights else "has a link"
        raise ValueError(
            f"level '{level.name}' {why}, and what drifts needs known weights and no link: leave "
            "drift out, or draw the world by hand in a Problem of your own"
        )
