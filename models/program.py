"""From a declaration to a NumPyro program: one function for every hierarchy.

Each level, top to bottom, is `value ~ N(g(mean + sum_parents W parent), cov)`; then each observation is
`y_t ~ law of the reward with predictor x_t' theta_{a_t}`.
"""

from contextlib import nullcontext
from typing import TYPE_CHECKING, cast

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jaxtyping import Bool, Float, Int, Num
from numpyro import handlers

from .level import Level
from .random_walk import displacements
from .weights import as_operator

if TYPE_CHECKING:
    from .hierarchy import Hierarchy

__all__ = ["latents", "program"]


def program(
    hierarchy: "Hierarchy",
    contexts: Float[Array, "n d"],
    actions: Int[Array, " n"],
    rewards: Float[Array, " n"] | None = None,
    exposure: Float[Array, " n"] | None = None,
    mask: Bool[Array, " n"] | None = None,
    rounds: Int[np.ndarray, " n"] | None = None,
) -> Num[Array, " n"]:
    """The whole model of Eq. 1: latent levels and the `reward` site.

    Rows where `mask` is False are padding and add nothing to the density. Levels that drift have taken as
    many steps as there are `rounds` before each row.
    """
    theta = latents(hierarchy)[hierarchy.actions.name][actions]
    if rounds is not None and rounds.size:
        theta = theta + displacements(hierarchy, int(rounds.max()), _sample)[rounds, actions]
    reward = hierarchy.reward
    reward = reward.given(_sample_all(reward.unknowns))
    predictor = jnp.sum(contexts * theta, axis=-1)
    n = contexts.shape[0]
    # NumPyro has no empty plates: without data the reward is an empty site of its own.
    plate = numpyro.plate("observation", n) if n else nullcontext()
    with plate, nullcontext() if mask is None else handlers.mask(mask=mask):
        return _sample("reward", reward.law_of(predictor, exposure), obs=rewards)


def latents(hierarchy: "Hierarchy") -> dict[str, Float[Array, "size d"]]:
    """Sample the vectors of every level, top to bottom, each in a site named after the level."""
    values: dict[str, Array] = {}
    sizes = {level.name: level.size for level in hierarchy.levels}
    for level in hierarchy.levels:
        known = _sample_all(level.unknowns(sizes, hierarchy.dim))
        values[level.name] = _vectors(level, known, values, hierarchy.dim)
    return values


def _sample_all(laws: dict[str, dist.Distribution]) -> dict[str, Array]:
    """Sample numbers that are unknown, each in a site of its own."""
    return {site: _sample(site, law) for site, law in laws.items()}


def _sample(name: str, law: dist.Distribution, obs: Array | None = None) -> Array:
    """NumPyro's `sample`, which is an array here but could be any number to a type checker."""
    return cast(Array, numpyro.sample(name, law, obs=obs))


def _vectors(
    level: Level, known: dict[str, Array], values: dict[str, Array], dim: int
) -> Float[Array, "size d"]:
    """Sample one level given those of its numbers that were unknown, and the levels above it.

    Vectors tied by a joint covariance are one event, the others a plate of events.
    """
    loc = _location(level, known, values, dim)
    shape, (deviation, tril, joint) = loc.shape, level.spread(known, dim)
    loc = loc.ravel() if joint else loc
    with nullcontext() if joint else numpyro.plate(f"{level.name}_plate", level.size):
        if level.centered:
            law = _law(level, loc, deviation, tril)
            if joint:
                reshaped = dist.transforms.ReshapeTransform(shape, loc.shape)
                law = dist.TransformedDistribution(law, reshaped)
            return _sample(level.name, law)
        base = _sample(f"{level.name}_base", _standard_law(level, loc.shape))
    moved = jnp.einsum("...ij,...j->...i", tril, base) if deviation is None else deviation * base
    return cast(Array, numpyro.deterministic(level.name, (loc + moved).reshape(shape)))


def _location(
    level: Level, known: dict[str, Array], values: dict[str, Array], dim: int
) -> Float[Array, "size d"]:
    """`g(mean_i + sum_l W_il parent_l)` for each vector of the level."""
    mean = known[level.mean_site] if level.learns_mean else level.mean
    loc = jnp.broadcast_to(mean, (level.size, dim))
    for parent, arrows in level.arrows.items():
        if arrows.is_learned:
            arrows = as_operator(arrows.with_values(known[level.weights_site(parent)]))
        loc = loc + arrows.mix(values[parent])
    return loc if level.link is None else level.link(loc)


def _law(
    level: Level, loc: Array, deviation: Array | None, tril: Array | None
) -> dist.Distribution:
    """The law of a level's vectors around `loc`, with standard deviations or a Cholesky factor."""
    if deviation is not None and level.family is None:
        return dist.Normal(loc, jnp.broadcast_to(deviation, loc.shape)).to_event(1)
    if deviation is not None:
        dim, own = loc.shape[-1], deviation.shape[:-1]
        tril = jnp.broadcast_to(deviation, (*own, dim))[..., None] * jnp.eye(dim)
    assert tril is not None
    if level.family is None:
        return dist.MultivariateNormal(loc, scale_tril=tril)
    return level.family(loc, tril)


def _standard_law(level: Level, shape: tuple[int, ...]) -> dist.Distribution:
    """The law of a level's vectors, moved to the origin and scaled to the identity."""
    if level.family is not None:
        return level.family(jnp.zeros(shape), jnp.eye(shape[-1]))
    return dist.Normal(0.0, 1.0).expand(shape).to_event(1)
