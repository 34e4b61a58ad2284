"""The actions given the levels above them: how rewards change them, and their messages to those levels.

Given the levels above, actions are independent (Aouali et al. 2023, Proposition 2):

    theta_i | z ~ N(c_i + S_i Lambda_{0,i} Gamma_i z, S_i),  S_i = (Lambda_{0,i} + G_i)^{-1},

where `c_i = S_i (Lambda_{0,i} mu_i + B_i)` is the mean at `z = 0`. `c_i` and a square root `Q_i` of `S_i`
are carried, and data move them without inverting or factorising anything in a round; `S_i = Q_i Q_i'`
is positive semi-definite by construction. Singular `G_i`, even zero, needs no special care.

Where actions drift, `S_i Lambda_{0,i}` is no longer how far an action follows where it is centred: the
covariance grows and that does not (see `drift`). There the matrix in front of `Gamma_i z`, `A_i`, is
carried too.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from ..random import standard_normal
from .linear_model import ActionModel, contract, dot, written_out
from .square_roots import add_compensated, shrink_by_one, transpose

__all__ = [
    "ActionState",
    "Innovation",
    "condition_actions",
    "draw_actions",
    "draw_scores",
    "innovations_of",
    "mean_actions",
    "no_data",
    "observe",
    "observe_compensated",
    "own_state",
]


# The levels above the actions, by name: the pieces of `z`.
Above = dict[str, Float[Array, "_ d"]]


class ActionState(NamedTuple):
    """What is known of each action given the levels above; actions last.

    Attributes:
        center: (d, K) `c_i`, the mean at `z = 0`.
        root: (d, d, K) `Q_i`, a square root of the covariance `S_i`.
        follow: (d, d, K) `A_i`, with `E[theta_i | z] = c_i + A_i Gamma_i z`; None where nothing drifts, and
            it is `S_i Lambda_{0,i}`.
    """

    center: Float[Array, "d K"]
    root: Float[Array, "d d K"]
    follow: Float[Array, "d d K"] | None = None

    def following(self, model: ActionModel, shift: Float[Array, "d K"]) -> Float[Array, "d K"]:
        """`A_i v_i` for every action, whose model is given."""
        if self.follow is not None:
            return _times(self.follow, shift)
        return _times(self.root, contract(self.root, model.weigh(shift)))

    def followed_by_one(
        self, model: ActionModel, action: Array, context: Float[Array, " d"]
    ) -> Float[Array, " d"]:
        """`A_a' x`, where this is the state of action `a` alone."""
        if self.follow is not None:
            return context @ self.follow[:, :, 0]
        root = self.root[:, :, 0]
        return model.weigh_one(action, root @ (context @ root))

    def following_rows(
        self, model: ActionModel, action: Array, rows: Float[Array, "d n"]
    ) -> Float[Array, "d n"]:
        """`A_a V`, where this is the state of action `a` alone."""
        if self.follow is not None:
            return self.follow[:, :, 0] @ rows
        root = self.root[:, :, 0]
        weighted = jax.vmap(lambda v: model.weigh_one(action, v), 1, 1)(rows)
        return root @ (root.T @ weighted)


class Innovation(NamedTuple):
    """One reward as an observation of `z`: `residual = direction' Gamma_a z + N(0, variance)`.

    Attributes:
        action: `a`; out of range where the observation is to be ignored.
        direction: (d,) `Lambda_0 S_a x`; zero where the observation is to be ignored.
        residual: the reward less what is expected of it at `z = 0`.
        variance: `s = sigma^2 + x' S_a x`.
    """

    action: Int[Array, ""]
    direction: Float[Array, " d"]
    residual: Float[Array, ""]
    variance: Float[Array, ""]


def no_data(model: ActionModel) -> ActionState:
    """Every action before any reward."""
    d, K = model.dim, model.num_actions
    center = jnp.broadcast_to(model.mean, (d, K))
    root = jnp.broadcast_to(model.root, (d, d, K))
    follow = None
    if model.drifts:
        follow = jnp.broadcast_to(jnp.eye(d, dtype=root.dtype)[..., None], (d, d, K))
    return ActionState(center, root, follow)


def own_state(state: ActionState, action: Int[Array, ""]) -> ActionState:
    """The state of one action, (d, 1)."""
    follow = None if state.follow is None else state.follow[:, :, action][..., None]
    return ActionState(
        state.center[:, action][:, None], state.root[:, :, action][..., None], follow
    )


def observe(
    model: ActionModel,
    state: ActionState,
    context: Float[Array, " d"],
    action: Int[Array, ""],
    reward: Float[Array, ""],
    noise_variance: Float[Array, ""] | None = None,
) -> tuple[ActionState, Innovation]:
    """Condition on one reward: only the chosen action changes, at O(d^2) (Eq. 42).

    An `action` outside [0, K) changes nothing, and its innovation has the direction zero. The variance
    of the reward around its predictor is the model's unless it is given.
    """
    here = jnp.clip(action, 0, model.num_actions - 1)
    own = state.center[:, here], state.root[:, :, here]
    center, step, innovation = _one_reward(model, *own, context, action, reward, noise_variance)
    # Not `.at[]`, which XLA would make check the index once more, at every array.
    moved = ActionState(
        center=jax.lax.dynamic_update_index_in_dim(state.center, center, here, 1),
        root=jax.lax.dynamic_update_index_in_dim(state.root, own[1] + step, here, 2),
    )
    if state.follow is None:
        return moved, innovation
    valid = (action >= 0) & (action < model.num_actions)
    before = state.follow[:, :, here]
    direction = jnp.where(valid, context @ before, 0.0)
    gain = jnp.outer(own[1] @ (own[1].T @ context), direction) / innovation.variance
    follow = jax.lax.dynamic_update_index_in_dim(state.follow, before - gain, here, 2)
    return moved._replace(follow=follow), innovation._replace(direction=direction)


def observe_compensated(
    model: ActionModel,
    center: Float[Array, "d K"],
    roots: Float[Array, "2 d d K"],
    context: Float[Array, " d"],
    action: Int[Array, ""],
    reward: Float[Array, ""],
    noise_variance: Float[Array, ""] | None = None,
) -> tuple[Float[Array, "d K"], Float[Array, "2 d d K"], Innovation]:
    """`observe`, where the next step of a root adds what rounding took from the last (Kahan).

    For vectors above the actions, which learn a little from each of very many rewards. `roots` are the
    roots and what was lost, in one array: as two, each would need the other as it was before, and XLA
    would copy both in every round.
    """
    here = jnp.clip(action, 0, model.num_actions - 1)
    root, lost = roots[..., here]
    own = center[:, here], root
    new, step, innovation = _one_reward(model, *own, context, action, reward, noise_variance)
    moved = jnp.stack(add_compensated(root, lost, step))
    return (
        jax.lax.dynamic_update_index_in_dim(center, new, here, 1),
        jax.lax.dynamic_update_index_in_dim(roots, moved, here, 3),
        innovation,
    )


def _one_reward(
    model: ActionModel,
    center: Float[Array, " d"],
    root: Float[Array, "d d"],
    context: Float[Array, " d"],
    action: Int[Array, ""],
    reward: Float[Array, ""],
    noise_variance: Float[Array, ""] | None,
) -> tuple[Float[Array, " d"], Float[Array, "d d"], Innovation]:
    """The centre of the action after a reward, the step of its root, and the innovation."""
    K = model.num_actions
    noise_variance = model.noise_variance if noise_variance is None else noise_variance
    valid = (action >= 0) & (action < K)
    a = jnp.where(valid, action, K)  # past the end, where scatters drop it
    step, covariance, total = shrink_by_one(root, context, noise_variance)
    residual = reward - context @ center
    direction = jnp.where(valid, model.weigh_one(jnp.clip(action, 0, K - 1), covariance), 0.0)
    new_center = jnp.where(valid, center + covariance * (residual / total), center)
    return new_center, jnp.where(valid, step, 0.0), Innovation(a, direction, residual, total)


def condition_actions(
    model: ActionModel,
    state: ActionState,
    contexts: Float[Array, "n d"],
    actions: Int[Array, " n"],
    rewards: Float[Array, " n"],
    noise_variance: Float[Array, "*n"] | None = None,
) -> tuple[ActionState, Innovation]:
    """Condition on many rewards one after the other, at O(d^2) each; innovations have a leading axis.

    The variance of rewards around their predictors, unless it is the model's, is one number or (n,).
    """
    if noise_variance is not None:
        noise_variance = jnp.broadcast_to(noise_variance, rewards.shape)

    def one(state: ActionState, seen: tuple[Any, ...]) -> tuple[ActionState, Innovation]:
        return observe(model, state, *seen)

    return jax.lax.scan(one, state, (contexts, actions, rewards, noise_variance))


def innovations_of(model: ActionModel, state: ActionState) -> Innovation:
    """All that rewards have said of `z`, from the state of the actions alone: `d` rows an action.

    Their precision is `Lambda_0 - Lambda_0 S_i Lambda_0` and their vector `Lambda_0 (c_i - mu_i)`
    (Eq. 24). With `F = T^{-1} Q_i` it is `T^{-T} (I - F F') T^{-1}`: what `I - F F'` has left of
    rounding errors is dropped, so that an action without rewards says nothing. O(K d^3).
    """
    K, d, dtype = model.num_actions, model.dim, state.center.dtype
    prior = jnp.broadcast_to(jnp.moveaxis(model.root, -1, 0), (K, d, d))
    inverse = transpose(model.weigh_rows(prior))
    F = inverse @ jnp.moveaxis(state.root, -1, 0)
    known, V = jnp.linalg.eigh(jnp.eye(d, dtype=dtype) - F @ transpose(F))
    unobserved = (state.root == model.root).all((0, 1))[:, None]
    kept = (known > 8 * d * jnp.finfo(dtype).eps) & ~unobserved
    scale = jnp.sqrt(jnp.where(kept, known, 1.0))
    whitened = transpose(V) @ inverse
    shift = (whitened @ (state.center - model.mean).T[..., None])[..., 0]
    return Innovation(
        jnp.repeat(jnp.arange(K), d),
        jnp.where(kept[..., None], scale[..., None] * whitened, 0.0).reshape(K * d, d),
        jnp.where(kept, shift / scale, 0.0).ravel(),
        jnp.ones(K * d, dtype),
    )


def draw_scores(
    key: Array,
    model: ActionModel,
    state: ActionState,
    z: Above,
    context: Float[Array, "d #K"],
) -> Float[Array, " K"]:
    """`x' theta_i` of one draw of every action given `z`: a scalar normal each."""
    w = contract(state.root, context)
    mean = dot(state.center, context)
    if model.arrows.weights:
        shift = model.displacements(z)
        if state.follow is None:
            mean += dot(w, contract(state.root, model.weigh(shift)))
        else:
            mean += dot(contract(state.follow, context), shift)
    return mean + jnp.sqrt(dot(w, w)) * standard_normal(key, mean.shape, mean.dtype)


def draw_actions(
    key: Array, model: ActionModel, state: ActionState, z: Above
) -> Float[Array, "K d"]:
    """One draw of every action given `z`."""
    noise = written_out(standard_normal(key, state.center.shape, state.center.dtype))
    return mean_actions(model, state, z) + _times(state.root, noise).T


def mean_actions(model: ActionModel, state: ActionState, z: Above) -> Float[Array, "K d"]:
    """`E[theta_i | z]` for every action."""
    if not model.arrows.weights:
        return state.center.T
    return (state.center + state.following(model, model.displacements(z))).T


def _times(root: Float[Array, "d e K"], v: Float[Array, "e K"]) -> Float[Array, "d K"]:
    """`Q_i v_i` for every action."""
    return contract(jnp.swapaxes(root, 0, 1), v)
