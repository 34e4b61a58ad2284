"""What chooses an action: the interface of a policy, Thompson sampling, and random choice.

Other policies that choose by a posterior are in `top_two`, `information_directed` and `posterior_means`.
"""

from abc import abstractmethod
from dataclasses import KW_ONLY
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from ...inference import Backend, Posterior, Status
from ...inference.observation import PADDING
from ...models import Hierarchy
from ...models.arrays import as_positive
from ...models.declaration import Declaration
from ...models.messages import short
from ...models.rewards import is_one, takes

__all__ = [
    "AmongAllowed",
    "Policy",
    "PosteriorPolicy",
    "ThompsonSampling",
    "UniformRandom",
    "best_action",
]

State = TypeVar("State")


class Policy(Declaration, Generic[State]):
    """Chooses actions and learns from rewards.

    Every method is pure and works inside `jit`, `lax.scan` and `vmap`; a policy and its states are
    pytrees. A context is (dim,), shared by all actions, or (K, dim), a row for each.

    Example:
        >>> from mixts.bandit import LinTS
        >>> from mixts.models import linear
        >>> policy = LinTS(linear([[1.0], [0.5], [-1.0]], dim=2))
        >>> state, context = policy.init(jax.random.key(0)), jnp.ones(2)
        >>> action = policy.act(jax.random.key(1), state, context)
        >>> state = policy.update(state, context, action, 1.5)
    """

    @abstractmethod
    def init(self, key: Array, *, room: int = 0) -> State:
        """The state before any observation, with room for `room` of them where they are kept."""

    def scores(self, key: Array, state: State, context: Float[Array, "*K d"]) -> Float[Array, " K"]:
        """A number for every action, the higher the better; where only some are allowed, compare theirs."""
        raise TypeError(
            f"{type(self).__name__} does not score its actions; give it a method "
            "scores(key, state, context) that returns a number for each"
        )

    def scores_of(
        self, key: Array, state: State, context: Float[Array, "*K d"], allowed: Bool[Array, " K"]
    ) -> Float[Array, " K"]:
        """`scores` where only some actions may be chosen: minus infinity for the others."""
        return jnp.where(allowed, self.scores(key, state, context), -jnp.inf)

    def act(self, key: Array, state: State, context: Float[Array, "*K d"]) -> Int[Array, ""]:
        """The action to choose in a context: the one with the best score."""
        return best_action(self.scores(key, state, context))

    @abstractmethod
    def update(self, state: State, context: Any, action: Any, reward: Any) -> State:
        """The state after one more observation: a context, the chosen action and its reward.

        A policy whose `update` has a fifth argument, `exposure=1.0`, learns from rows that stand for
        several rewards; see `Data`.
        """

    def condition(
        self, state: State, contexts: Any, actions: Any, rewards: Any, exposure: Any = None
    ) -> State:
        """The state after many more observations, (n, d), (n,) and (n,): one `update` for each.

        Policies that learn faster from many at once do. Inside `jit`, rows may be padding.
        """

        def one(state: State, row: tuple[Array, ...]) -> tuple[State, None]:
            learned = lambda before: self.update(before, *row)  # noqa: E731
            return jax.lax.cond(row[1] == PADDING, lambda before: before, learned, state), None

        given = contexts, actions, rewards, *(() if exposure is None else (exposure,))
        self.check_takes_exposure(exposure)
        return jax.lax.scan(one, state, tuple(map(jnp.asarray, given)))[0]

    @property
    def takes_exposure(self) -> bool:
        """Whether it learns from rows that stand for several rewards."""
        return takes(type(self).update, "exposure") and bool(
            getattr(self.problem, "takes_exposure", False)
        )

    def check_takes_exposure(self, exposure: Any) -> None:
        """Refuse an exposure, unless it is that of one reward, where a row is one reward."""
        if not (is_one(exposure) or self.takes_exposure):
            why = f"{type(self).__name__} learns from one reward a row"
            if takes(type(self).update, "exposure"):
                why = f"{short(self.problem.reward)} is one reward a row"
            raise ValueError(
                f"exposure: got one, and {why}; give every reward a row of its own, or use "
                "ThompsonSampling with a family of rewards that has an exposure, such as Bernoulli"
            )

    @property
    def problem(self) -> Any:
        """What defines the shapes of contexts and actions: a hierarchy, or the target of a program."""
        hierarchy = getattr(self, "hierarchy", None)
        if not isinstance(hierarchy, Hierarchy):
            raise TypeError(
                f"{type(self).__name__} does not define the shapes of its contexts and actions; give it "
                "an attribute `hierarchy`"
            )
        return hierarchy

    def reserve(self, state: State, more: int) -> State:
        """The same state with room for `more` observations, where observations are kept."""
        return state

    def forget(self, state: State, factor: Any) -> State:
        """The state in which all evidence so far is weighted by `factor`."""
        raise TypeError(
            f"{type(self).__name__} cannot forget; ThompsonSampling can, on ClosedForm or Factored"
        )

    def rebuilt(self, state: State) -> State:
        """The state after vectors have joined the hierarchy, with what they change for all made anew."""
        return state

    @property
    def ages(self) -> bool:
        """Whether time that passes changes what it knows: `advance` is then called after each round."""
        return False

    def advance(self, state: State, rounds: Any = 1.0) -> State:
        """The state so many rounds later, where levels drift or evidence has a half-life."""
        return state

    def with_hierarchy(self, hierarchy: Hierarchy) -> "Policy":
        """The same policy for other actions: those of a hierarchy that differs in them alone."""
        raise TypeError(
            f"{type(self).__name__} cannot take in new actions; ThompsonSampling can, on ClosedForm, "
            "Factored or Laplace, and so can LinUCB, UCBGLM, GLMUCB and UniformRandom"
        )

    def status(self, state: State) -> Status:
        """What went wrong so far; works inside `jit`."""
        return Status()

    def posterior(self, state: State) -> Posterior:
        """What is known of every level, where the policy has a posterior."""
        raise TypeError(f"{type(self).__name__} has no posterior; ThompsonSampling has, and LinTS")


def best_action(scores: Float[Array, " K"]) -> Int[Array, ""]:
    """The first action with the highest score.

    In two passes, each a reduction to one number: `argmax` reduces to two at once, which XLA merges
    with all that makes the scores into one slow serial loop.

    Example:
        >>> from mixts.bandit import best_action
        >>> int(best_action(jnp.array([0.1, 0.7, 0.7])))
        1
    """
    places = jnp.arange(scores.shape[0], dtype=jnp.int32)
    return jnp.min(jnp.where(scores < scores.max(), scores.shape[0] - 1, places))


class PosteriorPolicy(Policy[Any]):
    """Learns as its backend does; what it is for is to choose. Subclasses give `scores`.

    Args:
        backend: the posterior. If its levels drift, they do from round to round: after each observation.
        half_life: if given, evidence counts half when so many rounds have passed. To an `Agent` an
            observation is a round; it has a half-life of its own, in seconds.

    Example:
        >>> from mixts.bandit import PosteriorPolicy
        >>> from mixts.inference import ClosedForm
        >>> from mixts.models import linear
        >>> class WorstCase(PosteriorPolicy):
        ...     def scores(self, key, state, context):
        ...         return self.backend.sample_many_scores(key, state, context, 100).min(0)
        >>> policy = WorstCase(ClosedForm(linear([[1.0], [0.5]], dim=2)))
        >>> policy.scores(jax.random.key(0), policy.init(jax.random.key(1)), jnp.ones(2)).shape
        (2,)
    """

    backend: Backend[Any]
    _: KW_ONLY
    half_life: float | None = eqx.field(default=None, static=True)

    def __post_init__(self):
        if not isinstance(self.backend, Backend):
            raise TypeError(
                f"{type(self).__name__}: got {short(self.backend)}; expected a backend, such as "
                "ClosedForm(hierarchy)"
            )
        if self.half_life is None:
            return
        self.half_life = float(as_positive(self.half_life, f"{type(self).__name__} half_life"))
        if getattr(self.problem, "drifts", False):
            raise ValueError(
                f"{type(self).__name__} half_life is {self.half_life:g}, and levels of its hierarchy "
                "drift: two ways to follow a world that changes; expected one, see "
                "hierarchy.without_drift()"
            )

    def init(self, key: Array, *, room: int = 0) -> Any:
        """The backend's prior."""
        return self.backend.init(key, room=room)

    @abstractmethod
    def scores(self, key: Array, state: Any, context: Float[Array, "*K d"]) -> Float[Array, " K"]:
        """A number for every action, by what the backend knows; the best one is chosen."""

    def update(
        self, state: Any, context: Any, action: Any, reward: Any, exposure: Any = 1.0
    ) -> Any:
        """The backend's posterior after one more observation."""
        self.check_takes_exposure(exposure)
        more = () if is_one(exposure) else (exposure,)
        return self.backend.update(state, context, action, reward, *more)

    def condition(
        self, state: Any, contexts: Any, actions: Any, rewards: Any, exposure: Any = None
    ) -> Any:
        """The backend's posterior after many more observations, taken in at once."""
        self.check_takes_exposure(exposure)
        more = () if is_one(exposure) else (exposure,)
        return self.backend.condition(state, contexts, actions, rewards, *more)

    @property
    def takes_exposure(self) -> bool:
        """Whether the backend and its rewards have an exposure."""
        return super().takes_exposure and takes(type(self.backend).update, "exposure")

    @property
    def problem(self) -> Any:
        """The backend's hierarchy, or the target of its program."""
        return self.backend.problem

    def reserve(self, state: Any, more: int) -> Any:
        """The same state with room for `more` observations, where the backend keeps them."""
        return self.backend.reserve(state, more)

    def forget(self, state: Any, factor: Any) -> Any:
        """The backend's posterior with all evidence so far discounted."""
        return self.backend.forget(state, factor)

    def rebuilt(self, state: Any) -> Any:
        """The backend's state after vectors have joined the hierarchy."""
        return self.backend.rebuilt(state)

    @property
    def ages(self) -> bool:
        """Whether levels drift, or evidence has a half-life."""
        return self.half_life is not None or getattr(self.problem, "drifts", False)

    def advance(self, state: Any, rounds: Any = 1.0) -> Any:
        """The backend's posterior so many rounds later."""
        if self.half_life is None:
            return self.backend.advance(state, rounds)
        return self.backend.forget(state, 0.5 ** (rounds / self.half_life))

    def with_hierarchy(self, hierarchy: Hierarchy) -> Policy:
        """The same backend for other actions, if it keeps a posterior for each action."""
        return self.remade(backend=self.backend.with_hierarchy(hierarchy))

    def status(self, state: Any) -> Status:
        """The backend's status."""
        return self.backend.status(state)

    def posterior(self, state: Any) -> Posterior:
        """The backend's posterior."""
        return self.backend.posterior(state)


class ThompsonSampling(PosteriorPolicy):
    """The action that is best in one joint draw from the posterior (Aouali et al. 2023, Algorithm 1).

    The mean function of rewards is increasing, so the best `r(x, i; Theta)` has the best `x' theta_i`.

    Example:
        >>> from mixts.bandit import ThompsonSampling
        >>> from mixts.inference import ClosedForm
        >>> from mixts.models import linear
        >>> policy = ThompsonSampling(ClosedForm(linear([[1.0], [0.5]], dim=2)))
        >>> policy.scores(jax.random.key(0), policy.init(jax.random.key(1)), jnp.ones(2)).shape
        (2,)
    """

    def scores(self, key: Array, state: Any, context: Float[Array, "*K d"]) -> Float[Array, " K"]:
        """`x' theta_i` of one draw."""
        return self.backend.sample_scores(key, state, context)


class AmongAllowed(PosteriorPolicy):
    """Compares actions, so that scores depend on which are allowed. Subclasses give `scores_of`."""

    def scores(self, key: Array, state: Any, context: Float[Array, "*K d"]) -> Float[Array, " K"]:
        """The scores where all actions are allowed."""
        every = jnp.ones(self.problem.num_actions, bool)
        return self.scores_of(key, state, context, every)

    @abstractmethod
    def scores_of(
        self, key: Array, state: Any, context: Float[Array, "*K d"], allowed: Bool[Array, " K"]
    ) -> Float[Array, " K"]:
        """Scores of which the best is that of the chosen action, one of those that are allowed."""


class UniformRandom(Policy[None]):
    """Every action with the same probability, whatever was observed.

    Example:
        >>> from mixts.bandit import UniformRandom
        >>> from mixts.models import linear
        >>> policy = UniformRandom(linear([[1.0], [0.5]], dim=2))
        >>> int(policy.act(jax.random.key(0), None, jnp.ones(2))) in (0, 1)
        True
    """

    hierarchy: Hierarchy

    def init(self, key: Array, *, room: int = 0) -> None:
        """Nothing is kept."""

    def scores(self, key: Array, state: None, context: Float[Array, "*K d"]) -> Float[Array, " K"]:
        """Independent uniform numbers."""
        return jax.random.uniform(key, (self.hierarchy.num_actions,))

    def act(self, key: Array, state: None, context: Float[Array, "*K d"]) -> Int[Array, ""]:
        """One random number instead of one for each action."""
        return jax.random.randint(key, (), 0, self.hierarchy.num_actions, jnp.int32)

    def update(
        self, state: None, context: Any, action: Any, reward: Any, exposure: Any = 1.0
    ) -> None:
        """Nothing is learned."""

    def with_hierarchy(self, hierarchy: Hierarchy) -> "UniformRandom":
        """Random choice among other actions."""
        return UniformRandom(hierarchy)
