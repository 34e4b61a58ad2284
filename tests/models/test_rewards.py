"""Reward families: the law of a reward and its mean function."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.special

from mixts.models import Bernoulli, Gaussian, Hierarchy, Level, Poisson, Reward
from tolerance import tolerance

PREDICTORS = np.array([-3.0, -0.5, 0.0, 0.4, 2.0])

# For each family: its log partition function A, dispersion phi, some rewards, base measure C.
FAMILIES = {
    "gaussian": (
        lambda: Gaussian(0.7),
        lambda u: u**2 / 2,
        0.7**2,
        [-1.0, 0.3, 2.0],
        lambda y: -(y**2) / (2 * 0.7**2) - np.log(2 * np.pi * 0.7**2) / 2,
    ),
    "bernoulli": (Bernoulli, lambda u: jnp.log1p(jnp.exp(u)), 1.0, [0.0, 1.0], lambda y: 0.0),
    "poisson": (
        Poisson,
        jnp.exp,
        1.0,
        [0.0, 1.0, 4.0],
        lambda y: -scipy.special.gammaln(y + 1),
    ),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_the_law_is_an_exponential_family(precision, name):
    """`log p(y | u) = (y u - A(u)) / phi + C(y)` (Section 2.5)."""
    declare, partition, dispersion, rewards, base = FAMILIES[name]
    family = declare()
    for reward in rewards:
        found = family.law(jnp.asarray(PREDICTORS)).log_prob(reward)
        expected = (reward * PREDICTORS - partition(PREDICTORS)) / dispersion + base(reward)
        np.testing.assert_allclose(found, expected, **tolerance())


@pytest.mark.parametrize("name", FAMILIES)
def test_the_mean_function_is_the_slope_of_the_log_partition_function(precision, name):
    """`f = A'`, and it is the mean of the law."""
    declare, partition, *_ = FAMILIES[name]
    family, predictors = declare(), jnp.asarray(PREDICTORS)
    slopes = jax.vmap(jax.grad(partition))(predictors)
    np.testing.assert_allclose(family.mean(predictors), slopes, **tolerance())
    np.testing.assert_allclose(family.law(predictors).mean, slopes, **tolerance())


@pytest.mark.parametrize("name", FAMILIES)
def test_the_score_is_the_residual(precision, name):
    """`d log p(y | u) / du = (y - f(u)) / phi`, at zero too, where a kink would hide in the density."""
    declare, _, dispersion, rewards, _ = FAMILIES[name]
    family, predictors = declare(), jnp.asarray(PREDICTORS)
    for reward in rewards:
        score = jax.vmap(jax.grad(lambda u, y=reward: family.law(u).log_prob(y)))(predictors)
        residual = (reward - family.mean(predictors)) / dispersion
        np.testing.assert_allclose(score, residual, **tolerance())


def test_repr():
    assert repr(Gaussian()) == "Gaussian(noise=1)"
    assert repr(Gaussian(0.25)) == "Gaussian(noise=0.25)"
    assert repr(Gaussian(dist.HalfNormal().expand(()))) == "Gaussian(noise ~ HalfNormal)"
    assert (repr(Bernoulli()), repr(Poisson())) == ("Bernoulli()", "Poisson()")


def test_a_user_may_add_a_reward_family():
    class Exponential(Reward):
        def law(self, predictor):
            return dist.Exponential(jnp.exp(-predictor))

        def mean(self, predictor):
            return jnp.exp(predictor)

    hierarchy = Hierarchy([Level("action", 2)], Exponential(), 1)
    assert "the reward is Exponential, not Gaussian" in hierarchy.why_not_exact
    assert hierarchy.observations([[1.0]], [0], [2.5]).rewards.tolist() == [2.5]
    with pytest.raises(ValueError, match=r"rewards hold -1, which .*Exponential"):
        hierarchy.observations([[1.0]], [0], [-1.0])
