"""Eight schools with the scale of schools integrated over: known means, and no divergences, as it comes."""

import jax
import numpy as np
import numpyro.distributions as dist

from mixts.inference import Collapsed
from mixts.models import Gaussian, Hierarchy, Level
from sampling import unoptimised

ESTIMATES = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def test_means_without_divergences():
    """Each school's error is an exposure: the variance of the mean of `m` rewards of noise 1 is `1 / m`.

    Known to 10,000 draws: mu 4.41 and tau 3.60. Here 2,000 draws of tau, whose posterior deviation is about
    3.2, worth 800 at least: four standard errors are 0.45. Means of mu are exact given tau.
    """
    effect = Level("effect", 1, cov=25.0)
    school = Level("school", 8, parents={"effect": np.ones((8, 1))}, scale=dist.HalfCauchy(5.0))
    backend = Collapsed(Hierarchy([effect, school], Gaussian(1.0), dim=1))
    seen = np.ones((8, 1)), np.arange(8), ESTIMATES, 1 / ERRORS**2
    with unoptimised():
        posterior = backend.posterior(backend.condition(backend.init(jax.random.key(0)), *seen))
    assert posterior.status.ok
    table = backend.diagnostics(posterior.state)
    assert int(table.loc["school_scale", "divergences"]) == 0
    assert float(table.loc["school_scale", "r_hat"]) < 1.01
    assert abs(float(posterior.mean["effect"][0, 0]) - 4.41) < 0.1
    assert abs(float(backend.unknowns(posterior.state)["school_scale"].mean()) - 3.60) < 0.45
