"""Moments of tilted densities, beside sums over fine grids."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from dense_propagation import LOG_DENSITIES, tilted
from mixts.inference.gaussian.moment_matching import log_likelihood, match_moments
from mixts.models import Bernoulli, Gaussian, Poisson, Reward


class Robust(Reward):
    def law(self, predictor):
        return dist.StudentT(4.0, predictor, 0.5)

    def mean(self, predictor):
        return predictor


FAMILIES = {"bernoulli": Bernoulli(), "poisson": Poisson(), "student": Robust()}


@partial(jax.jit, static_argnums=0)
def match(family: str, y, mean, variance):
    density = log_likelihood(FAMILIES[family], y)
    return match_moments(density, mean, variance, is_log_concave=family != "student")


def matched(family: str, y, mean, variance):
    return match(family, *(jnp.asarray(part, float) for part in (y, mean, variance)))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("family", "y", "mean", "variance", "error"),
    [
        ("bernoulli", 1.0, 0.0, 1e-8, 1e-12),
        ("bernoulli", 1.0, -0.5, 1.0, 1e-9),
        ("bernoulli", 0.0, 1.0, 4.0, 1e-7),
        ("bernoulli", 1.0, 0.0, 25.0, 3e-5),
        ("poisson", 0.0, 0.3, 1.0, 1e-7),
        ("poisson", 3.0, 1.0, 4.0, 1e-6),
        ("poisson", 3000.0, 0.0, 1000.0, 1e-8),
        ("student", 0.2, 0.0, 0.1, 1e-6),
        ("student", 3.0, 0.0, 1.0, 2e-4),
        ("student", 9.0, 0.0, 1.0, 1e-9),
    ],
)
def test_moments_are_those_of_a_grid(family, y, mean, variance, error):
    found = matched(family, y, mean, variance)
    if y == 3000.0:  # a density far narrower than the grid of its prior
        log_z, center, spread = _narrow(y, mean, variance)
    else:
        log_z, center, spread = tilted(LOG_DENSITIES[family], y, mean, variance)
    sd = np.sqrt(variance)
    assert abs(mean + sd * found.shift - center) < error * np.sqrt(spread)
    assert abs(variance * found.ratio / spread - 1) < error
    assert abs(found.log_normaliser - log_z) < 10 * error
    np.testing.assert_allclose(found.ratio + found.shrink, 1.0, rtol=1e-12)


def _narrow(y, mean, variance):
    u = np.log(y) + np.linspace(-0.3, 0.3, 200_001)
    terms = LOG_DENSITIES["poisson"](u, y) - (u - mean) ** 2 / (2 * variance)
    terms -= np.log(2 * np.pi * variance) / 2
    highest = terms.max()
    p = np.exp(terms - highest)
    total, step = p.sum(), u[1] - u[0]
    center = p @ u / total
    return highest + np.log(total * step), center, p @ (u - center) ** 2 / total


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("is_log_concave", [True, False])
def test_gaussian_rewards_are_exact(is_log_concave):
    mean, variance, y, noise = 0.7, 2.0, np.array([3.0, -1.0, 0.7]), 0.3
    density = log_likelihood(Gaussian(noise), jnp.asarray(y))
    means, variances = jnp.full(3, mean), jnp.full(3, variance)
    found = match_moments(density, means, variances, is_log_concave=is_log_concave)
    np.testing.assert_allclose(found.ratio, noise**2 / (variance + noise**2), rtol=1e-9)
    reward, noise_variance = found.as_observation(means, variances)
    np.testing.assert_allclose(reward, y, rtol=1e-8)
    np.testing.assert_allclose(noise_variance, noise**2, rtol=1e-8)
    precision, information = found.as_message(means, variances)
    np.testing.assert_allclose(precision, 1 / noise**2, rtol=1e-8)
    np.testing.assert_allclose(information, y / noise**2, rtol=1e-8)
    expected = dist.Normal(mean, np.sqrt(variance + noise**2)).log_prob(y)
    np.testing.assert_allclose(found.log_normaliser, expected, rtol=1e-9)


@pytest.mark.parametrize("family", ["bernoulli", "poisson"])
@pytest.mark.parametrize("variance", [1e-3, 1e-6, 1e-9])
def test_small_messages_keep_their_digits_in_float32(family, variance):
    """A million rewards of one action each say a millionth of what is known."""
    small = matched(family, 1.0, 0.4, variance)
    with jax.enable_x64(True):
        exact = matched(family, 1.0, 0.4, variance)
    for found, expected in zip(small[1:], exact[1:], strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5)


def test_a_density_that_is_not_concave_may_take_certainty_away():
    found = matched("student", 9.0, 0.0, 1.0)
    assert found.shrink < -0.05
    _, noise = found.as_observation(jnp.zeros(()), jnp.ones(()))
    assert noise < 0


def test_counts_of_any_size_are_finite_in_float32():
    counts, means, variances = (
        [0.0, 1.0, 150.0, 3000.0, 1e5],
        [-30.0, 0.0, 8.0, 30.0],
        [1e-4, 1, 1e3],
    )
    grid = np.stack(np.meshgrid(counts, means, variances), axis=-1).reshape(-1, 3)
    found = matched("poisson", *grid.T)
    assert all(np.isfinite(part).all() for part in found)
    assert np.all((found.ratio > 0) & (found.ratio < 1.0001))


def test_many_rewards_at_once_are_matched_as_each_alone():
    y, mean = jnp.array([0.0, 1.0, 1.0]), jnp.array([0.3, -2.0, 5.0])
    variance = jnp.array([0.1, 4.0, 9.0])
    together = matched("bernoulli", y, mean, variance)
    for i in range(3):
        alone = matched("bernoulli", y[i], mean[i], variance[i])
        for a, b in zip(alone, together, strict=True):
            np.testing.assert_allclose(a, b[i], rtol=2e-3, atol=1e-5)
