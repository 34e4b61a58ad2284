"""`Collapsed`: exact posteriors, mixed over scales, noise and other numbers that are unknown."""

from dataclasses import KW_ONLY
from functools import partial
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ...models import Gaussian, Hierarchy
from ...models.arrays import as_count, is_concrete
from ...models.messages import short
from ..backend import Backend, Posterior
from ..compiling import jit_loop
from ..gaussian.closed_form import ClosedForm, check_hierarchy
from ..gaussian.expectation_propagation import ExpectationPropagation
from ..gaussian.forgetting import as_factor
from ..observation import as_context, many_observations, one_observation
from ..progress import reported
from ..status import Status, warn_of_trouble
from .chains import ChainOptions, sampled, status_of, walked, with_chains
from .draws import all_drawn, drawn, drawn_scores, evenly_chosen, moments, scores_of
from .limits import check_memory, has_own_numbers, why_not_collapsed
from .numbers import Numbers, Position
from .population import CollapsedState, Mixing
from .rewards_kept import KeptRewards, KeptRows, KeptSums

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Collapsed", "backend_for"]


class Collapsed(Backend[CollapsedState]):
    """Scales, noise and a few other numbers unknown: exact posteriors, mixed over what they may be.

    Given these numbers a hierarchy is linear and Gaussian in its levels, so all vectors can be integrated
    out: the posterior given them is that of `ClosedForm`, or of `ExpectationPropagation` where rewards are
    not Gaussian, and their own posterior is their prior times the evidence.

    - `update`, `condition`: particles, each with values of the unknown numbers and the exact posterior
      given them, weighted by how well they foresaw each reward. Where their weights become uneven, they are
      resampled and moved by Metropolis-Hastings on the evidence (iterated batch importance sampling,
      Chopin 2002), and their posteriors made anew from what is kept of the rewards. That happens
      O(log n) times in n rounds.
    - `posterior`: NUTS over the unknown numbers alone, or moves of the particles where rewards are not
      Gaussian, and exact draws of all vectors given each draw.

    Of Gaussian rewards sums are kept, which do not grow. Of others all rows are, as messages that stand for
    rewards have to be matched anew for each value of the numbers.

    Args:
        hierarchy: a declaration that learns some numbers. Given these, its levels are linear and Gaussian.
        particles: how many; a round costs as much as so many of `ClosedForm`, less what they share.
        moves: Metropolis-Hastings steps after each resampling.
        chains: of `posterior`.
        warmup: transitions of each chain for adaptation.
        samples: transitions of each chain that are kept.
        target_accept: acceptance rate that the chains' step sizes aim at.

    Example:
        >>> from mixts.inference import Collapsed
        >>> from mixts.models import linear
        >>> hierarchy = linear([[1.0], [1.0]], dim=1).remade(reward=Gaussian(dist.HalfNormal(1.0)))
        >>> backend = Collapsed(hierarchy, particles=64)
        >>> state = backend.update(backend.init(jax.random.key(0)), [1.0], action=0, reward=3.0)
        >>> backend.unknowns(state)["reward_noise"].shape
        (64,)
    """

    hierarchy: Hierarchy
    _: KW_ONLY
    particles: int = eqx.field(default=256, static=True)
    moves: int = eqx.field(default=3, static=True)
    chains: int = eqx.field(default=4, static=True)
    warmup: int = eqx.field(default=300, static=True)
    samples: int = eqx.field(default=500, static=True)
    target_accept: float = eqx.field(default=0.9, static=True)

    def __post_init__(self):
        check_hierarchy(self.hierarchy, "Collapsed")
        counts = ("particles", "moves", "chains", "warmup", "samples")
        for name in counts:
            setattr(self, name, as_count(getattr(self, name), f"Collapsed {name}"))
        if self.particles < 8:
            raise ValueError(f"Collapsed particles is {self.particles}; expected at least 8")
        if not isinstance(self.target_accept, float) or not 0.0 < self.target_accept < 1.0:
            raise ValueError(
                f"Collapsed target_accept is {short(self.target_accept)}; expected between 0 and 1"
            )
        why_not = why_not_collapsed(self.hierarchy)
        if why_not:
            raise ValueError(f"Collapsed: {why_not}")
        check_memory(self.mixing, self.particles)

    @property
    def problem(self) -> Hierarchy:
        """What observations must fit: the hierarchy."""
        return self.hierarchy

    @property
    def mixing(self) -> Mixing:
        """How particles are made, weighted and moved."""
        return Mixing(self.hierarchy, _rewards_kept(self.hierarchy), self.moves)

    @reported
    def init(self, key: Array | None = None, *, room: int = 0) -> CollapsedState:
        """Particles from the prior of the unknown numbers, with the prior of the vectors given each."""
        key = jax.random.key(0) if key is None else key
        return _init(self, key, room=room)

    @reported
    def update(
        self, state: CollapsedState, context: Any, action: Any, reward: Any, exposure: Any = 1.0
    ) -> CollapsedState:
        """One observation: every particle's posterior exactly, and its weight; now and then, moves."""
        seen = one_observation(self.hierarchy, context, action, reward, exposure)
        return _update(self, self.reserve(self._with_states(state), 1), *seen)

    @reported
    def condition(
        self,
        state: CollapsedState,
        contexts: Any,
        actions: Any,
        rewards: Any,
        exposure: Any = None,
    ) -> CollapsedState:
        """Many observations at once, a share of their evidence at a time."""
        seen = many_observations(self.hierarchy, contexts, actions, rewards, exposure)
        state = self.reserve(self._with_states(state), len(seen.contexts))
        return _condition(self, state, *seen[:4])

    def forget(self, state: CollapsedState, factor: Any) -> CollapsedState:
        """The state in which everything seen so far counts `factor` times as much.

        Where rewards are Gaussian. Their densities are raised to the power `factor`, for vectors and
        unknown numbers alike. The log evidence becomes NaN.
        """
        if not self.mixing.rewards.can_forget:
            raise ValueError(
                f"forget: {short(self)} keeps every row, of which none can be discounted; use "
                "ExpectationPropagation with known numbers"
            )
        return _forget(self, self._with_states(state), as_factor(factor))

    def reserve(self, state: CollapsedState, more: int) -> CollapsedState:
        """The same state with room for `more` observations, where rows are kept."""
        return state._replace(kept=self.mixing.rewards.reserve(state.kept, more))

    def unknowns(self, state: CollapsedState) -> dict[str, Float[Array, "M ..."]]:
        """The values of the unknown numbers that the particles have; see `weights`.

        Example:
            >>> from mixts.inference import Collapsed
            >>> from mixts.models import linear
            >>> learned = linear([[1.0]], dim=1).remade(reward=Gaussian(dist.HalfNormal(1.0)))
            >>> backend = Collapsed(learned, particles=16)
            >>> backend.unknowns(backend.init())["reward_noise"].shape
            (16,)
        """
        return _values(self, state.particles.positions)

    def weights(self, state: CollapsedState) -> Float[Array, " M"]:
        """How much each particle counts; they sum to one."""
        return jnp.exp(state.particles.log_weights)

    def log_evidence(self, state: CollapsedState) -> Float[Array, ""]:
        """Log density of all rewards, vectors and unknown numbers integrated out: an estimate."""
        return state.particles.log_evidence

    def sample(self, key: Array, state: CollapsedState) -> dict[str, Float[Array, "size d"]]:
        """One joint draw of every level: of a particle by its weight, then exactly given it."""
        return _sample(self, key, state)

    def sample_scores(self, key: Array, state: CollapsedState, context: Any) -> Float[Array, " K"]:
        """`x' theta_i` of one joint draw."""
        return _sample_scores(self, key, state, as_context(self.hierarchy, context))

    def sample_unknowns(
        self, key: Array, state: CollapsedState, n: int
    ) -> dict[str, Float[Array, "n ..."]]:
        """`n` joint draws of every level, and of all other numbers that are unknown."""
        return _sample_unknowns(self, key, state, n=n)

    def sample_many(
        self, key: Array, state: CollapsedState, n: int
    ) -> dict[str, Float[Array, "n size d"]]:
        """`n` joint draws of every level, whose numbers are spread evenly over the weights."""
        drawn = _sample_unknowns(self, key, state, n=n)
        return {level.name: drawn[level.name] for level in self.hierarchy.levels}

    def sample_many_scores(
        self, key: Array, state: CollapsedState, context: Any, n: int
    ) -> Float[Array, "n K"]:
        """The scores of every action in `n` draws."""
        return _many_scores(self, key, state, as_context(self.hierarchy, context), n=n)

    @reported
    def posterior(self, state: CollapsedState) -> Posterior:
        """Moments over chains of the unknown numbers, each with the exact posterior given it.

        Where rewards are not Gaussian, further moves of the particles take the place of NUTS.
        Its state holds `chains` times `samples` particles of equal weight, chain by chain. Warns, with a
        `TroubleWarning`, where its status is not ok.
        """
        options = ChainOptions(self.chains, self.warmup, self.samples, self.target_accept)
        key = jax.random.fold_in(state.particles.key, 1)
        draw = sampled if isinstance(self.hierarchy.reward, Gaussian) else walked
        after = with_chains(state, draw(self.mixing, options, key, state))
        mean, cov = _moments(self, after)
        names = [level.name for level in self.hierarchy.levels]
        mean, cov = ({name: part[name] for name in names} for part in (mean, cov))
        posterior = Posterior(mean, cov, self.log_evidence(state), self, after)
        if is_concrete(after):
            warn_of_trouble("posterior", {"Collapsed": posterior.status})
        return posterior

    def draws(
        self, state: CollapsedState, key: Array | None = None
    ) -> dict[str, Float[Array, "chains draws ..."]]:
        """A draw of every site for each particle: levels, learned scales and weights, noise.

        Of a posterior, `posterior(state).state`, they come chain by chain; of any other state, in one
        chain, as often as their weights say.
        """
        key = jax.random.key(0) if key is None else key
        return _draws(self, key, state)

    def diagnostics(self, state: CollapsedState) -> "pd.DataFrame":
        """Whether the chains have mixed: a row for each unknown number, as `Nuts.diagnostics` has.

        Vectors are drawn exactly given these, so that they have mixed where these have.
        """
        import pandas as pd

        from ..arviz_view import rhat_and_ess

        if state.particles.states is not None:
            raise ValueError(
                "Collapsed diagnostics: this state holds no chains; give it posterior(state).state"
            )
        rows = {}
        for name, values in self.unknowns(state).items():
            chains = np.asarray(values).reshape(self.chains, -1, *values.shape[1:])
            rhat, ess = rhat_and_ess(chains)
            rows[name] = {"r_hat": float(np.max(rhat)), "ess": float(np.min(ess))}
        table = pd.DataFrame.from_dict(rows, orient="index")
        divergences = int(state.particles.info.divergences)
        return table.assign(draws=len(state.particles.log_weights), divergences=divergences)

    def status(self, state: CollapsedState) -> Status:
        """Ignored observations, weights that collapsed, moves that failed, chains that did not mix."""
        return status_of(state, self.chains)

    def with_hierarchy(self, hierarchy: Hierarchy) -> "Collapsed":
        """The same backend for a hierarchy that differs in its actions alone."""
        own = [level.name for level in hierarchy.levels if has_own_numbers(level)]
        if own:
            raise TypeError(
                "Collapsed cannot take in new vectors while it runs where every vector of level "
                f"'{own[-1]}' has numbers of its own to learn: declare a scale that they share, of shape "
                "() or (dim,), and known weights"
            )
        return self.remade(hierarchy=hierarchy)

    def rebuilt(self, state: CollapsedState) -> CollapsedState:
        """The state with the posterior of each particle made from what is kept of the rewards."""
        return _rebuilt(self, state)

    def _with_states(self, state: CollapsedState) -> CollapsedState:
        """The state of a posterior, whose particles have no exact posteriors yet, with these."""
        return self.rebuilt(state) if state.particles.states is None else state

    def __repr__(self) -> str:
        return f"Collapsed({self.hierarchy!r}, particles={self.particles})"


def backend_for(hierarchy: Hierarchy, particles: int) -> Backend[Any]:
    """The backend that has the evidence of a hierarchy: particles are of its unknown numbers."""
    if hierarchy.unknowns.laws:
        return Collapsed(hierarchy, particles=particles)
    if isinstance(hierarchy.reward, Gaussian):
        return ClosedForm(hierarchy)
    return ExpectationPropagation(hierarchy)


def _rewards_kept(hierarchy: Hierarchy) -> KeptRewards:
    return KeptSums() if isinstance(hierarchy.reward, Gaussian) else KeptRows()


@partial(jit_loop, static_argnames="room")
def _init(backend: Collapsed, key: Array, *, room: int) -> CollapsedState:
    mixing = backend.mixing
    kept = mixing.rewards.init(backend.hierarchy, room)
    return CollapsedState(mixing.start(key, backend.particles), kept)


@jit_loop
def _update(backend: Collapsed, state: CollapsedState, *observation: Any) -> CollapsedState:
    return backend.mixing.after_one(state, observation)


@jit_loop
def _condition(backend: Collapsed, state: CollapsedState, *rows: Any) -> CollapsedState:
    return backend.mixing.after_many(state, rows)


@jit_loop
def _forget(backend: Collapsed, state: CollapsedState, factor: Array) -> CollapsedState:
    return backend.mixing.forgotten(state, factor)


@jit_loop
def _rebuilt(backend: Collapsed, state: CollapsedState) -> CollapsedState:
    mixing, particles = backend.mixing, state.particles
    kept = mixing.rewards.of_all_actions(state.kept)
    states = mixing.states(particles.positions, kept)
    return state._replace(kept=kept, particles=particles._replace(states=states))


@jax.jit
def _values(backend: Collapsed, positions: Position) -> dict[str, Array]:
    values = jax.vmap(Numbers(backend.hierarchy).values)(positions)
    return {site: values[site] for site in Numbers(backend.hierarchy).sites}


@jax.jit
def _sample(backend: Collapsed, key: Array, state: CollapsedState) -> dict[str, Array]:
    return drawn(backend.mixing, key, state)


@jax.jit
def _sample_scores(backend: Collapsed, key: Array, state: CollapsedState, context: Array) -> Array:
    return drawn_scores(backend.mixing, key, state, context)


@partial(jax.jit, static_argnames="n")
def _sample_unknowns(
    backend: Collapsed, key: Array, state: CollapsedState, *, n: int
) -> dict[str, Array]:
    key_which, key_draws = jax.random.split(key)
    which = evenly_chosen(key_which, state, n)
    return all_drawn(backend.mixing, key_draws, state, which)


@partial(jax.jit, static_argnames="n")
def _many_scores(
    backend: Collapsed, key: Array, state: CollapsedState, context: Array, *, n: int
) -> Array:
    key_which, key_draws = jax.random.split(key)
    which = evenly_chosen(key_which, state, n)
    return scores_of(backend.mixing, key_draws, state, which, context)


@jax.jit
def _draws(backend: Collapsed, key: Array, state: CollapsedState) -> dict[str, Array]:
    M = len(state.particles.log_weights)
    has_chains = state.particles.states is None
    which = jnp.arange(M) if has_chains else evenly_chosen(key, state, M)
    found = all_drawn(backend.mixing, key, state, which)
    chains = backend.chains if has_chains else 1
    return {name: value.reshape(chains, -1, *value.shape[1:]) for name, value in found.items()}


@jax.jit
def _moments(
    backend: Collapsed, state: CollapsedState
) -> tuple[dict[str, Array], dict[str, Array]]:
    return moments(backend.mixing, state)
