"""Rewards that are not Gaussian: refit an action's likelihood and exchange its message.

An observation changes the likelihood of its action only. That is expanded anew with all rewards of the
action (see `likelihood`), and the message the action had sent up is exchanged for the new one; the
levels above follow from the sum of all messages.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from ..buffer import Buffer, append, empty, insert, rows_of, sort
from .action_blocks import ActionState, Messages, actions_given, mean_actions
from .expansion import GaussianPriors, Sites, expand_all, expand_rows, fit_sites

if TYPE_CHECKING:
    from .backend import GaussianBackend, GaussianState

__all__ = ["Likelihoods", "no_likelihoods", "refit_all", "refit_one"]

_MOST_SWEEPS = 30


class Likelihoods(NamedTuple):
    """The Gaussian likelihood of every action, and the rewards behind them.

    Attributes:
        buffer: all observations, in order of their actions.
        precision: (K, d, d) `G_i`.
        information: (K, d) `B_i`.
        sums: what the levels above have been told, in the backend's own form.
        unconverged: how many fits stopped before they had converged.
    """

    buffer: Buffer
    precision: Float[Array, "K d d"]
    information: Float[Array, "K d"]
    sums: Any
    unconverged: Int[Array, ""]


def no_likelihoods(backend: "GaussianBackend", capacity: int) -> Likelihoods:
    """Likelihoods of actions nobody has taken: flat, or the ridge of the paper's scheme."""
    K, d, dtype = backend.model.num_actions, backend.model.dim, backend.model.root.dtype
    ridge = backend.ridge * jnp.eye(d, dtype=dtype)
    precision = jnp.broadcast_to(ridge, (K, d, d))
    information = jnp.zeros((K, d), dtype)
    _, messages = actions_given(backend.model, precision, information)
    _, sums = backend._given_messages(messages)
    return Likelihoods(empty(capacity, d), precision, information, sums, jnp.zeros((), jnp.int32))


def _kept(state: "GaussianState") -> Likelihoods:
    assert state.likelihoods is not None, "the backend refits, so its states have likelihoods"
    return state.likelihoods


def _site_prior(
    backend: "GaussianBackend", effects: Any, action: Array, messages: Messages
) -> GaussianPriors:
    """What an action's likelihood is expanded under; `messages` holds its own message, alone."""
    if backend.ridge > 0:
        d, dtype = backend.model.dim, backend.model.root.dtype
        return GaussianPriors(
            jnp.zeros((1, d), dtype), backend.ridge * jnp.eye(d, dtype=dtype)[None]
        )
    mean, cov = backend._action_prior(effects, action, messages.precision[0], messages.vector[0])
    chol = jnp.linalg.cholesky((cov + cov.T) / 2)
    identity = jnp.eye(cov.shape[0], dtype=cov.dtype)
    return GaussianPriors(mean[None], jax.scipy.linalg.cho_solve((chol, True), identity)[None])


def _with_ridge(backend: "GaussianBackend", sites: Sites) -> Sites:
    d = backend.model.dim
    return sites._replace(precision=sites.precision + backend.ridge * jnp.eye(d))


def refit_one(
    backend: "GaussianBackend",
    state: "GaussianState",
    context: Float[Array, " d"],
    action: Int[Array, ""],
    reward: Float[Array, ""],
    valid: Array,
) -> "GaussianState":
    """The state after one observation: one fit to all rewards of its action, and the levels above."""
    model, old = backend.model, _kept(state)
    buffer, changed = insert(old.buffer, context, action, reward, valid)
    here = jnp.clip(action, 0, model.num_actions - 1)
    alone = model.select(here)
    G, B = old.precision[here], old.information[here]
    before, sent = actions_given(alone, G[None], B[None])

    priors = _site_prior(backend, state.effects, here, sent)
    start = _mean_of_one(backend, state, before, here)
    expand = partial(expand_rows, backend.hierarchy.reward, buffer, *rows_of(buffer, here))
    sites = fit_sites(expand, priors, start[None])
    sites = _with_ridge(backend, sites)
    after, to_send = actions_given(alone, sites.precision, sites.information)

    change = jax.tree.map(
        lambda new, previous: jnp.where(changed, new - previous, 0.0)[0], to_send, sent
    )
    effects, sums = backend._exchange(state.effects, old.sums, here, *change)
    place = jnp.where(changed, here, model.num_actions)  # past the end, where scatters drop it
    likelihoods = Likelihoods(
        buffer,
        old.precision.at[place].set(sites.precision[0], mode="drop"),
        old.information.at[place].set(sites.information[0], mode="drop"),
        sums,
        old.unconverged + (changed & ~sites.converged[0]),
    )
    actions = ActionState(
        state.actions.center.at[:, place].set(after.center[:, 0], mode="drop"),
        state.actions.root.at[:, :, place].set(after.root[:, :, 0], mode="drop"),
    )
    return state._replace(
        effects=effects,
        actions=actions,
        likelihoods=likelihoods,
        taken=state.taken + changed,
        rejected=state.rejected + ~changed,
    )


def _mean_of_one(
    backend: "GaussianBackend", state: "GaussianState", own: ActionState, action: Array
) -> Float[Array, " d"]:
    """`E[theta_a]` of one action."""
    xi = backend.model.arrows.row(action, backend._means(state.effects))
    root = own.root[:, :, 0]
    return own.center[:, 0] + root @ (backend.model.weigh_one(action, xi) @ root)


def refit_all(
    backend: "GaussianBackend",
    state: "GaussianState",
    contexts: Float[Array, "n d"],
    actions: Int[Array, " n"],
    rewards: Float[Array, " n"],
    valid: Array,
) -> "GaussianState":
    """The state after many observations: every action is refitted until none moves any more.

    The levels above decide what an action's likelihood is expanded under, and the likelihoods decide
    what is known of the levels above: sweeps over both go on until the modes settle. Where they do,
    the posterior is the Laplace approximation at the mode of the joint density.
    """
    model, old = backend.model, _kept(state)
    buffer, lost = append(old.buffer, contexts, actions, rewards, valid)
    buffer = sort(buffer)
    rows = buffer.contexts, buffer.actions, buffer.rewards
    expand = partial(expand_all, backend.hierarchy.reward, *rows)
    everyone = jnp.arange(model.num_actions)

    def sweep(carry: tuple) -> tuple:
        state, modes, _, count = carry
        kept = _kept(state)
        _, messages = actions_given(model, kept.precision, kept.information)

        def prior_of(action: Array) -> GaussianPriors:
            own = jax.tree.map(lambda leaf: leaf[action][None], messages)
            return jax.tree.map(
                lambda leaf: leaf[0], _site_prior(backend, state.effects, action, own)
            )

        priors = jax.lax.map(prior_of, everyone, batch_size=1024)
        sites = _with_ridge(backend, fit_sites(expand, priors, modes))
        moved, told = actions_given(model, sites.precision, sites.information)
        effects, sums = backend._given_messages(told)
        likelihoods = Likelihoods(
            buffer,
            sites.precision,
            sites.information,
            sums,
            old.unconverged + jnp.sum(~sites.converged, dtype=jnp.int32),
        )
        spread = jnp.sqrt(jnp.square(moved.root).sum(1)).T
        far = jnp.max(jnp.abs(sites.mode - modes) / spread)
        state = state._replace(effects=effects, actions=moved, likelihoods=likelihoods)
        return state, sites.mode, far, count + 1

    def unsettled(carry: tuple) -> Array:
        _, _, far, count = carry
        return (far > 100 * jnp.finfo(model.root.dtype).eps) & (count < _MOST_SWEEPS)

    state = state._replace(likelihoods=old._replace(buffer=buffer))
    modes = mean_actions(model, state.actions, backend._means(state.effects))
    far = jnp.full((), jnp.inf, model.root.dtype)
    start = (state, modes, far, jnp.zeros((), jnp.int32))
    state, _, far, _ = jax.lax.while_loop(unsettled, sweep, start)
    unsettled_now = far > 1e-3
    likelihoods = _kept(state)
    return state._replace(
        likelihoods=likelihoods._replace(
            unconverged=likelihoods.unconverged + unsettled_now.astype(jnp.int32)
        ),
        taken=state.taken + valid.sum(dtype=jnp.int32) - lost.astype(jnp.int32),
        rejected=state.rejected + (~valid).sum(dtype=jnp.int32) + lost.astype(jnp.int32),
    )
