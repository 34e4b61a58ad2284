"""`MomentMessages`: rewards of any law, by the moments of their predictors (see `moment_matching`).

One reward after the other, each is matched under all that was known before it and absorbed as a Gaussian
one: assumed-density filtering, at the cost of a Gaussian reward, with nothing kept but the posterior. Many
rewards at once are matched under what all the *others* say, again and again until no message changes:
expectation propagation, in which their order does not matter.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ...models import Reward
from . import action_blocks
from .action_blocks import ActionState
from .levels import Levels, Outcome
from .messages import GaussianState, RewardMessages, Seen, condition_on_rows, first_state
from .moment_matching import Matched, log_likelihood, match_moments
from .square_roots import add_compensated

__all__ = ["Messages", "MomentMessages", "log_density_of_messages"]

_MOST_SWEEPS = 200
_LEAST_VARIANCE = 1e-30  # of a predictor that is known, as in a context of zeros


class Messages(NamedTuple):
    """What each of some rewards says of its predictor: `exp(information u - precision u^2 / 2)`."""

    precision: Float[Array, " n"]
    information: Float[Array, " n"]


class _Sweep(NamedTuple):
    """Messages, the posterior given those of the sweep before, and how that moved.

    Attributes:
        messages: what each reward says.
        effects: the levels above the actions.
        actions: the actions given those.
        mean: of every predictor.
        variance: of every predictor.
        evidence: the log evidence as expectation propagation has it.
        far: how far predictors moved, in their standard deviations.
        step: how far each moved, and where to.
        damping: the share of a change of messages that is made: less where they swing to and fro.
        most: the most that this share may be, which falls with every swing.
        broken: whether numbers were not finite; then what was there before is kept.
        number: how many sweeps there were.
    """

    messages: Messages
    effects: Any
    actions: ActionState
    mean: Float[Array, " n"]
    variance: Float[Array, " n"]
    evidence: Any
    far: Any
    step: Float[Array, " n"]
    damping: Any
    most: Any
    broken: Any
    number: Any


class MomentMessages(RewardMessages):
    """Each reward as the Gaussian that gives its predictor the same mean and variance.

    Attributes:
        reward: the family of rewards; any law of one predictor.
        is_log_concave: whether its log density is known to be concave, so that no message takes
            certainty away.
        sweep: whether many rewards at once are matched until their messages agree, or each once.
    """

    reward: Reward
    is_log_concave: bool = eqx.field(static=True)
    sweep: bool = eqx.field(default=True, static=True)

    @property
    def has_evidence(self) -> bool:
        return True

    @property
    def can_forget(self) -> bool:
        return True

    def init(self, levels: Levels, room: int) -> GaussianState:
        return first_state(levels, levels.before_data(), action_blocks.no_data(levels.model), None)

    def update(self, levels: Levels, state: GaussianState, seen: Seen) -> GaussianState:
        """One matched reward, absorbed as a Gaussian one: rank one at every level."""
        here = jnp.clip(seen.action, 0, levels.model.num_actions - 1)
        cavity = _predictor(levels, state, here, seen.context)
        return self._absorb(levels, state, seen, self._match(seen, *cavity), cavity)

    def _absorb(
        self,
        levels: Levels,
        state: GaussianState,
        seen: Seen,
        matched: Matched,
        cavity: tuple[Array, Array],
    ) -> GaussianState:
        """The state after a reward that was matched under a cavity."""
        usable = seen.valid & _is_usable(matched)
        reward, noise = matched.as_observation(*cavity)
        action = jnp.where(usable, seen.action, levels.model.num_actions)
        row = seen.context, action, jnp.where(usable, reward, 0.0), jnp.where(usable, noise, 1.0)
        actions, innovation = action_blocks.observe(levels.model, state.actions, *row)
        effects, _ = levels.absorb(state.effects, innovation, actions)
        log_density = jnp.where(usable, matched.log_normaliser, 0.0)
        log_evidence, rounding = add_compensated(state.log_evidence, state.rounding, log_density)
        info = state.info.after(Outcome(unconverged=seen.valid & ~usable), usable, ~seen.valid)
        return GaussianState(effects, actions, log_evidence, rounding, info)

    def condition(self, levels: Levels, state: GaussianState, seen: Seen) -> GaussianState:
        """Sweeps over all rewards at once, until no message changes the posterior any more.

        Factored levels are no posterior that a message could be taken out of: there, for a single reward,
        and where no sweeps are wanted, they are matched one after the other.
        """
        if not self.sweep or not levels.is_exact or len(seen.reward) == 1:
            return self._one_by_one(levels, state, seen)[0]
        sweep = self._sweeps(levels, state, seen)
        settled = ~sweep.broken & (sweep.far <= _tolerance(sweep.mean.dtype))
        log_evidence, rounding = add_compensated(state.log_evidence, state.rounding, sweep.evidence)
        info = state.info.after(
            Outcome(unconverged=~settled), seen.valid.sum(), (~seen.valid).sum()
        )
        return GaussianState(sweep.effects, sweep.actions, log_evidence, rounding, info)

    def agree(
        self, levels: Levels, state: GaussianState, seen: Seen
    ) -> tuple[Array, Array, Array, Array, Matched, Array]:
        """Messages that agree, as Gaussian rewards and their noise; cavities and tilted densities.

        Last, whether they do agree.
        """
        _, before = _predictors(levels, state.effects, state.actions, seen)
        sweep = self._sweeps(levels, state, seen)
        # The messages of the last sweep are those of the posterior that it left.
        effects, actions, _ = self._absorbed(levels, state, seen, before, sweep.messages)
        mean, spread = _predictors(levels, effects, actions, seen)
        cavity = self._cavity(sweep.messages, mean, spread, before)
        rewards, noise = _as_observations(sweep.messages, before)
        settled = ~sweep.broken & (sweep.far <= _tolerance(sweep.mean.dtype))
        return rewards, noise, *cavity, self._match(seen, *cavity), settled

    def _match(self, seen: Seen, mean: Array, variance: Array) -> Matched:
        density = log_likelihood(self.reward, seen.reward, seen.exposure)
        return match_moments(density, mean, variance, is_log_concave=self.is_log_concave)

    def _one_by_one(
        self, levels: Levels, state: GaussianState, seen: Seen
    ) -> tuple[GaussianState, Messages]:
        """Rewards matched one after the other, and what each said when it came."""

        def one(state: GaussianState, row: Seen) -> tuple[GaussianState, Messages]:
            here = jnp.clip(row.action, 0, levels.model.num_actions - 1)
            cavity = _predictor(levels, state, here, row.context)
            matched = self._match(row, *cavity)
            said = Messages(*matched.as_message(*cavity))
            usable = row.valid & _is_usable(matched)
            said = jax.tree.map(lambda part: jnp.where(usable, part, 0.0), said)
            return self._absorb(levels, state, row, matched, cavity), said

        return jax.lax.scan(one, state, seen)

    def _sweeps(self, levels: Levels, state: GaussianState, seen: Seen) -> _Sweep:
        """The messages of all rewards that agree with one another, and their evidence."""
        mean, variance = _predictors(levels, state.effects, state.actions, seen)
        dtype = mean.dtype
        rounding = 1e4 * jnp.finfo(dtype).eps

        def unsettled(sweep: _Sweep) -> Array:
            far_away = sweep.far > _tolerance(dtype)
            return far_away & ~sweep.broken & (sweep.number < _MOST_SWEEPS)

        def again(sweep: _Sweep) -> _Sweep:
            effects, actions, log_density = self._absorbed(
                levels, state, seen, variance, sweep.messages
            )
            mean, spread = _predictors(levels, effects, actions, seen)
            cavity = self._cavity(sweep.messages, mean, spread, variance)
            matched = self._match(seen, *cavity)
            rewards = _as_observations(sweep.messages, variance)
            share = matched.log_normaliser - log_density_of_messages(*rewards, *cavity)
            evidence = log_density + jnp.sum(jnp.where(seen.valid, share, 0.0))
            step = (mean - sweep.mean) / jnp.sqrt(spread)
            wider = jnp.log(spread / sweep.variance)
            moved_by = jnp.max(jnp.maximum(jnp.abs(step), jnp.abs(wider)))
            far = jnp.where(sweep.number == 0, jnp.inf, moved_by / sweep.damping)
            far = jnp.where((far >= sweep.far) & (moved_by < rounding), 0.0, far)  # no closer
            turned = jnp.sum(step * sweep.step) < 0
            most = jnp.where(turned, jnp.maximum(0.8 * sweep.most, 0.05), sweep.most)
            damping = jnp.where(turned, sweep.damping / 2, 1.2 * sweep.damping)
            damping = jnp.clip(damping, 0.02, most)

            def moved(old: Array, new: Array) -> Array:
                usable = seen.valid & jnp.isfinite(new)
                return jnp.where(usable, old + damping * (new - old), old)

            messages = Messages(*map(moved, sweep.messages, matched.as_message(*cavity)))
            broken = ~(
                jnp.isfinite(evidence) & jnp.isfinite(mean).all() & jnp.isfinite(spread).all()
            )
            new = _Sweep(
                messages,
                effects,
                actions,
                mean,
                spread,
                evidence,
                far,
                step,
                damping,
                most,
                broken,
                0,
            )
            kept = jax.tree.map(lambda a, b: jnp.where(broken, b, a), new, sweep)
            return kept._replace(broken=broken, number=sweep.number + 1)

        _, messages = self._one_by_one(levels, state, seen)
        zero = jnp.zeros((), dtype)
        first = _Sweep(
            messages,
            state.effects,
            state.actions,
            mean,
            variance,
            evidence=zero,
            far=zero + jnp.inf,
            step=jnp.zeros_like(mean),
            damping=zero + 1,
            most=zero + 1,
            broken=jnp.zeros((), bool),
            number=jnp.zeros((), jnp.int32),
        )
        return jax.lax.while_loop(unsettled, again, first)

    def _cavity(
        self,
        messages: Messages,
        mean: Float[Array, " n"],
        variance: Float[Array, " n"],
        before: Float[Array, " n"],
    ) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """What all other rewards say of each predictor: not less than was known before any."""
        least = 10 * jnp.finfo(before.dtype).eps
        variance = variance / jnp.maximum(1 - messages.precision * variance, least)
        if self.is_log_concave:
            variance = jnp.minimum(variance, before)
        return mean + (messages.precision * mean - messages.information) * variance, variance

    def _absorbed(
        self,
        levels: Levels,
        state: GaussianState,
        seen: Seen,
        before: Float[Array, " n"],
        messages: Messages,
    ) -> tuple[Any, ActionState, Float[Array, ""]]:
        """A state after Gaussian rewards that say what the messages do, and their log density."""
        rewards, noise = _as_observations(messages, before)
        rows = seen._replace(reward=jnp.where(seen.valid, rewards, 0.0), exposure=None)
        if self.is_log_concave:
            unit = jnp.ones((), noise.dtype)
            rows = rows._replace(exposure=jnp.where(seen.valid, 1 / noise, 1.0))
            effects, actions, outcome = condition_on_rows(levels, state, rows, unit)
            return effects, actions, jnp.asarray(outcome.log_density)
        # Those that take certainty away come last: there is something to take it from.
        order = jnp.argsort(noise < 0, stable=True)
        rows, noise = jax.tree.map(lambda part: part[order], (rows, noise))
        actions, innovations = action_blocks.condition_actions(
            levels.model, state.actions, rows.context, rows.action, rows.reward, noise
        )
        effects, outcome = levels.condition(state.effects, innovations, actions)
        return effects, actions, jnp.asarray(outcome.log_density)


def _tolerance(dtype: jnp.dtype) -> float:
    """How little a sweep may move predictors, in their standard deviations, to be the last."""
    return max(1e-8, 200 * float(jnp.finfo(dtype).eps))


def _is_usable(matched: Matched) -> Array:
    found = jnp.isfinite(matched.shift) & jnp.isfinite(matched.log_normaliser)
    return found & (matched.ratio > 0) & jnp.isfinite(matched.ratio)


def _as_observations(messages: Messages, variance: Float[Array, " n"]) -> tuple[Array, Array]:
    """Gaussian rewards, and the variances of their noise, that say what the messages do."""
    least = 1e-20 / variance
    sign = jnp.where(messages.precision < 0, -1.0, 1.0)
    precision = sign * jnp.maximum(jnp.abs(messages.precision), least)
    return messages.information / precision, 1 / precision


def log_density_of_messages(
    rewards: Float[Array, " n"], noise: Float[Array, " n"], mean: Array, variance: Array
) -> Float[Array, " n"]:
    """The log density, under `N(mean, variance)`, of the Gaussian rewards that stand for messages."""
    total = variance + noise
    return -0.5 * (jnp.log(jnp.abs(2 * jnp.pi * total)) + jnp.square(rewards - mean) / total)


def _predictor(
    levels: Levels, state: GaussianState, action: Array, context: Float[Array, " d"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The mean and the variance of `x' theta_a`."""
    own = action_blocks.own_state(state.actions, action)
    mean, variance = levels.predictor(state.effects, own, action, context)
    return mean, jnp.maximum(variance, _LEAST_VARIANCE)


def _predictors(
    levels: Levels, effects: Any, actions: ActionState, seen: Seen
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """The means and variances of the predictors of many rewards."""
    K = levels.model.num_actions
    which = jnp.clip(seen.action, 0, K - 1)
    if len(which) > K:

        def marginal(action: Array) -> tuple[Array, Array]:
            return levels.marginal(effects, action_blocks.own_state(actions, action), action)

        means, roots = jax.lax.map(marginal, jnp.arange(K), batch_size=levels.chunk)
        mean = jnp.sum(seen.context * means[which], axis=-1)
        variance = jnp.sum(jnp.square(jnp.einsum("nd,nde->ne", seen.context, roots[which])), -1)
    else:

        def one(row: tuple[Array, Array]) -> tuple[Array, Array]:
            action, context = row
            own = action_blocks.own_state(actions, action)
            return levels.predictor(effects, own, action, context)

        mean, variance = jax.lax.map(one, (which, seen.context), batch_size=levels.chunk)
    return mean, jnp.maximum(variance, _LEAST_VARIANCE)
