"""`Factored`: effect posteriors that factorise, for very many effects."""

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ...models import Hierarchy
from ...models.arrays import as_count
from ...models.covariance import is_joint
from ...models.pytrees import register_declaration
from ..gaussian import factored_levels as factored_effects
from ..gaussian import joint_levels as joint_effects
from .action_blocks import ActionState, Innovation, Messages
from .backend import GaussianBackend, GaussianState
from .closed_form import check_joint_fits
from .factored_levels import FactoredLevel, FactoredSums
from .joint_levels import JointEffects, JointSums
from .laplace import check_gaussian_levels
from .linear_model import ActionModel, GaussianVector, action_model, joint_prior
from .square_roots import transpose

__all__ = ["Factored"]


class FactoredEffects(NamedTuple):
    """The factors, and the joint posterior they take their means from, if they do."""

    levels: dict[str, FactoredLevel]
    joint: JointEffects | None


class FactoredBackendSums(NamedTuple):
    """What every effect has been told, on its own and jointly."""

    levels: dict[str, FactoredSums]
    joint: JointSums | None


@dataclass(frozen=True, eq=False, repr=False)
class Factored(GaussianBackend):
    """The paper's factored effect posteriors (Aouali et al. 2023, Appendix E.1).

    Effects are independent of one another in the posterior; actions stay exact given the effects. The
    covariance of effect `l` is the inverse of the `l`-th diagonal block of the joint precision, which
    understates its marginal variance wherever actions mix effects. Two choices of means:

    - `means="decoupled"`, the displayed formulas: each effect is fitted as if it were the only parent
      of its actions. An update costs O(m d^2) for m parents whatever K and L are, and no joint
      covariance exists. The means differ from the joint posterior's as soon as an action has two
      parents: what the others explain is credited to each.
    - `means="joint"`, the proof: the means of the exact joint posterior, at `ClosedForm`'s cost.

    Only for two levels: effects without parents, and actions. Rewards that are not Gaussian enter as
    in `Laplace`, each action's likelihood expanded at its mode under the action's marginal prior
    `N(mu_i + Gamma_i mu_Psi, Sigma_{0,i} + Gamma_i Sigma_Psi Gamma_i')`; they are all kept, with room for
    `capacity` of them at first.
    """

    hierarchy: Hierarchy
    means: str = "decoupled"
    capacity: int = 1024
    model: ActionModel = field(init=False)
    prior: FactoredEffects = field(init=False)

    def __post_init__(self):
        check_gaussian_levels(self.hierarchy, "Factored")
        object.__setattr__(self, "capacity", as_count(self.capacity, "Factored capacity"))
        if self.means not in ("decoupled", "joint"):
            raise ValueError(f"Factored means is {self.means!r}; expected 'decoupled' or 'joint'")
        _check_two_levels(self.hierarchy)
        joint = None
        if self.means == "joint":
            check_joint_fits(self.hierarchy, "Factored(means='joint')")
            joint = joint_effects.before_data(joint_prior(self.hierarchy))
        by_precision = self.means == "joint"
        levels = factored_effects.factored_prior(self.hierarchy, blocks_of_precision=by_precision)
        object.__setattr__(self, "model", action_model(self.hierarchy))
        object.__setattr__(self, "prior", FactoredEffects(levels, joint))

    def __repr__(self) -> str:
        return f"Factored({self.hierarchy!r}, means={self.means!r})"

    def _prior(self) -> FactoredEffects:
        return self.prior

    def _absorb(
        self, effects: FactoredEffects, innovation: Innovation, actions: ActionState
    ) -> tuple[FactoredEffects, Array]:
        levels = factored_effects.absorb(self.model, effects.levels, innovation)
        joint = effects.joint
        if joint is not None:
            joint, _ = joint_effects.absorb(self.model, joint, innovation)
        return self._with_joint_means(levels, joint), jnp.zeros_like(innovation.variance)

    def _reference(self, effects: FactoredEffects) -> dict[str, Array]:
        if effects.joint is not None:
            return self.model.arrows.split(effects.joint.mean)
        # Each effect is fitted without the others, so from where none of them is.
        return jax.tree.map(jnp.zeros_like, self._means(effects))

    def _condition(
        self, effects: FactoredEffects, messages: Messages, actions: ActionState
    ) -> tuple[FactoredEffects, Array]:
        levels = {
            name: factored_effects.condition_level(self.model, name, level, messages)
            for name, level in effects.levels.items()
        }
        joint = effects.joint
        if joint is not None:
            joint, _ = joint_effects.condition_effects(self.model, joint, messages)
        return self._with_joint_means(levels, joint), jnp.zeros((), self.model.root.dtype)

    def _given_messages(self, messages: Messages) -> tuple[FactoredEffects, FactoredBackendSums]:
        sums = {
            name: factored_effects.add_up(self.model, name, level, messages)
            for name, level in self.prior.levels.items()
        }
        levels = {
            name: factored_effects.given_sums(level, sums[name])
            for name, level in self.prior.levels.items()
        }
        if self.prior.joint is None:
            return FactoredEffects(levels, None), FactoredBackendSums(sums, None)
        together = joint_effects.add_up(self.model, messages)
        joint = joint_effects.given_sums(self._joint_prior(), together)
        return self._with_joint_means(levels, joint), FactoredBackendSums(sums, together)

    def _exchange(
        self,
        effects: FactoredEffects,
        sums: FactoredBackendSums,
        action: Array,
        precision: Array,
        vector: Array,
    ) -> tuple[FactoredEffects, FactoredBackendSums]:
        levels, apart = factored_effects.exchange(
            self.model, self.prior.levels, effects.levels, sums.levels, action, precision, vector
        )
        if sums.joint is None:
            return FactoredEffects(levels, None), FactoredBackendSums(apart, None)
        together = joint_effects.exchange(self.model, sums.joint, action, precision, vector)
        joint = joint_effects.given_sums(self._joint_prior(), together)
        return self._with_joint_means(levels, joint), FactoredBackendSums(apart, together)

    def _action_prior(
        self, effects: FactoredEffects, action: Array, precision: Array, vector: Array
    ) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        # Factors are not a posterior that one action's message could be taken out of.
        alone, levels = self.model.select(action), self.prior.levels
        spread = factored_effects.location_covariance(self.model, levels, action)
        xi = self.model.arrows.row(action, self._means(self.prior))
        return alone.mean[:, 0] + xi, spread + alone.root[:, :, 0] @ alone.root[:, :, 0].T

    def _means(self, effects: FactoredEffects) -> dict[str, Array]:
        return {name: level.mean for name, level in effects.levels.items()}

    def _joint_prior(self) -> GaussianVector:
        joint = self.prior.joint
        assert joint is not None
        return GaussianVector(joint.mean, joint.root)

    def _with_joint_means(
        self, levels: dict[str, FactoredLevel], joint: JointEffects | None
    ) -> FactoredEffects:
        if joint is not None:
            means = self.model.arrows.split(joint.mean)
            levels = {name: FactoredLevel(means[name], lv.root) for name, lv in levels.items()}
        return FactoredEffects(levels, joint)

    def _draw(self, key: Array, effects: FactoredEffects) -> dict[str, Array]:
        return factored_effects.draw(key, effects.levels)

    def _covariances(self, state: GaussianState) -> tuple[dict[str, Array], Array]:
        levels = state.effects.levels
        above = {name: level.root @ transpose(level.root) for name, level in levels.items()}
        return above, _action_covariances(self.model, state.actions.root, levels)


register_declaration(Factored, arrays=("hierarchy", "model", "prior"), static=("means", "capacity"))


def _check_two_levels(hierarchy: Hierarchy) -> None:
    for level in hierarchy.levels[:-1]:
        if level.parents:
            raise ValueError(
                f"Factored takes two levels, effects without parents and actions; level "
                f"'{level.name}' has parents {sorted(level.parents)}: use ClosedForm"
            )
    action = hierarchy.actions
    if not action.parents and is_joint(action.cov, action.size, hierarchy.dim):
        raise ValueError(
            f"Factored takes actions that are independent given their effects; level '{action.name}' "
            "has a joint covariance of all its vectors: use ClosedForm, or Laplace where rewards are "
            "not Gaussian"
        )


def _action_covariances(
    model: ActionModel, root: Float[Array, "d d K"], levels: dict[str, FactoredLevel]
) -> Float[Array, "K d d"]:
    """`S_i + S_i Lambda_0 (sum_l C_il Sigma_l C_il') Lambda_0 S_i` (Lemma 3)."""

    def one(action: Array) -> Float[Array, "d d"]:
        Q = root[:, :, action]
        S = Q @ Q.T
        spread = factored_effects.location_covariance(model, levels, action)
        gain = jax.vmap(lambda v: model.weigh_one(action, v), 1, 1)(S).T
        return S + gain @ spread @ gain.T

    return jax.lax.map(one, jnp.arange(model.num_actions), batch_size=1024)
