"""From a declaration to a NumPyro program: one function for every hierarchy.

Each level, top to bottom, is `value ~ N(g(mean + sum_parents W parent), cov)`; then each observation is
`y_t ~ law of the reward with predictor x_t' theta_{a_t}`.
"""

from contextlib import nullcontext
from typing import TYPE_CHECKING, cast

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from jaxtyping import Bool, Float, Int, Num
from numpyro import handlers

from ..models import weights as mixing
from .covariance import is_diagonal, is_joint, scale_tril
from .level import Level
from .rewards import Gaussian, Reward
from .weights import Sparse, is_learned

if TYPE_CHECKING:
    from .hierarchy import Hierarchy

__all__ = ["latents", "program"]


def program(
    hierarchy: "Hierarchy",
    contexts: Float[Array, "n d"],
    actions: Int[Array, " n"],
    rewards: Float[Array, " n"] | None = None,
    mask: Bool[Array, " n"] | None = None,
) -> Num[Array, " n"]:
    """The whole model of Eq. 1: latent levels and the `reward` site.

    Rows where `mask` is False are padding and add nothing to the density.
    """
    theta = latents(hierarchy)[hierarchy.actions.name]
    reward = _known_reward(hierarchy.reward)
    predictor = jnp.sum(contexts * theta[actions], axis=-1)
    n = contexts.shape[0]
    # NumPyro has no empty plates: without data the reward is an empty site of its own.
    with numpyro.plate("observation", n) if n else nullcontext():
        if mask is None:
            return _sample("reward", reward.law(predictor), obs=rewards)
        with handlers.mask(mask=mask):
            return _sample("reward", reward.law(predictor), obs=rewards)


def latents(hierarchy: "Hierarchy") -> dict[str, Float[Array, "size d"]]:
    """Sample the vectors of every level, top to bottom, each in a site named after the level."""
    values: dict[str, Array] = {}
    for level in hierarchy.levels:
        values[level.name] = _vectors(level, values, hierarchy.dim)
    return values


def _sample(name: str, law: dist.Distribution, obs: Array | None = None) -> Array:
    """NumPyro's `sample`, which is an array here but could be any number to a type checker."""
    return cast(Array, numpyro.sample(name, law, obs=obs))


def _record(name: str, value: Array) -> Array:
    return cast(Array, numpyro.deterministic(name, value))


def _known_reward(reward: Reward) -> Reward:
    """The reward family with its unknown noise, if any, sampled."""
    if isinstance(reward, Gaussian) and reward.is_learned:
        noise = _sample("reward_noise", reward.noise)
        return Gaussian(noise) if noise is not None else reward
    return reward


def _vectors(level: Level, values: dict[str, Array], dim: int) -> Float[Array, "size d"]:
    """Sample one level given the levels above it."""
    loc = _location(level, values, dim)
    if level.scale is None:
        deviation = jnp.sqrt(level.cov) if is_diagonal(level.cov) else None
        joint = is_joint(level.cov, level.size, dim)
    else:
        law = level.scale
        deviation = _sample(f"{level.name}_scale", law.to_event(len(law.batch_shape)))
        joint = False
    if joint:
        return _joint_vectors(level, loc)
    plate = numpyro.plate(f"{level.name}_plate", level.size)
    if level.centered:
        with plate:
            return _sample(level.name, _law(level, loc, deviation))
    with plate:
        base = _sample(f"{level.name}_base", _standard_law(level, (level.size, dim)))
    if deviation is None:
        moved = jnp.einsum("...ij,...j->...i", scale_tril(level.cov, dim), base)
    else:
        moved = deviation * base
    return _record(level.name, loc + moved)


def _location(level: Level, values: dict[str, Array], dim: int) -> Float[Array, "size d"]:
    """`g(mean_i + sum_l W_il parent_l)` for each vector of the level."""
    loc = jnp.broadcast_to(level.mean, (level.size, dim))
    for parent, weights in (level.parents or {}).items():
        if is_learned(weights):
            law = mixing.law(weights, level.size, values[parent].shape[0], dim)
            drawn = _sample(f"{level.name}_weights_{parent}", law)
            weights = (
                Sparse(weights.indices, drawn, weights.num_parents)
                if isinstance(weights, Sparse)
                else drawn
            )
        loc = loc + mixing.mix(weights, values[parent])
    return loc if level.link is None else level.link(loc)


def _law(level: Level, loc: Array, deviation: Array | None) -> dist.Distribution:
    """The law of a level's vectors around `loc`, with a diagonal `deviation` or the level's cov."""
    dim = loc.shape[-1]
    if level.family is not None:
        if deviation is None:
            tril = scale_tril(level.cov, dim)
        else:
            full = deviation.shape[:-1] if deviation.ndim == 2 else ()
            tril = jnp.broadcast_to(deviation, (*full, dim))[..., None] * jnp.eye(dim)
        return level.family(loc, tril)
    if deviation is None:
        return dist.MultivariateNormal(loc, scale_tril=scale_tril(level.cov, dim))
    return dist.Normal(loc, jnp.broadcast_to(deviation, loc.shape)).to_event(1)


def _standard_law(level: Level, shape: tuple[int, ...]) -> dist.Distribution:
    """The law of a level's vectors, moved to the origin and scaled to the identity."""
    if level.family is not None:
        return level.family(jnp.zeros(shape), jnp.eye(shape[-1]))
    return dist.Normal(0.0, 1.0).expand(shape).to_event(1)


def _joint_vectors(level: Level, loc: Float[Array, "size d"]) -> Float[Array, "size d"]:
    """A level whose vectors are tied by a joint covariance: one event of shape (size, d)."""
    tril = scale_tril(level.cov, loc.shape[-1])
    if level.centered:
        if level.family is None:
            flat = dist.MultivariateNormal(loc.ravel(), scale_tril=tril)
        else:
            flat = level.family(loc.ravel(), tril)
        shaped = dist.transforms.ReshapeTransform(loc.shape, (loc.size,))
        return _sample(level.name, dist.TransformedDistribution(flat, shaped))
    base = _sample(f"{level.name}_base", _standard_law(level, (loc.size,)))
    return _record(level.name, loc + (tril @ base).reshape(loc.shape))
