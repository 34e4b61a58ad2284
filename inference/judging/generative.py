"""A program run forwards: a truth with its rewards, and densities of what was drawn."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int
from numpyro import handlers
from numpyro.infer.util import log_density

from ..programs.target import Target

__all__ = ["Densities", "Rows", "log_densities", "simulated"]


class Rows(NamedTuple):
    """Observations inside `jit`."""

    contexts: Float[Array, "n d"]
    actions: Int[Array, " n"]
    rewards: Float[Array, " n"]


class Densities(NamedTuple):
    """Of the rewards given the unknowns, and of both together."""

    log_likelihood: Float[Array, ""]
    log_joint: Float[Array, ""]


def simulated(
    target: Target, key: Array, n: int, draw_contexts: Callable[[Array, int], Any] | None = None
) -> tuple[dict[str, Array], Rows]:
    """Every unknown drawn from the prior, and `n` rewards of it.

    Contexts are drawn by `draw_contexts` or uniform in the box [-1, 1]^d, and actions are uniform.
    """
    key_truth, key_contexts, key_actions, key_rewards = jax.random.split(key, 4)
    contexts = jax.random.uniform(key_contexts, (n, target.dim), minval=-1.0, maxval=1.0)
    if draw_contexts is not None:
        contexts = jnp.asarray(draw_contexts(key_contexts, n), contexts.dtype)
        if contexts.shape != (n, target.dim):
            raise ValueError(
                f"contexts(key, {n}) has shape {contexts.shape}; expected {(n, target.dim)}"
            )
    actions = jax.random.randint(key_actions, (n,), 0, target.num_actions)
    run = handlers.trace(handlers.seed(_program(target), key_truth))
    sites = run.get_trace(contexts, actions, jnp.zeros(n))
    # Programs observe rewards: what they would be is drawn from the law of the site.
    rewards = jnp.asarray(sites.pop("reward")["fn"].sample(key_rewards), contexts.dtype)
    kinds = ("sample", "deterministic")
    truth = {name: site["value"] for name, site in sites.items() if site["type"] in kinds}
    return truth, Rows(contexts, actions, rewards)


def log_densities(target: Target, unknowns: dict[str, Array], rows: Rows) -> Densities:
    """The densities at a draw of all unknowns."""
    joint, sites = log_density(_program(target), tuple(rows), {}, unknowns)
    likelihood = jnp.sum(sites["reward"]["fn"].log_prob(rows.rewards))
    return Densities(likelihood, jnp.asarray(joint))


def _program(target: Target) -> Callable[..., Any]:
    """The program in which the vectors of every level are sampled themselves.

    A density of the standard normals behind them would need these, which not every backend draws.
    """
    if target.hierarchy is None:
        assert target.function is not None
        return target.function
    levels = [level.remade(centered=True) for level in target.hierarchy.levels]
    return target.hierarchy.remade(levels=levels).program
