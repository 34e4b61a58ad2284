"""Many Gaussian rewards as a few that say the same: the sums of least squares, in square-root form.

With `[X_i y_i]` the contexts and rewards of action `i` and `Q R` its QR factorisation, `R` is all that a
Gaussian likelihood needs: `|y_i - X_i theta|^2 = |b - U theta|^2 + rho^2` with `R = [[U, b], [0, rho]]`.
The rows of `[U b]` are `d` observations in place of any number, and `rho^2` is what no `theta`
explains. Sums of `x x'` say the same with half the digits: in float32, the sum of a context that comes
again and again is not singular any more, and wide priors take the difference for knowledge.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

__all__ = ["ReducedRows", "reduce_rows", "weighed_rows"]

_BLOCK = 32  # rows of one action that are taken at a time


class ReducedRows(NamedTuple):
    """`d` observations of each action, some of them zero where it had fewer.

    Attributes:
        contexts: (K d, d) the rows of each `U_i`.
        actions: (K d,) whose they are.
        rewards: (K d,) the entries of each `b_i`.
        leftover: the sum of all `rho_i^2`.
    """

    contexts: Float[Array, "rows d"]
    actions: Int[Array, " rows"]
    rewards: Float[Array, " rows"]
    leftover: Float[Array, ""]


def weighed_rows(
    contexts: Float[Array, "n d"],
    actions: Int[Array, " n"],
    rewards: Float[Array, " n"],
    exposure: Float[Array, " n"] | None,
) -> tuple[tuple[Array, Array, Array], Float[Array, ""]]:
    """Means of `m` rewards as rows of the noise of one, times `sqrt(m)`: weighted least squares.

    Also the sum of `log(m) / 2`, by which the log density of the means exceeds that of these rows.
    """
    if exposure is None:
        return (contexts, actions, rewards), jnp.zeros((), rewards.dtype)
    root = jnp.sqrt(exposure)
    scaled = root[:, None] * contexts, actions, root * rewards
    return scaled, 0.5 * jnp.sum(jnp.log(exposure))


def reduce_rows(
    contexts: Float[Array, "n d"],
    actions: Int[Array, " n"],
    rewards: Float[Array, " n"],
    num_actions: int,
) -> ReducedRows:
    """`d` rows for each action, at O(n d^2); rows of actions out of range are left out."""
    d, K = contexts.shape[1], num_actions
    actions = jnp.where((actions >= 0) & (actions < K), actions, K)
    order = jnp.argsort(actions)
    rows = jnp.concatenate([contexts, rewards[:, None]], axis=1)[order]
    rows = jnp.pad(rows, ((0, _BLOCK), (0, 0)))  # so that the last block does not move back
    counts = jnp.zeros(K, jnp.int32).at[actions].add(1, mode="drop")
    stops = jnp.cumsum(counts)
    blocks = -(-counts // _BLOCK)
    last_blocks = jnp.cumsum(blocks)

    def add_block(
        i: Array, factors: Float[Array, "K width width"]
    ) -> Float[Array, "K width width"]:
        action = jnp.searchsorted(last_blocks, i, side="right")
        done = i - (last_blocks[action] - blocks[action])
        begin = stops[action] - counts[action] + done * _BLOCK
        block = jax.lax.dynamic_slice_in_dim(rows, begin, _BLOCK)
        inside = begin + jnp.arange(_BLOCK) < stops[action]
        stacked = [factors[action], jnp.where(inside[:, None], block, 0.0)]
        return factors.at[action].set(jnp.linalg.qr(jnp.concatenate(stacked), mode="r"))

    nothing = jnp.zeros((K, d + 1, d + 1), rows.dtype)
    factors = jax.lax.fori_loop(0, last_blocks[-1], add_block, nothing)
    return ReducedRows(
        factors[:, :d, :d].reshape(K * d, d),
        jnp.repeat(jnp.arange(K), d),
        factors[:, :d, d].ravel(),
        jnp.sum(jnp.square(factors[:, d, d])),
    )
