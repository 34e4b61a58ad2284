"""`JointLevels`: all levels above the actions as one Gaussian vector `z`, `Q_t = N(mean, root root')`.

Aouali et al. 2023, Proposition 1, for any depth: `z` is every level above the actions, concatenated
(see `linear_model`). Exact, at O(N^2) a reward for N numbers in `z`.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ...models import Hierarchy
from ..random import standard_normal
from .action_blocks import Above, ActionState, Innovation
from .levels import Levels, Outcome
from .linear_model import ActionModel, GaussianVector, action_model, joint_prior, untie_actions
from .square_roots import add_compensated, exchange_rows, shrink_by_one

__all__ = ["JointEffects", "JointLevels", "joint_levels"]

# Rows of `Gamma` written out at a time, in numbers, when all actions are swept.
_SWEEP_NUMBERS = 4_000_000


class JointEffects(NamedTuple):
    """`N(mean, root root')`; `rounding` is what the last step of `root` lost, for the next to add.

    The root takes ever smaller steps, in float32 soon too small to register. Compensated summation
    keeps them: without it a million updates put the covariance off by 3e-3, with it by 3e-5.
    """

    mean: Float[Array, " N"]
    root: Float[Array, "N N"]
    rounding: Float[Array, "N N"]


class JointLevels(Levels):
    """The joint posterior of all levels above the actions.

    Attributes:
        model: the actions given `z`.
        prior: the joint prior of `z`.
    """

    model: ActionModel
    prior: GaussianVector

    @property
    def is_exact(self) -> bool:
        return True

    def before_data(self) -> JointEffects:
        return JointEffects(self.prior.mean, self.prior.root, jnp.zeros_like(self.prior.root))

    def absorb(
        self, effects: JointEffects, innovation: Innovation, actions: ActionState
    ) -> tuple[JointEffects, Outcome]:
        effects, log_density = self.absorb_row(effects, innovation)
        return effects, Outcome(log_density)

    def condition(
        self, effects: JointEffects, innovations: Innovation, actions: ActionState
    ) -> tuple[JointEffects, Outcome]:
        effects, log_density = self.absorb_rows(effects, innovations)
        return effects, Outcome(log_density)

    def absorb_row(
        self, effects: JointEffects, innovation: Innovation
    ) -> tuple[JointEffects, Float[Array, ""]]:
        """One innovation, at O(N^2); and the log density of its residual."""
        g = self.model.arrows.row_transposed(innovation.action, innovation.direction)
        step, covariance, total = shrink_by_one(effects.root, g, innovation.variance)
        residual = innovation.residual - g @ effects.mean
        mean = effects.mean + covariance * (residual / total)
        root, rounding = add_compensated(effects.root, effects.rounding, step)
        log_density = -0.5 * (jnp.log(jnp.abs(2 * jnp.pi * total)) + residual**2 / total)
        return JointEffects(mean, root, rounding), log_density

    def absorb_rows(
        self, effects: JointEffects, innovations: Innovation
    ) -> tuple[JointEffects, Float[Array, ""]]:
        """Many innovations one after the other; those of actions out of range have no log density.

        A gradient takes O(sqrt(n) N^2) memory for n of them: what is inside a chunk is computed again.
        """
        count, K = len(innovations.action), self.model.num_actions
        size = max(1, math.isqrt(count))
        chunks = -(-count // size)

        def in_chunks(part: Array, blank: float) -> Array:
            widths = [(0, chunks * size - count), *[(0, 0)] * (part.ndim - 1)]
            padded = jnp.pad(part, widths, constant_values=blank)
            return padded.reshape(chunks, size, *part.shape[1:])

        def one(effects: JointEffects, innovation: Innovation) -> tuple[JointEffects, Array]:
            effects, log_density = self.absorb_row(effects, innovation)
            return effects, jnp.where(innovation.action < K, log_density, 0.0)

        @jax.checkpoint
        def some(effects: JointEffects, chunk: Innovation) -> tuple[JointEffects, Array]:
            effects, log_densities = jax.lax.scan(one, effects, chunk)
            return effects, log_densities.sum()

        swept = Innovation(
            in_chunks(innovations.action, K),
            in_chunks(innovations.direction, 0.0),
            in_chunks(innovations.residual, 0.0),
            in_chunks(innovations.variance, 1.0),
        )
        effects, log_densities = jax.lax.scan(some, effects, swept)
        return effects, log_densities.sum()

    def exchange(self, effects: JointEffects, old: Innovation, new: Innovation) -> JointEffects:
        rows = (self._unit_rows(effects.mean, innovations) for innovations in (old, new))
        step, shift = exchange_rows(effects.root, *rows)
        root, rounding = add_compensated(effects.root, effects.rounding, step)
        return JointEffects(effects.mean + shift, root, rounding)

    def _unit_rows(
        self, mean: Float[Array, " N"], innovations: Innovation
    ) -> tuple[Float[Array, "c N"], Float[Array, " c"]]:
        """Innovations as rows of unit noise about `z`, and their residuals from its mean."""
        rows = jax.vmap(self.model.arrows.row_transposed)(innovations.action, innovations.direction)
        sd = jnp.sqrt(innovations.variance)
        return rows / sd[:, None], (innovations.residual - rows @ mean) / sd

    def means(self, effects: JointEffects) -> Above:
        return self.model.arrows.split(effects.mean)

    def draw(self, key: Array, effects: JointEffects) -> Above:
        noise = standard_normal(key, effects.mean.shape, effects.mean.dtype)
        return self.model.arrows.split(effects.mean + effects.root @ noise)

    def covariances(self, effects: JointEffects) -> dict[str, Float[Array, "_ d d"]]:
        covs, start, d = {}, 0, self.model.dim
        for name, size in self.model.arrows.layout:
            stop = start + size * d
            own = effects.root[start:stop].reshape(size, d, -1)
            covs[name] = jnp.einsum("kdn,ken->kde", own, own)
            start = stop
        return covs

    def location_root(self, effects: JointEffects, action: Array) -> Float[Array, "d N"]:
        return self.model.slope(action, self.means(effects)) @ effects.root

    def along(
        self, effects: JointEffects, action: Array, direction: Float[Array, " d"]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """At O(N^2)."""
        g = self.model.arrows.row_transposed(action, direction)
        w = g @ effects.root
        return g @ effects.mean, w @ w

    @property
    def chunk(self) -> int:
        return _chunk(self.model)


def joint_levels(hierarchy: Hierarchy) -> JointLevels:
    """The joint posterior of a hierarchy, as its two-level form has it."""
    untied = untie_actions(hierarchy)
    return JointLevels(action_model(untied), joint_prior(untied.levels[:-1], untied.dim))


def _chunk(model: ActionModel) -> int:
    """How many actions' rows of `Gamma` to write out at a time."""
    width = model.dim * max(model.arrows.num_above, 1)
    return max(1, min(model.num_actions, _SWEEP_NUMBERS // width))
