"""`LKJCovariance`: its density by a change of variables, its draws, and how samplers see it."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.special
import scipy.stats
from numpyro.distributions.transforms import biject_to

from mistakes import check_refused
from mixts.models import LKJCovariance

SCALES = {
    "half-normal": (dist.HalfNormal(0.7), lambda s: scipy.stats.halfnorm.logpdf(s, scale=0.7)),
    "bounded": (dist.Uniform(0.2, 3.0), lambda s: scipy.stats.uniform.logpdf(s, 0.2, 2.8)),
    "each": (
        dist.Gamma(2.0, np.array([1.0, 2.0, 3.0])),
        lambda s: scipy.stats.gamma.logpdf(s, 2.0, scale=1 / np.array([1.0, 2.0, 3.0])[: len(s)]),
    ),
}


def lower(matrix):
    return matrix[jnp.tril_indices(len(matrix))]


def log_density(matrix: np.ndarray, concentration: float, of_scales) -> float:
    """By the density of standard deviations and correlations, and the Jacobian that JAX finds."""
    dim = len(matrix)
    scale = np.sqrt(np.diag(matrix))
    correlation = matrix / np.outer(scale, scale)
    below = np.tril_indices(dim, -1)

    def covariance(parts):
        full = jnp.eye(dim).at[below].set(parts[dim:])
        full = full + full.T - jnp.eye(dim)
        return lower(parts[:dim, None] * full * parts[:dim])

    parts = np.concatenate([scale, correlation[below]])
    _, log_jacobian = np.linalg.slogdet(jax.jacobian(covariance)(parts))
    # The normaliser of Lewandowski et al. (2009), Theorem 1: a product over partial correlations.
    total = 0.0
    for k in range(1, dim):
        a = concentration + (dim - k - 1) / 2
        each = (2 * a - 1) * np.log(2) + scipy.special.betaln(a, a)
        total += (dim - k) * each
    shape = (concentration - 1) * np.linalg.slogdet(correlation).logabsdet
    return np.sum(of_scales(scale)) + shape - total - log_jacobian


@pytest.mark.parametrize(("scale", "of_scales"), SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("concentration", [0.5, 1.0, 3.0])
def test_density(scale, of_scales, concentration, x64):
    law = LKJCovariance(3, concentration, scale)
    for matrix in law.sample(jax.random.key(1), (3,)):
        expected = log_density(np.asarray(matrix), concentration, of_scales)
        np.testing.assert_allclose(law.log_prob(matrix), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize(("scale", "of_scales"), list(SCALES.values())[:2], ids=list(SCALES)[:2])
def test_free_numbers(scale, of_scales, dim, x64):
    """There and back, with the Jacobian; many at once too."""
    law = LKJCovariance(dim, 2.0, scale)
    transform = biject_to(law.support)
    count = dim * (dim + 1) // 2
    assert transform.inverse_shape((dim, dim)) == (count,)
    assert transform.forward_shape((count,)) == (dim, dim)
    free = np.random.default_rng(0).normal(size=(4, count))
    many = transform(free)
    assert np.asarray(law.support(many)).shape == (4,)
    assert np.asarray(law.support(many)).all()
    np.testing.assert_allclose(transform.inv(many), free, rtol=1e-8, atol=1e-10)
    found = transform.log_abs_det_jacobian(free, many)
    for each, log_jacobian in zip(free, found, strict=True):
        jacobian = jax.jacobian(lambda x: lower(transform(x)))(each)
        np.testing.assert_allclose(log_jacobian, np.linalg.slogdet(jacobian).logabsdet, rtol=1e-9)
    np.testing.assert_allclose(law.log_prob(many), [law.log_prob(m) for m in many], rtol=1e-12)


def test_support():
    law = LKJCovariance(2, scale=dist.Uniform(0.0, 1.0))
    assert law.support(0.5 * jnp.eye(2))
    assert not law.support(2.0 * jnp.eye(2))  # a standard deviation above 1
    assert not law.support(jnp.array([[0.5, 0.6], [0.6, 0.5]]))
    assert not law.support(jnp.array([[0.5, 0.1], [0.0, 0.5]]))
    assert law.support.feasible_like(jnp.zeros((2, 2))).shape == (2, 2)
    assert law.support(law.support.feasible_like(jnp.zeros((2, 2))))


def test_draws(x64):
    """Scales have their law; a correlation of two is `2 Beta(c, c) - 1`."""
    law = LKJCovariance(2, 2.0, dist.HalfNormal(0.7))
    draws = np.asarray(law.sample(jax.random.key(0), (4000,)))
    scales = np.sqrt(np.diagonal(draws, axis1=1, axis2=2))
    correlation = draws[:, 0, 1] / scales.prod(1)
    moments = [
        (scales[:, 0], 0.7 * np.sqrt(2 / np.pi)),
        (scales[:, 1] ** 2, 0.49),
        (correlation, 0.0),
        (correlation**2, 1 / 5),  # of 2 Beta(2, 2) - 1: 4 times the variance 1 / 20
    ]
    # Each within four standard errors: one of four is further off with chance 3e-4.
    for found, expected in moments:
        error = found.std(ddof=1) / np.sqrt(len(found))
        assert abs(found.mean() - expected) < 4 * error


def test_passes_through_jit():
    law = LKJCovariance(2)
    matrix = jnp.array([[1.0, 0.3], [0.3, 2.0]])
    np.testing.assert_allclose(
        jax.jit(lambda law, m: law.log_prob(m))(law, matrix), law.log_prob(matrix), rtol=1e-6
    )


MISTAKES = {
    "dim": (lambda: LKJCovariance(0), ValueError, ["LKJCovariance dim: got 0"]),
    "concentration": (
        lambda: LKJCovariance(2, 0.0),
        ValueError,
        ["LKJCovariance concentration is 0; expected a positive number"],
    ),
    "scale a number": (
        lambda: LKJCovariance(2, scale=1.0),
        TypeError,
        ["LKJCovariance scale is 1.0", "such as HalfNormal(1.0)"],
    ),
    "scale of another size": (
        lambda: LKJCovariance(2, scale=dist.HalfNormal(np.ones(3))),
        ValueError,
        ["LKJCovariance scale: the distribution has shape (3,); expected () or (2,)"],
    ),
    "scale that may be negative": (
        lambda: LKJCovariance(2, scale=dist.Normal()),
        ValueError,
        ["LKJCovariance scale ~ Normal can be negative"],
    ),
}


@pytest.mark.parametrize(("declare", "error", "parts"), MISTAKES.values(), ids=MISTAKES)
def test_refused(declare, error, parts):
    check_refused(declare, error, parts)
