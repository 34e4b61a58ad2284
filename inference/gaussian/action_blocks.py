"""The actions given the levels above them: how rewards change them, and their messages to those levels.

Given the levels above, actions are independent (Aouali et al. 2023, Proposition 2):

    theta_i | z ~ N(c_i + S_i Lambda_{0,i} Gamma_i z, S_i),  S_i = (Lambda_{0,i} + G_i)^{-1},

where `c_i = S_i (Lambda_{0,i} mu_i + B_i)` is the mean at `z = 0`. `c_i` and a square root `Q_i` of `S_i`
are carried, and data move them without inverting or factorising anything in a round; `S_i = Q_i Q_i'`
is positive semi-definite by construction. Singular `G_i`, even zero, needs no special care.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.linalg import cho_solve
from jaxtyping import Float, Int

from ..random import standard_normal
from .linear_model import ActionModel, contract, dot
from .square_roots import shrink, shrink_by_one, transpose

__all__ = [
    "ActionState",
    "Innovation",
    "Messages",
    "actions_given",
    "add_messages",
    "condition_actions",
    "draw_actions",
    "draw_scores",
    "log_evidence",
    "mean_actions",
    "messages_of",
    "no_data",
    "observe",
]


# The levels above the actions, by name: the pieces of `z`.
Above = dict[str, Float[Array, "_ d"]]


class ActionState(NamedTuple):
    """What is known of each action given the levels above; actions last.

    Attributes:
        center: (d, K) `c_i`, the mean at `z = 0`.
        root: (d, d, K) `Q_i`, a square root of the covariance `S_i`.
    """

    center: Float[Array, "d K"]
    root: Float[Array, "d d K"]


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


class Messages(NamedTuple):
    """The likelihood of each `xi_i = Gamma_i z` given many rewards, `exp(-D' M_i D / 2 + k_i' D)`.

    `D` is the distance of `xi_i` from where it was expected.

    Attributes:
        precision: (K, d, d) `M_i`; from the prior it is `(Sigma_{0,i} + G_i^{-1})^{-1}`.
        vector: (K, d) `k_i`.
    """

    precision: Float[Array, "K d d"]
    vector: Float[Array, "K d"]


def no_data(model: ActionModel) -> ActionState:
    """Every action before any reward."""
    d, K = model.dim, model.num_actions
    return ActionState(
        jnp.broadcast_to(model.mean, (d, K)), jnp.broadcast_to(model.root, (d, d, K))
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
    K = model.num_actions
    noise_variance = model.noise_variance if noise_variance is None else noise_variance
    valid = (action >= 0) & (action < K)
    a = jnp.where(valid, action, K)  # past the end, where scatters drop it
    here = jnp.clip(action, 0, K - 1)
    center, root = state.center[:, here], state.root[:, :, here]
    step, covariance, total = shrink_by_one(root, context, noise_variance)
    residual = reward - context @ center
    direction = jnp.where(valid, model.weigh_one(here, covariance), 0.0)
    new_center = jnp.where(valid, center + covariance * (residual / total), center)
    new_root = jnp.where(valid, root + step, root)
    # Not `.at[]`, which XLA would make check the index once more, at every array.
    moved = ActionState(
        center=jax.lax.dynamic_update_index_in_dim(state.center, new_center, here, 1),
        root=jax.lax.dynamic_update_index_in_dim(state.root, new_root, here, 2),
    )
    return moved, Innovation(a, direction, residual, total)


def condition_actions(
    model: ActionModel,
    state: ActionState,
    contexts: Float[Array, "n d"],
    actions: Int[Array, " n"],
    rewards: Float[Array, " n"],
) -> tuple[ActionState, Innovation]:
    """Condition on many rewards one after the other, at O(d^2) each; innovations have a leading axis.

    Summing `x x'` first and factorising once would be shorter, but in float32 the sum of a context
    that comes again and again is not singular any more, and the spread across it would be lost.
    """

    def one(state: ActionState, seen: tuple[Array, Array, Array]) -> tuple[ActionState, Innovation]:
        return observe(model, state, *seen)

    return jax.lax.scan(one, state, (contexts, actions, rewards))


def add_messages(model: ActionModel, innovations: Innovation, z: Above) -> Messages:
    """The message of each action from many innovations, about its distance from where it is at `z`.

    From the prior, the precisions sum to `Lambda_0 - Lambda_0 S_i Lambda_0`, the message of
    Eq. 24: a sum of squares, exactly zero for an action without rewards.
    """
    K, d, dtype = model.num_actions, model.dim, model.root.dtype
    scaled = innovations.direction / innovations.variance[:, None]
    outer = innovations.direction[:, :, None] * scaled[:, None, :]
    pulled = scaled * _residuals(model, innovations, z)[:, None]
    return Messages(
        jnp.zeros((K, d, d), dtype).at[innovations.action].add(outer, mode="drop"),
        jnp.zeros((K, d), dtype).at[innovations.action].add(pulled, mode="drop"),
    )


def log_evidence(model: ActionModel, innovations: Innovation, z: Above) -> Float[Array, ""]:
    """The actions' part of the log evidence of many rewards, `z` being the new mean.

    For a Gaussian, `log p(y) = log p(y | m) + log p(m) - log p(m | y)` at the posterior mean `m`: a
    sum of terms of one sign, where the usual difference of large squares loses all digits in float32.
    """
    residual = _residuals(model, innovations, z)
    terms = jnp.log(2 * jnp.pi * innovations.variance) + residual**2 / innovations.variance
    return -0.5 * jnp.sum(jnp.where(innovations.action < model.num_actions, terms, 0.0))


def _residuals(model: ActionModel, innovations: Innovation, z: Above) -> Float[Array, " n"]:
    """Rewards less what is expected of them, given earlier ones and the levels above at `z`."""
    if not model.arrows.weights:
        return innovations.residual
    xi = model.displacements(z).at[:, innovations.action].get(mode="clip")
    return innovations.residual - dot(innovations.direction.T, xi)


def actions_given(
    model: ActionModel, precision: Float[Array, "K d d"], information: Float[Array, "K d"]
) -> tuple[ActionState, Messages]:
    """Actions with the likelihoods `exp(-theta' G theta / 2 + B' theta)`, and messages from `z = 0`.

    The message's precision `Lambda_0 - Lambda_0 S Lambda_0` is not subtracted: with `H = T' G T` it is
    `Lambda_0 T (I + H)^{-1} H T' Lambda_0`, exactly zero where `G` is. Costs O(K d^3).
    """
    prior = jnp.broadcast_to(jnp.moveaxis(model.root, -1, 0), precision.shape)
    mean = jnp.broadcast_to(model.mean.T, information.shape)[..., None]
    root, chol = shrink(prior, precision)
    step = root @ (transpose(root) @ (information[..., None] - precision @ mean))
    lost = cho_solve((chol, True), transpose(prior) @ precision @ prior)
    weighed = model.weigh_rows(prior)
    sent = weighed @ ((lost + transpose(lost)) / 2) @ transpose(weighed)
    messages = Messages(sent, model.weigh_rows(step)[..., 0])
    return ActionState((mean + step)[..., 0].T, jnp.moveaxis(root, 0, -1)), messages


def messages_of(model: ActionModel, state: ActionState) -> Messages:
    """Every action's message from all its rewards, about its displacement from `z = 0`, at O(K d^3).

    `Lambda_0 - Lambda_0 S_i Lambda_0` and `Lambda_0 (c_i - mu_i)` (Eq. 24).
    The rewards are not at hand, so the difference is taken. For an action whose root is still that of
    the prior it is set to zero, so that rounding adds no precision.
    """
    K, d = model.num_actions, model.dim
    identity = jnp.broadcast_to(jnp.eye(d, dtype=state.center.dtype), (K, d, d))
    weighed = model.weigh_rows(jnp.moveaxis(state.root, -1, 0))
    precision = model.weigh_rows(identity) - weighed @ transpose(weighed)
    shift = (state.center - model.mean).T[..., None]
    unobserved = (state.root == model.root).all((0, 1))[:, None, None]
    return Messages(jnp.where(unobserved, 0.0, precision), model.weigh_rows(shift)[..., 0])


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
        mean += dot(w, contract(state.root, model.weigh(model.displacements(z))))
    return mean + jnp.sqrt(dot(w, w)) * standard_normal(key, mean.shape, mean.dtype)


def draw_actions(
    key: Array, model: ActionModel, state: ActionState, z: Above
) -> Float[Array, "K d"]:
    """One draw of every action given `z`."""
    noise = standard_normal(key, state.center.shape, state.center.dtype)
    return mean_actions(model, state, z) + _times(state.root, noise).T


def mean_actions(model: ActionModel, state: ActionState, z: Above) -> Float[Array, "K d"]:
    """`E[theta_i | z]` for every action."""
    if not model.arrows.weights:
        return state.center.T
    weighed = model.weigh(model.displacements(z))
    return (state.center + _times(state.root, contract(state.root, weighed))).T


def _times(root: Float[Array, "d e K"], v: Float[Array, "e K"]) -> Float[Array, "d K"]:
    """`Q_i v_i` for every action."""
    return contract(jnp.swapaxes(root, 0, 1), v)
