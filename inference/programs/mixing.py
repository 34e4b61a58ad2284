"""Whether chains have mixed: R-hat and effective sample sizes of their latest draws, inside `jit`."""

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

__all__ = [
    "ENOUGH",
    "effective_sizes",
    "halves",
    "num_correlated",
    "num_unmixed",
    "r_hats",
    "stand_still",
]

# Draws worth this many independent ones put a mean within a tenth of a posterior deviation.
ENOUGH = 100
_BATCHES = 10  # of a chain, whose means are compared

# Draws, flat, (chains, draws, numbers).
Draws = Float[Array, "chains n numbers"]


def r_hats(draws: Draws) -> Float[Array, " numbers"]:
    """`sqrt((within (n - 1) / n + between) / within)` of each number (Gelman & Rubin 1992).

    A number that never moves has 1 where the chains agree, and infinity where they do not.
    """
    n = draws.shape[1]
    within = draws.var(1, ddof=1).mean(0)
    between = draws.mean(1).var(0, ddof=1)
    ratio = between / jnp.where(within > 0, within, 1.0)
    still = jnp.where(between > 0, jnp.inf, 1.0)
    return jnp.where(within > 0, jnp.sqrt((n - 1) / n + ratio), still)


def halves(draws: Draws) -> Float[Array, "pieces half numbers"]:
    """Each chain as two, so that one which has not settled disagrees with itself."""
    chains, n, numbers = draws.shape
    half = n // 2
    return draws[:, n - 2 * half :].reshape(2 * chains, half, numbers)


def effective_sizes(draws: Draws) -> Float[Array, " numbers"]:
    """How many independent draws the draws of each number are worth, by means of batches.

    The mean of a batch of `length` independent draws has the variance `s^2 / length`; that of the
    batches of all chains, around the mean of all, says how much more it is. A tenth of a chain is a
    batch, so that chains which disagree are worth their batches at most.
    """
    chains, n = draws.shape[:2]
    length = n // _BATCHES
    kept = draws[:, n - _BATCHES * length :].reshape(chains * _BATCHES, length, -1)
    spread, of_means = kept.var((0, 1)), kept.mean(1).var(0, ddof=1)
    total = chains * n
    size = total * spread / (length * jnp.where(of_means > 0, of_means, 1.0))
    return jnp.where(of_means > 0, jnp.minimum(size, total), total)


def num_unmixed(draws: Draws, is_settled: Bool[Array, ""]) -> Int[Array, ""]:
    """Of how many numbers R-hat is above 1.1, and above what a few draws would give by chance.

    Chains that have mixed have an `R-hat^2` of about `1 + z^2 / m`, with `z` standard normal and `m`
    the effective size of one. With one draw in ten effective, the largest of thousands of numbers is
    at `1 + 150 / n`. Fewer than ten draws of a chain say nothing.

    Halves of chains are compared too if `is_settled`, that is if all draws condition on the same
    observations: what comes in while draws are made moves all chains alike, which is no disagreement.
    """
    chains, n, numbers = draws.shape
    if n < 10:
        return jnp.zeros((), jnp.int32)
    whole = jnp.ones(numbers) if chains == 1 else r_hats(draws)
    worst = jnp.where(is_settled, jnp.maximum(whole, r_hats(halves(draws))), whole)
    return jnp.sum(~(worst <= jnp.sqrt(1.1**2 + 150 / n)), dtype=jnp.int32)


def num_correlated(draws: Draws) -> Int[Array, ""]:
    """Of how many numbers the draws are worth fewer than `ENOUGH`, where there are ten times as many."""
    if draws.shape[0] * draws.shape[1] < 10 * ENOUGH:
        return jnp.zeros((), jnp.int32)
    return jnp.sum(effective_sizes(draws) < ENOUGH, dtype=jnp.int32)


def stand_still(draws: Draws) -> Bool[Array, " chains"]:
    """Which chains have not moved at all, in any number."""
    return (jnp.max(draws, 1) == jnp.min(draws, 1)).all(-1)
