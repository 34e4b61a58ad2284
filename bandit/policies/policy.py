"""What picks an action: the interface of a policy, Thompson sampling, and two reference points."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from ...inference import Backend
from ...inference.gaussian.backend import GaussianBackend
from ...models import Hierarchy
from ...models.pytrees import register_declaration

__all__ = ["Policy", "ThompsonSampling", "UniformRandom", "best_action"]

State = TypeVar("State")


class Policy(ABC, Generic[State]):
    """Picks actions and learns from rewards.

    Every method is pure and works inside `jit`, `lax.scan` and `vmap`; a policy and its states are
    pytrees. A context is (dim,), shared by all actions, or (K, dim), a row for each.
    """

    @abstractmethod
    def init(self, key: Array, *, room: int = 0) -> State:
        """The state before any observation, with room for `room` of them where they are kept."""

    def scores(self, key: Array, state: State, context: Float[Array, "*K d"]) -> Float[Array, " K"]:
        """A number for every action: the higher, the better it looks in a context.

        Whoever may not take every action, or takes several, takes the best of those there are.
        """
        raise TypeError(
            f"{type(self).__name__} does not score its actions; give it a method "
            "scores(key, state, context) that returns a number for each"
        )

    def act(self, key: Array, state: State, context: Float[Array, "*K d"]) -> Int[Array, ""]:
        """The action to take in a context: the one with the best score."""
        return best_action(self.scores(key, state, context))

    @abstractmethod
    def update(self, state: State, context: Any, action: Any, reward: Any) -> State:
        """The state after an action has met a context and brought a reward."""

    @property
    def problem(self) -> Any:
        """What contexts, actions and rewards must fit: a hierarchy, or the target of a program."""
        hierarchy = getattr(self, "hierarchy", None)
        if not isinstance(hierarchy, Hierarchy):
            raise TypeError(
                f"{type(self).__name__} does not say what its contexts and actions are like; give it "
                "an attribute `hierarchy`"
            )
        return hierarchy

    def reserve(self, state: State, more: int) -> State:
        """The same state with room for `more` observations, where observations are kept."""
        return state

    def forget(self, state: State, factor: Any) -> State:
        """The state in which all evidence so far counts for `factor` of what it did."""
        raise TypeError(
            f"{type(self).__name__} cannot forget; ThompsonSampling can, on ClosedForm or Factored"
        )

    def with_hierarchy(self, hierarchy: Hierarchy) -> "Policy":
        """The same policy for other actions: those of a hierarchy that differs in them alone."""
        raise TypeError(
            f"{type(self).__name__} cannot take in new actions; ThompsonSampling can, on ClosedForm, "
            "Factored or Laplace, and so can LinUCB, UCBGLM, GLMUCB and UniformRandom"
        )

    def troubles(self, state: State) -> dict[str, Int[Array, ""]]:
        """How often what went wrong so far, by name; all zero if nothing did."""
        return {}


def best_action(scores: Float[Array, " K"]) -> Int[Array, ""]:
    """The first action with the highest score.

    In two passes, each a reduction to one number: `argmax` reduces to two at once, which XLA merges
    with all that makes the scores into one slow serial loop.
    """
    places = jnp.arange(scores.shape[0], dtype=jnp.int32)
    return jnp.min(jnp.where(scores < scores.max(), scores.shape[0] - 1, places))


@dataclass(frozen=True, eq=False)
class ThompsonSampling(Policy[Any]):
    """The action that is best in one joint draw from the posterior (Aouali et al. 2023, Algorithm 1).

    The mean function of rewards is increasing, so the best `r(x, i; Theta)` has the best `x' theta_i`.
    """

    backend: Backend[Any]

    def __post_init__(self):
        if not isinstance(self.backend, Backend):
            raise TypeError(
                f"ThompsonSampling: got {self.backend!r}; expected a backend, such as "
                "ClosedForm(hierarchy)"
            )

    def init(self, key: Array, *, room: int = 0) -> Any:
        """The backend's prior."""
        return self.backend.init(key, room=room)

    def scores(self, key: Array, state: Any, context: Float[Array, "*K d"]) -> Float[Array, " K"]:
        """`x' theta_i` of one draw."""
        return self.backend.sample_scores(key, state, context)

    def update(self, state: Any, context: Any, action: Any, reward: Any) -> Any:
        """The backend's posterior after one more observation."""
        return self.backend.update(state, context, action, reward)

    @property
    def problem(self) -> Any:
        """The backend's hierarchy, or the target of its program."""
        hierarchy = getattr(self.backend, "hierarchy", None)
        return getattr(self.backend, "target", None) if hierarchy is None else hierarchy

    def reserve(self, state: Any, more: int) -> Any:
        """The same state with room for `more` observations, where the backend keeps them."""
        keeps = getattr(self.backend, "reserve", None)
        return state if keeps is None else keeps(state, more)

    def forget(self, state: Any, factor: Any) -> Any:
        """The backend's posterior with all evidence so far discounted."""
        if not isinstance(self.backend, GaussianBackend):
            raise TypeError(
                f"{type(self.backend).__name__} cannot forget; ClosedForm and Factored can"
            )
        return self.backend.forget(state, factor)

    def with_hierarchy(self, hierarchy: Hierarchy) -> Policy:
        """The same backend for other actions, where it keeps each action on its own."""
        if not isinstance(self.backend, GaussianBackend):
            raise TypeError(
                f"{type(self.backend).__name__} cannot take in new actions while it runs: its draws "
                "are of all actions together. ClosedForm, Factored and Laplace can"
            )
        if self.backend.ridge:
            raise TypeError(
                "Laplace(sites='mle') cannot take in new actions while it runs: in the paper's scheme "
                "an action without rewards already tells of the effects. Use sites='tilted'"
            )
        return ThompsonSampling(replace(cast(Any, self.backend), hierarchy=hierarchy))

    def troubles(self, state: Any) -> dict[str, Int[Array, ""]]:
        """What the backend had trouble with."""
        return self.backend.troubles(state)


register_declaration(ThompsonSampling, arrays=("backend",), static=())


@dataclass(frozen=True, eq=False)
class UniformRandom(Policy[None]):
    """Every action with the same probability, whatever was seen."""

    hierarchy: Hierarchy

    def init(self, key: Array, *, room: int = 0) -> None:
        """Nothing is kept."""

    def scores(self, key: Array, state: None, context: Float[Array, "*K d"]) -> Float[Array, " K"]:
        """Independent numbers, none more likely to be the best than another."""
        return jax.random.uniform(key, (self.hierarchy.num_actions,))

    def act(self, key: Array, state: None, context: Float[Array, "*K d"]) -> Int[Array, ""]:
        """Any action, by one random number instead of one for each."""
        return jax.random.randint(key, (), 0, self.hierarchy.num_actions, jnp.int32)

    def update(self, state: None, context: Any, action: Any, reward: Any) -> None:
        """Nothing is learned."""

    def with_hierarchy(self, hierarchy: Hierarchy) -> "UniformRandom":
        """Any of other actions."""
        return UniformRandom(hierarchy)


register_declaration(UniformRandom, arrays=("hierarchy",), static=())
