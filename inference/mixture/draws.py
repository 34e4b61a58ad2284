"""Draws and moments of particles: of a particle by its weight, then exactly given it."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from .particles import as_rows, resampled
from .population import CollapsedState, Mixing

__all__ = ["all_drawn", "drawn", "drawn_scores", "evenly_chosen", "moments", "scores_of"]

_BATCH = 64  # particles whose posteriors are made at a time, where they are not kept


def drawn(mixing: Mixing, key: Array, state: CollapsedState) -> dict[str, Array]:
    """One joint draw of every level."""
    key_which, key_draw = jax.random.split(key)
    backend, own = _own(mixing, state, _one(key_which, state))
    return backend.sample(key_draw, own)


def drawn_scores(
    mixing: Mixing, key: Array, state: CollapsedState, context: Float[Array, "*K d"]
) -> Float[Array, " K"]:
    """The score of every action in one joint draw."""
    key_which, key_draw = jax.random.split(key)
    backend, own = _own(mixing, state, _one(key_which, state))
    return backend.sample_scores(key_draw, own, context)


def evenly_chosen(key: Array, state: CollapsedState, n: int) -> Int[Array, " n"]:
    """Which particles `n` draws are of, as evenly as their weights allow, in random order."""
    key_choice, key_order = jax.random.split(key)
    which = resampled(key_choice, state.particles.log_weights, n)
    return jax.random.permutation(key_order, which)


def all_drawn(
    mixing: Mixing, key: Array, state: CollapsedState, which: Int[Array, " n"]
) -> dict[str, Array]:
    """A draw of every level given each of some particles, and the numbers that these have."""

    def one(given: tuple[Array, Array]) -> dict[str, Array]:
        index, key = given
        backend, own = _own(mixing, state, index)
        numbers = mixing.numbers.values(as_rows(state.particles.positions, index))
        return backend.sample(key, own) | numbers

    keys = jax.random.split(key, len(which))
    found = jax.lax.map(one, (which, keys), batch_size=_BATCH)
    names = [level.name for level in mixing.hierarchy.levels]
    return {name: found[name] for name in (*names, *mixing.numbers.sites)}


def scores_of(
    mixing: Mixing,
    key: Array,
    state: CollapsedState,
    which: Int[Array, " n"],
    context: Float[Array, "*K d"],
) -> Float[Array, "n K"]:
    """The scores of every action in a draw given each of some particles."""

    def one(given: tuple[Array, Array]) -> Array:
        index, key = given
        backend, own = _own(mixing, state, index)
        return backend.sample_scores(key, own, context)

    keys = jax.random.split(key, len(which))
    return jax.lax.map(one, (which, keys), batch_size=_BATCH)


def moments(
    mixing: Mixing, state: CollapsedState
) -> tuple[dict[str, Float[Array, "_ d"]], dict[str, Float[Array, "_ d d"]]]:
    """Means and covariances of every level, of the mixture of the posteriors given each particle.

    The covariance of a mixture is the mean of covariances, and the covariance of means.
    """
    weights = jnp.exp(state.particles.log_weights)

    def one(index: Array) -> tuple[Any, Any]:
        backend, own = _own(mixing, state, index)
        found = backend.posterior(own)
        return found.mean, found.cov

    def add(total: Any, indices: Array) -> tuple[Any, None]:
        mean, cov = jax.vmap(one)(jnp.maximum(indices, 0))
        own = jnp.where(indices >= 0, weights[indices], 0.0)
        away = jax.tree.map(jnp.subtract, mean, centre)
        more = (
            jax.tree.map(lambda m: jnp.einsum("m,mkd->kd", own, m), away),
            jax.tree.map(
                lambda c, m: (
                    jnp.einsum("m,mkde->kde", own, c) + jnp.einsum("m,mkd,mke->kde", own, m, m)
                ),
                cov,
                away,
            ),
        )
        return jax.tree.map(jnp.add, total, more), None

    M = len(weights)
    centre, blank = one(jnp.zeros((), int))  # so that squares are of differences alone
    nothing = jax.tree.map(jnp.zeros_like, (centre, blank))
    batch = min(_BATCH, M)
    padded = jnp.full(-(-M // batch) * batch, -1).at[:M].set(jnp.arange(M)).reshape(-1, batch)
    (shift, second), _ = jax.lax.scan(add, nothing, padded)
    mean = jax.tree.map(jnp.add, centre, shift)
    cov = jax.tree.map(lambda c, m: c - jnp.einsum("kd,ke->kde", m, m), second, shift)
    return mean, cov


def _one(key: Array, state: CollapsedState) -> Int[Array, ""]:
    """A particle by its weight."""
    return jax.random.categorical(key, state.particles.log_weights)


def _own(mixing: Mixing, state: CollapsedState, index: Array) -> tuple[Any, Any]:
    """The exact backend and its state given one particle."""
    position = as_rows(state.particles.positions, index)
    if state.particles.states is None:
        return mixing.backend(position), mixing.state(position, state.kept)
    return mixing.backend(position), as_rows(state.particles.states, index)
