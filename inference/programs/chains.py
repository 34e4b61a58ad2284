"""Chains of NumPyro's kernel on any data, such as a buffer of rows: how they begin and move."""

from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree
from jaxtyping import Float, Int
from numpyro.infer.hmc import hmc

from ..compiling import jit_loop
from .target import Position

__all__ = ["ChainSettings", "Run", "advance", "begin_chains", "flat", "kernel"]

Vector = Float[Array, " numbers"]


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
    kept: Any
    divergences: Int[Array, "*chains"]
    saturated: Int[Array, "*chains"]
    transitions: Int[Array, "*chains"]


def kernel(backend: ChainSettings, data: Any, like: Position) -> tuple[Any, Any]:
    """NumPyro's kernel on some data, for one chain: its start and its step.

    Its positions are vectors of all unconstrained numbers (`flat`), in the order that masses have them,
    where `like` is a position with its sites. So what a step does to a position is one operation and
    not one for each site, and takes less to compile.
    """
    target, shaped = backend.target, ravel_pytree(like)[1]
    init, sample = hmc(
        potential_fn_gen=lambda data: lambda z: target.potential(shaped(z), data), algo="NUTS"
    )

    def begin(position: Vector, key: Array, step_size: Any = 1.0, inverse_mass: Any = None):
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


def flat(position: Position) -> Vector:
    """All numbers of a position in one vector."""
    return ravel_pytree(position)[0]


def _with_flat(chain: Any) -> Any:
    """A chain of which position and gradient are vectors."""
    return chain._replace(z=flat(chain.z), z_grad=flat(chain.z_grad))


def _with_sites(chain: Any, like: Position) -> Any:
    """A chain of which position and gradient have their sites."""
    shaped = ravel_pytree(like)[1]
    return chain._replace(z=shaped(chain.z), z_grad=shaped(chain.z_grad))


@partial(jit_loop, static_argnames="keep")
def advance(backend: ChainSettings, data: Any, chains: Any, count: Any, *, keep: int) -> Run:
    """`count` transitions of each chain, in one loop; those outside adaptation are counted.

    This takes by far the longest to compile. Outside `jit` all callers therefore keep the same number
    of positions, and share one compiled program.
    """
    like = jax.tree.map(lambda leaf: leaf[0], chains.z)
    begin, step = kernel(backend, data, like)
    jax.vmap(begin)(jax.vmap(flat)(chains.z), chains.rng_key)  # only to set the kernel up

    longest = 2**backend.max_depth - 1

    def one(i: Array, run: Run) -> Run:
        counted = run.chains.i >= backend.warmup
        chain = step(run.chains)
        return Run(
            chain,
            run.kept.at[i % keep].set(chain.z),
            run.divergences + (chain.diverging & counted),
            run.saturated + ((chain.num_steps >= longest) & counted),
            run.transitions + counted,
        )

    def run(chain: Any) -> Run:
        chain, zero = _with_flat(chain), jnp.zeros((), jnp.int32)
        kept = jnp.zeros((keep, *chain.z.shape), chain.z.dtype)
        last = jax.lax.fori_loop(0, count, one, Run(chain, kept, zero, zero, zero))
        kept = jax.vmap(ravel_pytree(like)[1])(last.kept)
        return last._replace(chains=_with_sites(last.chains, like), kept=kept)

    return jax.vmap(run)(chains)


@jit_loop
def begin_chains(
    backend: ChainSettings, data: Any, starts: Position, keys: Array, sizes: Array, masses: Array
) -> Any:
    """Chains about to adapt to the data."""
    like = jax.tree.map(lambda leaf: leaf[0], starts)
    begin, _ = kernel(backend, data, like)
    chains = jax.vmap(begin)(jax.vmap(flat)(starts), keys, sizes, masses)
    return jax.vmap(partial(_with_sites, like=like))(chains)
