"""`Nuts`: Hamiltonian Monte Carlo whose chains continue from one observation to the next."""

from dataclasses import KW_ONLY
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from jaxtyping import Float, Int

from ...models.arrays import is_concrete
from ...models.messages import short
from ..backend import Posterior
from ..buffer import Buffer, empty, record
from ..compiling import jit_loop, jit_once, loop_options
from ..observation import many_observations, one_observation
from ..progress import reported
from ..status import Status, Trouble, warn_of_trouble
from .backend import ProgramBackend
from .chains import Run, advance, begin_chains, flat, kernel
from .mixing import num_correlated, num_unmixed, stand_still
from .target import Position

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Nuts", "NutsState"]


class NutsState(NamedTuple):
    """Chains, their recent draws, and the observations they condition on.

    Attributes:
        chains: NumPyro's `HMCState`, with a leading axis over chains.
        bank: unconstrained draws, site -> (chains x draws, ...), the latest of each chain last.
        seen: the number of observations that each draw of a chain conditions on.
        buffer: all observations.
        adapted_at: the number of observations when adaptation last began.
        divergences: the number of transitions that diverged outside adaptation.
        saturated: the number of those whose trajectory was the longest allowed.
        transitions: the number of transitions outside adaptation.
        rejected: observations ignored inside `jit`: out of range, not finite, or no room.
    """

    chains: Any
    bank: dict[str, Array]
    seen: Int[Array, " draws"]
    buffer: Buffer
    adapted_at: Int[Array, ""]
    divergences: Int[Array, ""]
    saturated: Int[Array, ""]
    transitions: Int[Array, ""]
    rejected: Int[Array, ""]


class Nuts(ProgramBackend[NutsState]):
    """NUTS on a hierarchy or on any NumPyro program, warm-started from round to round.

    The chains are part of the state. An observation is added to a buffer of fixed capacity, the chains'
    energies are computed anew, and each chain makes `steps` transitions. Step sizes and masses are
    adapted anew whenever the observations have doubled. `posterior` continues the chains for `samples`
    transitions each; `draws` and `diagnostics` of its state show every site, chain by chain.

    `sample` starts from one of the latest draws of the chains, picked at random among those that
    condition on at least 95% of the observations, and makes `steps` transitions of its own. So any
    number of decisions can be made between two rewards: their draws have nothing in common but where
    they started, which the transitions between make them forget. `status` looks at the latest
    `window` draws of each chain, or all of a `posterior`: whether the chains agree (R-hat), what the
    draws are worth, and whether trajectories reach their longest.

    Args:
        program: a `Hierarchy`, or a NumPyro program `program(contexts, actions, rewards)`.
        actions: for a program written by hand, the name of its action site.
        dim: for a program written by hand, the length of a context.
        chains: the number of chains.
        steps: transitions of each chain after an observation.
        warmup: transitions of an adaptation.
        samples: transitions of each chain for `posterior`.
        window: the latest draws of each chain that are kept.
        capacity: room for observations at first; it doubles outside `jit`.
        dense_mass: whether masses have correlations.
        target_accept: acceptance rate that step sizes aim at.
        max_depth: most doublings of a trajectory.

    Example:
        >>> from mixts.inference import Nuts
        >>> from mixts.models import Bernoulli, Hierarchy, Level
        >>> backend = Nuts(Hierarchy([Level("action", 2)], Bernoulli(), dim=1), warmup=10, samples=20)
        >>> state = backend.condition(backend.init(), [[1.0], [1.0]], [0, 1], [1.0, 0.0])
        >>> {name: site.shape for name, site in backend.draws(backend.posterior(state).state).items()}
        {'action': (2, 20, 2, 1)}
    """

    _: KW_ONLY
    chains: int = eqx.field(default=2, static=True)
    steps: int = eqx.field(default=4, static=True)
    warmup: int = eqx.field(default=200, static=True)
    samples: int = eqx.field(default=500, static=True)
    window: int = eqx.field(default=100, static=True)
    capacity: int = eqx.field(default=1024, static=True)
    dense_mass: bool = eqx.field(default=False, static=True)
    target_accept: float = eqx.field(default=0.8, static=True)
    max_depth: int = eqx.field(default=8, static=True)

    def __post_init__(self):
        super().__post_init__()
        if not 0.0 < self.target_accept < 1.0:
            raise ValueError(
                f"Nuts target_accept is {short(self.target_accept)}; expected between 0 and 1"
            )

    @property
    def compiler_options(self) -> dict[str, Any] | None:
        """Those of loops of small steps, which its chains are."""
        return loop_options()

    @reported
    def init(self, key: Array | None = None, *, room: int = 0) -> NutsState:
        """Chains started at draws of the prior, and adapted to it."""
        key = jax.random.key(0) if key is None else key
        state = _start(self, key, capacity=max(self.capacity, room))
        return self._adapted(state)

    @reported
    def update(
        self, state: NutsState, context: Any, action: Any, reward: Any, exposure: Any = 1.0
    ) -> NutsState:
        """One observation, and `steps` transitions of each chain."""
        seen = one_observation(self.target, context, action, reward, exposure)
        rows = jax.tree.map(lambda part: part[None], seen)
        state = _observe(self, self.reserve(state, 1), *rows, is_batch=False)
        return _continue(self, state, self.steps, self.steps)

    @reported
    def condition(
        self, state: NutsState, contexts: Any, actions: Any, rewards: Any, exposure: Any = None
    ) -> NutsState:
        """Many observations; the chains adapt to them from their present positions."""
        rows = many_observations(self.target, contexts, actions, rewards, exposure)[:4]
        state = _observe(self, self.reserve(state, len(rows[0])), *rows, is_batch=True)
        return self._adapted(state)

    def _adapted(self, state: NutsState) -> NutsState:
        """The state after an adaptation, with draws made after it alone."""
        window = max(self.window, self.steps)
        return _continue(self, state, self.warmup + window, window, anew=True)

    def position(self, key: Array, state: NutsState) -> Position:
        """Where `steps` transitions lead from one of the latest draws."""
        return _moved(self, key, state)

    def positions(self, key: Array, state: NutsState, n: int) -> Position:
        """`n` different draws of the chains: evenly spaced, in random order.

        Where the state holds fewer, the chains run on.
        """
        key_chains, key_order = jax.random.split(key)
        split = jax.random.split(key_chains, self.chains)
        chains = state.chains._replace(rng_key=split)
        banks, held, runs = [state.bank], state.seen.shape[0], state._replace(chains=chains)
        while len(banks) * held * self.chains < n:
            runs = _continue(self, runs, held, held)
            banks.append(runs.bank)
        return _picked(key_order, banks, n=n)

    @reported
    def posterior(self, state: NutsState) -> Posterior:
        """Moments of `samples` further transitions of each chain, which the posterior draws from.

        Warns, with a `TroubleWarning`, where its status is not ok.
        """
        state = _continue(self, state, self.samples, self.samples, anew=True)
        mean, cov = self.target.moments(state.bank, state.buffer)
        posterior = Posterior(mean, cov, None, self, state)
        if is_concrete(state):
            warn_of_trouble("posterior", {"Nuts": posterior.status})
        return posterior

    @jax.jit
    def draws(self, state: NutsState) -> dict[str, Float[Array, "chains draws ..."]]:
        """The latest draws of every site: levels, learned scales and weights, noise.

        The state of a posterior, `posterior(state).state`, holds `samples` draws of each chain; any
        other state the last `window`, of which the earlier ones condition on fewer observations.
        """
        one = partial(self.target.unknowns, buffer=state.buffer)
        sites = jax.lax.map(one, state.bank, batch_size=64)
        return {k: v.reshape(self.chains, -1, *v.shape[1:]) for k, v in sites.items()}

    def diagnostics(self, state: NutsState) -> "pd.DataFrame":
        """Whether the chains have mixed: a row for each site, with the worst value over its numbers.

        The columns are `r_hat`, which should be below 1.01; `ess`, the bulk effective sample size, of
        at least 100 for each chain (Vehtari et al. 2021); `draws`, of all chains together; and
        `divergences`, the number of transitions of all chains that diverged. A number that is the
        same in every draw though the chains move, as a constant of the program is, has an R-hat of one.
        Give it the state of a `posterior`: a handful of draws is not enough.
        """
        import pandas as pd

        from ..arviz_view import rhat_and_ess

        draws = {name: np.asarray(value) for name, value in self.draws(state).items()}
        kept = next(iter(draws.values())).shape[1]
        if kept < 4:
            raise ValueError(
                f"Nuts diagnostics: the state holds {kept} draws of each chain; expected at least 4: "
                "give it posterior(state).state"
            )
        rows, move = {}, not bool(stand_still(_flat(self, state)).any())
        for name, value in draws.items():
            rhat, ess = rhat_and_ess(value)
            known = move & (np.ptp(value, axis=(0, 1)) == 0)
            rhat, ess = np.where(known, 1.0, rhat), np.where(known, self.chains * kept, ess)
            rows[name] = {"r_hat": float(np.max(rhat)), "ess": float(np.min(ess))}
        table = pd.DataFrame.from_dict(rows, orient="index")
        return table.assign(draws=self.chains * kept, divergences=int(state.divergences))

    def status(self, state: NutsState) -> Status:
        """Rejected observations, divergences, and whether chains stand still, disagree or are too short."""
        return _status(self, state)

    def __repr__(self) -> str:
        return f"Nuts({self.target.source!r}, chains={self.chains}, steps={self.steps})"


@jax.jit
def _status(backend: Nuts, state: NutsState) -> Status:
    chains, draws = state.chains, _flat(backend, state)
    stuck = ~jnp.isfinite(chains.potential_energy) | (chains.mean_accept_prob < 0.1)
    made = jnp.maximum(state.transitions, 1)
    counts = {
        Trouble.REJECTED: state.rejected,
        Trouble.DIVERGING: _beyond(0.01 * made, state.divergences),
        Trouble.STUCK: jnp.sum(stuck | stand_still(draws)),
        Trouble.UNMIXED: num_unmixed(draws, state.seen[0] == state.seen[-1]),
        Trouble.CORRELATED: num_correlated(draws),
        Trouble.SATURATED: _beyond(0.1 * made, state.saturated),
    }
    return Status(counts)


def _beyond(limit: Array, count: Array) -> Array:
    """A count above its limit, and else zero."""
    return jnp.where(count > limit, count, 0)


def _flat(backend: Nuts, state: NutsState) -> Float[Array, "chains draws numbers"]:
    """The draws of the bank as vectors of all unconstrained numbers."""
    shape = backend.chains, state.seen.shape[0], -1
    return jnp.concatenate([leaf.reshape(shape) for leaf in state.bank.values()], axis=-1)


@partial(jax.jit, static_argnames=("keep", "anew"))
def _after(state: NutsState, run: Run, count: Any, *, keep: int, anew: bool) -> NutsState:
    """The state after a run of its chains over `count` transitions, with the last `keep` of each.

    They are all of the bank, or take the place of its oldest draws.
    """
    last = (count - keep + jnp.arange(keep)) % jax.tree.leaves(run.kept)[0].shape[1]
    new = jax.tree.map(lambda leaf: leaf[:, last], run.kept)
    seen = jnp.full(keep, state.buffer.num_observations)
    if not anew:
        size, chains = state.seen.shape[0], jax.tree.leaves(new)[0].shape[0]

        def joined(old: Array, new: Array) -> Array:
            old = old.reshape(chains, size, *new.shape[2:])
            return jnp.concatenate([old, new], axis=1)[:, -size:]

        new = jax.tree.map(joined, state.bank, new)
        seen = jnp.concatenate([state.seen, seen])[-size:]
    return state._replace(
        chains=run.chains,
        bank=jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), new),
        seen=seen,
        divergences=state.divergences + run.divergences.sum(),
        saturated=state.saturated + run.saturated.sum(),
        transitions=state.transitions + run.transitions.sum(),
    )


def _continue(
    backend: Nuts, state: NutsState, count: int, keep: int, *, anew: bool = False
) -> NutsState:
    """The state after `count` further transitions of each chain, of which the bank takes `keep`."""
    shared = max(backend.samples, backend.steps, backend.window, keep)
    room = shared if is_concrete(state) else keep
    run = advance(backend, state.buffer, state.chains, count, keep=room)
    return _after(state, run, count, keep=keep, anew=anew)


@jit_loop
def _moved(backend: Nuts, key: Array, state: NutsState) -> Position:
    """One of the latest draws, after `steps` transitions with randomness of the key."""
    key_chain, key_draw, key_move = jax.random.split(key, 3)
    n, size = state.buffer.num_observations, state.seen.shape[0]
    recent = jnp.sum(state.seen >= n - n // 20)
    chosen = jax.random.randint(key_chain, (), 0, backend.chains)
    place = (chosen + 1) * size - jax.random.randint(key_draw, (), 1, recent + 1)
    adapted = jax.tree.map(lambda leaf: leaf[chosen], state.chains.adapt_state)
    start = jax.tree.map(lambda leaf: leaf[place], state.bank)
    begin, step = kernel(backend, state.buffer, start)
    chain = begin(flat(start), key_move, adapted.step_size, adapted.inverse_mass_matrix)
    chain = chain._replace(i=jnp.full_like(chain.i, backend.warmup))  # nothing adapts any more
    chain = jax.lax.fori_loop(0, backend.steps, lambda _, chain: step(chain), chain)
    return ravel_pytree(start)[1](chain.z)


@partial(jax.jit, static_argnames="n")
def _picked(key: Array, banks: list[Position], *, n: int) -> Position:
    """`n` draws, evenly spaced over all of the banks, in random order."""
    positions = jax.tree.map(lambda *parts: jnp.concatenate(parts), *banks)
    total = jax.tree.leaves(positions)[0].shape[0]
    order = jax.random.permutation(key, jnp.asarray(np.arange(n) * total // n))
    return jax.tree.map(lambda leaf: leaf[order], positions)


# Outside `jit` the functions below are compiled one by one, so that `init`, `update` and `condition` share
# those that hold the program and its gradient.


def _adapting(backend: Nuts, buffer: Buffer, chains: Any) -> Any:
    """The same chains about to adapt to new observations."""
    sizes, masses = chains.adapt_state.step_size, chains.adapt_state.inverse_mass_matrix
    return begin_chains(backend, buffer, chains.z, chains.rng_key, sizes, masses)


def _start(backend: Nuts, key: Array, *, capacity: int) -> NutsState:
    """Chains at draws of the prior, about to adapt to it."""
    buffer, *begin, zero = _prior(backend, key, capacity=capacity)
    chains = begin_chains(backend, buffer, *begin)
    return NutsState(chains, {}, zero[None], buffer, zero, zero, zero, zero, zero)


@partial(jit_once, static_argnames="capacity")
def _prior(backend: Nuts, key: Array, *, capacity: int) -> tuple[Any, ...]:
    """An empty buffer; draws of the prior, keys, step sizes and masses of chains; and zero."""
    target = backend.target
    buffer = empty(capacity, target.dim, exposure=target.takes_exposure)
    key_start, key_chains = jax.random.split(key)
    split = partial(jax.random.split, num=backend.chains)
    starts = jax.vmap(lambda k: backend.target.start(k, buffer))(split(key_start))
    size = sum(leaf[0].size for leaf in jax.tree.leaves(starts))
    mass = jnp.eye(size) if backend.dense_mass else jnp.ones(size)
    masses = jnp.broadcast_to(mass, (backend.chains, *mass.shape))
    sizes = jnp.ones(backend.chains)
    return buffer, starts, split(key_chains), sizes, masses, jnp.zeros((), jnp.int32)


def _observe(backend: Nuts, state: NutsState, *rows: Any, is_batch: bool) -> NutsState:
    """The state with more observations.

    The chains are about to adapt to a batch, and to one observation if observations have doubled.
    """
    state = _recorded(backend, state, *rows)
    adapting = _adapting(backend, state.buffer, state.chains)
    if is_batch:
        return state._replace(chains=adapting, adapted_at=state.buffer.num_observations)
    return _informed(backend, state, adapting)


@jax.jit
def _recorded(backend: Nuts, state: NutsState, *rows: Any) -> NutsState:
    buffer, rejected = record(state.buffer, backend.target.num_actions, *rows)
    return state._replace(buffer=buffer, rejected=state.rejected + rejected)


@jax.jit
def _informed(backend: Nuts, state: NutsState, adapting: Any) -> NutsState:
    """The chains that go on, unless observations have doubled: then those that adapt anew."""
    seen = state.buffer.num_observations
    # The chains' energies and gradients are those of the old observations.
    chains = state.chains._replace(
        potential_energy=adapting.potential_energy, z_grad=adapting.z_grad
    )
    readapt = (seen >= 2 * state.adapted_at) & (chains.i >= backend.warmup).all()
    chains = jax.tree.map(
        lambda new, old: jax.lax.select(jnp.broadcast_to(readapt, new.shape), new, old),
        adapting._replace(rng_key=chains.rng_key),
        chains,
    )
    return state._replace(chains=chains, adapted_at=jnp.where(readapt, seen, state.adapted_at))
