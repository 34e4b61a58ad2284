"""Chains of NumPyro's kernel on any data, such as a buffer of rows: how they begin and move."""

from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Int
from numpyro.infer.hmc import hmc

from ..compiling import jit_loop
from .target import Position

__all__ = ["ChainSettings", "Run", "advance", "begin_chains", "kernel"]


@runtime_checkable
class ChainSettings(Protocol):
    """What chains need to know: an energy, `target.potential(position, data)`, and how to adapt.

    `Nuts` is one, whose data are a buffer of observations.
    """

    @property
    def target(self) -> Any: ...

    @property
    def warmup(self) -> int: ...

    @property
    def dense_mass(self) -> bool: ...

    @property
    def target_accept(self) -> float: ...

    @property
    def max_depth(self) -> int: ...


class Run(NamedTuple):
    """Chains after some transitions, their last positions, and counts outside adaptation."""

    chains: Any
    kept: Position
    divergences: Int[Array, "*chains"]
    saturated: Int[Array, "*chains"]
    transitions: Int[Array, "*chains"]


def kernel(backend: ChainSettings, data: Any) -> tuple[Any, Any]:
    """NumPyro's kernel on some data, for one chain: its start and its step."""
    target = backend.target
    init, sample = hmc(
        potential_fn_gen=lambda data: lambda z: target.potential(z, data), algo="NUTS"
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
            model_args=(data,),
            rng_key=key,
        )

    return begin, lambda chain: sample(chain, (data,))


@partial(jit_loop, static_argnames="keep")
def advance(backend: ChainSettings, data: Any, chains: Any, count: Any, *, keep: int) -> Run:
    """`count` transitions of each chain, in one loop; those outside adaptation are counted.

    This takes by far the longest to compile. Outside `jit` all callers therefore keep the same number
    of positions, and share one compiled program.
    """
    begin, step = kernel(backend, data)
    jax.vmap(begin)(chains.z, chains.rng_key)  # only to set the kernel up

    longest = 2**backend.max_depth - 1

    def one(i: Array, run: Run) -> Run:
        counted = run.chains.i >= backend.warmup
        chain = step(run.chains)
        return Run(
            chain,
            jax.tree.map(lambda rows, z: rows.at[i % keep].set(z), run.kept, chain.z),
            run.divergences + (chain.diverging & counted),
            run.saturated + ((chain.num_steps >= longest) & counted),
            run.transitions + counted,
        )

    def run(chain: Any) -> Run:
        kept = jax.tree.map(lambda z: jnp.zeros((keep, *z.shape), z.dtype), chain.z)
        zero = jnp.zeros((), jnp.int32)
        return jax.lax.fori_loop(0, count, one, Run(chain, kept, zero, zero, zero))

    return jax.vmap(run)(chains)


@jit_loop
def begin_chains(
    backend: ChainSettings, data: Any, starts: Position, keys: Array, sizes: Array, masses: Array
) -> Any:
    """Chains about to adapt to the data."""
    return jax.vmap(kernel(backend, data)[0])(starts, keys, sizes, masses)
