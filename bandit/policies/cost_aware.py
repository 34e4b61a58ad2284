"""`CostAware`: Thompson sampling where choosing an action has a price."""

from typing import Any

from jax import Array
from jaxtyping import Float

from ...models import Hierarchy
from ...models.arrays import as_numbers
from ...models.messages import short
from .policy import Policy, PosteriorPolicy

__all__ = ["CostAware"]


class CostAware(PosteriorPolicy):
    """The action with the highest mean reward less its price, in one joint draw from the posterior.

    What counts is the reward on its own scale, `f(x' theta_i)`, such as the probability of a click or
    the expected count, so a price is in units of the reward. The regret that `simulate` reports is of
    rewards without prices.

    Args:
        backend: the posterior of a hierarchy.
        prices: (K,) what choosing each action costs; may be negative.

    Example:
        >>> from mixts.bandit import CostAware
        >>> from mixts.inference import ExpectationPropagation
        >>> from mixts.models import glm
        >>> policy = CostAware(ExpectationPropagation(glm([[1.0], [1.0]], dim=1)), [0.0, 2.0])
        >>> int(policy.act(jax.random.key(0), policy.init(jax.random.key(1)), jnp.ones(1)))
        0
    """

    prices: Any

    def __post_init__(self):
        super().__post_init__()
        if not isinstance(self.problem, Hierarchy):
            raise TypeError(
                f"CostAware: got the posterior of {short(self.problem)}; expected that of a Hierarchy, "
                "whose reward says what a score pays"
            )
        self.prices = as_numbers(self.prices, "CostAware prices")
        K = self.problem.num_actions
        if self.prices.shape != (K,):
            raise ValueError(
                f"CostAware prices have shape {self.prices.shape}; expected ({K},), a price for each action"
            )

    def scores(self, key: Array, state: Any, context: Float[Array, "*K d"]) -> Float[Array, " K"]:
        """Mean rewards of one draw, less the prices."""
        predictors = self.backend.sample_scores(key, state, context)
        return self.problem.reward.mean(predictors) - self.prices

    def with_hierarchy(self, hierarchy: Hierarchy) -> Policy:
        """The same prices where there are as many actions; new ones would need prices."""
        if hierarchy.num_actions != self.problem.num_actions:
            raise TypeError(
                "CostAware cannot take in new actions, whose prices it does not know; move the agent to a "
                "policy with all prices: agent.migrate(CostAware(backend, prices))"
            )
        return super().with_hierarchy(hierarchy)
