"""`Levels`: the interface of a representation of the posterior of the levels above the actions.

The second of three questions that a Gaussian backend answers; the first is `messages`. `z` stands for
all vectors above the actions. A representation conditions `z` on innovations, exchanges them for
others, and draws from it. Actions given `z` are in `action_blocks`.
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from . import action_blocks
from .action_blocks import Above, ActionState, Innovation
from .linear_model import ActionModel

__all__ = ["Levels", "Outcome"]


class Outcome(NamedTuple):
    """What conditioning on rewards gives besides the posterior.

    Attributes:
        log_density: of the rewards, where the representation is exact; else zero.
        unconverged: how many fits stopped before a mode was found.
        indefinite: how many found a curvature that is not positive definite, and replaced it.
        unmoved: how many did not move though the data call for it.
    """

    log_density: Array | float = 0.0
    unconverged: Array | int = 0
    indefinite: Array | int = 0
    unmoved: Array | int = 0


class Levels(eqx.Module):
    """A representation of the posterior of the levels above the actions.

    `effects` is the posterior of `z`, a `NamedTuple` of the representation's own.
    """

    model: eqx.AbstractVar[ActionModel]

    @property
    def is_exact(self) -> bool:
        """Whether nothing is lost, so that the log evidence is known."""
        return False

    @abstractmethod
    def before_data(self) -> Any:
        """`effects` of the prior."""

    @abstractmethod
    def absorb(
        self, effects: Any, innovation: Innovation, actions: ActionState
    ) -> tuple[Any, Outcome]:
        """After one reward, given the actions after it; and the log density of its residual."""

    def condition(
        self, effects: Any, innovations: Innovation, actions: ActionState
    ) -> tuple[Any, Outcome]:
        """After many rewards, given the actions after them: innovations have a leading axis.

        Those of actions out of range have no log density.
        """

        def one(effects: Any, innovation: Innovation) -> tuple[Any, Outcome]:
            effects, outcome = self.absorb(effects, innovation, actions)
            is_one = innovation.action < self.model.num_actions
            log_density = jnp.where(is_one, outcome.log_density, 0.0)
            return effects, outcome._replace(log_density=log_density)

        effects, outcomes = jax.lax.scan(one, effects, innovations)
        return effects, Outcome(*(jnp.sum(part) for part in outcomes))

    @abstractmethod
    def exchange(self, effects: Any, old: Innovation, new: Innovation) -> Any:
        """After the rows that one action had said, (d, ...), are replaced by others."""

    @abstractmethod
    def means(self, effects: Any) -> Above:
        """The posterior mean of each level above."""

    @abstractmethod
    def draw(self, key: Array, effects: Any) -> Above:
        """One joint draw of the levels above."""

    @abstractmethod
    def covariances(self, effects: Any) -> dict[str, Float[Array, "_ d d"]]:
        """Marginal covariances of the vectors of each level above."""

    @abstractmethod
    def location_root(self, effects: Any, action: Array) -> Float[Array, "d n"]:
        """A square root of the covariance of where an action is centred, `Gamma_a z`."""

    def location(self, effects: Any, action: Array) -> Float[Array, " d"]:
        """The mean of where an action is centred, `Gamma_a z`."""
        return self.model.arrows.row(action, self.means(effects))

    def along(
        self, effects: Any, action: Array, direction: Float[Array, " d"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The mean and the variance of where an action is centred, in one direction: `v' Gamma_a z`."""
        w = direction @ self.location_root(effects, action)
        return direction @ self.location(effects, action), w @ w

    def predictor(
        self, effects: Any, own: ActionState, action: Array, context: Float[Array, " d"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """The mean and the variance of `x' theta_a` of an action whose `ActionState` is `own` (d, 1)."""
        w = context @ own.root[:, :, 0]
        direction = own.followed_by_one(self.model, action, context)
        mean, variance = self.along(effects, action, direction)
        return context @ own.center[:, 0] + mean, w @ w + variance

    @property
    @abstractmethod
    def chunk(self) -> int:
        """For how many actions at a time `location_root` fits into memory."""

    def given_actions(self, effects: Any, actions: ActionState) -> tuple[Any, Outcome]:
        """The posterior of `z` given the state of all actions alone."""
        innovations = action_blocks.innovations_of(self.model, actions)
        return self.condition(self.before_data(), innovations, actions)

    def action_covariances(self, effects: Any, actions: ActionState) -> Float[Array, "K d d"]:
        """Marginal covariances of the actions (Aouali et al. 2023, Lemma 3).

        `S_i + (S_i Lambda_0 Gamma_i) Sigma_bar (S_i Lambda_0 Gamma_i)'`, as a square.
        """

        def one(action: Array) -> Float[Array, "d d"]:
            own = action_blocks.own_state(actions, action)
            root = self.marginal_root(effects, own, action)
            return root @ root.T

        actions_in_order = jnp.arange(self.model.num_actions)
        return jax.lax.map(one, actions_in_order, batch_size=self.chunk)

    def marginal(
        self, effects: Any, actions: ActionState, action: Array
    ) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
        """The mean of one action, whose `ActionState` is `actions` (d, 1), and a root, triangular."""
        root = self.marginal_root(effects, actions, action)
        return self.mean_of_one(effects, actions, action), jnp.linalg.qr(root.T, mode="r").T

    def marginal_root(self, effects: Any, own: ActionState, action: Array) -> Float[Array, "d n"]:
        """A square root of the covariance of one action, whose `ActionState` is `own` (d, 1)."""
        location = self.location_root(effects, action)
        follows = own.following_rows(self.model, action, location)
        return jnp.concatenate([own.root[:, :, 0], follows], axis=1)

    def mean_of_one(self, effects: Any, actions: ActionState, action: Array) -> Float[Array, " d"]:
        """`E[theta_a]` of one action, whose `ActionState` is `actions` (d, 1)."""
        xi = self.location(effects, action)[:, None]
        follows = actions.following_rows(self.model, action, xi)
        return actions.center[:, 0] + follows[:, 0]
