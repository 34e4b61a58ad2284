"""`InformationDirected`: what is lost now against what is learned of the best action."""

from dataclasses import KW_ONLY
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

from ...models import Hierarchy
from ...models.arrays import as_count
from ...models.messages import short
from .policy import AmongAllowed, best_action

__all__ = ["BestPair", "InformationDirected", "best_pair", "gains", "shortfalls"]

_ROWS = 64  # actions that are paired with all others at once


class InformationDirected(AmongAllowed):
    """Information-directed sampling by variance (Russo & Van Roy 2018).

    With mean rewards `r_a` under the posterior and the best action `A*`, let

        D(a) = E[max_b r_b] - E[r_a],    g(a) = Var(E[r_a | A*])

    be the expected shortfall of an action, and how much of what it pays depends on which one is best.
    The policy randomises between the two actions, with the probabilities, for which
    `(q D(a) + (1 - q) D(b))^2 / (q g(a) + (1 - q) g(b))` is least; no mixture of more does better.
    Both are estimated from joint draws. A round costs O(draws K d^2 + draws^2 K + K^2).

    Args:
        backend: the posterior of a hierarchy.
        draws: joint draws in each round.

    Example:
        >>> from mixts.bandit import InformationDirected
        >>> from mixts.inference import ClosedForm
        >>> from mixts.models import linear
        >>> policy = InformationDirected(ClosedForm(linear([[1.0], [0.5]], dim=1)), draws=100)
        >>> int(policy.act(jax.random.key(0), policy.init(jax.random.key(1)), jnp.ones(1))) < 2
        True
    """

    _: KW_ONLY
    draws: int = eqx.field(default=256, static=True)

    def __post_init__(self):
        super().__post_init__()
        self.draws = as_count(self.draws, "InformationDirected draws")
        if not isinstance(self.problem, Hierarchy):
            raise TypeError(
                f"InformationDirected: got the posterior of {short(self.problem)}; expected that of a "
                "Hierarchy, whose reward says what a score pays: use TopTwo or ThompsonSampling"
            )

    def scores_of(
        self, key: Array, state: Any, context: Float[Array, "*K d"], allowed: Bool[Array, " K"]
    ) -> Float[Array, " K"]:
        """Expected rewards, of which that of the chosen one of the allowed actions is above all."""
        key_draws, key_choice = jax.random.split(key)
        predictors = self.backend.sample_many_scores(key_draws, state, context, self.draws)
        rewards = self.problem.reward.mean(predictors)
        chosen = self._choose(key_choice, rewards, allowed)
        means = rewards.mean(0)
        # A score that is not a number stays one, so that whoever asks can see it.
        raised = means.at[chosen].set(means.max() + 1.0)
        return jnp.where(allowed, raised, -jnp.inf)

    def _choose(
        self, key: Array, rewards: Float[Array, "n K"], allowed: Bool[Array, " K"]
    ) -> Array:
        losses, learned = shortfalls(rewards, allowed), gains(rewards, allowed)
        pair = best_pair(jnp.where(allowed, losses, jnp.inf), jnp.where(allowed, learned, 0.0))
        return jnp.where(jax.random.uniform(key) < pair.probability, pair.first, pair.second)


def shortfalls(rewards: Float[Array, "n K"], allowed: Bool[Array, " K"]) -> Float[Array, " K"]:
    """`E[max_b r_b] - E[r_a]` over draws, the maximum over allowed actions; at least zero for those.

    Example:
        >>> shortfalls(jnp.array([[1.0, 0.0], [0.0, 3.0]]), jnp.array([True, True]))
        Array([1.5, 0.5], dtype=float32)
    """
    return jnp.where(allowed, rewards, -jnp.inf).max(1).mean() - rewards.mean(0)


def gains(rewards: Float[Array, "n K"], allowed: Bool[Array, " K"]) -> Float[Array, " K"]:
    """`Var(E[r_a | A*])` over draws, where `A*` is the best allowed action of a draw.

    Example:
        >>> gains(jnp.array([[1.0, 0.0], [0.0, 3.0]]), jnp.array([True, True]))
        Array([0.25, 2.25], dtype=float32)
    """
    best = jnp.where(allowed, rewards, -jnp.inf).argmax(1)
    same = (best[:, None] == best).astype(rewards.dtype)  # (n, n): draws with the same best action
    given = same @ rewards / same.sum(1, keepdims=True)
    return jnp.square(given - rewards.mean(0)).mean(0)


class BestPair(NamedTuple):
    """Two actions, and the probability of the first."""

    first: Array
    second: Array
    probability: Array


def best_pair(losses: Float[Array, " K"], learned: Float[Array, " K"]) -> BestPair:
    """The two actions and the probability with the least information ratio.

    The ratio is convex in the probability: its minimum is at an end, or where its slope is zero. Where
    nothing can be learned it is infinite unless nothing is lost; if it is so for all, the first action
    with the least loss is chosen.

    Example:
        >>> pair = best_pair(jnp.array([0.0, 1.0]), jnp.array([0.0, 1.0]))
        >>> int(pair.first), float(pair.probability)
        (0, 1.0)
    """
    K = losses.shape[0]

    def with_all_others(a: Array) -> tuple[Array, Array, Array]:
        """The least ratio of pairs with action `a`, the other action, and the probability of `a`."""
        slope, spread = losses[a] - losses, learned[a] - learned
        inside = losses / slope - 2 * learned / spread
        probabilities = jnp.stack([jnp.zeros(K), jnp.ones(K), jnp.clip(inside, 0.0, 1.0)])
        probabilities = jnp.where(jnp.isfinite(probabilities), probabilities, 1.0)
        ratios = _ratio(
            _mixed(probabilities, losses[a], losses), _mixed(probabilities, learned[a], learned)
        )
        which, other = jnp.unravel_index(best_action(-ratios.ravel()), ratios.shape)
        return ratios[which, other], other, probabilities[which, other]

    ratios, others, probabilities = jax.lax.map(
        with_all_others, jnp.arange(K), batch_size=min(_ROWS, K)
    )
    first = jnp.where(jnp.isfinite(ratios).any(), best_action(-ratios), best_action(-losses))
    certain = ~jnp.isfinite(ratios).any()
    return BestPair(first, others[first], jnp.where(certain, 1.0, probabilities[first]))


def _mixed(q: Array, one: Array, other: Array) -> Array:
    """`q one + (1 - q) other`, where a probability of zero leaves out what is infinite."""
    return jnp.where(q > 0, q * one, 0.0) + jnp.where(q < 1, (1 - q) * other, 0.0)


def _ratio(loss: Array, learned: Array) -> Array:
    """`loss^2 / learned`: zero where nothing is lost, infinite where nothing is learned for it."""
    safe = jnp.where(learned > 0, learned, 1.0)
    return jnp.where(loss <= 0, 0.0, jnp.where(learned > 0, jnp.square(loss) / safe, jnp.inf))
