"""Forgetting: discounted evidence, for a world that changes.

With discounted statistics, `G_i <- f G_i` and `B_i <- f B_i` for every action (Aouali et al. 2023,
Proposition 2, has `G_i` and `B_i`), an observation forgotten `k` times counts as one whose
noise variance is `sigma^2 / f^k`: the posterior is the exact one under such noise, and tends to the
prior as everything is forgotten, not to ignorance.

A state carries not these but `c_i` and a root `Q_i` of `S_i = (Lambda_0 + G_i)^{-1}`, which move by

    S <- Q (f I + (1 - f) Q' Lambda_0 Q)^{-1} Q',  c <- c - (1 - f) S Lambda_0 (c - mu),

so that nothing is inverted but a matrix with eigenvalues between `f` and one. The levels above follow
from the messages of the actions. Rounding errors of the past are forgotten like everything else. In float32
an action that has forgotten nearly everything sends a message of the size of a rounding error: twenty
thousand of these put the covariance of the effects off by half a per cent.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import solve_triangular
from jaxtyping import Float

from ...models.arrays import as_numbers, is_concrete
from .action_blocks import ActionState
from .levels import Levels
from .linear_model import ActionModel
from .messages import GaussianState
from .square_roots import transpose

__all__ = ["as_factor", "forget", "forget_actions"]


def as_factor(factor: Any) -> Float[Array, ""]:
    """A factor to forget by, checked where its value is known."""
    number = as_numbers(factor, "forget factor")
    if number.ndim:
        raise ValueError(f"forget factor has shape {number.shape}; expected one number for all")
    if is_concrete(number) and not 0 < float(number) <= 1:
        raise ValueError(
            f"forget factor is {float(number):g}; expected one in (0, 1], what all evidence so far is "
            "multiplied by: 1 forgets nothing"
        )
    return number


def forget(levels: Levels, state: GaussianState, factor: Float[Array, ""]) -> GaussianState:
    """The state with all evidence multiplied by `factor`, at O(K d^3) and the cost of `condition`."""
    valid = (factor > 0) & (factor <= 1)
    actions = forget_actions(levels.model, state.actions, jnp.where(valid, factor, 1.0))
    effects, outcome = levels.given_actions(state.effects, actions)
    forgotten = state._replace(effects=effects, actions=actions)
    if levels.is_exact:
        nothing = jnp.zeros_like(state.rounding)
        forgotten = forgotten._replace(log_evidence=nothing + jnp.nan, rounding=nothing)
    none = jnp.zeros((), jnp.int32)
    forgotten = forgotten._replace(info=state.info.after(outcome, none, none))
    changes = valid & (factor < 1)
    kept = jax.tree.map(lambda new, old: jnp.where(changes, new, old), forgotten, state)
    return kept._replace(info=kept.info._replace(rejected=state.info.rejected + ~valid))


def forget_actions(model: ActionModel, state: ActionState, factor: Float[Array, ""]) -> ActionState:
    """Actions given the levels above, each with `factor` times the evidence it had."""
    prior = jnp.broadcast_to(model.root, state.root.shape)
    untouched = (state.root == prior).all((0, 1))  # has no precision, and gathers none by rounding
    Q = jnp.moveaxis(state.root, -1, 0)
    weighed = transpose(Q) @ model.weigh_rows(Q)
    identity = jnp.eye(model.dim, dtype=Q.dtype)
    chol = jnp.linalg.cholesky(factor * identity + (1 - factor) * weighed)
    root = transpose(solve_triangular(chol, transpose(Q), lower=True))
    pull = model.weigh(state.center - model.mean).T[..., None]
    step = (1 - factor) * (root @ (transpose(root) @ pull))[..., 0].T
    return ActionState(
        state.center - step,
        jnp.where(untouched, state.root, jnp.moveaxis(root, 0, -1)),
    )
