"""The guides of `Svi`: Gaussian laws of the vector of all unknowns, and how each climbs to its best."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float
from numpyro.distributions import Distribution, LowRankMultivariateNormal, Normal
from numpyro.optim import Adam

from .natural_gradient import RootNormal, climb, lower_bound

__all__ = ["RATES", "AdamGuide", "Guide", "GuideFactors", "NaturalGuide"]

# The guides by name, each with its learning rate.
RATES = {"full_rank": 0.5, "low_rank": 0.05, "mean_field": 0.05}

# The negative log joint density of the unknowns and what was seen.
Energy = Callable[[Float[Array, " N"]], Float[Array, ""]]


class GuideFactors(NamedTuple):
    """Any guide as `N(loc, diag(scale)^2 + factor factor')`."""

    loc: Float[Array, " N"]
    scale: Float[Array, " N"]
    factor: Float[Array, "N r"]

    def draw(self, key: Array) -> Float[Array, " N"]:
        """One draw of all unknowns."""
        key_own, key_shared = jax.random.split(key)
        own = self.scale * jax.random.normal(key_own, self.loc.shape)
        shared = self.factor @ jax.random.normal(key_shared, self.factor.shape[1:])
        return self.loc + own + shared


@dataclass(frozen=True)
class Guide(ABC):
    """A family of laws; a member of it is kept as its optimiser keeps it.

    Attributes:
        rate: the learning rate.
        particles: draws for a gradient.
    """

    rate: float
    particles: int

    @abstractmethod
    def start(self, key: Array, loc: Float[Array, " N"]) -> Any:
        """A narrow member around `loc`."""

    @abstractmethod
    def fit(
        self, begun: Any, energy: Energy, keys: Array, is_whole: bool
    ) -> tuple[Any, Float[Array, " steps"]]:
        """A step for each of the keys up the evidence lower bound; also its value at each of them.

        A whole fit comes to rest; the steps after one observation are to follow what is new in it.
        """

    @abstractmethod
    def factors(self, fit: Any) -> GuideFactors:
        """The member in the form that all guides share."""


@dataclass(frozen=True)
class NaturalGuide(Guide):
    """A full covariance, fitted by natural gradients; a member is a `RootNormal`."""

    def start(self, key: Array, loc: Float[Array, " N"]) -> RootNormal:
        """A narrow member around `loc`."""
        return RootNormal(loc, 0.3 * jnp.eye(loc.shape[0]))

    def fit(
        self, begun: RootNormal, energy: Energy, keys: Array, is_whole: bool
    ) -> tuple[RootNormal, Float[Array, " steps"]]:
        """Natural gradients, whose rate falls to a hundredth in a whole fit and else to a tenth."""
        steps, lowest = keys.shape[0], 0.01 if is_whole else 0.1
        rates = self.rate * lowest ** (jnp.arange(steps) / steps)

        def step(law: RootNormal, now: tuple[Array, Array]) -> tuple[RootNormal, Array]:
            key, rate = now
            noise = jax.random.normal(key, (self.particles, law.loc.shape[0]))
            energies, slopes = jax.vmap(jax.value_and_grad(energy))(law.loc + noise @ law.root.T)
            # One bad draw must not spoil the guide; a bad guide shows in the bound.
            return climb(law, noise, slopes, rate), lower_bound(law, noise, energies)

        return jax.lax.scan(step, begun, (keys, rates))

    def factors(self, fit: RootNormal) -> GuideFactors:
        """The member in the form that all guides share."""
        return GuideFactors(fit.loc, jnp.zeros_like(fit.loc), fit.root)


@dataclass(frozen=True)
class AdamGuide(Guide):
    """A diagonal and `rank` further directions, fitted by NumPyro's `Adam`, whose state a member is."""

    rank: int = 0

    def start(self, key: Array, loc: Float[Array, " N"]) -> Any:
        """A narrow member around `loc`."""
        size = loc.shape[0]
        parameters = {"loc": loc, "log_scale": jnp.full(size, jnp.log(0.3))}
        if self.rank:
            parameters["factor"] = 0.1 * jax.random.normal(key, (size, min(self.rank, size)))
        return self._optimiser(None).init(parameters)

    def fit(
        self, begun: Any, energy: Energy, keys: Array, is_whole: bool
    ) -> tuple[Any, Float[Array, " steps"]]:
        """Adam, begun anew in a whole fit and else going on from its moments."""
        optimiser = self._optimiser(keys.shape[0] if is_whole else None)
        if is_whole:
            begun = optimiser.init(optimiser.get_params(begun))

        def loss(parameters: dict[str, Array], key: Array) -> Array:
            law: Any = _law(parameters)
            fixed = _law(jax.lax.stop_gradient(parameters))
            unknowns = law.rsample(key, (self.particles,))
            return jnp.mean(jax.vmap(energy)(unknowns) + fixed.log_prob(unknowns))

        def step(state: Any, key: Array) -> tuple[Any, Array]:
            value, slope = jax.value_and_grad(loss)(optimiser.get_params(state), key)
            # One bad draw must not spoil the guide; a bad guide shows in the bound.
            good = jnp.isfinite(value)
            slope = jax.tree.map(
                lambda leaf: jnp.where(good & jnp.isfinite(leaf), leaf, 0.0), slope
            )
            return optimiser.update(slope, state), -value

        return jax.lax.scan(step, begun, keys)

    def factors(self, fit: Any) -> GuideFactors:
        """The member in the form that all guides share."""
        parameters = self._optimiser(None).get_params(fit)
        loc, scale = parameters["loc"], jnp.exp(parameters["log_scale"])
        factor = parameters.get("factor", jnp.zeros((loc.shape[0], 0)))
        return GuideFactors(loc, scale, factor * scale[:, None])

    def _optimiser(self, falling_over: int | None) -> Adam:
        """Adam with a step size that falls to a hundredth, or stays at a tenth."""

        def rate(step: Array) -> Array:
            if falling_over is None:
                return jnp.full((), 0.1 * self.rate)
            return self.rate * 0.01 ** (step / falling_over)

        return Adam(rate)


def _law(parameters: dict[str, Array]) -> Distribution:
    """The law that Adam fits."""
    loc, scale = parameters["loc"], jnp.exp(parameters["log_scale"])
    if "factor" in parameters:
        return LowRankMultivariateNormal(loc, parameters["factor"] * scale[:, None], scale**2)
    return Normal(loc, scale).to_event(1)
