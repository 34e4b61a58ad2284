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
from .action_blocks import Above, ActionState, Innovation
from .joint_levels import JointEffects, JointLevels, joint_levels
from .levels import Levels, Outcome
from .linear_model import ActionModel, action_model
from .square_roots import exchange_rows, shrink_by_one, transpose

__all__ = ["FactoredEffects", "FactoredLevel", "FactoredLevels", "factored_levels"]


class FactoredLevel(NamedTuple):
    """Independent Gaussians `N(mean_l, root_l root_l')`, one for each effect of a level."""

    mean: Float[Array, "L d"]
    root: Float[Array, "L d d"]


class FactoredEffects(NamedTuple):
    """The factors by level, and the joint posterior they take their means from, if they do."""

    levels: dict[str, FactoredLevel]
    joint: Any  # JointEffects, or None


class FactoredLevels(Levels):
    """Effects that are independent of one another, and actions that are exact given the effects.

    Attributes:
        model: the actions given the effects.
        prior: each effect before any data.
        joint: the exact joint posterior that means are taken from, or None: each effect is then fitted
            as if the other parents of its actions were where the prior has them.
    """

    model: ActionModel
    prior: dict[str, FactoredLevel]
    joint: JointLevels | None

    def before_data(self) -> FactoredEffects:
        return FactoredEffects(self.prior, self.joint and self.joint.before_data())

    def absorb(
        self, effects: FactoredEffects, innovation: Innovation, actions: ActionState
    ) -> tuple[FactoredEffects, Outcome]:
        """Each parent as if it were the action's only unknown one, at O(d^2) each."""
        levels, residual = dict(effects.levels), self._surprise(innovation)
        for parent, arrows in self.model.arrows.weights.items():
            level, where = levels[parent], arrows.parents_of(innovation.action)
            g = arrows.pull(innovation.action, innovation.direction)
            step, covariance, total = jax.vmap(shrink_by_one, in_axes=(0, 0, None))(
                level.root[where], g, innovation.variance
            )
            moved = level.mean[where] - self.prior[parent].mean[where]
            own = residual - jnp.sum(g * moved, axis=-1)
            levels[parent] = _add(level, where, step, covariance * (own / total)[:, None])
        joint = self.joint and self.joint.absorb(effects.joint, innovation, actions)[0]
        return self._with_joint_means(levels, joint), Outcome()

    def _surprise(self, innovation: Innovation) -> Float[Array, ""]:
        """The residual of an innovation from where all parents were expected before any data."""
        expected = self.model.arrows.row(innovation.action, self.means(self.before_data()))
        return innovation.residual - innovation.direction @ expected

    def exchange(
        self, effects: FactoredEffects, old: Innovation, new: Innovation
    ) -> FactoredEffects:
        """Only the parents of the action move, at O(d^3) each."""
        levels, action = dict(effects.levels), new.action[0]
        for parent, arrows in self.model.arrows.weights.items():
            level, where = levels[parent], arrows.parents_of(action)
            moved = level.mean[where] - self.prior[parent].mean[where]

            def unit_rows(
                innovation: Innovation, arrows: Any = arrows, moved: Array = moved
            ) -> tuple[Float[Array, "m d"], Float[Array, " m"]]:
                g = arrows.pull(innovation.action, innovation.direction)
                own = self._surprise(innovation) - jnp.sum(g * moved, axis=-1)
                sd = jnp.sqrt(innovation.variance)
                return g / sd, own / sd

            rows = (jax.vmap(unit_rows, out_axes=1)(innovations) for innovations in (old, new))
            step, shift = jax.vmap(exchange_rows)(level.root[where], *rows)
            levels[parent] = _add(level, where, step, shift)
        joint = self.joint and self.joint.exchange(effects.joint, old, new)
        return self._with_joint_means(levels, joint)

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


def _add(level: FactoredLevel, where: Array, step: Array, shift: Array) -> FactoredLevel:
    """Some effects of a level moved by so much.

    Added, not set: a padded entry of a sparse row repeats an index and must change nothing.
    """
    return FactoredLevel(level.mean.at[where].add(shift), level.root.at[where].add(step))
