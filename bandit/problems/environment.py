"""What an agent plays in: hidden vectors, contexts and rewards."""

from abc import abstractmethod
from dataclasses import KW_ONLY
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jaxtyping import Float, Int

from ...inference.gaussian.linear_model import dot
from ...inference.observation import own_context
from ...inference.random import plain_key
from ...models import Bernoulli, Gaussian, Hierarchy, Reward
from ...models.arrays import as_count, as_positive
from ...models.laws import check_parameters, law_name
from ...models.messages import short
from .contexts import Contexts, as_contexts

__all__ = [
    "Environment",
    "HierarchyProblem",
    "Instance",
    "Problem",
    "check_counts",
    "check_rewards_known",
    "draw_instance",
]


class Environment(eqx.Module):
    """One world: the vectors hidden from the agent, and the laws of contexts and rewards.

    Attributes:
        hierarchy: what the hidden vectors were drawn from.
        levels: level name -> (size, d), the hidden vectors; the last level's are the actions.
        contexts: the law of contexts.
        exposure: the law of how many rewards a row stands for, or None where each is one.

    Where levels of the hierarchy drift, hidden vectors take a step after each round.

    Example:
        >>> import jax
        >>> from mixts.bandit import SyntheticProblem
        >>> environment = SyntheticProblem(5, 2, 3).sample(jax.random.key(0)).environment
        >>> context = environment.context(jax.random.key(1))
        >>> environment.mean_rewards(context).shape
        (5,)
    """

    hierarchy: Hierarchy
    levels: dict[str, Array]
    contexts: Contexts
    exposure: Any = None

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

    @property
    def drifts(self) -> bool:
        """Whether hidden vectors are others in the next round."""
        return self.hierarchy.drifts

    def with_levels(self, levels: dict[str, Array]) -> "Environment":
        """The same world with other hidden vectors."""
        return Environment(self.hierarchy, levels, self.contexts, self.exposure)

    def after_a_round(self, key: Array) -> dict[str, Array]:
        """The hidden vectors in the next round: those of levels that drift take a step."""
        return self.hierarchy.sample_step(plain_key(key), self.levels)

    def draw_exposure(self, key: Array) -> Float[Array, ""] | None:
        """How many rewards the row of a round stands for."""
        if self.exposure is None:
            return None
        return jnp.asarray(self.exposure.sample(plain_key(key)), self.theta.dtype)

    def reward(
        self,
        key: Array,
        context: Float[Array, "*K d"],
        action: Int[Array, ""],
        exposure: Float[Array, ""] | None = None,
    ) -> Float[Array, ""]:
        """A reward of one action, or a row that stands for `exposure` of them."""
        predictor = jnp.dot(self.theta[action], own_context(context, action))
        law = self.hierarchy.reward.law_of(predictor, exposure)
        if exposure is not None or not isinstance(self.hierarchy.reward, Gaussian | Bernoulli):
            key = plain_key(key)
        return jnp.asarray(law.sample(key)).astype(predictor.dtype)


class Instance(NamedTuple):
    """The hierarchy that the agent knows, and the environment it plays in.

    Example:
        >>> import jax
        >>> from mixts.bandit import SyntheticProblem
        >>> hierarchy, environment = SyntheticProblem(5, 2, 3).sample(jax.random.key(0))
        >>> hierarchy.num_actions, environment.theta.shape
        (5, (5, 3))
    """

    hierarchy: Hierarchy
    environment: Environment


class Problem(eqx.Module):
    """Draws instances. `sample` is pure and works inside `jit` and `vmap`.

    Example:
        >>> from mixts.bandit import Box, Environment, Instance, Problem
        >>> from mixts.models import linear
        >>> class Pairs(Problem):
        ...     def sample(self, key):
        ...         pair = linear([[1.0], [-1.0]], dim=2)
        ...         return Instance(pair, Environment(pair, pair.sample_prior(key), Box(2)))
    """

    @abstractmethod
    def sample(self, key: Array) -> Instance:
        """One instance of the problem."""


def check_rewards_known(reward: Reward, what: str) -> None:
    """Refuse rewards whose noise is to be learned: an environment has to draw them."""
    if isinstance(reward, Reward) and reward.is_learned:
        raise ValueError(
            f"{what} draws rewards, whose noise or cut points must be known; got {short(reward)}: write "
            "numbers, such as Gaussian(<a number>)"
        )


def check_counts(problem: Problem, *names: str) -> None:
    """Refuse arguments of these names that are not whole numbers of at least one."""
    for name in names:
        as_count(getattr(problem, name), f"{type(problem).__name__} {name}")


def draw_instance(
    key: Array,
    hierarchy: Hierarchy,
    contexts: Contexts,
    known: Hierarchy | None = None,
    exposure: Any = None,
) -> Instance:
    """Hidden vectors from the prior of `hierarchy`, which the agent knows unless it knows another."""
    environment = Environment(hierarchy, hierarchy.sample_prior(key), contexts, exposure)
    return Instance(hierarchy if known is None else known, environment)


class HierarchyProblem(Problem):
    """Hidden vectors from the prior of a hierarchy, which the agent knows.

    Args:
        hierarchy: the declaration; the noise of its rewards must be known.
        contexts: None, a table, a function of a key, or a law of `mixts.bandit.problems.contexts`.
        exposure: None, where the reward of a round is one; or how many rewards it stands for, as in
            `Data`: a number, or a NumPyro distribution of one for each round. Regret is that of one
            reward all the same.

    Example:
        >>> from mixts.bandit import HierarchyProblem, Sphere
        >>> from mixts.models import linear
        >>> problem = HierarchyProblem(linear([[1.0], [0.5]], dim=3), contexts=Sphere(3))
        >>> problem.hierarchy.num_actions
        2
    """

    hierarchy: Hierarchy
    _: KW_ONLY
    contexts: Any = None
    exposure: Any = None

    def __post_init__(self):
        if not isinstance(self.hierarchy, Hierarchy):
            raise TypeError(f"HierarchyProblem: got {short(self.hierarchy)}; expected a Hierarchy")
        check_rewards_known(self.hierarchy.reward, "HierarchyProblem")
        dim, actions = self.hierarchy.dim, self.hierarchy.num_actions
        self.contexts = as_contexts(self.contexts, dim, actions, "HierarchyProblem")
        self.exposure = _as_exposure(self.exposure, self.hierarchy.reward)

    def sample(self, key: Array) -> Instance:
        """Vectors of every level."""
        return draw_instance(key, self.hierarchy, self.contexts, exposure=self.exposure)


def _as_exposure(exposure: Any, reward: Reward) -> dist.Distribution | None:
    """The law of exposures, which must be such that rewards can be drawn with them."""
    if exposure is None:
        return None
    reward.check_takes_exposure()
    what = "HierarchyProblem exposure"
    law = exposure
    if not isinstance(exposure, dist.Distribution):
        law = dist.Delta(as_positive(exposure, what))
    if law.shape():
        raise ValueError(f"{what}: the distribution has shape {law.shape()}; expected ()")
    check_parameters(law, what)
    few = np.asarray(law.sample(jax.random.key(0), (100,)), float)
    whole = not reward.counts_trials or (few == np.round(few)).all()
    if not (whole and (few > 0).all()):
        kind = "positive whole numbers, the trials of a row" if reward.counts_trials else "positive"
        raise ValueError(f"{what} ~ {law_name(law)} gives {few.min():g}; expected {kind}")
    return law
