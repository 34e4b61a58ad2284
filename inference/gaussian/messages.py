"""`RewardMessages`: the interface of how rewards become Gaussian likelihoods, and the exact one.

The first of three questions that a Gaussian backend answers; the second is `levels`. A kind of message
conditions a state on observations; it may keep a memory of its own, such as the rewards themselves.
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from . import action_blocks
from .action_blocks import ActionState
from .levels import Levels, Outcome
from .linear_model import ActionModel
from .reduction import reduce_rows, weighed_rows
from .square_roots import add_compensated

__all__ = [
    "ExactMessages",
    "GaussianState",
    "Info",
    "RewardMessages",
    "Seen",
    "condition_on_rows",
    "first_state",
]


class Seen(NamedTuple):
    """One observation, or `n` of them with a leading axis.

    Where `valid` is False the observation is blank: a context and a reward of zero, an exposure of one,
    and an action that does not exist. The exposure, how many rewards a row stands for, is None where
    every row is one.
    """

    context: Float[Array, "*n d"]
    action: Int[Array, "*n"]
    reward: Float[Array, "*n"]
    valid: Bool[Array, "*n"]
    exposure: Float[Array, "*n"] | None = None


class Info(NamedTuple):
    """Counts of what has happened so far, beside the posterior.

    Attributes:
        observed: how many observations the posterior is conditioned on.
        rejected: how many were ignored inside `jit`: an action out of range, NaN or infinity, or no
            room left for it.
        unconverged: how many fits stopped before they had converged.
        indefinite: how many times a curvature was not positive definite and was replaced.
        unmoved: how many fits did not move though the data call for it.
    """

    observed: Int[Array, ""]
    rejected: Int[Array, ""]
    unconverged: Int[Array, ""]
    indefinite: Int[Array, ""]
    unmoved: Int[Array, ""]

    def after(self, outcome: Outcome, observed: Array, rejected: Array) -> "Info":
        """After more observations, used or rejected, with that outcome."""
        more = observed, rejected, outcome.unconverged, outcome.indefinite, outcome.unmoved
        return Info(*(n + jnp.asarray(m, jnp.int32) for n, m in zip(self, more, strict=True)))


class GaussianState(NamedTuple):
    """The posterior of a Gaussian backend.

    Attributes:
        effects: the posterior of the levels above the actions; see `levels`.
        actions: the posterior of the actions given those levels.
        log_evidence: log density of the rewards seen so far (exact backends only).
        rounding: the rounding error of that sum (compensated summation).
        info: counts of what has happened so far.
        memory: what the kind of message keeps, or None.
    """

    effects: Any
    actions: ActionState
    log_evidence: Float[Array, ""]
    rounding: Float[Array, ""]
    info: Info
    memory: Any = None


def first_state(levels: Levels, effects: Any, actions: ActionState, memory: Any) -> GaussianState:
    """A state that has seen nothing."""
    zero, none = jnp.zeros((), levels.model.root.dtype), jnp.zeros((), jnp.int32)
    return GaussianState(effects, actions, zero, zero, Info(none, none, none, none, none), memory)


class RewardMessages(eqx.Module):
    """A way to turn rewards into Gaussian messages about their actions."""

    @property
    def is_exact(self) -> bool:
        """Whether nothing is lost, so that the log evidence is known and evidence can be discounted."""
        return False

    @property
    def has_evidence(self) -> bool:
        """Whether the log evidence is known, where levels are exact."""
        return self.is_exact

    @property
    def can_forget(self) -> bool:
        """Whether what rewards have said can be discounted."""
        return self.is_exact

    @property
    def why_no_new_actions(self) -> str | None:
        """Why actions cannot be added while a backend runs, or None where they can."""
        return None

    @abstractmethod
    def init(self, levels: Levels, room: int) -> GaussianState:
        """The state before any observation, with room for `room` of them where they are kept."""

    @abstractmethod
    def update(self, levels: Levels, state: GaussianState, seen: Seen) -> GaussianState:
        """After one observation."""

    @abstractmethod
    def condition(self, levels: Levels, state: GaussianState, seen: Seen) -> GaussianState:
        """After many observations."""

    def reserve(self, state: GaussianState, more: int) -> GaussianState:
        """The same state with room for `more` observations."""
        return state


class ExactMessages(RewardMessages):
    """Gaussian rewards, `y = x' theta + N(0, sigma^2)`: exact, and rank one each.

    The mean of `m` rewards, a row with exposure `m`, has the variance `sigma^2 / m`.
    """

    @property
    def is_exact(self) -> bool:
        return True

    def init(self, levels: Levels, room: int) -> GaussianState:
        return first_state(levels, levels.before_data(), action_blocks.no_data(levels.model), None)

    def update(self, levels: Levels, state: GaussianState, seen: Seen) -> GaussianState:
        variance = _variance(levels.model, seen)
        actions, innovation = action_blocks.observe(
            levels.model, state.actions, *seen[:3], variance
        )
        effects, outcome = levels.absorb(state.effects, innovation, actions)
        log_density = jnp.where(seen.valid, outcome.log_density, 0.0)
        log_evidence, rounding = add_compensated(state.log_evidence, state.rounding, log_density)
        info = state.info.after(outcome, seen.valid, ~seen.valid)
        return GaussianState(effects, actions, log_evidence, rounding, info)

    def condition(self, levels: Levels, state: GaussianState, seen: Seen) -> GaussianState:
        noise_variance = levels.model.noise_variance
        effects, actions, outcome = condition_on_rows(levels, state, seen, noise_variance)
        log_density = jnp.asarray(outcome.log_density)
        log_evidence, rounding = add_compensated(state.log_evidence, state.rounding, log_density)
        info = state.info.after(outcome, seen.valid.sum(), (~seen.valid).sum())
        return GaussianState(effects, actions, log_evidence, rounding, info)


def condition_on_rows(
    levels: Levels, state: GaussianState, seen: Seen, noise_variance: Float[Array, ""]
) -> tuple[Any, ActionState, Outcome]:
    """The levels and the actions after Gaussian rewards, and what else that gives.

    Where there are more than `d` rows an action, as many that say the same take their place.
    """
    model, rows = levels.model, seen[:3]
    unexplained = jnp.zeros((), model.root.dtype)
    variance = noise_variance if seen.exposure is None else noise_variance / seen.exposure
    if len(seen.reward) > model.dim * model.num_actions:
        rows, scales = weighed_rows(*rows, seen.exposure)
        reduced = reduce_rows(*rows, model.num_actions)
        rows, variance = reduced[:3], noise_variance
        fewer = seen.valid.sum() - len(reduced.rewards)
        unexplained = scales + _log_normal(reduced.leftover, fewer, noise_variance)
    moved, innovations = action_blocks.condition_actions(model, state.actions, *rows, variance)
    effects, outcome = levels.condition(state.effects, innovations, moved)
    log_density = outcome.log_density + unexplained if levels.is_exact else 0.0 * unexplained
    return effects, moved, outcome._replace(log_density=log_density)


def _variance(model: ActionModel, seen: Seen) -> Float[Array, "*n"] | None:
    """The variance of each row around its predictor, or None where it is that of the model."""
    return None if seen.exposure is None else model.noise_variance / seen.exposure


def _log_normal(squares: Array, count: Array, variance: Array) -> Float[Array, ""]:
    """The log density of `count` numbers from `N(0, variance)`, from the sum of their squares."""
    return -0.5 * (squares / variance + count * jnp.log(2 * jnp.pi * variance))
