"""NUTS over the unknown numbers alone, on their evidence: the posterior of `Collapsed`.

The energy of a position costs what the evidence does, whatever the number of rewards was, and there are
as few dimensions as there are unknown numbers: funnels between scales and vectors, which chains on all
numbers have to find their way through, are integrated out.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ...models.declaration import Declaration
from ..compiling import jit_loop
from ..programs.chains import advance, begin_chains
from ..programs.mixing import num_correlated, num_unmixed
from ..status import Status, Trouble
from .numbers import Position, flat
from .particles import as_rows, moved, resampled
from .population import CollapsedState, Mixing, Particles

__all__ = [
    "ChainOptions",
    "EvidenceTarget",
    "Sampled",
    "sampled",
    "status_of",
    "walked",
    "with_chains",
]

_STEPS = 2  # from one kept position of a particle to the next: a proposal of either kind


class ChainOptions(NamedTuple):
    """How chains over the unknown numbers run; see `Collapsed`."""

    chains: int
    warmup: int
    samples: int
    target_accept: float


class EvidenceTarget(Declaration):
    """The posterior of the unknown numbers, as the kernel of `chains` takes one."""

    mixing: Mixing

    def potential(self, position: Position, kept: Any) -> Float[Array, ""]:
        """Minus the log density of a position and all rewards."""
        density = self.mixing.log_target(position, kept)
        return jnp.where(jnp.isnan(density), jnp.inf, -density)


class _Settings(Declaration):
    """What `chains` needs to know of a backend."""

    target: EvidenceTarget
    warmup: int = eqx.field(static=True)
    target_accept: float = eqx.field(static=True)
    max_depth: int = eqx.field(default=8, static=True)
    dense_mass: bool = eqx.field(default=True, static=True)


class Sampled(NamedTuple):
    """Positions, chain by chain, and counts of the transitions that drew them."""

    positions: Position
    divergences: Array
    saturated: Array
    transitions: Array
    stuck: Array


def sampled(mixing: Mixing, options: ChainOptions, key: Array, state: CollapsedState) -> Sampled:
    """`samples` positions of each chain, started at particles and adapted by `warmup` transitions."""
    settings = _Settings(EvidenceTarget(mixing), options.warmup, options.target_accept)
    key_start, key_chains = jax.random.split(key)
    starts, mass = _starts(key_start, state.particles, options.chains)
    keys = jax.random.split(key_chains, options.chains)
    masses = jnp.broadcast_to(mass, (options.chains, *mass.shape))
    begun = begin_chains(settings, state.kept, starts, keys, jnp.ones(options.chains), masses)
    count = options.warmup + options.samples
    run = advance(settings, state.kept, begun, count, keep=options.samples)
    # The last draws are kept in a ring, which need not begin with the oldest.
    order = (count + jnp.arange(options.samples)) % options.samples
    kept = jax.tree.map(lambda leaf: leaf[:, order].reshape(-1, *leaf.shape[2:]), run.kept)
    chains = run.chains
    stuck = ~jnp.isfinite(chains.potential_energy) | (chains.mean_accept_prob < 0.1)
    counts = run.divergences, run.saturated, run.transitions, stuck
    return Sampled(kept, *(part.sum(dtype=jnp.int32) for part in counts))


def walked(mixing: Mixing, options: ChainOptions, key: Array, state: CollapsedState) -> Sampled:
    """As many positions as `sampled` gives, by moves of the particles alone.

    For rewards that are not Gaussian, whose messages are matched in a loop that has no gradient backwards.
    """
    total = options.chains * options.samples
    positions, accepted = _walk(mixing, key, state, count=total)
    none = jnp.zeros((), jnp.int32)
    return Sampled(positions, none, none, none, jnp.asarray(accepted < 0.02, jnp.int32))


@partial(jit_loop, static_argnames="count")
def _walk(
    mixing: Mixing, key: Array, state: CollapsedState, *, count: int
) -> tuple[Position, Float[Array, ""]]:
    """`count` positions, in the order of time, and the share of proposals that were accepted."""
    rows, back = flat(state.particles.positions)
    M = len(rows)
    rounds = -(-count // M)
    weights, even = state.particles.log_weights, jnp.full(M, -jnp.log(M))

    def target(row: Array) -> tuple[Array, Any]:
        return mixing.log_target(back(row), state.kept), ()

    def one(now: tuple[Array, Array], key: Array) -> tuple[tuple[Array, Array], Any]:
        after = moved(key, *now, target, _STEPS)
        return (after.positions, even), (after.positions, after.accepted)

    keys = jax.random.split(key, rounds)
    _, (path, accepted) = jax.lax.scan(one, (rows, weights), keys)
    kept = path.reshape(rounds * M, -1)[:count]
    return jax.vmap(back)(kept), accepted.mean() / (M * _STEPS)


@jax.jit(static_argnames="chains")
def _starts(key: Array, particles: Particles, chains: int) -> tuple[Position, Array]:
    """Where chains start, and the covariance of the particles."""
    rows, _ = flat(particles.positions)
    weights = jnp.exp(particles.log_weights)[:, None]
    away = rows - jnp.sum(weights * rows, axis=0)
    cov = (weights * away).T @ away
    p = cov.shape[0]
    ridge = 1e-3 * jnp.diag(jnp.diagonal(cov)) + 1e-6 * jnp.eye(p, dtype=cov.dtype)
    chosen = resampled(key, particles.log_weights, chains)
    return as_rows(particles.positions, chosen), cov + ridge


def with_chains(state: CollapsedState, found: Sampled) -> CollapsedState:
    """The state whose particles are the draws of chains, with equal weights."""
    info = state.particles.info._replace(
        divergences=found.divergences,
        saturated=found.saturated,
        transitions=found.transitions,
        stuck=found.stuck,
    )
    count = jax.tree.leaves(found.positions)[0].shape[0]
    particles = state.particles._replace(
        positions=found.positions,
        log_weights=jnp.full(count, -jnp.log(count)),
        states=None,
        info=info,
    )
    return state._replace(particles=particles)


@jax.jit(static_argnames="chains")
def status_of(state: CollapsedState, chains: int) -> Status:
    """What went wrong with particles, or with the chains that a state is from."""
    particles, info = state.particles, state.particles.info
    made = jnp.maximum(info.transitions, 1)
    counts = {
        Trouble.REJECTED: info.rejected,
        Trouble.COLLAPSED: info.collapsed,
        Trouble.IMMOBILE: info.immobile,
        Trouble.NO_EVIDENCE: info.broken,
    }
    if particles.states is None:
        draws = flat(particles.positions)[0]
        draws = draws.reshape(chains, -1, draws.shape[-1])
        counts |= {
            Trouble.DIVERGING: jnp.where(info.divergences > 0.01 * made, info.divergences, 0),
            Trouble.SATURATED: jnp.where(info.saturated > 0.1 * made, info.saturated, 0),
            Trouble.STUCK: info.stuck,
            Trouble.UNMIXED: num_unmixed(draws, jnp.ones((), bool)),
            Trouble.CORRELATED: num_correlated(draws),
        }
    else:
        leaves = jax.tree.leaves((particles.states, particles.positions))
        counts[Trouble.NOT_FINITE] = sum(
            (jnp.sum(~jnp.isfinite(leaf)) for leaf in leaves), jnp.zeros((), int)
        )
    return Status(counts)
