"""Levels that drift: what is known of them grows less certain from round to round.

A level's own part, `v_i - sum_l W_il parent_l`, is a random walk with steps `N(0, D_i)` (see
`models.random_walk`), so that its covariance grows by `rounds D_i` while no reward is seen.

- Where the actions alone drift, they stay independent of one another given the levels above. A step of
  time adds to the covariance of each given these, `S_i <- S_i + rounds D_i`, and moves nothing else: `c_i`
  and how far an action follows where it is centred, `A_i`, stay (`action_blocks`). O(K d^3), whatever is
  above: blocks, a joint vector, or factors.
- Where a level above drifts, vectors below it are no longer independent of one another given what it is
  now: what all of them have seen of it lies in the past. There everything is kept in one joint vector, the
  actions with it (`all_jointly`), whose covariance grows by that of one step: O(N^3) for N numbers in all.

Both are exact for Gaussian rewards; rewards of other laws are matched as always.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ...models import Hierarchy
from ...models.arrays import as_numbers, is_concrete
from ...models.covariance import Precision
from ...models.weights import Sparse, as_operator
from .action_blocks import ActionState
from .joint_levels import JointEffects, JointLevels
from .levels import Levels
from .linear_model import ActionModel, Arrows, joint_prior, joint_root
from .messages import GaussianState
from .square_roots import transpose

__all__ = [
    "advance",
    "all_jointly",
    "as_rounds",
    "check_no_drift",
    "check_only_actions_drift",
    "drifts_above",
]


def drifts_above(hierarchy: Hierarchy) -> bool:
    """Whether everything has to be kept jointly: a level above the actions drifts.

    Or actions do that are tied by a joint covariance.
    """
    *above, actions = hierarchy.levels
    tied = actions.drift is not None and actions.is_joint(hierarchy.dim)
    return tied or any(level.drift is not None for level in above)


def check_only_actions_drift(hierarchy: Hierarchy, backend: str) -> None:
    """Refuse a hierarchy of which a level above the actions drifts."""
    if drifts_above(hierarchy):
        raise ValueError(
            f"{backend}: a level above the actions drifts, after which nothing below it is independent; "
            "use ClosedForm or ExpectationPropagation, or declare drift for the actions alone"
        )


def check_no_drift(hierarchy: Hierarchy, backend: str) -> None:
    """Refuse a hierarchy of which any level drifts."""
    if hierarchy.drifts:
        raise ValueError(
            f"{backend} fits all rewards of an action as rewards of one moment, and levels drift; use "
            "ExpectationPropagation, or hierarchy.without_drift()"
        )


def as_rounds(rounds: Any) -> Float[Array, ""]:
    """How many rounds pass, checked where it is known."""
    number = as_numbers(rounds, "advance rounds")
    if number.ndim:
        raise ValueError(f"advance rounds has shape {number.shape}; expected one number for all")
    if is_concrete(number) and not 0 <= float(number) < np.inf:
        raise ValueError(
            f"advance rounds is {float(number):g}; expected how many rounds pass, zero or more; time "
            "does not go back"
        )
    return number


def all_jointly(hierarchy: Hierarchy) -> JointLevels:
    """Every level in one vector, the actions too, which are then known given it."""
    d, K = hierarchy.dim, hierarchy.num_actions
    itself = as_operator(Sparse(np.arange(K)[:, None], np.ones((K, 1))))
    layout = tuple((level.name, level.size) for level in hierarchy.levels)
    noise_variance = jnp.square(jnp.asarray(getattr(hierarchy.reward, "noise", 1.0), float))
    prior = joint_prior(hierarchy.levels, d)
    nothing = jnp.zeros((d, d, 1), prior.root.dtype)
    model = ActionModel(
        arrows=Arrows({hierarchy.actions.name: itself}, layout, d),
        mean=nothing[0],
        root=nothing,
        precision=Precision(jnp.ones((), prior.root.dtype)),  # not used: `follow` is carried
        noise_variance=noise_variance.astype(prior.root.dtype),
        num_actions=K,
        drifts=True,
    )
    return JointLevels(model, prior)


def advance(
    hierarchy: Hierarchy, levels: Levels, state: GaussianState, rounds: Float[Array, ""]
) -> GaussianState:
    """The state so many rounds later, of which no reward is seen."""
    valid = (rounds >= 0) & jnp.isfinite(rounds)
    rounds = jnp.where(valid, rounds, 0.0)
    if drifts_above(hierarchy):
        later = state._replace(effects=_grown_effects(hierarchy, state.effects, rounds))
    else:
        later = state._replace(actions=_grown_actions(hierarchy, state.actions, rounds))
    return later._replace(info=state.info._replace(rejected=state.info.rejected + ~valid))


def _grown_effects(
    hierarchy: Hierarchy, effects: JointEffects, rounds: Float[Array, ""]
) -> JointEffects:
    dim = hierarchy.dim
    steps = [None if lv.drift is None else lv.walk(dim) for lv in hierarchy.levels]
    step = jnp.sqrt(rounds) * joint_root(hierarchy.levels, dim, steps).astype(effects.root.dtype)
    root = _sum_of_squares(effects.root, step)
    return JointEffects(effects.mean, root, jnp.zeros_like(root))


def _grown_actions(
    hierarchy: Hierarchy, state: ActionState, rounds: Float[Array, ""]
) -> ActionState:
    level = hierarchy.actions
    step = jnp.sqrt(rounds) * level.walk(hierarchy.dim).roots(level.size)
    root = jnp.moveaxis(state.root, -1, 0)
    return state._replace(root=jnp.moveaxis(_sum_of_squares(root, step), 0, -1))


def _sum_of_squares(
    one: Float[Array, "*batch n n"], other: Float[Array, "*batch n m"]
) -> Float[Array, "*batch n n"]:
    """A root of `A A' + B B'`, by QR: the sum is never formed."""
    return transpose(jnp.linalg.qr(transpose(jnp.concatenate([one, other], -1)), mode="r"))
