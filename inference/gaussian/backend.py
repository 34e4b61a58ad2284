"""`GaussianBackend`: a kind of message from rewards, and a representation of the levels above actions."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ...models import Hierarchy
from ...models.messages import short
from ..backend import Backend, Posterior
from ..observation import PADDING, as_context, can_be_used, many_observations, one_observation
from ..progress import reported
from ..status import Status, Trouble
from . import action_blocks
from .drift import advance, as_rounds, drifts_above
from .forgetting import as_factor, forget
from .levels import Levels
from .linear_model import ActionModel
from .messages import GaussianState, RewardMessages, Seen

__all__ = ["GaussianBackend"]


class GaussianBackend(Backend[GaussianState]):
    """A backend whose actions are Gaussian given the levels above (Aouali et al. 2023, Proposition 2).

    Attributes:
        hierarchy: what it is the posterior of.
        messages: how rewards become Gaussian likelihoods.
        levels: how the posterior of the levels above the actions is represented.
    """

    hierarchy: eqx.AbstractVar[Hierarchy]
    messages: eqx.AbstractVar[RewardMessages]
    levels: eqx.AbstractVar[Levels]

    @property
    def model(self) -> ActionModel:
        """The actions given the levels above."""
        return self.levels.model

    @property
    def is_exact(self) -> bool:
        """Whether the posterior is exact, and has a log evidence."""
        return self.messages.is_exact and self.levels.is_exact

    @property
    def problem(self) -> Hierarchy:
        """What observations must fit: the hierarchy."""
        return self.hierarchy

    @reported
    def init(self, key: Array | None = None, *, room: int = 0) -> GaussianState:
        """The prior; no randomness is needed."""
        return self.messages.init(self.levels, room)

    @reported
    def update(
        self, state: GaussianState, context: Any, action: Any, reward: Any, exposure: Any = 1.0
    ) -> GaussianState:
        """One observation; no other action is touched. Gaussian rewards: rank one at every level."""
        seen = one_observation(self.hierarchy, context, action, reward, exposure)
        return _update(self, self.reserve(state, 1), *seen)

    @reported
    def condition(
        self,
        state: GaussianState,
        contexts: Any,
        actions: Any,
        rewards: Any,
        exposure: Any = None,
    ) -> GaussianState:
        """Many observations at once."""
        seen = many_observations(self.hierarchy, contexts, actions, rewards, exposure)
        state = self.reserve(state, len(seen.contexts))
        return _condition(self, state, *seen[:4])

    def forget(self, state: GaussianState, factor: Any) -> GaussianState:
        """The state in which everything seen so far counts `factor` times as much: see `forgetting`.

        Not where rewards are refitted at a mode. The log evidence becomes NaN: what is left is
        no longer the density of any rewards. A factor of one changes nothing, bit for bit; inside
        `jit` so does one outside (0, 1], which is counted as rejected.
        """
        if self.model.drifts:
            raise ValueError(
                f"forget: {short(self)} has levels that drift, which is how it follows a world that "
                "changes; declare them without drift to discount evidence instead"
            )
        if not self.messages.can_forget:
            raise ValueError(
                f"forget: {short(self)} keeps every reward and fits their likelihoods anew, so there are "
                "no sums to discount; use ExpectationPropagation, or where rewards are Gaussian "
                "ClosedForm, Factored, or Laplace on a hierarchy with a link"
            )
        return _forget(self, state, as_factor(factor))

    def advance(self, state: GaussianState, rounds: Any = 1.0) -> GaussianState:
        """The state so many rounds later: levels that drift are less certain (see `Level`, drift).

        `update` and `condition` take no time: rewards of one round come between two calls of this. Inside
        `jit` a number of rounds that is negative or no number passes no time, and is counted as rejected.
        """
        if not self.messages.can_forget:
            return super().advance(state, rounds)
        number = as_rounds(rounds)
        return _advance(self, state, number) if self.hierarchy.drifts else state

    def reserve(self, state: GaussianState, more: int) -> GaussianState:
        """The same state with room for `more` observations, where observations are kept.

        Outside `jit`, `update` and `condition` do this themselves; before a `lax.scan` over many
        updates do it once.
        """
        return self.messages.reserve(state, more)

    def sample(self, key: Array, state: GaussianState) -> dict[str, Float[Array, "size d"]]:
        """One joint draw, top to bottom (Eq. 4)."""
        return _sample(self, key, state)

    def sample_scores(self, key: Array, state: GaussianState, context: Any) -> Float[Array, " K"]:
        """`x' theta_i` of one joint draw, with one scalar normal per action."""
        return _sample_scores(self, key, state, as_context(self.hierarchy, context))

    def log_evidence(self, state: GaussianState) -> Array | None:
        """Log density of all observed rewards, where messages and levels lose nothing of it."""
        known = self.messages.has_evidence and self.levels.is_exact
        return state.log_evidence if known else None

    @reported
    def posterior(self, state: GaussianState) -> Posterior:
        """Marginal means and covariances of every level."""
        # Out of jit a dict comes in alphabetical order.
        names = [level.name for level in self.hierarchy.levels]
        mean, cov = ({name: part[name] for name in names} for part in _posterior(self, state))
        return Posterior(mean, cov, self.log_evidence(state), self, state)

    def status(self, state: GaussianState) -> Status:
        """Observations that were ignored, fits that failed, and numbers that are not finite."""
        info = state.info
        found = {Trouble.REJECTED: info.rejected, Trouble.NOT_FINITE: _broken(state)}
        if not self.is_exact:
            found |= {
                Trouble.UNCONVERGED: info.unconverged,
                Trouble.INDEFINITE: info.indefinite,
                Trouble.UNMOVED: info.unmoved,
            }
        return Status(found)

    def with_hierarchy(self, hierarchy: Hierarchy) -> "GaussianBackend":
        """The same backend for a hierarchy that differs in its actions alone."""
        why_not = self.messages.why_no_new_actions
        if why_not is not None:
            raise TypeError(
                f"{type(self).__name__} cannot take in new actions while it runs: {why_not}"
            )
        if drifts_above(self.hierarchy):
            raise TypeError(
                f"{type(self).__name__} cannot take in new actions where a level above them drifts: all "
                "vectors are kept jointly. Declare drift for the actions alone, or start anew"
            )
        return self.remade(hierarchy=hierarchy)


@jax.jit
def _update(
    backend: GaussianBackend,
    state: GaussianState,
    context: Array,
    action: Array,
    reward: Array,
    exposure: Array | None,
) -> GaussianState:
    seen = _seen(backend, context, action, reward, exposure)
    return backend.messages.update(backend.levels, state, seen)


@jax.jit
def _condition(
    backend: GaussianBackend,
    state: GaussianState,
    contexts: Array,
    actions: Array,
    rewards: Array,
    exposure: Array | None,
) -> GaussianState:
    seen = _seen(backend, contexts, actions, rewards, exposure)
    after = backend.messages.condition(backend.levels, state, seen)
    padding = jnp.sum(actions == PADDING, dtype=jnp.int32)
    return after._replace(info=after.info._replace(rejected=after.info.rejected - padding))


def _seen(
    backend: GaussianBackend, context: Array, action: Array, reward: Array, exposure: Array | None
) -> Seen:
    """Observations, blank where they cannot be used: the check inside `jit`."""
    K = backend.model.num_actions
    valid = can_be_used(context, action, reward, K, exposure)
    return Seen(
        jnp.where(valid[..., None], context, 0.0),
        jnp.where(valid, action, K),
        jnp.where(valid, reward, 0.0),
        valid,
        None if exposure is None else jnp.where(valid, exposure, 1.0),
    )


@jax.jit
def _broken(state: GaussianState) -> Array:
    """How many numbers of the posterior are not finite."""
    numbers = jax.tree.leaves((state.effects, state.actions))
    return sum((jnp.sum(~jnp.isfinite(leaf)) for leaf in numbers), jnp.zeros((), int))


@jax.jit
def _forget(
    backend: GaussianBackend, state: GaussianState, factor: Float[Array, ""]
) -> GaussianState:
    return forget(backend.levels, state, factor)


@jax.jit
def _advance(
    backend: GaussianBackend, state: GaussianState, rounds: Float[Array, ""]
) -> GaussianState:
    return advance(backend.hierarchy, backend.levels, state, rounds)


@jax.jit
def _sample(backend: GaussianBackend, key: Array, state: GaussianState) -> dict[str, Array]:
    key_above, key_actions = jax.random.split(key)
    above = backend.levels.draw(key_above, state.effects)
    theta = action_blocks.draw_actions(key_actions, backend.model, state.actions, above)
    return _declared(backend, above, theta)


@jax.jit
def _sample_scores(
    backend: GaussianBackend, key: Array, state: GaussianState, context: Array
) -> Array:
    key_above, key_actions = jax.random.split(key)
    above = backend.levels.draw(key_above, state.effects)
    columns = context[:, None] if context.ndim == 1 else context.T
    return action_blocks.draw_scores(key_actions, backend.model, state.actions, above, columns)


@jax.jit
def _posterior(
    backend: GaussianBackend, state: GaussianState
) -> tuple[dict[str, Array], dict[str, Array]]:
    levels, effects = backend.levels, state.effects
    above = levels.means(effects)
    mean = action_blocks.mean_actions(backend.model, state.actions, above)
    cov = levels.action_covariances(effects, state.actions)
    return _declared(backend, above, mean), _declared(backend, levels.covariances(effects), cov)


def _declared(backend: GaussianBackend, above: dict[str, Array], own: Array) -> dict[str, Array]:
    """By level name, the levels that the user declared, top to bottom."""
    values = above | {backend.hierarchy.actions.name: own}
    return {level.name: values[level.name] for level in backend.hierarchy.levels}
