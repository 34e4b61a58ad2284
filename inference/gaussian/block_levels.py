"""`BlockLevels`: a level above the actions kept in blocks of d x d, as the actions are.

Where every vector of a level has one parent at most, the vectors of the parent level stay independent of
one another given the levels above them, whatever is seen: what a reward says of its action is an
innovation, `residual = direction' C psi + N(0, variance)`, and so an observation of the parent `psi` in the
context `C' direction` with noise of that variance. `action_blocks.observe` takes it in, and returns an
innovation about the next level up. A reward costs O(d^2) a level, along the path to the root; nothing
else is touched, and no matrix grows with the number of vectors.

One level is kept here, those above it in `above`, which may be `BlockLevels` again. At the top stand
`JointLevels` of what is not a tree, or of nothing.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ...models import Hierarchy
from . import action_blocks
from .action_blocks import Above, ActionState, Innovation
from .drift import all_jointly, drifts_above
from .joint_levels import JointLevels
from .levels import Levels, Outcome
from .linear_model import ActionModel, Arrows, action_model, joint_prior, level_model, untie_actions
from .single_arrows import SingleArrows, single_arrows
from .square_roots import add_compensated, exchange_rows

__all__ = ["BlockEffects", "BlockLevels", "in_blocks", "tree_levels"]

_COLUMNS_AT_A_TIME = 4_000_000


class BlockEffects(NamedTuple):
    """The vectors of one level given the levels above it, and the posterior of those.

    Attributes:
        center: (d, K) as in `ActionState`.
        roots: (2, d, d, K) roots as there, and what the last step of each lost, for the next to add:
            they take ever smaller steps, in float32 soon too small to register (see `JointEffects`).
        above: the posterior of the levels above.
    """

    center: Float[Array, "d K"]
    roots: Float[Array, "2 d d K"]
    above: Any

    @property
    def blocks(self) -> ActionState:
        """The vectors of this level given the levels above it."""
        return ActionState(self.center, self.roots[0])

    def block(self, vector: Array) -> ActionState:
        """One of them: (d, 1) and (d, d, 1)."""
        return ActionState(self.center[:, vector, None], self.roots[0, :, :, vector, None])


class BlockLevels(Levels):
    """A level whose vectors are independent given the levels above it.

    Attributes:
        model: the level below, given this one; each of its vectors has one parent at most.
        above: the levels above this one; `above.model` is this level given those.
        name: the name of this level.
    """

    model: ActionModel
    above: Levels
    name: str = eqx.field(static=True)

    @property
    def is_exact(self) -> bool:
        return self.above.is_exact

    @property
    def arrows(self) -> SingleArrows:
        """The weights of the level below on this one."""
        return self.model.arrows.weights[self.name]

    def before_data(self) -> BlockEffects:
        center, root, _ = action_blocks.no_data(self.above.model)
        roots = jnp.stack([root, jnp.zeros_like(root)])
        return BlockEffects(center, roots, self.above.before_data())

    def absorb(
        self, effects: BlockEffects, innovation: Innovation, actions: ActionState
    ) -> tuple[BlockEffects, Outcome]:
        seen = self._about_parent(innovation)
        center, roots, innovation = action_blocks.observe_compensated(
            self.above.model, effects.center, effects.roots, *seen
        )
        own = ActionState(center, roots[0])
        above, outcome = self.above.absorb(effects.above, innovation, own)
        return BlockEffects(center, roots, above), outcome

    def _about_parent(self, innovation: Innovation) -> tuple[Array, Array, Array, Array]:
        """An innovation as an observation: context, vector, reward and noise variance."""
        context = self.arrows.pull(innovation.action, innovation.direction)
        is_one = (innovation.action >= 0) & (innovation.action < self.model.num_actions)
        vector = jnp.where(is_one, self.arrows.parent[innovation.action], -1)
        return context, vector, innovation.residual, innovation.variance

    def exchange(self, effects: BlockEffects, old: Innovation, new: Innovation) -> BlockEffects:
        """Only the path to the root moves, at O(d^3) a level."""
        vector = self.arrows.parent[jnp.clip(old.action[0], 0, self.model.num_actions - 1)]
        before = effects.block(vector)

        def unit_rows(innovations: Innovation) -> tuple[Array, Array]:
            context, _, residual, variance = jax.vmap(self._about_parent)(innovations)
            sd = jnp.sqrt(variance)
            return context / sd[:, None], (residual - context @ before.center[:, 0]) / sd

        step, shift = exchange_rows(before.root[:, :, 0], unit_rows(old), unit_rows(new))
        lost = effects.roots[1, :, :, vector]
        moved = jnp.stack(add_compensated(before.root[:, :, 0], lost, step))
        after = ActionState(before.center + shift[:, None], moved[0, ..., None])
        center = effects.center.at[:, vector].set(after.center[:, 0])
        roots = effects.roots.at[..., vector].set(moved)
        alone = self.above.model.select(vector)

        def said(state: ActionState) -> Innovation:
            rows = action_blocks.innovations_of(alone, state)
            return rows._replace(action=jnp.full_like(rows.action, vector))

        above = self.above.exchange(effects.above, said(before), said(after))
        return BlockEffects(center, roots, above)

    def means(self, effects: BlockEffects) -> Above:
        above = self.above.means(effects.above)
        own = action_blocks.mean_actions(self.above.model, effects.blocks, above)
        return above | {self.name: own}

    def draw(self, key: Array, effects: BlockEffects) -> Above:
        key_above, key_own = jax.random.split(key)
        above = self.above.draw(key_above, effects.above)
        own = action_blocks.draw_actions(key_own, self.above.model, effects.blocks, above)
        return above | {self.name: own}

    def covariances(self, effects: BlockEffects) -> dict[str, Float[Array, "_ d d"]]:
        own = self.above.action_covariances(effects.above, effects.blocks)
        return self.above.covariances(effects.above) | {self.name: own}

    def location_root(self, effects: BlockEffects, action: Array) -> Float[Array, "d n"]:
        vector = self.arrows.parent[action]
        root = self.above.marginal_root(effects.above, effects.block(vector), vector)
        return self.arrows.push(action, root)

    def location(self, effects: BlockEffects, action: Array) -> Float[Array, " d"]:
        vector = self.arrows.parent[action]
        own = effects.block(vector)
        return self.arrows.push(action, self.above.mean_of_one(effects.above, own, vector))

    def along(
        self, effects: BlockEffects, action: Array, direction: Float[Array, " d"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Along the path to the root, at O(d^2) a level."""
        vector, context = self.arrows.parent[action], self.arrows.pull(action, direction)
        own = effects.block(vector)
        return self.above.predictor(effects.above, own, vector, context)

    @property
    def chunk(self) -> int:
        return min(self.above.chunk, _COLUMNS_AT_A_TIME // self.model.dim**2)


def in_blocks(hierarchy: Hierarchy) -> int:
    """How many levels above the actions can be kept in blocks: the last so many of them.

    From the actions up, a level can while each vector of the level below has one arrow at most, and
    that into it. The topmost of them may have any arrows into what is above.
    """
    levels, count = hierarchy.levels, 0
    if drifts_above(hierarchy):
        return 0
    while count + 1 < len(levels):
        below, level = levels[-1 - count], levels[-2 - count]
        is_tree = below.branching and below.link is None
        if not is_tree or level.covariance(hierarchy.dim).is_joint:
            break
        count += 1
    return count


def tree_levels(hierarchy: Hierarchy) -> Levels:
    """The levels above the actions, in blocks as far as they are a tree, and jointly above that.

    Where a level above drifts, all are kept jointly.
    """
    if drifts_above(hierarchy):
        return all_jointly(hierarchy)
    untied = untie_actions(hierarchy)
    dim, count, size = untied.dim, in_blocks(untied), len(untied.levels)
    models = [level_model(untied.levels[:i], dim) for i in range(size - count, size)]
    models.append(action_model(untied))
    levels: Levels = JointLevels(models[0], joint_prior(untied.levels[: size - 1 - count], dim))
    for model, level in zip(models[1:], untied.levels[size - 1 - count :], strict=False):
        levels = BlockLevels(_with_single_arrows(model, level.name), levels, level.name)
    return levels


def _with_single_arrows(model: ActionModel, parent: str) -> ActionModel:
    arrows = model.arrows
    single = Arrows({parent: single_arrows(arrows.weights[parent])}, arrows.layout, arrows.dim)
    return eqx.tree_at(lambda model: model.arrows, model, single)
