"""The state of `Collapsed`: particles with exact posteriors, and how rewards change it.

`renewed` is what happens to particles whose weights have become uneven; `bridged` takes in many rewards at
once, by as many shares of their evidence as it takes (Del Moral, Doucet & Jasra 2006).
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import logsumexp
from jaxtyping import Float, Int

from ...models import Hierarchy
from ..gaussian.backend import GaussianBackend
from ..gaussian.square_roots import add_compensated
from .numbers import Numbers, Position, flat
from .particles import bridge, effective_size, moved, normalised
from .rewards_kept import KeptRewards

__all__ = ["CollapsedState", "Mixing", "MixtureInfo", "Particles"]

_LEAST = 0.5  # of the particles, the effective size below which they are renewed
_FEWEST = 4  # particles that all weight may be on; fewer are no sample any more
_LEAST_ACCEPTED = 0.02  # of the proposals of a renewal


class MixtureInfo(NamedTuple):
    """Counts of what has happened so far.

    Attributes:
        rejected: observations that could not be used.
        renewals: how many times particles were resampled and moved.
        collapsed: how many times nearly all weight was on a few particles.
        immobile: how many renewals accepted hardly any move.
        broken: how many evidences were not finite.
        divergences: of the chains of `posterior`.
        saturated: trajectories of these chains that were the longest allowed.
        transitions: of these chains.
        stuck: how many of them hardly move.
    """

    rejected: Int[Array, ""]
    renewals: Int[Array, ""]
    collapsed: Int[Array, ""]
    immobile: Int[Array, ""]
    broken: Int[Array, ""]
    divergences: Int[Array, ""]
    saturated: Int[Array, ""]
    transitions: Int[Array, ""]
    stuck: Int[Array, ""]


class Particles(NamedTuple):
    """Values of the unknown numbers with their weights, and the exact posterior given each.

    Attributes:
        positions: site -> (M, ...), without limits; see `numbers`.
        log_weights: (M,), which sum to one.
        states: the exact posterior given each, with a leading axis; None where they are made when needed.
        log_evidence: the log density of all rewards, an estimate from the weights.
        rounding: the rounding error of that sum.
        key: what the next renewal draws from.
        info: counts of what has happened.
    """

    positions: Position
    log_weights: Float[Array, " M"]
    states: Any
    log_evidence: Float[Array, ""]
    rounding: Float[Array, ""]
    key: Array
    info: MixtureInfo


class CollapsedState(NamedTuple):
    """Particles, and what is kept of the rewards.

    Attributes:
        particles: values of the unknown numbers.
        kept: of the rewards; see `rewards_kept`.
    """

    particles: Particles
    kept: Any


class Mixing(eqx.Module):
    """How particles of a hierarchy are made, weighted, moved and given their posteriors.

    Attributes:
        hierarchy: the declaration.
        rewards: what is kept of rewards.
        steps: Metropolis-Hastings steps of a renewal.
    """

    hierarchy: Hierarchy
    rewards: KeptRewards
    steps: int = eqx.field(static=True)

    @property
    def numbers(self) -> Numbers:
        """The unknown numbers."""
        return Numbers(self.hierarchy)

    def backend(self, position: Position) -> GaussianBackend:
        """The exact backend given the numbers."""
        return self.rewards.backend(self.numbers.given(position))

    def state(self, position: Position, kept: Any) -> Any:
        """Its state after all rewards; its own evidence counts from here."""
        return _from_zero(self.rewards.state(self.numbers.given(position), kept))

    def log_evidence(self, position: Position, kept: Any) -> Float[Array, ""]:
        """The log density of all rewards given the numbers."""
        return self.rewards.log_evidence(self.numbers.given(position), kept)

    def log_target(self, position: Position, kept: Any) -> Float[Array, ""]:
        """The log density of a position and all rewards."""
        return self.numbers.log_prior(position) + self.log_evidence(position, kept)

    def states(self, positions: Position, kept: Any) -> Any:
        """The exact posterior given each of some positions."""
        return jax.vmap(lambda position: self.state(position, kept))(positions)

    def start(self, key: Array, particles: int) -> Particles:
        """Particles from the prior."""
        key_draw, key = jax.random.split(key)
        positions = self.numbers.draw(key_draw, particles)
        states = jax.vmap(lambda position: _from_zero(self.backend(position).init()))(positions)
        even = jnp.full(particles, -jnp.log(particles))
        zero, none = jnp.zeros(()), jnp.zeros((), jnp.int32)
        return Particles(
            positions,
            even,
            states,
            zero,
            zero,
            key,
            MixtureInfo(*[none] * len(MixtureInfo._fields)),
        )

    def after_one(self, state: CollapsedState, observation: tuple[Any, ...]) -> CollapsedState:
        """After one observation (context, action, reward, exposure)."""
        rows = jax.tree.map(lambda part: part[None], observation)
        kept, rejected = self.rewards.add(self.hierarchy, state.kept, rows)
        particles = _rejecting(self.updated(state.particles, observation), rejected)
        return CollapsedState(self.renewed(particles, kept), kept)

    def after_many(self, state: CollapsedState, rows: tuple[Any, ...]) -> CollapsedState:
        """After many observations (contexts, actions, rewards, exposure)."""
        kept, rejected = self.rewards.add(self.hierarchy, state.kept, rows)
        particles = self.bridged(state.particles, state.kept, kept)
        return CollapsedState(_rejecting(particles, rejected), kept)

    def forgotten(self, state: CollapsedState, factor: Float[Array, ""]) -> CollapsedState:
        """With all evidence raised to a power; one outside (0, 1] changes nothing, and is counted."""
        valid = (factor > 0) & (factor <= 1)
        kept = self.rewards.forget(state.kept, jnp.where(valid, factor, 1.0))
        particles = self.bridged(state.particles, state.kept, kept)
        lost = jnp.where(factor < 1, jnp.nan, particles.log_evidence)
        changed = CollapsedState(particles._replace(log_evidence=lost), kept)
        changes = valid & (factor < 1)
        pick = lambda new, old: jnp.where(changes, new, old)  # noqa: E731
        chosen = jax.tree.map(pick, changed, state)
        return chosen._replace(particles=_rejecting(chosen.particles, ~valid))

    def updated(self, particles: Particles, observation: Any) -> Particles:
        """After one reward: each posterior exactly, and weights by its density one step ahead."""

        def one(position: Position, state: Any) -> tuple[Any, Array]:
            after = self.backend(position).update(state, *observation)
            return _from_zero(after), after.log_evidence

        states, gain = jax.vmap(one)(particles.positions, particles.states)
        return _weighed(particles._replace(states=states), gain)

    def renewed(self, particles: Particles, kept: Any) -> Particles:
        """Particles resampled and moved, with new posteriors, if their weights have become uneven.

        A loop that runs once at most: with `vmap`, unlike `lax.cond`, it is left out where it can be.
        """
        least = _LEAST * len(particles.log_weights)

        def is_worn(now: Particles) -> Array:
            return effective_size(now.log_weights) < least

        def renew(now: Particles) -> Particles:
            now, _ = self._moved(now, lambda position: (self.log_target(position, kept), ()))
            return now._replace(states=self.states(now.positions, kept))

        return jax.lax.while_loop(is_worn, renew, particles)

    def bridged(self, particles: Particles, before: Any, after: Any) -> Particles:
        """After many rewards at once, known by what was kept before and after them.

        As large a share of their evidence is taken in as leaves half of the effective size; particles are
        resampled and moved; and so on until all of it is.
        """
        least = _LEAST * len(particles.log_weights)

        # In a loop of two, as the evidence takes long to compile.
        both = jax.tree.map(lambda old, new: jnp.stack([old, new]), before, after)

        def evidences(position: Position) -> tuple[Array, Array]:
            found = jax.lax.map(lambda kept: self.log_evidence(position, kept), both)
            return found[0], found[1]

        def share(now: Particles, gain: Array, left: Array) -> Array:
            return bridge(now.log_weights, gain, left, least)

        def is_too_much(state: tuple[Particles, Array, Array, Array]) -> Array:
            _, _, left, part = state
            return part < left

        def one_share(state: tuple[Particles, Array, Array, Array]) -> tuple[Any, ...]:
            now, gain, left, part = state
            left = left - part

            def target(position: Position) -> tuple[Array, Any]:
                old, new = evidences(position)
                bridged = left * old + (1 - left) * new
                return self.numbers.log_prior(position) + bridged, (old, new)

            now, found = self._moved(_weighed(now, part * gain), target)
            gain = _gain(*found)
            return now, gain, left, share(now, gain, left)

        gain = _gain(*jax.vmap(evidences)(particles.positions))
        now = particles._replace(states=None)
        all_of_it = jnp.ones((), gain.dtype)
        start = now, gain, all_of_it, share(now, gain, all_of_it)
        now, gain, left, _ = jax.lax.while_loop(is_too_much, one_share, start)
        now = _weighed(now, left * gain)
        return now._replace(states=self.states(now.positions, after))

    def _moved(self, now: Particles, target: Any) -> tuple[Particles, Any]:
        """Particles resampled and moved towards a target, without posteriors; evenly weighted.

        Also what the target's density was computed from, where they are.
        """
        rows, back = flat(now.positions)
        M = len(rows)
        key, key_moves = jax.random.split(now.key)
        after = moved(key_moves, rows, now.log_weights, lambda row: target(back(row)), self.steps)
        info = now.info._replace(
            renewals=now.info.renewals + 1,
            collapsed=now.info.collapsed + (effective_size(now.log_weights) < _FEWEST),
            immobile=now.info.immobile + (after.accepted < _LEAST_ACCEPTED * M * self.steps),
            broken=now.info.broken + after.broken,
        )
        even = jnp.full_like(now.log_weights, -jnp.log(M))
        positions = jax.vmap(back)(after.positions)
        return now._replace(positions=positions, log_weights=even, key=key, info=info), after.found


def _gain(old: Float[Array, " M"], new: Float[Array, " M"]) -> Float[Array, " M"]:
    """By how much log evidences rise; what is not finite counts as impossible."""
    return jnp.where(jnp.isfinite(new - old), new - old, -jnp.inf)


def _rejecting(particles: Particles, rejected: Array) -> Particles:
    """With more observations counted that could not be used."""
    total = particles.info.rejected + jnp.asarray(rejected, jnp.int32)
    return particles._replace(info=particles.info._replace(rejected=total))


def _weighed(particles: Particles, gain: Float[Array, " M"]) -> Particles:
    """Particles whose log weights have gained so much; as they were where none of it is finite."""
    sound = jnp.where(jnp.isnan(gain), -jnp.inf, gain)
    raised = particles.log_weights + sound
    total = logsumexp(raised)
    finite = jnp.isfinite(total)
    log_evidence, rounding = add_compensated(
        particles.log_evidence, particles.rounding, jnp.where(finite, total, 0.0)
    )
    weights = jnp.where(finite, normalised(raised), particles.log_weights)
    info = particles.info._replace(broken=particles.info.broken + ~finite)
    return particles._replace(
        log_weights=weights, log_evidence=log_evidence, rounding=rounding, info=info
    )


def _from_zero(state: Any) -> Any:
    """A state whose own log evidence starts again, so that what it gains next loses no digits."""
    zero = jnp.zeros_like(state.log_evidence)
    return state._replace(log_evidence=zero, rounding=zero)
