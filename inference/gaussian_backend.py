"""What every Gaussian backend shares: actions that are exact given the levels above them.

A subclass says what it keeps of the levels above, by a few pure functions; everything about actions,
observations and evidence is here.
"""

from abc import abstractmethod
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from ..models import Hierarchy
from . import actions as acting
from .actions import ActionState, Innovation, Messages
from .backend import Backend, Posterior
from .linear_model import ActionModel
from .observation import as_context, many_observations, one_observation

__all__ = ["GaussianBackend", "GaussianState"]


class GaussianState(NamedTuple):
    """Everything a Gaussian backend knows.

    Attributes:
        effects: what is known of the levels above the actions, in the backend's own form.
        actions: what is known of the actions given those levels.
        log_evidence: log density of the rewards seen so far (exact backends only).
        taken: how many observations were taken in.
        rejected: how many were ignored inside `jit`: an action out of range, NaN or infinity.
    """

    effects: Any
    actions: ActionState
    log_evidence: Float[Array, ""]
    taken: Int[Array, ""]
    rejected: Int[Array, ""]


class GaussianBackend(Backend[GaussianState]):
    """A backend whose actions are Gaussian given the levels above (Prop. `thm:pti_gaussian`)."""

    is_exact: ClassVar[bool] = False
    hierarchy: Hierarchy
    model: ActionModel

    @abstractmethod
    def _prior(self) -> Any:
        """The levels above before any data."""

    @abstractmethod
    def _absorb(self, effects: Any, innovation: Innovation) -> tuple[Any, Array]:
        """The levels above after one reward, and the log density of that reward."""

    @abstractmethod
    def _reference(self, effects: Any) -> Float[Array, " N"]:
        """The `z` that the messages given to `_condition` are measured from."""

    @abstractmethod
    def _condition(self, effects: Any, messages: Messages) -> tuple[Any, Array]:
        """The levels above after a message from every action, and their part of the evidence."""

    @abstractmethod
    def _draw(self, key: Array, effects: Any) -> Float[Array, " N"]:
        """One draw of `z`, all levels above the actions."""

    @abstractmethod
    def _moments(self, state: GaussianState) -> tuple[Array, dict[str, Array], Array]:
        """The mean of `z`, marginal covariances of the levels above, and of the actions."""

    def init(self, key: Array | None = None) -> GaussianState:
        """The prior; no randomness is needed."""
        zero = jnp.zeros((), self.model.root.dtype)
        none = jnp.zeros((), jnp.int32)
        return GaussianState(self._prior(), acting.no_data(self.model), zero, none, none)

    def update(self, state: GaussianState, context: Any, action: Any, reward: Any) -> GaussianState:
        """One observation: rank one at every level, and no other action is touched."""
        return _update(self, state, *one_observation(self.hierarchy, context, action, reward))

    def condition(
        self, state: GaussianState, contexts: Any, actions: Any, rewards: Any
    ) -> GaussianState:
        """Many observations at once, by their sums."""
        seen = many_observations(self.hierarchy, contexts, actions, rewards)
        return _condition(self, state, seen.contexts, seen.actions, seen.rewards)

    def sample(self, key: Array, state: GaussianState) -> dict[str, Float[Array, "size d"]]:
        """One joint draw, top to bottom (`eq:sampling_equivalence`)."""
        return _sample(self, key, state)

    def sample_scores(self, key: Array, state: GaussianState, context: Any) -> Float[Array, " K"]:
        """`x' theta_i` of one joint draw, with one scalar normal per action."""
        return _sample_scores(self, key, state, as_context(self.hierarchy, context))

    def posterior(self, state: GaussianState) -> Posterior:
        """Marginal means and covariances of every level."""
        mean, cov = _posterior(self, state)
        return Posterior(mean, cov, state.log_evidence if self.is_exact else None, self, state)

    def _named(self, z: Float[Array, " N"], theta: Float[Array, "K d"]) -> dict[str, Array]:
        """Vectors by level name, for the levels the user declared."""
        values = self.model.arrows.split(z) | {self.hierarchy.actions.name: theta}
        return {level.name: values[level.name] for level in self.hierarchy.levels}


@jax.jit
def _update(
    backend: GaussianBackend, state: GaussianState, context: Array, action: Array, reward: Array
) -> GaussianState:
    finite = jnp.isfinite(reward) & jnp.isfinite(context).all()
    valid = finite & (action >= 0) & (action < backend.model.num_actions)
    context = jnp.where(valid, context, 0.0)
    reward = jnp.where(valid, reward, 0.0)
    action = jnp.where(valid, action, -1)
    actions, innovation = acting.observe(backend.model, state.actions, context, action, reward)
    effects, log_density = backend._absorb(state.effects, innovation)
    return GaussianState(
        effects=effects,
        actions=actions,
        log_evidence=state.log_evidence + jnp.where(valid, log_density, 0.0),
        taken=state.taken + valid,
        rejected=state.rejected + ~valid,
    )


@jax.jit
def _condition(
    backend: GaussianBackend, state: GaussianState, contexts: Array, actions: Array, rewards: Array
) -> GaussianState:
    model = backend.model
    finite = jnp.isfinite(rewards) & jnp.isfinite(contexts).all(-1)
    valid = finite & (actions >= 0) & (actions < model.num_actions)
    contexts = jnp.where(valid[:, None], contexts, 0.0)
    rewards = jnp.where(valid, rewards, 0.0)
    actions = jnp.where(valid, actions, model.num_actions)
    seen = contexts, actions, rewards
    z = backend._reference(state.effects)
    moved, messages, batch = acting.condition_actions(model, state.actions, z, *seen)
    effects, log_evidence = backend._condition(state.effects, messages)
    if backend.is_exact:
        shift = backend._reference(effects) - z
        log_evidence = log_evidence + acting.log_evidence(model, batch, shift, *seen)
    return GaussianState(
        effects=effects,
        actions=moved,
        log_evidence=state.log_evidence + log_evidence,
        taken=state.taken + valid.sum(),
        rejected=state.rejected + (~valid).sum(),
    )


@jax.jit
def _sample(backend: GaussianBackend, key: Array, state: GaussianState) -> dict[str, Array]:
    key_above, key_actions = jax.random.split(key)
    z = backend._draw(key_above, state.effects)
    theta = acting.draw_actions(key_actions, backend.model, state.actions, z)
    return backend._named(z, theta)


@jax.jit
def _sample_scores(
    backend: GaussianBackend, key: Array, state: GaussianState, context: Array
) -> Array:
    key_above, key_actions = jax.random.split(key)
    z = backend._draw(key_above, state.effects)
    columns = context[:, None] if context.ndim == 1 else context.T
    return acting.draw_scores(key_actions, backend.model, state.actions, z, columns)


@jax.jit
def _posterior(
    backend: GaussianBackend, state: GaussianState
) -> tuple[dict[str, Array], dict[str, Array]]:
    z, above, own = backend._moments(state)
    names = [level.name for level in backend.hierarchy.levels]
    covariances = above | {names[-1]: own}
    mean = backend._named(z, acting.mean_actions(backend.model, state.actions, z))
    return mean, {name: covariances[name] for name in names}
