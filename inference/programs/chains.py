"""Chains of NumPyro's kernel on the observations of a buffer: how they begin, and how they move."""

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Int
from numpyro.infer.hmc import hmc

from ..buffer import Buffer
from ..compiling import jit_loop
from .target import Position

if TYPE_CHECKING:
    from .nuts import Nuts

__all__ = ["Run", "advance", "begin_chains", "kernel"]


class Run(NamedTuple):
    """Chains after some transitions, their last positions, and counts outside adaptation."""

    chains: Any
    kept: Position
    divergences: Int[Array, "*chains"]
    saturated: Int[Array, "*chains"]
    transitions: Int[Array, "*chains"]


def kernel(backend: "Nuts", buffer: Buffer) -> tuple[Any, Any]:
    """NumPyro's kernel on the observations of a buffer, for one chain: its start and its step."""
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

    return begin, lambda chain: sample(chain, (buffer,))


@partial(jit_loop, static_argnames="keep")
def advance(backend: "Nuts", buffer: Buffer, chains: Any, count: Any, *, keep: int) -> Run:
    """`count` transitions of each chain, in one loop; those outside adaptation are counted.

    This takes by far the longest to compile. Outside `jit` all callers therefore keep the same number
    of positions, and share one compiled program.
    """
    begin, step = kernel(backend, buffer)
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
    backend: "Nuts", buffer: Buffer, starts: Position, keys: Array, sizes: Array, masses: Array
) -> Any:
    """Chains about to adapt to the observations."""
    return jax.vmap(kernel(backend, buffer)[0])(starts, keys, sizes, masses)
