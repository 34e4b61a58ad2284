"""Reward families: the law of a reward given the predictor `u = x' theta`.

Each is an exponential family with mean function `f = A'` (Aouali et al. 2023,
Section 2.5): `log p(y | u) = (y u - A(u)) / phi + C(y)`, with dispersion `phi` equal
to `noise^2` for Gaussian rewards and to one for the others.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln

from .arrays import as_numbers, is_concrete
from .pytrees import register_declaration

__all__ = ["Bernoulli", "Gaussian", "Poisson", "Reward", "check_positive_law", "law_name"]


class Reward(ABC):
    """The law of a reward given its predictor; subclass it to add a family."""

    @abstractmethod
    def law(self, predictor: Array) -> dist.Distribution:
        """The distribution of rewards with the given predictors `x' theta`."""

    @abstractmethod
    def mean(self, predictor: Array) -> Array:
        """The mean function `f(u)`: what a policy maximises and regret is measured in."""


@dataclass(frozen=True, eq=False)
class Gaussian(Reward):
    """`Y ~ N(u, noise^2)`: the linear bandit. `noise` is a standard deviation.

    A NumPyro distribution in place of the number makes it unknown: a site `reward_noise`, learned.
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
        object.__setattr__(self, "noise", noise)

    @property
    def is_learned(self) -> bool:
        """Whether the noise is a distribution rather than a number."""
        return isinstance(self.noise, dist.Distribution)

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


register_declaration(Gaussian, arrays=("noise",), static=())


@dataclass(frozen=True, eq=False)
class Bernoulli(Reward):
    """`Y ~ Ber(1 / (1 + exp(-u)))`: the logistic bandit, clicks."""

    def law(self, predictor: Array) -> dist.Distribution:
        """`Ber(sigmoid(u))`."""
        return _BernoulliOfLogit(predictor)

    def mean(self, predictor: Array) -> Array:
        """`f(u) = 1 / (1 + exp(-u))`."""
        return jax.nn.sigmoid(predictor)


register_declaration(Bernoulli, arrays=(), static=())


class _BernoulliOfLogit(dist.BernoulliLogits):
    """`Ber(sigmoid(u))` with a log density that is smooth everywhere.

    NumPyro's own has a kink at `u = 0`, where its derivative is that of one side.
    """

    def log_prob(self, value: Any) -> Array:
        """`y u - log(1 + exp(u))`."""
        return value * self.logits - jax.nn.softplus(self.logits)


@dataclass(frozen=True, eq=False)
class Poisson(Reward):
    """`Y ~ Poisson(exp(u))`: counts."""

    def law(self, predictor: Array) -> dist.Distribution:
        """`Poisson(exp(u))`."""
        return _PoissonOfLogRate(predictor)

    def mean(self, predictor: Array) -> Array:
        """`f(u) = exp(u)`."""
        return jnp.exp(predictor)


register_declaration(Poisson, arrays=(), static=())


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


def law_name(law: dist.Distribution) -> str:
    """What a user would call a distribution that was expanded or made one event on the way."""
    while isinstance(law, dist.ExpandedDistribution | dist.Independent):
        law = law.base_dist
    return type(law).__name__


def check_positive_law(law: Any, shapes: list[tuple[int, ...]], what: str) -> None:
    """Refuse a law of standard deviations that could give a negative one or has another shape."""
    if law.shape() not in shapes:
        raise ValueError(
            f"{what}: the distribution has shape {law.shape()}; "
            f"expected {' or '.join(map(str, dict.fromkeys(shapes)))}"
        )
    below_zero = [-(10.0**power) for power in range(-6, 7)]
    with jax.ensure_compile_time_eval():
        inside = [law.support(jnp.full(law.shape(), value)) for value in below_zero]
    if any(is_concrete(answer) and np.asarray(answer).any() for answer in inside):
        raise ValueError(
            f"{what} ~ {law_name(law)} can be negative; a standard deviation needs a "
            "distribution on positive numbers, such as HalfNormal or HalfCauchy"
        )
