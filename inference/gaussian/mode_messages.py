"""`ModeMessages`: rewards that are not Gaussian, expanded at a mode (Aouali et al. 2023, Section 3.3).

An observation changes the likelihood of its action only. That is expanded anew with all rewards of the
action (see `expansion`), and what it says of the levels above takes the place of what it said before.
"""

from collections.abc import Callable
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
from .action_blocks import (
    ActionState,
    Innovation,
    condition_actions,
    mean_actions,
    no_data,
    own_state,
)
from .expansion import Expansion, GaussianPriors, Sites, expand_all, expand_rows, fit_sites
from .levels import Levels, Outcome
from .linear_model import ActionModel
from .messages import GaussianState, RewardMessages, Seen, first_state
from .square_roots import transpose, triangle

__all__ = ["Likelihoods", "ModeMessages"]

Expand = Callable[[Float[Array, "K d"]], Expansion]

_MOST_SWEEPS = 30


class Likelihoods(NamedTuple):
    """The Gaussian likelihood of every action, and the rewards behind them.

    Attributes:
        buffer: all observations, in order of their actions.
        factor: (K, d, d) `U_i`; see `expansion`.
        target: (K, d) `e_i`.
    """

    buffer: Buffer
    factor: Float[Array, "K d d"]
    target: Float[Array, "K d"]

    @property
    def precision(self) -> Float[Array, "K d d"]:
        """`G_i`."""
        return transpose(self.factor) @ self.factor

    @property
    def information(self) -> Float[Array, "K d"]:
        """`B_i`."""
        return jnp.einsum("kde,kd->ke", self.factor, self.target)


class ModeMessages(RewardMessages):
    """Each action's likelihood to second order, at its mode under all that others say of it.

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
    def why_no_new_actions(self) -> str | None:
        if self.ridge == 0:
            return None
        return (
            "with sites='mle', the paper's scheme, an action without rewards already tells of the "
            "effects. Use sites='tilted'"
        )

    def init(self, levels: Levels, room: int) -> GaussianState:
        return _first_state(self, levels, room=room)

    def reserve(self, state: GaussianState, more: int) -> GaussianState:
        buffer = buffers.reserve(state.memory.buffer, more)
        return state._replace(memory=state.memory._replace(buffer=buffer))

    def update(self, levels: Levels, state: GaussianState, seen: Seen) -> GaussianState:
        """One fit to all rewards of the chosen action, and the levels above."""
        model, old = levels.model, state.memory
        buffer, added = buffers.insert(old.buffer, *seen)
        here = jnp.clip(seen.action, 0, model.num_actions - 1)
        alone = model.select(here)
        priors = jax.tree.map(lambda part: part[None], self._prior(levels, state, here))
        start = levels.mean_of_one(state.effects, own_state(state.actions, here), here)
        expand = partial(expand_rows, self.reward, buffer, *buffers.rows_of(buffer, here))
        sites = self._fit(expand, priors, start[None])
        changed = added & sites.converged[0]

        _, said = _given(alone, old.factor[here], old.target[here], here)
        after, says = _given(alone, sites.factor[0], sites.target[0], here)
        effects = levels.exchange(state.effects, said, says)
        changed &= _is_finite((effects, after))
        place = jnp.where(changed, here, model.num_actions)  # past the end, where scatters drop it
        memory = Likelihoods(
            buffer,
            old.factor.at[place].set(sites.factor[0], mode="drop"),
            old.target.at[place].set(sites.target[0], mode="drop"),
        )
        actions = ActionState(
            state.actions.center.at[:, place].set(after.center[:, 0], mode="drop"),
            state.actions.root.at[:, :, place].set(after.root[:, :, 0], mode="drop"),
        )
        effects = _either(changed, effects, state.effects)
        outcome = Outcome(unconverged=added & ~changed, indefinite=changed & ~sites.concave[0])
        info = state.info.after(outcome, added, ~added)
        return state._replace(effects=effects, actions=actions, memory=memory, info=info)

    def condition(self, levels: Levels, state: GaussianState, seen: Seen) -> GaussianState:
        """Every action is refitted until none moves any more.

        The levels above decide what an action's likelihood is expanded under, and the likelihoods
        decide what is known of the levels above: sweeps over both go on until the modes settle. Where
        they do, the posterior is the Laplace approximation at the mode of the joint density. Where a
        fit fails, what was known of the action before stays.
        """
        model = levels.model
        buffer, lost = buffers.append(state.memory.buffer, *seen)
        buffer = buffers.sort(buffer)
        rows = buffer.contexts, buffer.actions, buffer.rewards
        expand = partial(expand_all, self.reward, *rows, exposure=buffer.exposure)
        everyone = jnp.arange(model.num_actions)
        one_is_enough = self.ridge > 0 or not levels.is_exact
        tolerance = 100 * jnp.finfo(model.root.dtype).eps

        def sweep(carry: tuple) -> tuple:
            state, last, _, _, count = carry
            prior_of = partial(self._prior, levels, state)
            priors = jax.lax.map(prior_of, everyone, batch_size=levels.chunk)
            start = mean_actions(model, state.actions, levels.means(state.effects))
            sites = self._fit(expand, priors, start)
            good, kept = sites.converged, state.memory
            factor = jnp.where(good[:, None, None], sites.factor, kept.factor)
            target = jnp.where(good[:, None], sites.target, kept.target)
            moved, innovations = _given(model, factor, target, everyone)
            effects, _ = levels.condition(levels.before_data(), innovations, moved)
            new = state._replace(
                effects=effects, actions=moved, memory=Likelihoods(buffer, factor, target)
            )
            finite = _is_finite((effects, moved))
            failed = jnp.where(finite, jnp.sum(~good, dtype=jnp.int32), len(good))
            far = jnp.max(jnp.where(good, sites.distance, 0.0))
            settled = one_is_enough | ~finite | (far < tolerance)
            settled |= (far < 1e-3) & (far > last / 2)  # rounding keeps it from coming closer
            far = jnp.where(settled, 0.0, far)
            outcome = Outcome(0.0, failed, jnp.sum(good & ~sites.concave, dtype=jnp.int32), 0)
            return _either(finite, new, state), far, settled, outcome, count + 1

        def unsettled(carry: tuple) -> Array:
            return ~carry[2] & (carry[4] < _MOST_SWEEPS)

        state = state._replace(memory=state.memory._replace(buffer=buffer))
        none = jnp.zeros((), jnp.int32)
        far = jnp.full((), jnp.inf, model.root.dtype)
        first = (state, far, jnp.zeros((), bool), Outcome(0.0, none, none, 0), none)
        state, far, _, outcome, _ = jax.lax.while_loop(unsettled, sweep, first)
        outcome = outcome._replace(unconverged=outcome.unconverged + (far > 1e-3))
        observed, rejected = seen.valid.sum() - lost, (~seen.valid).sum() + lost
        return state._replace(info=state.info.after(outcome, observed, rejected))

    def _prior(self, levels: Levels, state: GaussianState, action: Array) -> GaussianPriors:
        """What an action's likelihood is expanded under.

        Where levels are exact, that is the action's posterior less its own site. Factored levels are not
        a posterior that a site could be taken out of: there it is the prior.
        """
        d, dtype = levels.model.dim, levels.model.root.dtype
        nothing = jnp.zeros((d, d), dtype), jnp.zeros(d, dtype)
        if self.ridge > 0:
            root = jnp.eye(d, dtype=dtype) / jnp.sqrt(self.ridge)
            return GaussianPriors(jnp.zeros(d, dtype), root, *nothing)
        if not levels.is_exact:
            own = no_data(levels.model.select(action))
            return GaussianPriors(*levels.marginal(levels.before_data(), own, action), *nothing)
        own = own_state(state.actions, action)
        site = state.memory.factor[action], state.memory.target[action]
        return GaussianPriors(*levels.marginal(state.effects, own, action), *site)

    def _fit(self, expand: Expand, priors: GaussianPriors, start: Float[Array, "K d"]) -> Sites:
        sites = fit_sites(expand, priors, start)
        if self.ridge == 0:
            return sites
        extra = jnp.broadcast_to(
            jnp.sqrt(self.ridge) * jnp.eye(start.shape[-1]), sites.factor.shape
        )
        column = jnp.concatenate([sites.target, jnp.zeros_like(sites.target)], axis=-1)
        U, b = triangle(jnp.concatenate([sites.factor, extra], axis=-2), column)
        return sites._replace(factor=U, target=b)


def _given(
    model: ActionModel, factor: Float[Array, "*K d d"], target: Float[Array, "*K d"], action: Array
) -> tuple[ActionState, Innovation]:
    """The actions of a model with these likelihoods, and what they say of the levels above.

    Likelihoods are Gaussian rewards with unit noise; `action` is whose they are, in all.
    """
    d = factor.shape[-1]
    rows = factor.reshape(-1, d), target.ravel()
    among = jnp.repeat(jnp.arange(model.num_actions), d)
    unit = jnp.ones((), factor.dtype)
    moved, said = condition_actions(model, no_data(model), rows[0], among, rows[1], unit)
    return moved, said._replace(action=jnp.repeat(action, d, total_repeat_length=len(among)))


def _is_finite(tree: Any) -> Array:
    return jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]).all()


def _either(first: Array, one: Any, other: Any) -> Any:
    """`one` where `first`, else the `other`."""
    return jax.tree.map(lambda a, b: jnp.where(first, a, b), one, other)


@partial(jax.jit, static_argnames="room")
def _first_state(kind: ModeMessages, levels: Levels, *, room: int) -> GaussianState:
    K, d, dtype = levels.model.num_actions, levels.model.dim, levels.model.root.dtype
    factor = jnp.broadcast_to(jnp.sqrt(kind.ridge) * jnp.eye(d, dtype=dtype), (K, d, d))
    target = jnp.zeros((K, d), dtype)
    actions, effects = no_data(levels.model), levels.before_data()
    if kind.ridge > 0:
        actions, innovations = _given(levels.model, factor, target, jnp.arange(K))
        effects, _ = levels.condition(effects, innovations, actions)
    capacity = max(kind.capacity, room)
    buffer = buffers.empty(capacity, d, exposure=kind.reward.takes_exposure)
    return first_state(levels, effects, actions, Likelihoods(buffer, factor, target))
