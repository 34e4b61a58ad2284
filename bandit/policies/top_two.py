"""`TopTwo`: Thompson sampling that spends a share of its rounds on the runner-up."""

from dataclasses import KW_ONLY
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from ...models.arrays import as_count, as_probability
from .policy import AmongAllowed, best_action

__all__ = ["TopTwo"]


class TopTwo(AmongAllowed):
    """Top-two Thompson sampling (Russo 2020, "Simple Bayesian Algorithms for Best-Arm Identification").

    The leader is the best action of one joint draw. It is chosen with probability `top`; otherwise
    further draws are made until another action is best in one, and that is chosen. Thompson sampling
    soon chooses the best action nearly always, and so learns ever less of whether it is the best;
    this policy goes on comparing, and is for finding the best action rather than for reward on the way.

    Where another action is best in none of `draws` further draws, the second best of the leader's
    draw is chosen. Actions compete among those that are allowed.

    Args:
        backend: the posterior.
        top: the probability of choosing the leader; 1 is Thompson sampling.
        draws: how many further draws are made at most.

    Example:
        >>> from mixts.bandit import TopTwo
        >>> from mixts.inference import ClosedForm
        >>> from mixts.models import linear
        >>> policy = TopTwo(ClosedForm(linear([[1.0], [0.5], [0.0]], dim=1)), top=0.5)
        >>> int(policy.act(jax.random.key(0), policy.init(jax.random.key(1)), jnp.ones(1))) < 3
        True
    """

    _: KW_ONLY
    top: Any = 0.5
    draws: int = eqx.field(default=100, static=True)

    def __post_init__(self):
        super().__post_init__()
        self.top = as_probability(self.top, "TopTwo top")
        self.draws = as_count(self.draws, "TopTwo draws")

    def scores_of(
        self, key: Array, state: Any, context: Float[Array, "*K d"], allowed: Bool[Array, " K"]
    ) -> Float[Array, " K"]:
        """The draw in which the chosen one of the allowed actions is best."""
        first, coin, further = jax.random.split(key, 3)

        def draw(key: Array) -> Float[Array, " K"]:
            drawn = self.backend.sample_scores(key, state, context)
            return jnp.where(allowed, drawn, -jnp.inf)

        scores = draw(first)
        leader = best_action(scores)
        is_leader = jax.random.uniform(coin) < self.top

        def goes_on(carry: tuple[Array, Array]) -> Array:
            drawn, challenger = carry
            return (drawn < self.draws) & (best_action(challenger) == leader)

        def again(carry: tuple[Array, Array]) -> tuple[Array, Array]:
            return carry[0] + 1, draw(jax.random.fold_in(further, carry[0]))

        drawn = jnp.where(is_leader, self.draws, 0)
        _, challenger = jax.lax.while_loop(goes_on, again, (drawn, scores))
        second = scores.at[leader].set(-jnp.inf)
        is_found = best_action(challenger) != leader
        # A single allowed action is its own runner-up.
        runner_up = jnp.where(is_found, challenger, jnp.where(allowed.sum() > 1, second, scores))
        return jnp.where(is_leader, scores, runner_up)
