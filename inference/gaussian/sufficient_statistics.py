"""Sufficient statistics of Gaussian rewards: what they say of their actions, whatever the prior.

With rewards `y = x' theta_i + N(0, sigma^2)` all that matters of the rows of action `i` are the sums of
`x x'`, `x y` and `y^2`, and how many rows there are. They do not depend on means, covariances, weights or
the noise, so any of these can be varied without a second look at the rows.

The sums are kept as their square root, the triangular factor of the rows `[x' y]` stacked, which is
updated by rotations: squares are never formed, so that nothing is lost in float32 where contexts are
collinear or signals large, and an action without rewards has zeros.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, Num

__all__ = ["RewardStatistics", "add_reward", "add_rewards", "no_rewards", "reward_statistics"]


class RewardStatistics(NamedTuple):
    """Sufficient statistics of Gaussian rewards, by action.

    Attributes:
        actions: which actions the blocks are of; every action, unless some were selected.
        factors: upper triangular `F_i` with `F_i' F_i` the sum of `[x' y]' [x' y]` over the rows of an
            action. Its first `d` rows are as many observations that stand for all rows of the action;
            its last entry is the norm of what no vector explains.
        num_rewards: how many rows there are; a fraction where their evidence is discounted.
    """

    actions: Int[Array, " k"]
    factors: Float[Array, "k e e"]
    num_rewards: Num[Array, ""]

    @property
    def contexts(self) -> Float[Array, "k d d"]:
        """The contexts of the observations that stand for the rows."""
        return self.factors[:, :-1, :-1]

    @property
    def rewards(self) -> Float[Array, "k d"]:
        """The rewards of the observations that stand for the rows."""
        return self.factors[:, :-1, -1]

    @property
    def unexplained(self) -> Float[Array, " k"]:
        """The norm of the residuals of each action's own least squares."""
        return self.factors[:, -1, -1]

    def select(self, actions: Int[Array, " m"]) -> "RewardStatistics":
        """The blocks of some actions alone: those with rewards are all that is needed."""
        return RewardStatistics(actions, self.factors[actions], self.num_rewards)


def no_rewards(num_actions: int, dim: int) -> RewardStatistics:
    """The statistics before any reward."""
    factors = jnp.zeros((num_actions, dim + 1, dim + 1), jnp.result_type(float))
    return RewardStatistics(jnp.arange(num_actions), factors, jnp.zeros((), jnp.int32))


def add_reward(
    statistics: RewardStatistics,
    context: Float[Array, " d"],
    action: Int[Array, ""],
    reward: Float[Array, ""],
) -> RewardStatistics:
    """After one more reward, at O(d^2). An action out of range changes nothing."""
    K = len(statistics.factors)
    valid = (action >= 0) & (action < K)
    here = jnp.clip(action, 0, K - 1)
    factor = statistics.factors[here]
    rotated = _rotate_in(factor, jnp.append(context, reward))
    new = jnp.where(valid, rotated, factor)
    factors = jax.lax.dynamic_update_index_in_dim(statistics.factors, new, here, 0)
    return statistics._replace(factors=factors, num_rewards=statistics.num_rewards + valid)


@jax.jit(static_argnames="num_actions")
def reward_statistics(
    contexts: Float[Array, "n d"],
    actions: Int[Array, " n"],
    rewards: Float[Array, " n"],
    num_actions: int,
) -> RewardStatistics:
    """The statistics of many rewards, at O(n d^2)."""
    return add_rewards(no_rewards(num_actions, contexts.shape[1]), contexts, actions, rewards)


def add_rewards(
    statistics: RewardStatistics,
    contexts: Float[Array, "n d"],
    actions: Int[Array, " n"],
    rewards: Float[Array, " n"],
) -> RewardStatistics:
    """After many more rewards, at O(n d^2). Actions out of range change nothing."""

    def one(
        statistics: RewardStatistics, row: tuple[Array, Array, Array]
    ) -> tuple[RewardStatistics, None]:
        return add_reward(statistics, *row), None

    return jax.lax.scan(one, statistics, (contexts, actions, rewards))[0]


def _rotate_in(factor: Float[Array, "e e"], row: Float[Array, " e"]) -> Float[Array, "e e"]:
    """The triangular factor with one more row under it, by Givens rotations.

    Rotation `j` turns the row into row `j` of the factor until its entry `j` is zero.
    """

    def rotate(row: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        own, j = step
        a, b = own[j], row[j]
        length = jnp.hypot(a, b)
        c, s = jnp.where(length > 0, jnp.stack([a, b]) / jnp.where(length > 0, length, 1.0), 0.0)
        c = jnp.where(length > 0, c, 1.0)
        return (c * row - s * own).at[j].set(0.0), c * own + s * row

    return jax.lax.scan(rotate, row, (factor, jnp.arange(len(row))))[1]
