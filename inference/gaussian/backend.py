"""What every Gaussian backend shares: actions that are exact given the levels above them.

A subclass says what it keeps of the levels above, by a few pure functions; everything about actions,
observations and evidence is here.
"""

from abc import abstractmethod
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from ...models import Gaussian, Hierarchy
from ..backend import Backend, Posterior
from ..buffer import reserve
from ..gaussian import action_blocks as acting
from ..observation import as_context, can_be_used, many_observations, one_observation
from .action_blocks import ActionState, Innovation, Messages
from .forgetting import as_factor, forget
from .linear_model import ActionModel
from .refit import Likelihoods, no_likelihoods, refit_all, refit_one
from .square_roots import add_compensated

__all__ = ["GaussianBackend", "GaussianState"]


class GaussianState(NamedTuple):
    """Everything a Gaussian backend knows.

    Attributes:
        effects: what is known of the levels above the actions, in the backend's own form.
        actions: what is known of the actions given those levels.
        log_evidence: log density of the rewards seen so far (exact backends only).
        carry: what rounding has kept from being added to it.
        taken: how many observations were taken in.
        rejected: how many were ignored inside `jit`: an action out of range, NaN or infinity, or no
            room left for it.
        likelihoods: the Gaussian likelihoods of rewards that are not Gaussian, else None.
    """

    effects: Any
    actions: ActionState
    log_evidence: Float[Array, ""]
    carry: Float[Array, ""]
    taken: Int[Array, ""]
    rejected: Int[Array, ""]
    likelihoods: Likelihoods | None = None


class GaussianBackend(Backend[GaussianState]):
    """A backend whose actions are Gaussian given the levels above (Proposition 2)."""

    is_exact: ClassVar[bool] = False
    hierarchy: Hierarchy
    model: ActionModel
    capacity: int = (
        1024  # for rewards that are not Gaussian: room for so many observations at first
    )

    @property
    def ridge(self) -> float:
        """What is added to the curvature of every likelihood that is not Gaussian."""
        return 0.0

    @property
    def refits(self) -> bool:
        """Whether rewards enter by refitting their action's likelihood, not by their sums."""
        return not isinstance(self.hierarchy.reward, Gaussian)

    @abstractmethod
    def _prior(self) -> Any:
        """The levels above before any data."""

    @abstractmethod
    def _absorb(
        self, effects: Any, innovation: Innovation, actions: ActionState
    ) -> tuple[Any, Array]:
        """The levels above after one reward and the actions after it; its log density."""

    @abstractmethod
    def _reference(self, effects: Any) -> dict[str, Float[Array, "size d"]]:
        """Where the levels above are when messages to `_condition` say nothing."""

    @abstractmethod
    def _condition(
        self, effects: Any, messages: Messages, actions: ActionState
    ) -> tuple[Any, Array]:
        """The levels above after a message from every action; their part of the evidence."""

    @abstractmethod
    def _given_messages(self, messages: Messages) -> tuple[Any, Any]:
        """The levels above given each action's only message, from `z = 0`; and the messages' sums."""

    @abstractmethod
    def _exchange(
        self, effects: Any, sums: Any, action: Array, precision: Array, vector: Array
    ) -> tuple[Any, Any]:
        """The levels above and the sums after one action has changed its message by so much."""

    @abstractmethod
    def _action_prior(
        self, effects: Any, action: Array, precision: Array, vector: Array
    ) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        """Mean and covariance of an action without its own rewards, given the message it sent."""

    @abstractmethod
    def _means(self, effects: Any) -> dict[str, Float[Array, "size d"]]:
        """The posterior mean of each level above."""

    @abstractmethod
    def _draw(self, key: Array, effects: Any) -> dict[str, Float[Array, "size d"]]:
        """One joint draw of the levels above."""

    @abstractmethod
    def _covariances(self, state: GaussianState) -> tuple[dict[str, Array], Array]:
        """Marginal covariances of the vectors of the levels above, and of the actions."""

    def _given_actions(self, effects: Any, actions: ActionState) -> Any:
        """The levels above given all that is known of the actions, whatever they were before."""
        return self._given_messages(acting.messages_of(self.model, actions))[0]

    def init(self, key: Array | None = None, *, room: int = 0) -> GaussianState:
        """The prior; no randomness is needed."""
        if self.refits:
            return _init_likelihoods(self, capacity=max(self.capacity, room))
        return _state_of(self, self._prior(), acting.no_data(self.model))

    def update(self, state: GaussianState, context: Any, action: Any, reward: Any) -> GaussianState:
        """One observation; no other action is touched. Gaussian rewards: rank one at every level."""
        seen = one_observation(self.hierarchy, context, action, reward)
        return _update(self, self.reserve(state, 1), *seen)

    def condition(
        self, state: GaussianState, contexts: Any, actions: Any, rewards: Any
    ) -> GaussianState:
        """Many observations at once."""
        seen = many_observations(self.hierarchy, contexts, actions, rewards)
        state = self.reserve(state, len(seen.contexts))
        return _condition(self, state, seen.contexts, seen.actions, seen.rewards)

    def forget(self, state: GaussianState, factor: Any) -> GaussianState:
        """The state in which everything seen so far counts `factor` times as much: see `forgetting`.

        Gaussian rewards only, with or without a link. The log evidence becomes NaN: what is left is
        no longer the density of any rewards. A factor of one changes nothing, bit for bit; inside
        `jit` so does one outside (0, 1], which is counted as rejected.
        """
        return forget(self, state, as_factor(self, factor))

    def reserve(self, state: GaussianState, more: int) -> GaussianState:
        """The same state with room for `more` observations, where observations are kept.

        Outside `jit`, `update` and `condition` do this themselves; before a `lax.scan` over many
        updates do it once.
        """
        if state.likelihoods is None:
            return state
        buffer = reserve(state.likelihoods.buffer, more)
        return state._replace(likelihoods=state.likelihoods._replace(buffer=buffer))

    def sample(self, key: Array, state: GaussianState) -> dict[str, Float[Array, "size d"]]:
        """One joint draw, top to bottom (Eq. 4)."""
        return _sample(self, key, state)

    def sample_scores(self, key: Array, state: GaussianState, context: Any) -> Float[Array, " K"]:
        """`x' theta_i` of one joint draw, with one scalar normal per action."""
        return _sample_scores(self, key, state, as_context(self.hierarchy, context))

    def posterior(self, state: GaussianState) -> Posterior:
        """Marginal means and covariances of every level."""
        # Out of jit a dict comes in alphabetical order.
        names = [level.name for level in self.hierarchy.levels]
        mean, cov = ({name: part[name] for name in names} for part in _posterior(self, state))
        return Posterior(mean, cov, state.log_evidence if self.is_exact else None, self, state)

    def troubles(self, state: GaussianState) -> dict[str, Int[Array, ""]]:
        """Observations that were ignored, and fits that stopped before their end."""
        counts = {"rejected": state.rejected}
        for part in (state.likelihoods, state.effects):
            for name in ("unconverged", "indefinite"):
                if hasattr(part, name):
                    counts[name] = getattr(part, name)
        return counts


def _state_of(
    backend: GaussianBackend, effects: Any, actions: ActionState, likelihoods: Any = None
) -> GaussianState:
    """A state that has seen nothing."""
    zero = jnp.zeros((), backend.model.root.dtype)
    none = jnp.zeros((), jnp.int32)
    return GaussianState(effects, actions, zero, zero, none, none, likelihoods)


@partial(jax.jit, static_argnames="capacity")
def _init_likelihoods(backend: GaussianBackend, *, capacity: int) -> GaussianState:
    """The prior, with room for so many observations that are fitted again and again."""
    likelihoods = no_likelihoods(backend, capacity)
    actions, messages = acting.actions_given(
        backend.model, likelihoods.precision, likelihoods.information
    )
    effects, _ = backend._given_messages(messages)
    return _state_of(backend, effects, actions, likelihoods)


@jax.jit
def _update(
    backend: GaussianBackend, state: GaussianState, context: Array, action: Array, reward: Array
) -> GaussianState:
    valid = can_be_used(context, action, reward, backend.model.num_actions)
    seen = (
        jnp.where(valid, context, 0.0),
        jnp.where(valid, action, -1),
        jnp.where(valid, reward, 0.0),
    )
    if backend.refits:
        return refit_one(backend, state, *seen, valid)
    actions, innovation = acting.observe(backend.model, state.actions, *seen)
    effects, log_density = backend._absorb(state.effects, innovation, actions)
    log_evidence, carry = add_compensated(
        state.log_evidence, state.carry, jnp.where(valid, log_density, 0.0)
    )
    return GaussianState(
        effects=effects,
        actions=actions,
        log_evidence=log_evidence,
        carry=carry,
        taken=state.taken + valid,
        rejected=state.rejected + ~valid,
    )


@jax.jit
def _condition(
    backend: GaussianBackend, state: GaussianState, contexts: Array, actions: Array, rewards: Array
) -> GaussianState:
    model = backend.model
    valid = can_be_used(contexts, actions, rewards, model.num_actions)
    seen = (
        jnp.where(valid[:, None], contexts, 0.0),
        jnp.where(valid, actions, model.num_actions),
        jnp.where(valid, rewards, 0.0),
    )
    if backend.refits:
        return refit_all(backend, state, *seen, valid)
    few = model.dim * model.num_actions + model.arrows.num_above
    if len(rewards) <= few and model.link is None:
        # One after the other is as fast then, and keeps what rounding would lose.
        rows = contexts, actions, rewards
        return jax.lax.scan(lambda state, row: (_update(backend, state, *row), None), state, rows)[
            0
        ]
    moved, innovations = acting.condition_actions(model, state.actions, *seen)
    messages = acting.add_messages(model, innovations, backend._reference(state.effects))
    effects, log_evidence = backend._condition(state.effects, messages, moved)
    if backend.is_exact:
        z = backend._reference(effects)
        log_evidence = log_evidence + acting.log_evidence(model, innovations, z)
    log_evidence, carry = add_compensated(state.log_evidence, state.carry, log_evidence)
    return GaussianState(
        effects=effects,
        actions=moved,
        log_evidence=log_evidence,
        carry=carry,
        taken=state.taken + valid.sum(dtype=jnp.int32),
        rejected=state.rejected + (~valid).sum(dtype=jnp.int32),
    )


@jax.jit
def _sample(backend: GaussianBackend, key: Array, state: GaussianState) -> dict[str, Array]:
    key_above, key_actions = jax.random.split(key)
    above = backend._draw(key_above, state.effects)
    theta = acting.draw_actions(key_actions, backend.model, state.actions, above)
    return _declared(backend, above, theta)


@jax.jit
def _sample_scores(
    backend: GaussianBackend, key: Array, state: GaussianState, context: Array
) -> Array:
    key_above, key_actions = jax.random.split(key)
    above = backend._draw(key_above, state.effects)
    columns = context[:, None] if context.ndim == 1 else context.T
    return acting.draw_scores(key_actions, backend.model, state.actions, above, columns)


@jax.jit
def _posterior(
    backend: GaussianBackend, state: GaussianState
) -> tuple[dict[str, Array], dict[str, Array]]:
    above = backend._means(state.effects)
    mean = _declared(backend, above, acting.mean_actions(backend.model, state.actions, above))
    return mean, _declared(backend, *backend._covariances(state))


def _declared(backend: GaussianBackend, above: dict[str, Array], own: Array) -> dict[str, Array]:
    """By level name, the levels that the user declared, top to bottom."""
    values = above | {backend.hierarchy.actions.name: own}
    return {level.name: values[level.name] for level in backend.hierarchy.levels}
