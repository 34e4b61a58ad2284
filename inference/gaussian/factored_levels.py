"""`FactoredLevels`: effect posteriors that factorise over effects, `Q_t = prod_l Q_{t,l}`.

Aouali et al. 2023, Appendix E.1. Each effect `psi_l` keeps a mean and a square root of its own
covariance; an observation moves only the parents of the chosen action, so that an update costs the same
however many effects there are. Two levels only: effects without parents, and actions.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ...models import Hierarchy
from ..random import standard_normal
from .action_blocks import Above, ActionState, Innovation, Messages
from .joint_levels import JointEffects, JointLevels, joint_levels
from .levels import Levels, Outcome
from .linear_model import ActionModel, action_model
from .square_roots import shrink, shrink_by_one, transpose

__all__ = ["FactoredEffects", "FactoredLevel", "FactoredLevels", "FactoredSums", "factored_levels"]


class FactoredLevel(NamedTuple):
    """Independent Gaussians `N(mean_l, root_l root_l')`, one for each effect of a level."""

    mean: Float[Array, "L d"]
    root: Float[Array, "L d d"]


class FactoredEffects(NamedTuple):
    """The factors by level, and the joint posterior they take their means from, if they do."""

    levels: dict[str, FactoredLevel]
    joint: Any  # JointEffects, or None


class EffectSums(NamedTuple):
    """The sums of all messages from the actions about each effect of a level.

    Attributes:
        precision: (L, d, d) `sum_i b_il^2 M_i`.
        information: (L, d) `sum_i b_il k_i`.
    """

    precision: Float[Array, "L d d"]
    information: Float[Array, "L d"]


class FactoredSums(NamedTuple):
    """The sums of messages, by level for every effect on its own, and jointly."""

    levels: dict[str, EffectSums]
    joint: Any  # JointSums, or None


class FactoredLevels(Levels):
    """Effects that are independent of one another, and actions that are exact given the effects.

    Attributes:
        model: the actions given the effects.
        prior: each effect before any data.
        joint: the exact joint posterior that means are taken from, or None: each effect is then fitted
            as if it were the only parent of its actions.
    """

    model: ActionModel
    prior: dict[str, FactoredLevel]
    joint: JointLevels | None

    def before_data(self) -> FactoredEffects:
        return FactoredEffects(self.prior, self.joint and self.joint.before_data())

    def absorb(
        self, effects: FactoredEffects, innovation: Innovation, actions: ActionState
    ) -> tuple[FactoredEffects, Outcome]:
        """Each parent as if it were the action's only one, at O(d^2) each."""
        levels = dict(effects.levels)
        for parent, arrows in self.model.arrows.weights.items():
            level, where = levels[parent], arrows.parents_of(innovation.action)
            g = arrows.pull(innovation.action, innovation.direction)
            old = FactoredLevel(level.mean[where], level.root[where])
            step, covariance, total = jax.vmap(shrink_by_one, in_axes=(0, 0, None))(
                old.root, g, innovation.variance
            )
            residual = innovation.residual - jnp.sum(g * old.mean, axis=-1)
            shift = covariance * (residual / total)[:, None]
            # Added, not set: a padded entry of a sparse row repeats an index and must change nothing.
            levels[parent] = FactoredLevel(
                level.mean.at[where].add(shift), level.root.at[where].add(step)
            )
        joint = self.joint and self.joint.absorb(effects.joint, innovation, actions)[0]
        return self._with_joint_means(levels, joint), Outcome()

    def given_messages(self, messages: Messages) -> tuple[FactoredEffects, FactoredSums]:
        sums = {name: self._add_up(name, messages) for name in self.prior}
        levels = {name: _given_sums(level, sums[name]) for name, level in self.prior.items()}
        joint, together = self.joint.given_messages(messages) if self.joint else (None, None)
        return self._with_joint_means(levels, joint), FactoredSums(sums, together)

    def exchange(
        self, effects: FactoredEffects, sums: FactoredSums, action: Array, change: Messages
    ) -> tuple[FactoredEffects, FactoredSums]:
        """Only the parents of the action move, at O(d^3) each."""
        levels, own = dict(effects.levels), dict(sums.levels)
        for parent, arrows in self.model.arrows.weights.items():
            where = arrows.parents_of(action)
            new = EffectSums(
                own[parent].precision.at[where].add(arrows.press(action, change.precision[0])),
                own[parent].information.at[where].add(arrows.pull(action, change.vector[0])),
            )
            take = lambda leaf, where=where: leaf[where]  # noqa: E731
            moved = _given_sums(jax.tree.map(take, self.prior[parent]), jax.tree.map(take, new))
            levels[parent] = FactoredLevel(
                levels[parent].mean.at[where].set(moved.mean),
                levels[parent].root.at[where].set(moved.root),
            )
            own[parent] = new
        joint, together = None, None
        if self.joint is not None:
            joint, together = self.joint.exchange(effects.joint, sums.joint, action, change)
        return self._with_joint_means(levels, joint), FactoredSums(own, together)

    def without_own(
        self, effects: FactoredEffects, action: Array, own: Messages
    ) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        """The prior: factors are not a posterior that one action's message could be taken out of."""
        alone, before = self.model.select(action), self.before_data()
        spread = self.location_root(before, action)
        xi = self.model.arrows.row(action, self.means(before))
        root = alone.root[:, :, 0]
        return alone.mean[:, 0] + xi, spread @ spread.T + root @ root.T

    def means(self, effects: FactoredEffects) -> Above:
        return {name: level.mean for name, level in effects.levels.items()}

    def draw(self, key: Array, effects: FactoredEffects) -> Above:
        """Each effect independently: a matrix-vector product of size d each."""
        keys = jax.random.split(key, len(effects.levels))
        draws = {}
        for key_level, (name, level) in zip(keys, effects.levels.items(), strict=True):
            noise = standard_normal(key_level, level.mean.shape, level.mean.dtype)
            draws[name] = level.mean + jnp.einsum("lde,le->ld", level.root, noise)
        return draws

    def covariances(self, effects: FactoredEffects) -> dict[str, Float[Array, "_ d d"]]:
        return {name: level.root @ transpose(level.root) for name, level in effects.levels.items()}

    def location_root(self, effects: FactoredEffects, action: Array) -> Float[Array, "d n"]:
        """The columns of every parent's `C_al Q_l`, side by side."""
        columns = [jnp.zeros((self.model.dim, 0), self.model.root.dtype)]
        for parent, arrows in self.model.arrows.weights.items():
            roots = arrows.push(action, effects.levels[parent].root[arrows.parents_of(action)])
            columns.append(jnp.moveaxis(roots, 0, 1).reshape(self.model.dim, -1))
        return jnp.concatenate(columns, axis=1)

    @property
    def chunk(self) -> int:
        return 1024

    def _add_up(self, parent: str, messages: Messages) -> EffectSums:
        """The sums of one message from every action to each effect of a level."""
        arrows, size = self.model.arrows.weights[parent], len(self.prior[parent].mean)
        return EffectSums(*arrows.add_up(messages.precision, messages.vector, size))

    def _with_joint_means(
        self, levels: dict[str, FactoredLevel], joint: JointEffects | None
    ) -> FactoredEffects:
        if joint is not None:
            means = self.model.arrows.split(joint.mean)
            levels = {name: FactoredLevel(means[name], lv.root) for name, lv in levels.items()}
        return FactoredEffects(levels, joint)


def factored_levels(hierarchy: Hierarchy, *, joint_means: bool) -> FactoredLevels:
    """The factors of a hierarchy of two levels.

    Where a level has a joint covariance `Sigma_Psi`, an effect's covariance is the block of `Sigma_Psi`
    (the displayed formulas) or, with `joint_means`, the inverse of the block of `Sigma_Psi^{-1}` (the
    proof).
    """
    d = hierarchy.dim
    prior = {
        level.name: FactoredLevel(
            jnp.broadcast_to(level.mean, (level.size, d)),
            level.covariance(d).roots(level.size, of_precision=joint_means),
        )
        for level in hierarchy.levels[:-1]
    }
    joint = joint_levels(hierarchy) if joint_means else None
    return FactoredLevels(action_model(hierarchy), prior, joint)


def _given_sums(prior: FactoredLevel, sums: EffectSums) -> FactoredLevel:
    """The posterior of each effect on its own, from the sums of messages."""
    root, _ = shrink(prior.root, sums.precision)
    surprise = sums.information - jnp.einsum("lde,le->ld", sums.precision, prior.mean)
    step = jnp.einsum("lde,le->ld", root @ transpose(root), surprise)
    return FactoredLevel(prior.mean + step, root)
