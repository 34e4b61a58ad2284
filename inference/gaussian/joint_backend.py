"""Backends that keep the joint posterior of all levels above the actions."""

from typing import Any

from jax import Array
from jaxtyping import Float

from ...models import Hierarchy
from ..gaussian import joint_levels as joint_effects
from .action_blocks import ActionState, Innovation, Messages
from .backend import GaussianBackend, GaussianState
from .joint_levels import JointEffects, JointSums
from .linear_model import GaussianVector, action_model, joint_prior, untie_actions

__all__ = ["JointBackend"]


class JointBackend(GaussianBackend):
    """The levels above the actions as one Gaussian vector (`joint_effects`)."""

    prior: GaussianVector

    def _prepare(self, hierarchy: Hierarchy) -> None:
        """Work out the two-level form of the hierarchy, once."""
        untied = untie_actions(hierarchy)
        object.__setattr__(self, "model", action_model(untied))
        object.__setattr__(self, "prior", joint_prior(untied))

    def _prior(self) -> JointEffects:
        return joint_effects.before_data(self.prior)

    def _absorb(
        self, effects: JointEffects, innovation: Innovation, actions: ActionState
    ) -> tuple[JointEffects, Array]:
        return joint_effects.absorb(self.model, effects, innovation)

    def _reference(self, effects: Any) -> dict[str, Array]:
        return self._means(effects)

    def _condition(
        self, effects: JointEffects, messages: Messages, actions: ActionState
    ) -> tuple[JointEffects, Array]:
        return joint_effects.condition_effects(self.model, effects, messages)

    def _given_messages(self, messages: Messages) -> tuple[JointEffects, JointSums]:
        sums = joint_effects.add_up(self.model, messages)
        return joint_effects.given_sums(self.prior, sums), sums

    def _exchange(
        self, effects: JointEffects, sums: JointSums, action: Array, precision: Array, vector: Array
    ) -> tuple[JointEffects, JointSums]:
        sums = joint_effects.exchange(self.model, sums, action, precision, vector)
        return joint_effects.given_sums(self.prior, sums), sums

    def _action_prior(
        self, effects: JointEffects, action: Array, precision: Array, vector: Array
    ) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        return joint_effects.without_own(self.model, effects, action, precision, vector)

    def _means(self, effects: Any) -> dict[str, Array]:
        return self.model.arrows.split(effects.mean)

    def _draw(self, key: Array, effects: Any) -> dict[str, Array]:
        return self.model.arrows.split(joint_effects.draw(key, _vector(effects)))

    def _covariances(self, state: GaussianState) -> tuple[dict[str, Array], Array]:
        effects = _vector(state.effects)
        above = joint_effects.level_covariances(self.model, effects)
        return above, joint_effects.action_covariances(self.model, state.actions.root, effects)


def _vector(effects: Any) -> GaussianVector:
    """The law of `z`, whatever else is kept with it."""
    return GaussianVector(effects.mean, effects.root)
