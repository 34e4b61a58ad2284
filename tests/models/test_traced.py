"""Declarations inside `jit`: what is known is checked, what is traced is believed."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from mistakes import D, K, L, effects, spoilt
from mixts.models import Gaussian, Hierarchy, Level, Sparse, linear

ONES = np.ones((K, L))


def test_traced_values_are_not_looked_at():
    """A wrong number that arrives inside `jit` gives NaN, not an error; its shape is checked."""

    @jax.jit
    def draw(variance, weights, noise):
        hierarchy = linear(weights, D, effect_cov=variance, noise=noise)
        return hierarchy.sample_prior(jax.random.key(0))["action"]

    assert np.isnan(draw(-1.0, ONES, -1.0)).all()
    assert np.isnan(draw(1.0, spoilt((K, L), np.nan), 1.0)[0]).all()
    with pytest.raises(ValueError, match=r"cov has shape \(5,\)"):
        draw(jnp.ones(5), ONES, 1.0)


def test_known_values_are_looked_at_inside_jit():
    """What is written down inside `jit` is known there too."""
    with pytest.raises(ValueError, match="cov holds the variance -1"):
        jax.jit(lambda weights: linear(weights, D, effect_cov=-1.0).dim)(ONES)
    with pytest.raises(ValueError, match="noise is 0"):
        jax.jit(lambda weights: linear(weights, D, noise=0.0).dim)(ONES)
    with pytest.raises(ValueError, match="can be negative"):
        jax.jit(lambda mean: effects(mean=mean, scale=dist.Normal()).dim)(0.0)
    with pytest.raises(ValueError, match="names parent 1 more than once"):
        jax.jit(lambda size: size * Sparse([[1, 1]], [[1.0, 2.0]]).values)(1.0)


def test_declarations_with_laws_of_traced_numbers():
    """Laws whose parameters are traced are accepted, as are families that close over them."""

    def draw(number):
        hierarchy = Hierarchy(
            [
                Level("a", 2, scale=dist.HalfNormal(number), centered=False),
                Level("b", 2, parents={"a": np.eye(2)}, scale=dist.Uniform(number, number + 1.0)),
                Level(
                    "c",
                    2,
                    parents={"b": np.eye(2)},
                    family=lambda loc, tril: dist.MultivariateStudentT(number, loc, tril),
                    centered=False,
                ),
            ],
            Gaussian(dist.HalfNormal(number)),
            D,
        )
        return hierarchy.sample_prior(jax.random.key(0))["c"]

    assert np.isfinite(jax.jit(draw)(3.0)).all()


def test_traced_sparse_indices_need_a_number_of_parents():
    values = jnp.ones((1, 2))
    with pytest.raises(ValueError, match="pass num_parents=<size of the parent level>"):
        jax.jit(lambda indices: Sparse(indices, values).values)(np.array([[0, 1]]))
    with pytest.raises(TypeError, match="got numbers of type float32; expected whole numbers"):
        jax.jit(lambda indices: Sparse(indices, values, 3).values)(jnp.ones((1, 2)))
