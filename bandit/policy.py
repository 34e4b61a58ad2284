"""What picks an action: the interface of a policy, Thompson sampling, and two reference points."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from ..inference import Backend
from ..models import Hierarchy
from ..models.pytrees import register_declaration

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

    @abstractmethod
    def act(self, key: Array, state: State, context: Float[Array, "*K d"]) -> Int[Array, ""]:
        """The action to take in a context."""

    @abstractmethod
    def update(self, state: State, context: Any, action: Any, reward: Any) -> State:
        """The state after an action has met a context and brought a reward."""

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
    """The action that is best in one joint draw from the posterior (Aouali et al. 2023, `alg:ts`).

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

    def act(self, key: Array, state: Any, context: Float[Array, "*K d"]) -> Int[Array, ""]:
        """The best action of one draw."""
        return best_action(self.backend.sample_scores(key, state, context))

    def update(self, state: Any, context: Any, action: Any, reward: Any) -> Any:
        """The backend's posterior after one more observation."""
        return self.backend.update(state, context, action, reward)

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

    def act(self, key: Array, state: None, context: Float[Array, "*K d"]) -> Int[Array, ""]:
        """Any action."""
        return jax.random.randint(key, (), 0, self.hierarchy.num_actions, jnp.int32)

    def update(self, state: None, context: Any, action: Any, reward: Any) -> None:
        """Nothing is learned."""


register_declaration(UniformRandom, arrays=("hierarchy",), static=())
