"""Numbers are in the precision that the user chose for JAX, which mixts never changes."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers

from mixts.models import Bernoulli, Data, Gaussian, Hierarchy, Level, Poisson, Sparse, linear


def crossed() -> Hierarchy:
    """Every form of number, all given in float64 and int64, as NumPy makes them."""
    return Hierarchy(
        [
            Level("zone", 2, mean=np.zeros(2), cov=np.eye(4)),
            Level("brand", 2, scale=dist.HalfNormal(1.0), centered=False),
            Level(
                "item",
                3,
                parents={
                    "zone": Sparse(np.array([[0], [1], [0]]), np.ones((3, 1))),
                    "brand": dist.Dirichlet(np.ones(2)),
                },
                cov=np.array([np.eye(2)] * 3),
            ),
        ],
        Gaussian(0.5),
        2,
    )


def test_everything_is_in_the_chosen_precision(precision):
    hierarchy = crossed()
    data = Data(np.ones((2, 2)), np.zeros(2, int), np.ones(2))

    def values():
        trace = handlers.trace(handlers.seed(hierarchy.program, 0)).get_trace(*data)
        kinds = ("sample", "deterministic")
        return {name: site["value"] for name, site in trace.items() if site["type"] in kinds}

    drawn = jax.eval_shape(values)
    assert set(drawn) > {"zone", "brand", "brand_base", "brand_scale", "item_weights_brand"}
    assert {name: value.dtype for name, value in drawn.items()} == dict.fromkeys(drawn, precision)
    assert hierarchy["zone"].cov.dtype == precision
    assert hierarchy["item"].parents["zone"].values.dtype == precision
    assert hierarchy["item"].parents["zone"].indices.dtype == np.int32
    assert hierarchy.reward.noise.dtype == precision


@pytest.mark.parametrize("x64", [False, True], ids=["float32", "float64"])
def test_declaring_and_drawing_leave_the_setting_alone(x64):
    with jax.enable_x64(x64):
        crossed().sample_prior(jax.random.key(0))
        assert jax.config.jax_enable_x64 == x64


def test_numbers_beyond_the_precision_are_refused(precision):
    """1e300 is a number in float64 and infinity in float32; 1e-60 is there, and zero here."""
    huge, tiny = 1e300, 1e-60
    if precision == np.float64:
        linear(np.ones((2, 2)), 1, effect_mean=huge, action_cov=tiny, noise=tiny)
        return
    with pytest.raises(
        ValueError, match=r"mean: holds 1e\+300; every entry must be a finite float32"
    ):
        linear(np.ones((2, 2)), 1, effect_mean=huge)
    with pytest.raises(ValueError, match="cov holds the variance 1e-60, which is zero in float32"):
        linear(np.ones((2, 2)), 1, action_cov=tiny)
    with pytest.raises(ValueError, match="noise is 0"):
        linear(np.ones((2, 2)), 1, noise=tiny)


@pytest.mark.parametrize("reward", [Bernoulli(), Poisson()], ids=repr)
def test_large_predictors_have_finite_densities(precision, reward):
    """A confident action is not an infinite one: |u| = 60 is within the range of float32."""
    predictors = jnp.array([-60.0, 60.0])
    assert predictors.dtype == precision
    for observed in (0.0, 1.0):
        assert np.isfinite(reward.law(predictors).log_prob(observed)).all()
