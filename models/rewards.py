"""Reward families: the law of a reward given the predictor `u = x' theta`.

Each is an exponential family with mean function `f = A'` (Aouali et al. 2023,
Section 2.5): `log p(y | u) = (y u - A(u)) / phi + C(y)`, with dispersion `phi` equal
to `noise^2` for Gaussian rewards and to one for the others.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln

from .arrays import as_numbers, is_concrete
from .declaration import Declaration
from .laws import check_positive_law, law_name

__all__ = ["Bernoulli", "Gaussian", "Poisson", "Reward"]

_NOISE_SITE = "reward_noise"


class Reward(Declaration):
    """The law of a reward given its predictor; subclass it to add a family.

    Example:
        >>> class WaitingTime(Reward):
        ...     def law(self, predictor):
        ...         return dist.Exponential(jnp.exp(-predictor))
        ...     def mean(self, predictor):
        ...         return jnp.exp(predictor)
        >>> float(WaitingTime().mean(0.0))
        1.0
    """

    @abstractmethod
    def law(self, predictor: Array) -> dist.Distribution:
        """The distribution of rewards with the given predictors `x' theta`."""

    @abstractmethod
    def mean(self, predictor: Array) -> Array:
        """The mean function `f(u)`: what a policy maximises and regret is measured in."""

    @property
    def unknowns(self) -> dict[str, dist.Distribution]:
        """Site name -> law of the numbers that are learned."""
        return {}

    def given(self, values: Mapping[str, Any]) -> "Reward":
        """The family with known numbers in place of those that are learned."""
        return self


class Gaussian(Reward):
    """`Y ~ N(u, noise^2)`: the linear bandit. `noise` is a standard deviation.

    A NumPyro distribution in place of the number makes it unknown: a site `reward_noise`, learned.

    Example:
        >>> Gaussian(0.5), Gaussian(dist.HalfNormal(1.0))
        (Gaussian(noise=0.5), Gaussian(noise ~ HalfNormal))
    """

    noise: Any = 1.0

    def __post_init__(self):
        if isinstance(self.noise, dist.Distribution):
            check_positive_law(self.noise, [()], "Gaussian noise")
            return
        noise = as_numbers(self.noise, "Gaussian noise")
        if noise.ndim != 0:
            raise ValueError(
                f"Gaussian noise has shape {noise.shape}; expected one number, the standard "
                "deviation of every reward (rescale contexts and rewards for unequal noise)"
            )
        if is_concrete(noise) and float(noise) <= 0:
            raise ValueError(
                f"Gaussian noise is {float(noise):g}; expected a positive standard deviation"
            )
        self.noise = noise

    @property
    def is_learned(self) -> bool:
        """Whether the noise is a distribution rather than a number."""
        return isinstance(self.noise, dist.Distribution)

    @property
    def unknowns(self) -> dict[str, dist.Distribution]:
        """The law of the noise, if it is learned."""
        return {_NOISE_SITE: self.noise} if self.is_learned else {}

    def given(self, values: Mapping[str, Any]) -> "Gaussian":
        """Rewards with a known noise."""
        return Gaussian(values[_NOISE_SITE]) if self.is_learned else self

    def law(self, predictor: Array) -> dist.Distribution:
        """`N(u, noise^2)`."""
        return dist.Normal(predictor, self.noise)

    def mean(self, predictor: Array) -> Array:
        """`f(u) = u`."""
        return predictor

    def __repr__(self) -> str:
        if self.is_learned:
            return f"Gaussian(noise ~ {law_name(self.noise)})"
        known = isinstance(self.noise, Array) and self.noise.ndim == 0 and is_concrete(self.noise)
        return f"Gaussian(noise={float(self.noise):g})" if known else "Gaussian()"


class Bernoulli(Reward):
    """`Y ~ Ber(1 / (1 + exp(-u)))`: the logistic bandit, clicks.

    Example:
        >>> float(Bernoulli().mean(jnp.zeros(())))
        0.5
    """

    def law(self, predictor: Array) -> dist.Distribution:
        """`Ber(sigmoid(u))`."""
        return _BernoulliOfLogit(predictor)

    def mean(self, predictor: Array) -> Array:
        """`f(u) = 1 / (1 + exp(-u))`."""
        return jax.nn.sigmoid(predictor)


class _BernoulliOfLogit(dist.BernoulliLogits):
    """`Ber(sigmoid(u))` with a log density that is smooth everywhere.

    NumPyro's own has a kink at `u = 0`, where its derivative is that of one side.
    """

    def log_prob(self, value: Any) -> Array:
        """`y u - log(1 + exp(u))`."""
        return value * self.logits - jax.nn.softplus(self.logits)


class Poisson(Reward):
    """`Y ~ Poisson(exp(u))`: counts.

    Example:
        >>> float(Poisson().mean(jnp.zeros(())))
        1.0
    """

    def law(self, predictor: Array) -> dist.Distribution:
        """`Poisson(exp(u))`."""
        return _PoissonOfLogRate(predictor)

    def mean(self, predictor: Array) -> Array:
        """`f(u) = exp(u)`."""
        return jnp.exp(predictor)


class _PoissonOfLogRate(dist.Poisson):
    """`Poisson(exp(u))` with a log density in `u`, not in the rate.

    Through the rate, its second derivative is a NaN in float32 from `u = -44` down.
    """

    pytree_data_fields = ("log_rate",)

    def __init__(self, log_rate: Array):
        self.log_rate = log_rate
        super().__init__(jnp.exp(log_rate))

    def log_prob(self, value: Any) -> Array:
        """`y u - exp(u) - log y!`."""
        return value * self.log_rate - self.rate - gammaln(value + 1.0)
