"""`ModeMessages`: rewards that are not Gaussian, expanded at a mode (Aouali et al. 2023, Section 3.3).

An observation changes the likelihood of its action only. That is expanded anew with all rewards of the
action (see `expansion`), and its message to the levels above is replaced by the new one; these follow
from the sum of all messages.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ...models import Reward
from .. import buffer as buffers
from ..buffer import Buffer
from .action_blocks import ActionState, Messages, actions_given, mean_actions
from .expansion import GaussianPriors, Sites, expand_all, expand_rows, fit_sites
from .levels import Levels, Outcome
from .messages import GaussianState, RewardMessages, Seen, first_state

__all__ = ["Likelihoods", "ModeMessages"]

_MOST_SWEEPS = 30


class Likelihoods(NamedTuple):
    """The Gaussian likelihood of every action, and the rewards behind them.

    Attributes:
        buffer: all observations, in order of their actions.
        precision: (K, d, d) `G_i`.
        information: (K, d) `B_i`.
        sums: the sums of messages to the levels above; see `levels`.
    """

    buffer: Buffer
    precision: Float[Array, "K d d"]
    information: Float[Array, "K d"]
    sums: Any


class ModeMessages(RewardMessages):
    """Each action's likelihood to second order, at its mode under all other messages.

    Attributes:
        reward: the family of rewards.
        ridge: what is added to the curvature of every likelihood. Where it is not zero, modes are those
            of the likelihood and the ridge alone: the paper's scheme.
        capacity: room for observations at first; it doubles outside `jit`.
    """

    reward: Reward
    ridge: float = eqx.field(default=0.0, static=True)
    capacity: int = eqx.field(default=1024, static=True)

    @property
    def speaks_without_rewards(self) -> bool:
        return self.ridge > 0

    def init(self, levels: Levels, room: int) -> GaussianState:
        return _first_state(self, levels, room=room)

    def reserve(self, state: GaussianState, more: int) -> GaussianState:
        buffer = buffers.reserve(state.memory.buffer, more)
        return state._replace(memory=state.memory._replace(buffer=buffer))

    def update(self, levels: Levels, state: GaussianState, seen: Seen) -> GaussianState:
        """One fit to all rewards of the chosen action, and the levels above."""
        model, old = levels.model, state.memory
        buffer, changed = buffers.insert(old.buffer, *seen)
        here = jnp.clip(seen.action, 0, model.num_actions - 1)
        alone = model.select(here)
        before, sent = actions_given(alone, old.precision[here][None], old.information[here][None])

        priors = self._site_prior(levels, state.effects, here, sent)
        start = levels.mean_of_one(state.effects, before, here)
        expand = partial(expand_rows, self.reward, buffer, *buffers.rows_of(buffer, here))
        sites = self._with_ridge(fit_sites(expand, priors, start[None]))
        after, to_send = actions_given(alone, sites.precision, sites.information)

        change = jax.tree.map(
            lambda new, previous: jnp.where(changed, new - previous, 0.0), to_send, sent
        )
        effects, sums = levels.exchange(state.effects, old.sums, here, change)
        place = jnp.where(changed, here, model.num_actions)  # past the end, where scatters drop it
        memory = Likelihoods(
            buffer,
            old.precision.at[place].set(sites.precision[0], mode="drop"),
            old.information.at[place].set(sites.information[0], mode="drop"),
            sums,
        )
        actions = ActionState(
            state.actions.center.at[:, place].set(after.center[:, 0], mode="drop"),
            state.actions.root.at[:, :, place].set(after.root[:, :, 0], mode="drop"),
        )
        outcome = Outcome(unconverged=changed & ~sites.converged[0])
        info = state.info.after(outcome, changed, ~changed)
        return state._replace(effects=effects, actions=actions, memory=memory, info=info)

    def condition(self, levels: Levels, state: GaussianState, seen: Seen) -> GaussianState:
        """Every action is refitted until none moves any more.

        The levels above decide what an action's likelihood is expanded under, and the likelihoods
        decide what is known of the levels above: sweeps over both go on until the modes settle. Where
        they do, the posterior is the Laplace approximation at the mode of the joint density.
        """
        model = levels.model
        buffer, lost = buffers.append(state.memory.buffer, *seen)
        buffer = buffers.sort(buffer)
        rows = buffer.contexts, buffer.actions, buffer.rewards
        expand = partial(expand_all, self.reward, *rows)
        everyone = jnp.arange(model.num_actions)

        def sweep(carry: tuple) -> tuple:
            state, modes, _, _, count = carry
            kept = state.memory
            _, messages = actions_given(model, kept.precision, kept.information)

            def prior_of(action: Array) -> GaussianPriors:
                own = jax.tree.map(lambda leaf: leaf[action][None], messages)
                prior = self._site_prior(levels, state.effects, action, own)
                return jax.tree.map(lambda leaf: leaf[0], prior)

            priors = jax.lax.map(prior_of, everyone, batch_size=1024)
            sites = self._with_ridge(fit_sites(expand, priors, modes))
            moved, to_send = actions_given(model, sites.precision, sites.information)
            effects, sums = levels.given_messages(to_send)
            memory = Likelihoods(buffer, sites.precision, sites.information, sums)
            spread = jnp.sqrt(jnp.square(moved.root).sum(1)).T
            far = jnp.max(jnp.abs(sites.mode - modes) / spread)
            unconverged = jnp.sum(~sites.converged, dtype=jnp.int32)
            state = state._replace(effects=effects, actions=moved, memory=memory)
            return state, sites.mode, far, unconverged, count + 1

        def unsettled(carry: tuple) -> Array:
            _, _, far, _, count = carry
            return (far > 100 * jnp.finfo(model.root.dtype).eps) & (count < _MOST_SWEEPS)

        state = state._replace(memory=state.memory._replace(buffer=buffer))
        modes = mean_actions(model, state.actions, levels.means(state.effects))
        far = jnp.full((), jnp.inf, model.root.dtype)
        none = jnp.zeros((), jnp.int32)
        state, _, far, unconverged, _ = jax.lax.while_loop(
            unsettled, sweep, (state, modes, far, none, none)
        )
        outcome = Outcome(unconverged=unconverged + (far > 1e-3))
        observed, rejected = seen.valid.sum() - lost, (~seen.valid).sum() + lost
        return state._replace(info=state.info.after(outcome, observed, rejected))

    def _site_prior(
        self, levels: Levels, effects: Any, action: Array, own: Messages
    ) -> GaussianPriors:
        """What an action's likelihood is expanded under; `own` is the message it had sent, (1, ...)."""
        d, dtype = levels.model.dim, levels.model.root.dtype
        identity = jnp.eye(d, dtype=dtype)
        if self.ridge > 0:
            return GaussianPriors(jnp.zeros((1, d), dtype), self.ridge * identity[None])
        mean, cov = levels.without_own(effects, action, own)
        chol = jnp.linalg.cholesky((cov + cov.T) / 2)
        return GaussianPriors(mean[None], jax.scipy.linalg.cho_solve((chol, True), identity)[None])

    def _with_ridge(self, sites: Sites) -> Sites:
        d = sites.mode.shape[-1]
        return sites._replace(precision=sites.precision + self.ridge * jnp.eye(d))


@partial(jax.jit, static_argnames="room")
def _first_state(kind: ModeMessages, levels: Levels, *, room: int) -> GaussianState:
    K, d, dtype = levels.model.num_actions, levels.model.dim, levels.model.root.dtype
    precision = jnp.broadcast_to(kind.ridge * jnp.eye(d, dtype=dtype), (K, d, d))
    information = jnp.zeros((K, d), dtype)
    actions, messages = actions_given(levels.model, precision, information)
    effects, sums = levels.given_messages(messages)
    buffer = buffers.empty(max(kind.capacity, room), d)
    return first_state(levels, effects, actions, Likelihoods(buffer, precision, information, sums))
