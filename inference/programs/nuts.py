"""`Nuts`: Hamiltonian Monte Carlo whose chains live as long as the bandit."""

from dataclasses import KW_ONLY, InitVar, dataclass, field
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from jaxtyping import Float, Int
from numpyro.infer.hmc import hmc

from ...models import Hierarchy
from ...models.arrays import as_count, is_concrete
from ...models.pytrees import register_declaration
from ..backend import Backend, Posterior
from ..buffer import Buffer, empty, record, reserve
from ..judging.diagnostics import bulk_ess, r_hat
from ..observation import as_context, many_observations
from .target import Position, Target, as_target

__all__ = ["Nuts", "NutsState", "NutsStatus"]


class NutsStatus(Enum):
    """What chains can say of themselves; the value says it in words."""

    OK = "no sign of trouble"
    DIVERGING = (
        "more than 1% of transitions diverged: try centered=False, or a higher target_accept"
    )
    STUCK = "a chain hardly moves or has no finite energy: check the program and the data"


class NutsState(NamedTuple):
    """Chains, their recent draws, and the observations they condition on.

    Attributes:
        chains: NumPyro's `HMCState`, with a leading axis over chains.
        bank: unconstrained draws, site -> (draws, ...): what `sample` picks from.
        buffer: all observations.
        adapted_at: how many observations there were when adaptation last began.
        divergences: transitions that diverged outside adaptation, so far.
        transitions: transitions outside adaptation, so far.
        rejected: observations ignored inside `jit`: out of range, not finite, or no room.
    """

    chains: Any
    bank: dict[str, Array]
    buffer: Buffer
    adapted_at: Int[Array, ""]
    divergences: Int[Array, ""]
    transitions: Int[Array, ""]
    rejected: Int[Array, ""]


@dataclass(frozen=True, eq=False, repr=False)
class Nuts(Backend[NutsState]):
    """NUTS on a hierarchy or on any NumPyro program, warm-started from round to round.

    The chains are part of the state. An observation joins a fixed-capacity buffer, the chains' energies
    are computed anew, and each chain makes `steps` transitions; `sample` picks one of the draws they
    left. Step sizes and masses are adapted anew whenever the observations have doubled. `posterior`
    runs the chains on for `samples` transitions each; `draws` and `diagnostics` of the state it leaves
    show every site, chain by chain, and whether the chains have mixed.

    Args:
        program: a `Hierarchy`, or a NumPyro program `program(contexts, actions, rewards)`.
        actions: for a program written by hand, the name of its action site.
        dim: for a program written by hand, the length of a context.
        chains: how many chains.
        steps: transitions of each chain after an observation.
        warmup: transitions of an adaptation.
        samples: transitions of each chain for `posterior`.
        capacity: room for observations at first; it doubles outside `jit`.
        dense_mass: whether masses have correlations.
        target_accept: acceptance rate that step sizes aim at.
        max_depth: most doublings of a trajectory.
    """

    program: InitVar[Any]
    actions: str = "action"
    dim: int | None = None
    _: KW_ONLY
    chains: int = 2
    steps: int = 4
    warmup: int = 200
    samples: int = 500
    capacity: int = 1024
    dense_mass: bool = False
    target_accept: float = 0.8
    max_depth: int = 8
    target: Target = field(init=False)

    def __post_init__(self, program: Any):
        target = as_target(program, self.actions, self.dim, "Nuts")
        object.__setattr__(self, "target", target)
        for name in ("chains", "steps", "warmup", "samples", "capacity", "max_depth"):
            object.__setattr__(self, name, as_count(getattr(self, name), f"Nuts {name}"))
        if not 0.0 < self.target_accept < 1.0:
            raise ValueError(
                f"Nuts target_accept is {self.target_accept}; expected between 0 and 1"
            )

    @property
    def hierarchy(self) -> Hierarchy | None:
        """The hierarchy behind the program, or None for a program written by hand."""
        return self.target.hierarchy

    def init(self, key: Array | None = None, *, room: int = 0) -> NutsState:
        """Chains started at draws of the prior, and adapted to it."""
        key = jax.random.key(0) if key is None else key
        state = _start(self, key, capacity=max(self.capacity, room))
        return _run_on(self, state, self.warmup + self.steps, self.steps)

    def update(self, state: NutsState, context: Any, action: Any, reward: Any) -> NutsState:
        """One observation, and `steps` transitions of each chain."""
        seen = self.target.one_observation(context, action, reward)
        state = _take_in_one(self, self.reserve(state, 1), *(part[None] for part in seen))
        return _run_on(self, state, self.steps, self.steps)

    def condition(self, state: NutsState, contexts: Any, actions: Any, rewards: Any) -> NutsState:
        """Many observations; the chains are adapted to them from where they stand."""
        seen = many_observations(self.target, contexts, actions, rewards)
        state = self.reserve(state, len(seen.contexts))
        state = _take_in(self, state, seen.contexts, seen.actions, seen.rewards)
        return _run_on(self, state, self.warmup + self.steps, self.steps)

    def reserve(self, state: NutsState, more: int) -> NutsState:
        """The same state with room for `more` observations; before a `lax.scan` do it once."""
        return state._replace(buffer=reserve(state.buffer, more))

    def sample(self, key: Array, state: NutsState) -> dict[str, Float[Array, "_ d"]]:
        """One of the draws the chains left, with the vectors of every level."""
        return _sample(self, key, state)

    def sample_scores(self, key: Array, state: NutsState, context: Any) -> Float[Array, " K"]:
        """`x' theta_i` for every action, of one of the draws the chains left."""
        context = as_context(self.target, context)
        theta = self.sample(key, state)[self.target.action_site]
        return jnp.sum(theta * context, axis=-1)

    def posterior(self, state: NutsState) -> Posterior:
        """Moments of `samples` further transitions of each chain, which the posterior draws from."""
        state = _run_on(self, state, self.samples, self.samples)
        mean, cov = _moments(self, state)
        return Posterior(mean, cov, None, self, state)

    def draws(self, state: NutsState) -> dict[str, Float[Array, "chains draws ..."]]:
        """What the chains left of every site: levels, learned scales and weights, noise.

        A state that `posterior` gives, `posterior(state).state`, holds `samples` draws of each chain;
        any other the last `steps`.
        """
        sites = _unknowns(self, state)
        return {k: v.reshape(self.chains, -1, *v.shape[1:]) for k, v in sites.items()}

    def diagnostics(self, state: NutsState) -> pd.DataFrame:
        """Whether the chains have mixed: a row for each site, over all its numbers the worst of each.

        The columns are `r_hat`, which should be below 1.01; `ess`, the bulk effective sample size, of
        at least 100 for each chain (Vehtari et al. 2021); `draws`, of all chains together; and
        `divergences`, the transitions of all chains so far that diverged. Give it the state of a
        `posterior`: a handful of draws tells nothing.
        """
        draws = {name: np.asarray(value) for name, value in self.draws(state).items()}
        kept = next(iter(draws.values())).shape[1]
        if kept < 4:
            raise ValueError(
                f"Nuts diagnostics: the state holds {kept} draws of each chain; expected at least 4: "
                "give it posterior(state).state"
            )
        rows = {
            name: {
                "r_hat": float(np.max(r_hat(value))),
                "ess": float(np.min(bulk_ess(value))),
                "draws": self.chains * kept,
                "divergences": int(state.divergences),
            }
            for name, value in draws.items()
        }
        return pd.DataFrame.from_dict(rows, orient="index")

    def status(self, state: NutsState) -> NutsStatus:
        """Whether the chains can be trusted, as far as they can tell themselves."""
        accepted = float(jnp.min(state.chains.mean_accept_prob))
        if not np.isfinite(np.asarray(state.chains.potential_energy)).all() or accepted < 0.1:
            return NutsStatus.STUCK
        if int(state.divergences) > 0.01 * max(int(state.transitions), 1):
            return NutsStatus.DIVERGING
        return NutsStatus.OK

    def troubles(self, state: NutsState) -> dict[str, Int[Array, ""]]:
        """Observations that were ignored, transitions that diverged, chains without a finite energy."""
        stuck = ~jnp.isfinite(state.chains.potential_energy)
        return {
            "rejected": state.rejected,
            "divergences": state.divergences,
            "stuck": jnp.sum(stuck, dtype=jnp.int32),
        }

    def __repr__(self) -> str:
        what = self.target.hierarchy or self.target.function
        return f"Nuts({what!r}, chains={self.chains}, steps={self.steps})"


register_declaration(
    Nuts,
    arrays=("target",),
    static=(
        "actions",
        "dim",
        "chains",
        "steps",
        "warmup",
        "samples",
        "capacity",
        "dense_mass",
        "target_accept",
        "max_depth",
    ),
)


class _Kernel(NamedTuple):
    """NumPyro's kernel on the observations of a buffer, for one chain."""

    begin: Any
    step: Any


def _kernel(backend: Nuts, buffer: Buffer) -> _Kernel:
    target = backend.target
    init, sample = hmc(
        potential_fn_gen=lambda buffer: lambda z: target.potential(z, buffer), algo="NUTS"
    )

    def begin(position: Position, key: Array, step_size: Any = 1.0, inverse_mass: Any = None):
        return init(
            position,
            backend.warmup,
            step_size=step_size,
            inverse_mass_matrix=inverse_mass,
            dense_mass=backend.dense_mass,
            target_accept_prob=backend.target_accept,
            max_tree_depth=backend.max_depth,
            model_args=(buffer,),
            rng_key=key,
        )

    return _Kernel(begin, lambda chain: sample(chain, (buffer,)))


class _Run(NamedTuple):
    """What a run of the chains left: the last positions, (chains, kept, ...), and counts."""

    chains: Any
    positions: dict[str, Array]
    divergences: Int[Array, ""]
    transitions: Int[Array, ""]


@partial(jax.jit, static_argnames="keep")
def _advance(backend: Nuts, buffer: Buffer, chains: Any, count: Any, *, keep: int) -> _Run:
    """So many transitions of each chain, in one loop; those outside adaptation are counted.

    Of all there is to compile, this takes by far the longest. Outside `jit` the number of positions
    that are kept is therefore the same for all callers, who share one program.
    """
    kernel, _ = _begin(backend, buffer, chains)  # only to set the kernel up

    def one(i: Array, carry: tuple[Any, Position, Array, Array]):
        chain, kept, diverged, made = carry
        counted = chain.i >= backend.warmup
        chain = kernel.step(chain)
        kept = jax.tree.map(lambda rows, z: rows.at[i % keep].set(z), kept, chain.z)
        return chain, kept, diverged + (chain.diverging & counted), made + counted

    def run(chain: Any) -> tuple[Any, Position, Array, Array]:
        kept = jax.tree.map(lambda z: jnp.zeros((keep, *z.shape), z.dtype), chain.z)
        zero = jnp.zeros((), jnp.int32)
        return jax.lax.fori_loop(0, count, one, (chain, kept, zero, zero))

    chains, kept, diverged, made = jax.vmap(run)(chains)
    return _Run(chains, kept, diverged.sum(), made.sum())


@partial(jax.jit, static_argnames="keep")
def _after(state: NutsState, run: _Run, count: Any, *, keep: int) -> NutsState:
    """The state after a run of its chains over so many transitions, with the last `keep` of each."""
    room = jax.tree.leaves(run.positions)[0].shape[1]
    last = (count - keep + jnp.arange(keep)) % room
    bank = jax.tree.map(lambda leaf: leaf[:, last].reshape(-1, *leaf.shape[2:]), run.positions)
    return state._replace(
        chains=run.chains,
        bank=bank,
        divergences=state.divergences + run.divergences,
        transitions=state.transitions + run.transitions,
    )


def _run_on(backend: Nuts, state: NutsState, count: int, keep: int) -> NutsState:
    """The state after `count` further transitions of each chain, with the last `keep` of each."""
    room = max(backend.samples, backend.steps) if is_concrete(state) else keep
    run = _advance(backend, state.buffer, state.chains, count, keep=room)
    return _after(state, run, count, keep=keep)


def _begin(backend: Nuts, buffer: Buffer, chains: Any) -> tuple[_Kernel, Any]:
    """The kernel on new observations, and the chains about to adapt to them from where they stand."""
    kernel = _kernel(backend, buffer)
    adapted = chains.adapt_state
    fresh = jax.vmap(kernel.begin)(
        chains.z, chains.rng_key, adapted.step_size, adapted.inverse_mass_matrix
    )
    return kernel, fresh


@partial(jax.jit, static_argnames="capacity")
def _start(backend: Nuts, key: Array, *, capacity: int) -> NutsState:
    """Chains at draws of the prior, about to adapt to it."""
    buffer = empty(capacity, backend.target.dim)
    key_start, key_chains = jax.random.split(key)
    starts = jax.vmap(lambda k: backend.target.start(k, buffer))(
        jax.random.split(key_start, backend.chains)
    )
    chains = jax.vmap(_kernel(backend, buffer).begin)(
        starts, jax.random.split(key_chains, backend.chains)
    )
    zero = jnp.zeros((), jnp.int32)
    return NutsState(chains, {}, buffer, zero, zero, zero, zero)


def _record(backend: Nuts, state: NutsState, *seen: Array) -> NutsState:
    buffer, left_out = record(state.buffer, backend.target.num_actions, *seen)
    return state._replace(buffer=buffer, rejected=state.rejected + left_out)


@jax.jit
def _take_in_one(
    backend: Nuts, state: NutsState, contexts: Array, actions: Array, rewards: Array
) -> NutsState:
    """The state with one more observation, its chains about to adapt if observations have doubled."""
    state = _record(backend, state, contexts, actions, rewards)
    _, fresh = _begin(backend, state.buffer, state.chains)
    # The chains' energies and gradients are those of the old observations.
    chains = state.chains._replace(potential_energy=fresh.potential_energy, z_grad=fresh.z_grad)
    taken = state.buffer.taken
    readapt = (taken >= 2 * state.adapted_at) & (chains.i >= backend.warmup).all()
    chains = jax.tree.map(
        lambda new, old: jax.lax.select(jnp.broadcast_to(readapt, new.shape), new, old),
        fresh._replace(rng_key=chains.rng_key),
        chains,
    )
    adapted_at = jnp.where(readapt, taken, state.adapted_at)
    return state._replace(chains=chains, adapted_at=adapted_at)


@jax.jit
def _take_in(
    backend: Nuts, state: NutsState, contexts: Array, actions: Array, rewards: Array
) -> NutsState:
    """The state with more observations, its chains about to adapt to them."""
    state = _record(backend, state, contexts, actions, rewards)
    _, chains = _begin(backend, state.buffer, state.chains)
    return state._replace(chains=chains, adapted_at=state.buffer.taken)


@jax.jit
def _sample(backend: Nuts, key: Array, state: NutsState) -> dict[str, Array]:
    draws = jax.tree.leaves(state.bank)[0].shape[0]
    chosen = jax.random.randint(key, (), 0, draws)
    position = jax.tree.map(lambda leaf: leaf[chosen], state.bank)
    return backend.target.vectors(position, state.buffer)


@jax.jit
def _unknowns(backend: Nuts, state: NutsState) -> dict[str, Array]:
    one = partial(backend.target.unknowns, buffer=state.buffer)
    return jax.lax.map(one, state.bank, batch_size=64)


@jax.jit
def _moments(backend: Nuts, state: NutsState) -> tuple[dict[str, Array], dict[str, Array]]:
    return backend.target.moments(state.bank, state.buffer)
