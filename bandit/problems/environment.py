"""What an agent plays in: hidden vectors, contexts and rewards."""

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from ...inference.gaussian.linear_model import dot
from ...inference.observation import own_context
from ...inference.random import plain_key
from ...models import Bernoulli, Gaussian, Hierarchy, Reward
from ...models.pytrees import register_declaration
from .contexts import Contexts, as_contexts

__all__ = [
    "Environment",
    "HierarchyProblem",
    "Instance",
    "Problem",
    "check_rewards_known",
    "draw_instance",
]


@dataclass(frozen=True, eq=False)
class Environment:
    """One world: what is hidden from the agent, and how contexts and rewards come about.

    Attributes:
        hierarchy: what the hidden vectors were drawn from.
        levels: level name -> (size, d), the hidden vectors; the last level's are the actions.
        contexts: the law of contexts.
    """

    hierarchy: Hierarchy
    levels: dict[str, Array]
    contexts: Contexts

    @property
    def theta(self) -> Float[Array, "K d"]:
        """The hidden vectors of the actions."""
        return self.levels[self.hierarchy.actions.name]

    def context(self, key: Array) -> Float[Array, "*K d"]:
        """A context."""
        return self.contexts.draw(key)

    def mean_rewards(self, context: Float[Array, "*K d"]) -> Float[Array, " K"]:
        """`r(x, i; Theta)` for every action (Section 2.2)."""
        columns = context[:, None] if context.ndim == 1 else context.T
        return self.hierarchy.reward.mean(dot(self.theta.T, columns))

    def reward(
        self, key: Array, context: Float[Array, "*K d"], action: Int[Array, ""]
    ) -> Float[Array, ""]:
        """A reward of one action."""
        predictor = jnp.dot(self.theta[action], own_context(context, action))
        law = self.hierarchy.reward.law(predictor)
        if not isinstance(self.hierarchy.reward, Gaussian | Bernoulli):
            key = plain_key(key)
        drawn = law.sample(key)
        return jnp.asarray(drawn).astype(predictor.dtype)


register_declaration(Environment, arrays=("hierarchy", "levels", "contexts"), static=())


class Instance(NamedTuple):
    """A hierarchy that the agent is told, and the environment it plays in."""

    hierarchy: Hierarchy
    environment: Environment


class Problem(ABC):
    """Draws instances. `sample` is pure and works inside `jit` and `vmap`."""

    @abstractmethod
    def sample(self, key: Array) -> Instance:
        """One instance of the problem."""


def check_rewards_known(reward: Reward, what: str) -> None:
    """Refuse rewards whose noise is to be learned: an environment has to draw them."""
    if getattr(reward, "is_learned", False):
        raise ValueError(
            f"{what} draws rewards, whose noise must be known; got {reward!r}: write "
            "Gaussian(<a number>)"
        )


def draw_instance(
    key: Array, hierarchy: Hierarchy, contexts: Contexts, told: Hierarchy | None = None
) -> Instance:
    """Hidden vectors from the prior of `hierarchy`; the agent is told it, or `told` instead."""
    levels = hierarchy.sample_prior(key)
    told = hierarchy if told is None else told
    return Instance(told, Environment(hierarchy, levels, contexts))


@dataclass(frozen=True, eq=False)
class HierarchyProblem(Problem):
    """Hidden vectors from the prior of a hierarchy, which the agent is told.

    Args:
        hierarchy: the declaration; the noise of its rewards must be known.
        contexts: None, a table, a function of a key, or a law of `mixts.bandit.problems.contexts`.
    """

    hierarchy: Hierarchy
    _: KW_ONLY
    contexts: Any = None

    def __post_init__(self):
        if not isinstance(self.hierarchy, Hierarchy):
            raise TypeError(f"HierarchyProblem: got {self.hierarchy!r}; expected a Hierarchy")
        check_rewards_known(self.hierarchy.reward, "HierarchyProblem")
        dim, actions = self.hierarchy.dim, self.hierarchy.num_actions
        contexts = as_contexts(self.contexts, dim, actions, "HierarchyProblem")
        object.__setattr__(self, "contexts", contexts)

    def sample(self, key: Array) -> Instance:
        """Vectors of every level."""
        return draw_instance(key, self.hierarchy, self.contexts)
