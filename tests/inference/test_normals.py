"""Standard normals in few instructions are as normal as they should be."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special, stats

from mixts.inference.random import _inverse_erf, standard_normal


def every_value() -> np.ndarray:
    """The 2^23 numbers that are brought to a normal, from lowest to highest."""
    return ((np.arange(2**23) + 0.5) / 2**22 - 1.0).astype(np.float32)


def test_the_inverse_of_the_error_function_to_float32():
    u = every_value()
    found = np.asarray(jax.jit(_inverse_erf)(u), float)
    np.testing.assert_allclose(found, special.erfinv(u.astype(float)), rtol=4e-7)


def test_moments_over_every_value():
    """All values together have the moments of a normal, cut off where float32 ends."""
    z = np.sqrt(2.0) * np.asarray(jax.jit(_inverse_erf)(every_value()), float)
    assert abs(z.mean()) < 1e-9
    np.testing.assert_allclose((z**2).mean(), 1.0, atol=1e-6)
    np.testing.assert_allclose((z**4).mean(), 3.0, atol=1e-4)


def test_draws_are_normal_and_independent(precision):
    draws = np.asarray(standard_normal(jax.random.key(0), (500, 400), jnp.result_type(float)))
    assert draws.dtype == precision
    assert stats.kstest(draws.ravel(), "norm").pvalue > 1e-3
    correlations = np.corrcoef(draws)[np.triu_indices(500, 1)]
    assert stats.kstest(correlations * np.sqrt(400), "norm").pvalue > 1e-3
