"""Particles: values of unknown numbers, weighted by evidence, resampled and moved (Chopin 2002).

A population of `M` particles stands for the posterior of a few numbers. Each reward multiplies a weight
by its density one step ahead. When the effective sample size has fallen below half of `M`, particles are
drawn anew by their weights, and moved by a few Metropolis-Hastings steps that leave the posterior as it
is: *iterated batch importance sampling*. The data in a batch of length n make the weights degenerate
O(log n) times.

Proposals come from the particles themselves. Every other one is drawn from the Gaussian that has their
mean and covariance, whatever the particle (Chopin 2002, Section 4): where the posterior is near to it,
nearly all are accepted, and one is enough. The others are steps from where the particle is, which work
for any shape. The first kind is spread evenly: proposals of all particles together are a lattice, shifted
at random, each of them still a draw from its law, so that averages over particles have less error than
those of independent ones.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logsumexp, ndtri
from jaxtyping import Float, Int

__all__ = ["Moved", "as_rows", "bridge", "effective_size", "moved", "normalised", "resampled"]

Target = Callable[[Float[Array, " p"]], tuple[Float[Array, ""], Any]]

_WIDER = 1.1  # than the particles are the proposals drawn from all of them, in standard deviations
_HALVINGS = 30  # of an interval in which a share of the evidence is sought


def normalised(log_weights: Float[Array, " M"]) -> Float[Array, " M"]:
    """Log weights that sum to one; NaN counts as no weight."""
    sound = jnp.where(jnp.isnan(log_weights), -jnp.inf, log_weights)
    return sound - logsumexp(sound)


def effective_size(log_weights: Float[Array, " M"]) -> Float[Array, ""]:
    """`(sum w)^2 / sum w^2`: how many equally weighted particles they are worth."""
    return jnp.exp(2 * logsumexp(log_weights) - logsumexp(2 * log_weights))


def resampled(key: Array, log_weights: Float[Array, " M"], n: int) -> Int[Array, " n"]:
    """Which particles `n` draws by weight are: evenly spaced over the sums of the weights."""
    sums = jnp.cumsum(jnp.exp(log_weights))
    places = (jnp.arange(n) + jax.random.uniform(key)) / n * sums[-1]
    return jnp.minimum(jnp.searchsorted(sums, places, side="right"), len(sums) - 1)


def bridge(
    log_weights: Float[Array, " M"], gain: Float[Array, " M"], most: Float[Array, ""], least: float
) -> Float[Array, ""]:
    """The largest share of a gain in log evidence, up to `most`, that leaves an effective size."""

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = (low + high) / 2
        enough = effective_size(normalised(log_weights + middle * gain)) >= least
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    low, _ = jax.lax.fori_loop(0, _HALVINGS, halve, (jnp.zeros_like(most), most))
    all_of_it = effective_size(normalised(log_weights + most * gain)) >= least
    return jnp.where(all_of_it, most, jnp.maximum(low, 1e-6 * most))


class Moved(NamedTuple):
    """Particles after some moves.

    Attributes:
        positions: where they are.
        found: what the density was computed from, there.
        log_density: of the target, there.
        accepted: the number of accepted proposals.
        broken: the number of proposals at which the target was NaN or infinite.
    """

    positions: Float[Array, "M p"]
    found: Any
    log_density: Float[Array, " M"]
    accepted: Int[Array, ""]
    broken: Int[Array, ""]


def moved(
    key: Array,
    positions: Float[Array, "M p"],
    log_weights: Float[Array, " M"],
    target: Target,
    steps: int,
) -> Moved:
    """Particles resampled by their weights, and moved by `steps` steps that leave the target invariant.

    The target gives a log density, and what it was computed from, which is kept of where particles are.
    """
    M, p = positions.shape
    key_resample, key_steps = jax.random.split(key)
    mean, root = _fitted(positions, log_weights)
    chosen = positions[resampled(key_resample, log_weights, M)]
    densities = jax.vmap(target)

    def from_all(key: Array, now: Array) -> tuple[Array, Array]:
        noise = _lattice_normal(key, M, p)
        proposed = mean + _WIDER * noise @ root.T
        white = jax.scipy.linalg.solve_triangular(root, (now - mean).T, lower=True) / _WIDER
        return proposed, 0.5 * (jnp.sum(noise**2, axis=1) - jnp.sum(white**2, axis=0))

    def from_each(key: Array, now: Array) -> tuple[Array, Array]:
        key_size, key_noise = jax.random.split(key)
        # Long and short steps: some fit where the posterior is wide, and some where it is narrow.
        size = 2.4 / np.sqrt(p) * jnp.exp(jax.random.uniform(key_size, (M, 1), minval=-1.6))
        noise = jax.random.normal(key_noise, (M, p), positions.dtype)
        return now + size * noise @ root.T, jnp.zeros(M, positions.dtype)

    def stay(key: Array, now: Array) -> tuple[Array, Array]:
        return now, jnp.zeros(M, positions.dtype)

    def step(state: Moved, given: tuple[Array, Array]) -> tuple[Moved, None]:
        key, number = given
        key_from, key_accept = jax.random.split(key)
        kind = jnp.where(number == 0, 0, 1 + (number + 1) % 2)
        proposals = stay, from_all, from_each
        proposed, correction = jax.lax.switch(kind, proposals, key_from, state.positions)
        there, found = densities(proposed)
        broken = jnp.isnan(there) | (there == jnp.inf)
        ratio = jnp.where(broken, -jnp.inf, there - state.log_density + correction)
        accept = jnp.log(jax.random.uniform(key_accept, (M,))) < ratio
        accept |= number == 0  # which only finds the density of where particles are

        def kept(new: Array, old: Array) -> Array:
            return jnp.where(accept.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        counted = number > 0
        return Moved(
            kept(proposed, state.positions),
            jax.tree.map(kept, found, state.found),
            kept(there, state.log_density),
            state.accepted + counted * accept.sum(dtype=jnp.int32),
            state.broken + broken.sum(dtype=jnp.int32),
        ), None

    shapes = jax.eval_shape(densities, chosen)
    there, found = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    none = jnp.zeros((), jnp.int32)
    start = Moved(chosen, found, there, none, none)
    # The density is written once in the program, which takes long to compile.
    given = jax.random.split(key_steps, steps + 1), jnp.arange(steps + 1)
    return jax.lax.scan(step, start, given)[0]


def _fitted(
    positions: Float[Array, "M p"], log_weights: Float[Array, " M"]
) -> tuple[Float[Array, " p"], Float[Array, "p p"]]:
    """The mean of weighted particles and a root of their covariance, of full rank."""
    p = positions.shape[1]
    weights = jnp.exp(normalised(log_weights))[:, None]
    mean = jnp.sum(weights * positions, axis=0)
    away = positions - mean
    cov = (weights * away).T @ away
    scale = jnp.sqrt(jnp.diagonal(cov)) + 1e-4
    correlation = cov / scale / scale[:, None]
    root = jnp.linalg.cholesky(correlation + 1e-3 * jnp.eye(p, dtype=cov.dtype))
    return mean, scale[:, None] * root


def _lattice_normal(key: Array, n: int, p: int) -> Float[Array, "n p"]:
    """Standard normal rows that together fill the space evenly, in random order.

    A lattice with a random shift: its steps are powers of the root of `x^(p + 1) = x + 1`, the golden
    ratio where `p` is one (Roberts 2018).
    """
    key_shift, key_order = jax.random.split(key)
    ratio = 2.0
    for _ in range(40):
        ratio = (1 + ratio) ** (1 / (p + 1))
    steps = (1 / ratio) ** np.arange(1, p + 1)
    places = np.mod(np.arange(n)[:, None] * steps, 1.0)
    tiny = jnp.finfo(jnp.result_type(float)).eps
    shifted = jnp.mod(jnp.asarray(places) + jax.random.uniform(key_shift, (p,)), 1.0)
    order = jax.random.permutation(key_order, n)
    return ndtri(jnp.clip(shifted, tiny, 1 - tiny))[order]


def as_rows(tree: Any, index: Int[Array, "*n"] | int) -> Any:
    """Some particles of a tree whose leaves have them first."""
    return jax.tree.map(lambda leaf: leaf[index], tree)
