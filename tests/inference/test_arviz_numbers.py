"""ArviZ names the dimensions of learned means, scales, covariances and weights."""

import jax
import numpy as np
import numpyro.distributions as dist

from mixts.inference import Svi
from mixts.models import AR1, Gaussian, Hierarchy, Level, LKJCovariance
from sampling import unoptimised


def test_dimensions():
    levels = [
        Level("week", 3, kernel=AR1(dist.Uniform(0.0, 1.0)), scale=dist.HalfNormal(np.ones(2))),
        Level("shop", 4, cov=LKJCovariance(2), mean=dist.Normal(np.zeros((4, 2)), 1.0)),
        Level(
            "item",
            5,
            parents={"week": dist.Normal(np.zeros((5, 3)), 1.0), "shop": np.ones((5, 4))},
            scale=dist.HalfNormal(np.ones((5, 1))),
        ),
    ]
    hierarchy = Hierarchy(levels, Gaussian(), 2, components=["one", "price"])
    with unoptimised():
        backend = Svi(hierarchy, guide="mean_field", steps=2, capacity=4)
        posterior = backend.posterior(backend.init(jax.random.key(0)))
        data = posterior.to_arviz(jax.random.key(1), n=3)["posterior"]
    dims = {name: data[name].dims[2:] for name in data.data_vars}
    assert dims["week_scale"] == ("component",)
    assert dims["week_correlation"] == ()
    assert dims["shop_mean"] == ("shop_id", "component")
    assert dims["shop_cov"] == ("component", "other_component")
    assert dims["item_scale"] == ("item_id", "item_scale_shared")
    assert dims["item_weights_week"] == ("item_id", "week_id")
    assert list(data["shop_cov"].coords["other_component"].values) == ["one", "price"]
