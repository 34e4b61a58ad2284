"""The guides of `Svi`: Gaussian laws of the vector of all unknowns, each with its optimiser.

`start` gives the optimiser's state for a narrow guide around a location; `fit` makes a step up the
evidence lower bound for each of its keys, and gives the bound at each; `factors` is the guide in the form
that all share. A batch is fitted until the guide converges; the steps after one observation only follow
what is new.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float
from numpyro.distributions import Distribution, LowRankMultivariateNormal, Normal
from numpyro.optim import Adam

from .natural_gradient import RootNormal, climb, lower_bound

__all__ = ["RATES", "AdamGuide", "GuideFactors", "NaturalGuide"]

# The guides by name, each with its learning rate.
RATES = {"full_rank": 0.5, "low_rank": 0.05, "mean_field": 0.05}

# The negative log joint density of the unknowns and the observations.
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


class NaturalGuide(NamedTuple):
    """A full covariance, fitted by natural gradients from `particles` draws each."""

    rate: float
    particles: int

    def start(self, key: Array, loc: Float[Array, " N"]) -> RootNormal:
        """A narrow guide around `loc`."""
        return RootNormal(loc, 0.3 * jnp.eye(loc.shape[0]))

    def fit(
        self, fit: RootNormal, energy: Energy, keys: Array, is_batch: bool
    ) -> tuple[RootNormal, Float[Array, " steps"]]:
        """Natural gradients, whose rate falls to a hundredth for a batch and else to a tenth."""
        steps, lowest = keys.shape[0], 0.01 if is_batch else 0.1
        rates = self.rate * lowest ** (jnp.arange(steps) / steps)

        def step(law: RootNormal, now: tuple[Array, Array]) -> tuple[RootNormal, Array]:
            key, rate = now
            noise = jax.random.normal(key, (self.particles, law.loc.shape[0]))
            energies, slopes = jax.vmap(jax.value_and_grad(energy))(law.loc + noise @ law.root.T)
            # One bad draw must not spoil the guide; a bad guide shows in the bound.
            return climb(law, noise, slopes, rate), lower_bound(law, noise, energies)

        return jax.lax.scan(step, fit, (keys, rates))

    def factors(self, fit: RootNormal) -> GuideFactors:
        """The guide in the form that all share."""
        return GuideFactors(fit.loc, jnp.zeros_like(fit.loc), fit.root)


class AdamGuide(NamedTuple):
    """A diagonal and `rank` further directions, fitted by NumPyro's `Adam` from `particles` draws each."""

    rate: float
    particles: int
    rank: int = 0

    def start(self, key: Array, loc: Float[Array, " N"]) -> Any:
        """A narrow guide around `loc`."""
        size = loc.shape[0]
        parameters = {"loc": loc, "log_scale": jnp.full(size, jnp.log(0.3))}
        if self.rank:
            parameters["factor"] = 0.1 * jax.random.normal(key, (size, min(self.rank, size)))
        return self._optimiser(None).init(parameters)

    def fit(
        self, fit: Any, energy: Energy, keys: Array, is_batch: bool
    ) -> tuple[Any, Float[Array, " steps"]]:
        """Adam, started anew for a batch and else continued with its moments."""
        optimiser = self._optimiser(keys.shape[0] if is_batch else None)
        if is_batch:
            fit = optimiser.init(optimiser.get_params(fit))

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

        return jax.lax.scan(step, fit, keys)

    def factors(self, fit: Any) -> GuideFactors:
        """The guide in the form that all share."""
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
