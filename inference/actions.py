"""The actions' side of the Gaussian algebra: what they say upwards, and how they are drawn.

Given the levels above, actions are independent (Aouali et al. 2023, Prop. `thm:pti_gaussian`):

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

from .linear_model import ActionModel, contract, dot
from .roots import shrink, shrink_by_one, transpose

__all__ = [
    "ActionState",
    "Batch",
    "Innovation",
    "Messages",
    "actions_given",
    "condition_actions",
    "draw_actions",
    "draw_scores",
    "log_evidence",
    "mean_actions",
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
    """What one reward says of `z`: `residual = direction' Gamma_a z + N(0, variance)`.

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
    """What many rewards say of each `xi_i = Gamma_i z`: a factor `exp(-D' M_i D / 2 + k_i' D)`.

    `D` is the distance of `xi_i` from where it was expected.

    Attributes:
        precision: (K, d, d) `M_i`; from the prior it is `(Sigma_{0,i} + G_i^{-1})^{-1}`.
        vector: (K, d) `k_i`.
    """

    precision: Float[Array, "K d d"]
    vector: Float[Array, "K d"]


class Batch(NamedTuple):
    """Many rewards as their sums over each action, against what was known before; actions first.

    Attributes:
        expected: (K, d) the actions' means at the reference `z`, which residuals are taken from.
        precision: (K, d, d) `G_i = sigma^-2 sum x x'`.
        information: (K, d, 1) `B_i = sigma^-2 sum x (y - x' expected)`.
        root: (K, d, d) `Q_i` before these rewards.
        chol: (K, d, d) Cholesky factor of `I + Q_i' G_i Q_i`.
    """

    expected: Float[Array, "K d"]
    precision: Float[Array, "K d d"]
    information: Float[Array, "K d 1"]
    root: Float[Array, "K d d"]
    chol: Float[Array, "K d d"]


def no_data(model: ActionModel) -> ActionState:
    """Actions nobody has taken."""
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
) -> tuple[ActionState, Innovation]:
    """Take in one reward: only the chosen action changes, at O(d^2) (`eq:linear telescoping`).

    An `action` outside [0, K) changes nothing, and says nothing to the levels above.
    """
    K = model.num_actions
    valid = (action >= 0) & (action < K)
    a = jnp.where(valid, action, K)  # past the end, where scatters drop it
    here = jnp.clip(action, 0, K - 1)
    step, covariance, total = shrink_by_one(state.root[:, :, here], context, model.noise_variance)
    residual = reward - context @ state.center[:, here]
    direction = jnp.where(valid, model.weigh_one(here, covariance), 0.0)
    moved = ActionState(
        center=state.center.at[:, a].add(covariance * (residual / total), mode="drop"),
        root=state.root.at[:, :, a].add(step, mode="drop"),
    )
    return moved, Innovation(a, direction, residual, total)


def condition_actions(
    model: ActionModel,
    state: ActionState,
    z: Above,
    contexts: Float[Array, "n d"],
    actions: Int[Array, " n"],
    rewards: Float[Array, " n"],
) -> tuple[ActionState, Messages, Batch]:
    """Take in many rewards at O(K d^3); their messages are about the distance of `Gamma_i z` from here.

    Rewards enter as residuals from what is expected at `z`, so that nothing large cancels. Their
    precision `G_i` and information `B_i` turn the covariance `S_i` into `S_i+ = (S_i^{-1} + G_i)^{-1}`,
    and say of `xi_i`, in information form, `Lambda_0 (S_i - S_i+) Lambda_0` and `Lambda_0 S_i+ B_i`:
    from the prior, the message of `eq:effect_posterior_formulas`. The difference is not subtracted: with
    `H = Q' G Q` it is `Q (I + H)^{-1} H Q'`, exactly zero where `G_i` is. Actions out of range are
    ignored.
    """
    expected = mean_actions(model, state, z)
    residual = rewards - jnp.sum(contexts * expected.at[actions].get(mode="clip"), axis=-1)
    scaled = contexts / model.noise_variance
    G = jnp.zeros((model.num_actions, model.dim, model.dim), contexts.dtype)
    G = G.at[actions].add(contexts[:, :, None] * scaled[:, None, :], mode="drop")
    B = jnp.zeros((model.num_actions, model.dim, 1), contexts.dtype)
    B = B.at[actions].add((scaled * residual[:, None])[..., None], mode="drop")

    old = jnp.moveaxis(state.root, -1, 0)
    root, chol, step, messages = _take_in(model, old, G, B)
    # `c` is the mean at z = 0, whereas the residuals were taken at `z`.
    shift = (expected - state.center.T)[..., None]
    step_at_zero = step + root @ (transpose(root) @ (G @ shift))
    moved = ActionState(state.center + step_at_zero[..., 0].T, jnp.moveaxis(root, 0, -1))
    return moved, messages, Batch(expected, G, B, old, chol)


def actions_given(
    model: ActionModel, precision: Float[Array, "K d d"], information: Float[Array, "K d"]
) -> tuple[ActionState, Messages]:
    """Actions with the likelihoods `exp(-theta' G theta / 2 + B' theta)`, and messages from `z = 0`."""
    prior = jnp.broadcast_to(jnp.moveaxis(model.root, -1, 0), precision.shape)
    mean = jnp.broadcast_to(model.mean.T, information.shape)[..., None]
    surprise = information[..., None] - precision @ mean
    root, _, step, messages = _take_in(model, prior, precision, surprise)
    return ActionState((mean + step)[..., 0].T, jnp.moveaxis(root, 0, -1)), messages


def _take_in(
    model: ActionModel,
    old: Float[Array, "K d d"],
    G: Float[Array, "K d d"],
    B: Float[Array, "K d 1"],
) -> tuple[Array, Array, Array, Messages]:
    """New roots, the factor between old and new, steps of the means, and messages upwards."""
    root, chol = shrink(old, G)
    lost = cho_solve((chol, True), transpose(old) @ G @ old)
    weighed = model.weigh_rows(old)
    precision = weighed @ ((lost + transpose(lost)) / 2) @ transpose(weighed)
    step = root @ (transpose(root) @ B)
    return root, chol, step, Messages(precision, model.weigh_rows(step)[..., 0])


def log_evidence(
    model: ActionModel,
    batch: Batch,
    shift: Above,
    contexts: Float[Array, "n d"],
    actions: Int[Array, " n"],
    rewards: Float[Array, " n"],
) -> Float[Array, ""]:
    """The actions' part of the log evidence of a batch of rewards.

    For a Gaussian, `log p(y) = log p(y | m) + log p(m) - log p(m | y)` at the posterior mean `m`: a sum
    of terms of one sign, where the usual difference of large squares loses all digits in float32.
    `shift` is how far the mean of `z` has moved from the batch's reference.
    """
    expected, information = batch.expected, batch.information
    if model.arrows.weights:
        pull = model.weigh(model.arrows.all_rows(shift)).T[..., None]
        moved = batch.root @ (transpose(batch.root) @ pull)
        expected = expected + moved[..., 0]
        information = information - batch.precision @ moved
    whitened = cho_solve((batch.chol, True), transpose(batch.root) @ information)
    theta = expected + (batch.root @ whitened)[..., 0]
    inside = (actions >= 0) & (actions < model.num_actions)
    residual = rewards - jnp.sum(contexts * theta.at[actions].get(mode="clip"), axis=-1)
    energy = jnp.sum(jnp.where(inside, residual**2, 0.0)) / model.noise_variance
    constant = inside.sum() * jnp.log(2 * jnp.pi * model.noise_variance)
    log_determinant = 2 * jnp.log(jnp.diagonal(batch.chol, axis1=-2, axis2=-1)).sum()
    return -0.5 * (energy + constant + jnp.sum(whitened**2) + log_determinant)


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
    return mean + jnp.sqrt(dot(w, w)) * jax.random.normal(key, mean.shape, mean.dtype)


def draw_actions(
    key: Array, model: ActionModel, state: ActionState, z: Above
) -> Float[Array, "K d"]:
    """One draw of every action given `z`."""
    noise = jax.random.normal(key, state.center.shape, state.center.dtype)
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
