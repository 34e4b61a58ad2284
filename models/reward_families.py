"""Further reward families: trials, overdispersed counts, outliers, probit clicks and ordered ratings.

Log densities are written in the predictor, so that they and their first two derivatives are finite in
float32 wherever a predictor may get to.
"""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln, ndtr
from jaxtyping import Float
from numpyro.distributions import constraints

from .arrays import as_count, as_numbers, as_positive, is_concrete, is_known
from .laws import as_one_event, check_parameters, law_name
from .messages import short
from .normal_tail import log_difference, log_ndtr
from .rewards import BinomialOfLogit, Reward, is_one, log_choose

__all__ = ["Binomial", "NegativeBinomial", "Ordinal", "Probit", "StudentT"]

_CUTPOINTS_SITE = "reward_cutpoints"


class Binomial(Reward):
    """`Y ~ Binomial(trials, 1 / (1 + exp(-u)))`: successes out of a known number of trials.

    Every reward has as many trials; where the number differs from row to row, give it as the exposure
    of `Bernoulli` rewards. With an exposure `m`, `Y` is the sum of `m` rewards.

    Example:
        >>> Binomial(10), float(Binomial(10).mean(jnp.zeros(())))
        (Binomial(trials=10), 5.0)
    """

    trials: Any = eqx.field(static=True)

    def __post_init__(self):
        self.trials = as_count(self.trials, "Binomial trials")

    @property
    def counts_trials(self) -> bool:
        """An exposure is a number of rewards."""
        return True

    @property
    def is_log_concave(self) -> bool:
        """It is."""
        return True

    def law(self, predictor: Array, exposure: Any = 1.0) -> dist.Distribution:
        """`Binomial(exposure trials, sigmoid(u))`."""
        count = self.trials if is_one(exposure) else self.trials * exposure
        return BinomialOfLogit(predictor, count)

    def mean(self, predictor: Array) -> Array:
        """`f(u) = trials / (1 + exp(-u))`."""
        return self.trials * jax.nn.sigmoid(predictor)


class NegativeBinomial(Reward):
    """Counts with mean `exp(u)` and variance `exp(u) + exp(2 u) / concentration`: more than Poisson's.

    The smaller the concentration, the more they vary. With an exposure `t`, `Y` is the sum of as many
    such counts: mean `t exp(u)` and concentration `t concentration`.

    Example:
        >>> family = NegativeBinomial(2.0)
        >>> family, float(family.law(jnp.zeros(())).variance)
        (NegativeBinomial(concentration=2), 1.5)
    """

    concentration: Any

    def __post_init__(self):
        self.concentration = as_positive(self.concentration, "NegativeBinomial concentration")

    @property
    def is_log_concave(self) -> bool:
        """It is."""
        return True

    def law(self, predictor: Array, exposure: Any = 1.0) -> dist.Distribution:
        """The distribution of counts with mean `exposure exp(u)`."""
        total = self.concentration if is_one(exposure) else self.concentration * exposure
        return _NegativeBinomialOfLogit(total, predictor - jnp.log(self.concentration))

    def mean(self, predictor: Array) -> Array:
        """`f(u) = exp(u)`."""
        return jnp.exp(predictor)

    def __repr__(self) -> str:
        return f"NegativeBinomial({_number(self, 'concentration')})"


class _NegativeBinomialOfLogit(dist.NegativeBinomialLogits):
    """Failures before `r` successes, with a log density that is stable far out."""

    def log_prob(self, value: Any) -> Array:
        """`y log sigmoid(v) + r log sigmoid(-v) + log Gamma(y + r) / (Gamma(r) y!)`."""
        r, v = jnp.asarray(self.total_count), jnp.asarray(self.logits)
        ways = gammaln(value + r) - gammaln(r) - gammaln(value + 1.0)
        return ways - value * jax.nn.softplus(-v) - r * jax.nn.softplus(v)


class StudentT(Reward):
    """`Y = u + scale t`, with `t` of Student's law: ratings and prices with outliers.

    The fewer the degrees of freedom, the heavier the tails; there are more than one, so that the mean
    exists. The log density is not concave: a reward far off counts the less, the farther off it is,
    and a posterior may have several modes.

    Example:
        >>> StudentT(df=4.0, scale=0.5)
        StudentT(df=4, scale=0.5)
    """

    df: Any
    scale: Any = 1.0

    def __post_init__(self):
        self.df = as_positive(self.df, "StudentT df")
        if is_concrete(self.df) and float(self.df) <= 1:
            raise ValueError(
                f"StudentT df is {float(self.df):g}; expected more than 1, where rewards have a mean to "
                "maximise"
            )
        self.scale = as_positive(self.scale, "StudentT scale")

    def law(self, predictor: Array) -> dist.Distribution:
        """Student's law around `u`."""
        return dist.StudentT(self.df, predictor, self.scale)

    def mean(self, predictor: Array) -> Array:
        """`f(u) = u`."""
        return predictor

    def __repr__(self) -> str:
        return f"StudentT({_number(self, 'df')}, {_number(self, 'scale')})"


class Probit(Reward):
    """`Y ~ Ber(Phi(u))`: clicks, with the normal distribution function in place of the logistic one.

    With an exposure `m`, `Y` is the number of clicks out of `m` impressions.

    Example:
        >>> float(Probit().mean(jnp.zeros(())))
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
        """`Binomial(exposure, Phi(u))`."""
        if is_one(exposure):
            return _BernoulliOfProbit(predictor)
        return _BinomialOfProbit(predictor, exposure)

    def mean(self, predictor: Array) -> Array:
        """`f(u) = Phi(u)`."""
        return ndtr(predictor)


class _BernoulliOfProbit(dist.BernoulliProbs):
    """`Ber(Phi(u))` with a log density in `u`."""

    pytree_data_fields = ("predictor",)

    def __init__(self, predictor: Array):
        self.predictor = predictor
        super().__init__(ndtr(predictor))

    def log_prob(self, value: Any) -> Array:
        """`y log Phi(u) + (1 - y) log Phi(-u)`."""
        return value * log_ndtr(self.predictor) + (1.0 - value) * log_ndtr(-self.predictor)


class _BinomialOfProbit(dist.BinomialProbs):
    """`Binomial(n, Phi(u))` with a log density in `u`."""

    pytree_data_fields = ("predictor",)

    def __init__(self, predictor: Array, total_count: Any):
        self.predictor = predictor
        super().__init__(ndtr(predictor), total_count)

    def log_prob(self, value: Any) -> Array:
        """`y log Phi(u) + (n - y) log Phi(-u) + log C(n, y)`."""
        n, u = self.total_count, self.predictor
        hits, misses = value * log_ndtr(u), (n - value) * log_ndtr(-u)
        return log_choose(n, value) + hits + misses

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any:
        """NumPyro's own draws need whole numbers of trials by their type."""
        whole = jnp.asarray(self.total_count).astype(int)
        return dist.BinomialProbs(self.probs, whole).sample(key, sample_shape)


class Ordinal(Reward):
    """Ordered ratings 1, 2, ..., C, such as stars: `P(Y > k) = F(u - cutpoints[k - 1])`.

    The cut points are where, on the scale of the predictor, one rating turns into the next; there are
    C - 1 of them, increasing. `F` is logistic or, with `link="probit"`, normal. A NumPyro distribution of
    increasing vectors in their place makes them unknown: a site `reward_cutpoints`, learned. What a
    policy maximises is the expected rating.

    Example:
        >>> stars = Ordinal([-2.0, -1.0, 0.0, 1.5])
        >>> stars, round(float(stars.mean(jnp.zeros(()))), 3)
        (Ordinal(5 ratings, link='logit'), 3.294)
        >>> spread = dist.Normal(0.0, 2.0).expand([4]).to_event(1)
        >>> Ordinal(dist.TransformedDistribution(spread, dist.transforms.OrderedTransform()))
        Ordinal(5 ratings, cutpoints ~ TransformedDistribution, link='logit')
    """

    cutpoints: Any
    link: str = eqx.field(default="logit", static=True)

    def __post_init__(self):
        if self.link not in ("logit", "probit"):
            raise ValueError(f"Ordinal link is {short(self.link)}; expected 'logit' or 'probit'")
        if isinstance(self.cutpoints, dist.Distribution):
            self.cutpoints = _ordered_law(self.cutpoints)
            return
        cuts = as_numbers(self.cutpoints, "Ordinal cutpoints")
        if cuts.ndim != 1 or not cuts.size:
            raise ValueError(
                f"Ordinal cutpoints have shape {cuts.shape}; expected (C - 1,), one between each two "
                "neighbouring ratings of C"
            )
        if is_concrete(cuts) and not (np.diff(cuts) > 0).all():
            raise ValueError(
                f"Ordinal cutpoints are {np.asarray(cuts)}; expected numbers that increase"
            )
        self.cutpoints = cuts

    @property
    def is_learned(self) -> bool:
        """Whether the cut points are a distribution rather than numbers."""
        return isinstance(self.cutpoints, dist.Distribution)

    @property
    def is_log_concave(self) -> bool:
        """It is, for both links."""
        return True

    @property
    def num_ratings(self) -> int:
        """`C`."""
        cuts = self.cutpoints
        return (cuts.shape() if self.is_learned else cuts.shape)[-1] + 1

    @property
    def unknowns(self) -> dict[str, dist.Distribution]:
        """The law of the cut points, if they are learned."""
        return {_CUTPOINTS_SITE: self.cutpoints} if self.is_learned else {}

    def given(self, values: Mapping[str, Any]) -> "Ordinal":
        """Ratings with known cut points."""
        return Ordinal(values[_CUTPOINTS_SITE], self.link) if self.is_learned else self

    def support(self, exposure: Any = None) -> Any:
        """The whole numbers from 1 to C."""
        return constraints.integer_interval(1, self.num_ratings)

    def law(self, predictor: Array) -> dist.Distribution:
        """The distribution of ratings."""
        if self.is_learned:
            raise ValueError(
                f"{self!r} has no law until its cut points are known: hand in given({{'"
                f"{_CUTPOINTS_SITE}': numbers}}), or declare it with numbers"
            )
        return _OrdinalOf(predictor, self.cutpoints, self.link)

    def mean(self, predictor: Array) -> Array:
        """The expected rating, `1 + sum_k F(u - cutpoints[k])`."""
        return jnp.asarray(self.law(predictor).mean)

    def __repr__(self) -> str:
        if not self.is_learned and not is_known(self.cutpoints, 1):
            return f"Ordinal(link={self.link!r})"
        learned = f", cutpoints ~ {law_name(self.cutpoints)}" if self.is_learned else ""
        return f"Ordinal({self.num_ratings} ratings{learned}, link={self.link!r})"


class _OrdinalOf(dist.Distribution):
    """Ratings 1 to C with a given predictor and cut points."""

    arg_constraints = {  # noqa: RUF012 (as NumPyro declares it)
        "predictor": constraints.real,
        "cutpoints": constraints.ordered_vector,
    }
    pytree_aux_fields = ("link",)

    def __init__(self, predictor: Any, cutpoints: Any, link: str):
        self.predictor, self.cutpoints, self.link = predictor, cutpoints, link
        super().__init__(batch_shape=jnp.shape(predictor))

    @constraints.dependent_property(is_discrete=True, event_dim=0)  # pyright: ignore
    def support(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The whole numbers from 1 to C."""
        return constraints.integer_interval(1, self.cutpoints.shape[-1] + 1)

    def log_prob(self, value: Any, intermediates: Any = None) -> Array:
        """`log(F(cut_y - u) - F(cut_{y-1} - u))`; a number that is no rating counts as the nearest."""
        cuts, u = self.cutpoints, self.predictor
        last = cuts.shape[-1] + 1
        y = jnp.clip(jnp.round(jnp.asarray(value)), 1, last).astype(int)
        is_first, is_last = y == 1, y == last
        upper, lower = cuts[jnp.minimum(y, last - 1) - 1], cuts[jnp.maximum(y, 2) - 2]
        is_inner = ~is_first & ~is_last
        below = jnp.where(
            is_inner, lower, upper - 1.0
        )  # a gap that is not zero, where none is needed
        if self.link == "probit":
            ends = jnp.where(is_first, log_ndtr(upper - u), log_ndtr(u - lower))
            return jnp.where(is_inner, log_difference(upper - u, below - u), ends)
        # F(a) - F(b) = F(a) F(-b) (1 - exp(b - a)), whose last factor does not depend on the predictor.
        gap = jnp.where(is_inner, jnp.log(-jnp.expm1(below - upper)), 0.0)
        gap -= jnp.where(is_last, 0.0, jax.nn.softplus(u - upper))
        return gap - jnp.where(is_first, 0.0, jax.nn.softplus(lower - u))

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Array:
        """How many cut points the predictor exceeds with noise of the link's law, and one."""
        shape = self.shape(sample_shape)
        draw = jax.random.normal if self.link == "probit" else jax.random.logistic
        noisy = self.predictor + draw(key, shape, jnp.result_type(float))
        return 1 + jnp.sum(noisy[..., None] > self.cutpoints, axis=-1)

    def _exceeds(self) -> Float[Array, "*n C"]:
        """`P(Y > k)` for k = 1, ..., C - 1."""
        function = ndtr if self.link == "probit" else jax.nn.sigmoid
        return function(jnp.asarray(self.predictor)[..., None] - self.cutpoints)

    @property
    def mean(self) -> Array:
        """`1 + sum_k P(Y > k)`."""
        return 1.0 + self._exceeds().sum(-1)

    @property
    def variance(self) -> Array:
        """`E Y^2 - (E Y)^2`, where `Y^2 = 1 + sum_k (2 k + 1) [Y > k]`."""
        weights = 2 * jnp.arange(1, self.cutpoints.shape[-1] + 1) + 1
        return 1.0 + (weights * self._exceeds()).sum(-1) - jnp.square(self.mean)


def _ordered_law(law: dist.Distribution) -> dist.Distribution:
    """A law of cut points as one event, refused if they need not increase."""
    what = "Ordinal cutpoints"
    if len(law.shape()) != 1:
        raise ValueError(f"{what}: the distribution has shape {law.shape()}; expected (C - 1,)")
    check_parameters(law, what)
    if not is_concrete(law):
        return as_one_event(law, [law.shape()], what)
    with jax.ensure_compile_time_eval():
        drawn = np.asarray(law.sample(jax.random.key(0), (16,)))
    if not (np.diff(drawn) > 0).all():
        raise ValueError(
            f"{what} ~ {law_name(law)} need not increase; expected increasing vectors, such as "
            "TransformedDistribution(Normal(0, 2).expand([C - 1]).to_event(1), OrderedTransform())"
        )
    return as_one_event(law, [law.shape()], what)


def _number(family: Reward, name: str) -> str:
    """A parameter as a user wrote it, where it is known."""
    value = getattr(family, name)
    return f"{name}={float(value):g}" if is_known(value, 0) else name
