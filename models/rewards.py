"""Reward families: the law of a reward given the predictor `u = x' theta`.

Each is an exponential family with mean function `f = A'` (Aouali et al. 2023,
Section 2.5): `log p(y | u) = (y u - A(u)) / phi + C(y)`, with dispersion `phi` equal
to `noise^2` for Gaussian rewards and to one for the others. Further families are in `reward_families`.

A row of data may stand for several elementary rewards: clicks out of impressions, counts over hours, the
mean of some ratings. How many there are, or for how long, is its exposure.
"""

import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln

from .arrays import as_numbers, is_concrete
from .declaration import Declaration
from .laws import check_positive_law, law_name
from .messages import short

__all__ = [
    "Bernoulli",
    "BinomialOfLogit",
    "Gaussian",
    "Poisson",
    "Reward",
    "is_one",
    "log_choose",
    "takes",
]

_NOISE_SITE = "reward_noise"


@lru_cache(maxsize=1024)
def takes(function: Callable[..., Any], argument: str) -> bool:
    """Whether a function has an argument of this name."""
    return argument in inspect.signature(function).parameters


def is_one(exposure: Any) -> bool:
    """Whether an exposure is that of one elementary reward, and written down as a plain number."""
    return exposure is None or (isinstance(exposure, int | float) and exposure == 1)


class Reward(Declaration):
    """The law of a reward given its predictor; subclass it to add a family.

    A family whose rows can stand for several elementary rewards takes a second argument,
    `law(self, predictor, exposure=1.0)`: their number, or for how long they were counted.

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
        """The mean function `f(u)` of one elementary reward: what a policy maximises."""

    @property
    def takes_exposure(self) -> bool:
        """Whether a row may stand for several rewards: `law` has an argument `exposure`."""
        return takes(type(self).law, "exposure")

    @property
    def counts_trials(self) -> bool:
        """Whether an exposure is a number of trials, and so a whole number."""
        return False

    @property
    def is_log_concave(self) -> bool:
        """Whether the log density is concave in the predictor, whatever the reward."""
        return False

    def law_of(self, predictor: Array, exposure: Any = None) -> dist.Distribution:
        """The distribution of rows with the given predictors and exposures.

        Without exposures each row is one elementary reward. A family that has no exposure refuses them.
        """
        if exposure is None:
            return self.law(predictor)
        self.check_takes_exposure()
        law: Callable[..., dist.Distribution] = self.law
        return law(predictor, exposure)

    def support(self, exposure: Any = None) -> Any:
        """What rewards may be, as a constraint of NumPyro's: a function of numbers."""
        return self.law_of(jnp.zeros(()), exposure).support

    def check_takes_exposure(self) -> None:
        """Refuse exposures where a row is one reward."""
        if not self.takes_exposure:
            raise ValueError(
                f"exposure: got one, and {short(self)} has none: a row is one reward; leave it out and "
                "give every reward a row of its own, or declare a family whose method is "
                "law(self, predictor, exposure=1.0)"
            )

    @property
    def unknowns(self) -> dict[str, dist.Distribution]:
        """Site name -> law of the numbers that are learned."""
        return {}

    @property
    def is_learned(self) -> bool:
        """Whether some of its numbers are distributions, to be learned."""
        return bool(self.unknowns)

    def given(self, values: Mapping[str, Any]) -> "Reward":
        """The family with known numbers in place of those that are learned."""
        return self


class Gaussian(Reward):
    """`Y ~ N(u, noise^2)`: the linear bandit. `noise` is a standard deviation.

    With an exposure `m`, `Y` is the mean of `m` rewards, `N(u, noise^2 / m)`.

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

    @property
    def is_log_concave(self) -> bool:
        """It is."""
        return True

    def law(self, predictor: Array, exposure: Any = 1.0) -> dist.Distribution:
        """`N(u, noise^2 / exposure)`."""
        scale = self.noise if is_one(exposure) else self.noise / jnp.sqrt(exposure)
        return dist.Normal(predictor, scale)

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

    With an exposure `m`, `Y` is the number of clicks out of `m` impressions.

    Example:
        >>> float(Bernoulli().mean(jnp.zeros(())))
        0.5
    """

    @property
    def counts_trials(self) -> bool:
        """An exposure is a number of impressions."""
        return True

    @property
    def is_log_concave(self) -> bool:
        """It is."""
        return True

    def law(self, predictor: Array, exposure: Any = 1.0) -> dist.Distribution:
        """`Binomial(exposure, sigmoid(u))`."""
        if is_one(exposure):
            return _BernoulliOfLogit(predictor)
        return BinomialOfLogit(predictor, exposure)

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


class BinomialOfLogit(dist.BinomialLogits):
    """`Binomial(n, sigmoid(u))` with a log density that is smooth everywhere, and stable far out."""

    def log_prob(self, value: Any) -> Array:
        """`y log sigmoid(u) + (n - y) log sigmoid(-u) + log C(n, y)`."""
        n, u = self.total_count, jnp.asarray(self.logits)
        successes, failures = value * jax.nn.softplus(-u), (n - value) * jax.nn.softplus(u)
        return log_choose(n, value) - successes - failures

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        """NumPyro's own draws need whole numbers of trials by their type."""
        whole = jnp.asarray(self.total_count).astype(int)
        return dist.BinomialLogits(self.logits, whole).sample(key, sample_shape)


def log_choose(n: Any, y: Any) -> Array:
    """The logarithm of the binomial coefficient `C(n, y)`."""
    return gammaln(n + 1.0) - gammaln(y + 1.0) - gammaln(n - y + 1.0)


class Poisson(Reward):
    """`Y ~ Poisson(exp(u))`: counts.

    With an exposure `t`, `Y` counts over a time `t`: `Poisson(t exp(u))`.

    Example:
        >>> float(Poisson().mean(jnp.zeros(())))
        1.0
    """

    @property
    def is_log_concave(self) -> bool:
        """It is."""
        return True

    def law(self, predictor: Array, exposure: Any = 1.0) -> dist.Distribution:
        """`Poisson(exposure exp(u))`."""
        if is_one(exposure):
            return _PoissonOfLogRate(predictor)
        return _PoissonOfLogRate(predictor + jnp.log(exposure))

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
