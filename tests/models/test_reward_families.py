"""Further reward families: their laws against SciPy's, their tails, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.special
import scipy.stats
from numpyro.distributions.transforms import OrderedTransform
from numpyro.infer.util import log_density

from mixts.models import (
    Bernoulli,
    Binomial,
    Data,
    Gaussian,
    Hierarchy,
    Level,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Probit,
    Reward,
    StudentT,
)
from mixts.models.normal_tail import log_difference, log_ndtr
from tolerance import tolerance

PREDICTORS = np.array([-3.0, -0.5, 0.0, 0.4, 2.0])
CUTS = np.array([-1.5, -0.2, 0.4, 2.0])


def ordinal_pmf(distribution):
    def pmf(y, u, m):
        edges = np.concatenate([[-np.inf], CUTS, [np.inf]])
        y = np.asarray(y, int)
        return np.log(distribution(edges[y] - u) - distribution(edges[y - 1] - u))

    return pmf


def logistic_cut():
    normal = dist.Normal(0.0, 2.0).expand([4]).to_event(1)
    return dist.TransformedDistribution(normal, OrderedTransform())


# How a family is declared, some rewards, and its log density in SciPy with an exposure.
FAMILIES = {
    "gaussian": (
        lambda: Gaussian(0.7),
        [-1.0, 2.0],
        lambda y, u, m: scipy.stats.norm.logpdf(y, u, 0.7 / np.sqrt(m)),
    ),
    "bernoulli": (
        Bernoulli,
        [0.0, 1.0],
        lambda y, u, m: scipy.stats.binom.logpmf(y, m, scipy.special.expit(u)),
    ),
    "poisson": (
        Poisson,
        [0.0, 3.0],
        lambda y, u, m: scipy.stats.poisson.logpmf(y, m * np.exp(u)),
    ),
    "binomial": (
        lambda: Binomial(6),
        [0.0, 2.0, 6.0],
        lambda y, u, m: scipy.stats.binom.logpmf(y, 6 * m, scipy.special.expit(u)),
    ),
    "negative binomial": (
        lambda: NegativeBinomial(1.7),
        [0.0, 1.0, 8.0],
        lambda y, u, m: scipy.stats.nbinom.logpmf(y, 1.7 * m, 1.7 / (1.7 + np.exp(u))),
    ),
    "probit": (
        Probit,
        [0.0, 1.0],
        lambda y, u, m: scipy.stats.binom.logpmf(y, m, scipy.stats.norm.cdf(u)),
    ),
    "student": (
        lambda: StudentT(3.0, 0.4),
        [-5.0, 0.3],
        lambda y, u, m: scipy.stats.t.logpdf(y, 3.0, u, 0.4),
    ),
    "stars": (lambda: Ordinal(CUTS), [1.0, 2.0, 4.0, 5.0], ordinal_pmf(scipy.special.expit)),
    "probit stars": (
        lambda: Ordinal(CUTS, link="probit"),
        [1.0, 2.0, 4.0, 5.0],
        ordinal_pmf(scipy.stats.norm.cdf),
    ),
}
COUNTED = {"bernoulli", "probit", "binomial"}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_law_is_scipys(precision, name):
    declare, rewards, expected = FAMILIES[name]
    family, u = declare(), jnp.asarray(PREDICTORS)
    for y in rewards:
        found = family.law(u).log_prob(jnp.asarray(y))
        np.testing.assert_allclose(found, expected(y, PREDICTORS, 1.0), **tolerance(loosen=10))
    exposures = [1.0, 3.0] if name in COUNTED else [0.5, 4.0]
    for m in exposures if family.takes_exposure else []:
        for y in rewards:
            if name in COUNTED and y > m * (6 if name == "binomial" else 1):
                continue
            found = family.law_of(u, jnp.full(u.shape, m)).log_prob(jnp.asarray(y))
            np.testing.assert_allclose(found, expected(y, PREDICTORS, m), **tolerance(loosen=10))


@pytest.mark.parametrize("name", FAMILIES)
def test_the_mean_is_that_of_the_law_and_increases(precision, name):
    family = FAMILIES[name][0]()
    u = jnp.asarray(np.linspace(-4, 4, 50))
    mean = np.asarray(family.mean(u))
    np.testing.assert_allclose(mean, family.law(u).mean, **tolerance(loosen=10))
    assert (np.diff(mean) > 0).all()
    if family.takes_exposure and name != "gaussian":
        exposed = family.law_of(u, jnp.full(u.shape, 3.0)).mean
        np.testing.assert_allclose(exposed, 3 * mean, **tolerance(loosen=10))


@pytest.mark.parametrize("name", FAMILIES)
def test_draws_are_of_the_law(name):
    """Mean and variance of 20,000 draws, within five standard errors."""
    family, n = FAMILIES[name][0](), 20_000
    for exposure in (None, jnp.asarray(4.0)):
        if exposure is not None and not family.takes_exposure:
            continue
        law = family.law_of(jnp.asarray(0.4), exposure)
        drawn = np.asarray(law.sample(jax.random.key(0), (n,)), float)
        assert np.asarray(law.support(drawn)).all()
        mean, sd = float(law.mean), float(np.sqrt(law.variance))
        # Student's t with 3 degrees of freedom has no fourth moment: its variance is not compared.
        assert abs(drawn.mean() - mean) < 5 * sd / np.sqrt(n)
        if name != "student":
            spread = np.std((drawn - mean) ** 2) / np.sqrt(n)
            assert abs(drawn.var() - sd**2) < 5 * spread


FAR = {
    "binomial": [0.0, 3.0, 6.0],
    "negative binomial": [0.0, 4.0, 2000.0],
    "probit": [0.0, 1.0],
    "student": [-50.0, 0.0, 50.0],
    "stars": [1.0, 2.0, 3.0, 5.0],
    "probit stars": [1.0, 2.0, 3.0, 5.0],
    "bernoulli": [0.0, 1.0],
}


def curves(family, rewards, u, exposure=None):
    """The log density and two derivatives, for every reward (rows) and predictor (columns)."""

    def density(u, y):
        return family.law_of(u, exposure).log_prob(y)

    slope = jax.grad(density)
    together = [jax.vmap(f, (0, None)) for f in (density, slope, jax.grad(slope))]
    each = jax.jit(lambda u, y: jnp.stack([f(u, y) for f in together]))
    return np.stack([np.asarray(each(u, jnp.asarray(y, u.dtype))) for y in rewards], axis=1)


@pytest.mark.parametrize("name", FAR)
def test_tails_are_finite_in_float32(name):
    """For predictors up to a thousand."""
    family = FAMILIES[name][0]()
    far = np.concatenate([-np.logspace(3, -3, 200), [0.0], np.logspace(-3, 3, 200)])
    exposures = (None, jnp.asarray(7.0)) if family.takes_exposure else (None,)
    for exposure in exposures:
        assert np.isfinite(curves(family, FAR[name], jnp.asarray(far, jnp.float32), exposure)).all()


@pytest.mark.parametrize("name", FAR)
def test_tails_in_float32_are_those_of_float64(name):
    u = np.linspace(-60.0, 60.0, 121)
    low = curves(FAMILIES[name][0](), FAR[name], jnp.asarray(u, jnp.float32))
    with jax.enable_x64(True):
        high = curves(FAMILIES[name][0](), FAR[name], jnp.asarray(u))
    for y, found, expected in zip(FAR[name], low.swapaxes(0, 1), high.swapaxes(0, 1), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4 * max(1.0, abs(y)))


@pytest.mark.parametrize("name", FAMILIES)
def test_log_concavity_is_as_declared(x64, name):
    """Curvatures over a grid; Student's t bends upwards far from its reward."""
    declare, rewards, _ = FAMILIES[name]
    family, u = declare(), jnp.linspace(-12.0, 12.0, 400)
    bends = curves(family, rewards, u)[2]
    assert (bends.max() <= 1e-9) == family.is_log_concave


def test_a_family_of_a_users_own_is_not_taken_for_concave():
    class Waiting(Reward):
        def law(self, predictor):
            return dist.Exponential(jnp.exp(-predictor))

        def mean(self, predictor):
            return jnp.exp(predictor)

    assert not Waiting().is_log_concave
    assert not Waiting().takes_exposure


def test_the_normal_tail(precision):
    """Against SciPy's scaled complementary error function."""
    x = np.concatenate([-np.logspace(3, -2, 300), np.linspace(0, 4, 50)]).astype(precision)
    wide = x.astype(float)
    hazard = np.sqrt(2 / np.pi) / scipy.special.erfcx(-wide / np.sqrt(2))
    X = jnp.asarray(x)
    loose = {"rtol": 1e-4} if precision == np.float32 else {"rtol": 1e-8}
    np.testing.assert_allclose(log_ndtr(X), scipy.special.log_ndtr(wide), **loose, atol=1e-7)
    np.testing.assert_allclose(jax.vmap(jax.grad(log_ndtr))(X), hazard, **loose)
    bend = jax.vmap(jax.grad(jax.grad(log_ndtr)))(X)
    np.testing.assert_allclose(bend, -hazard * (hazard + wide), **loose)
    for width in (1e-2, 1.0, 30.0):
        found = log_difference(X + jnp.asarray(width, X.dtype), X)
        assert np.isfinite(found).all()
        near = np.abs(wide) < 3
        lower, upper = scipy.stats.norm.cdf(wide[near]), scipy.stats.norm.cdf(wide[near] + width)
        np.testing.assert_allclose(found[near], np.log(upper - lower), rtol=1e-3, atol=1e-4)


def test_ratings_with_learned_cut_points(x64):
    """The program has a site for them, and the density of SciPy."""
    hierarchy = Hierarchy([Level("action", 2)], Ordinal(logistic_cut()), 1)
    data = Data([[1.0], [0.5], [-1.0]], [0, 1, 1], [5.0, 2.0, 3.0])
    theta, cuts = jnp.array([[0.3], [-0.8]]), jnp.asarray(CUTS)
    values = {"action": theta, "reward_cutpoints": cuts}
    found, trace = log_density(hierarchy.program, tuple(data), {}, values)
    u = np.array([0.3, -0.4, 0.8])
    expected = ordinal_pmf(scipy.special.expit)(data.rewards, u, 1).sum()
    expected += scipy.stats.norm.logpdf(theta).sum() + float(logistic_cut().log_prob(cuts))
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    assert trace["reward_cutpoints"]["fn"].event_shape == (4,)
    assert hierarchy.reward.num_ratings == 5
    assert not hierarchy.why_not_exact.fits_laplace
    known = hierarchy.unknowns.given({"reward_cutpoints": cuts})
    np.testing.assert_array_equal(known.reward.cutpoints, cuts)


def test_repr():
    assert repr(Binomial(3)) == "Binomial(trials=3)"
    assert repr(NegativeBinomial(0.5)) == "NegativeBinomial(concentration=0.5)"
    assert repr(StudentT(4)) == "StudentT(df=4, scale=1)"
    assert repr(Probit()) == "Probit()"
    assert repr(Ordinal([0.0], "probit")) == "Ordinal(2 ratings, link='probit')"
    expected = "Ordinal(5 ratings, cutpoints ~ TransformedDistribution, link='logit')"
    assert repr(Ordinal(logistic_cut())) == expected


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: Binomial(0), "Binomial trials: got 0; expected a whole number of at least 1"),
        (lambda: Binomial(2.5), "Binomial trials: got 2.5"),
        (lambda: NegativeBinomial(-1.0), "concentration is -1; expected a positive number"),
        (lambda: NegativeBinomial([1.0, 2.0]), r"concentration has shape \(2,\)"),
        (lambda: StudentT(1.0), "StudentT df is 1; expected more than 1"),
        (lambda: StudentT(3.0, 0.0), "StudentT scale is 0; expected a positive number"),
        (lambda: Ordinal([0.0, 0.0]), "Ordinal cutpoints are .*; expected numbers that increase"),
        (lambda: Ordinal([]), r"Ordinal cutpoints have shape \(0,\); expected \(C - 1,\)"),
        (lambda: Ordinal(1.0), r"Ordinal cutpoints have shape \(\)"),
        (lambda: Ordinal([0.0], "cauchit"), "link is 'cauchit'; expected 'logit' or 'probit'"),
        (
            lambda: Ordinal(dist.Normal(0.0, 1.0).expand([3]).to_event(1)),
            "cutpoints ~ Normal need not increase; expected increasing vectors",
        ),
        (lambda: Ordinal(dist.Normal(0.0, 1.0)), r"shape \(\); expected \(C - 1,\)"),
    ],
)
def test_what_cannot_be_declared(declare, message):
    with pytest.raises((TypeError, ValueError), match=message):
        declare()


@pytest.mark.parametrize(
    ("family", "reward"),
    [(Binomial(3), 4.0), (NegativeBinomial(1.0), 0.5), (Probit(), 2.0)]
    + [(Ordinal(CUTS), y) for y in (0.0, 6.0, 2.5)],
    ids=repr,
)
def test_rewards_outside_the_support_are_refused(family, reward):
    hierarchy = Hierarchy([Level("action", 2)], family, 1)
    with pytest.raises(
        ValueError, match=rf"rewards hold {reward:g}, which {type(family).__name__}"
    ):
        hierarchy.observations([[1.0]], [0], [reward])


@pytest.mark.parametrize("family", [StudentT(3.0), Ordinal(CUTS)], ids=repr)
def test_no_exposure_where_a_sum_or_mean_does_not_say_it_all(family):
    hierarchy = Hierarchy([Level("action", 2)], family, 1)
    with pytest.raises(
        ValueError, match=r"exposure: got one, and .* has none: a row is one reward"
    ):
        hierarchy.observations([[1.0]], [0], [2.0], [3.0])
