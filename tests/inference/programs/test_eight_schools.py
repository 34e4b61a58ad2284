"""Eight schools (Rubin 1981): a two-level hierarchy with a learned scale, against a quadrature.

Each school's estimate has an error of its own, where a hierarchy has one noise: so contexts and rewards
are divided by the errors.
"""

from typing import NamedTuple

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

from mixts.inference import Nuts, Svi
from mixts.models import Gaussian, Hierarchy, Level
from sampling import estimate, standard_errors_off, unoptimised

ESTIMATES = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
SEEN = 1 / ERRORS[:, None], np.arange(8), ESTIMATES / ERRORS
CHAINS, SAMPLES = 4, 1500

# 18 means are compared with the truth, each within a standard error of it by the central limit
# theorem: with chance 18 * 6e-5 = 0.1% one of them is further off than this many.
MOST_ERRORS = 4.0


def schools() -> Hierarchy:
    """`mu ~ N(0, 5^2)`, `tau ~ HalfCauchy(5)`, and each school's effect `N(mu, tau^2)`."""
    everyone = {"effect": np.ones((8, 1))}
    action = Level("action", 8, parents=everyone, scale=dist.HalfCauchy(5.0), centered=False)
    return Hierarchy([Level("effect", 1, cov=25.0), action], Gaussian(1.0), 1)


class Truth(NamedTuple):
    """Posterior means."""

    mu: float
    tau: float
    schools: np.ndarray


@pytest.fixture(scope="module")
def truth():
    """Schools and `mu` are Gaussian given `tau`; the integral over `tau` is a sum.

    Of `tau = 5 tan(u)`, whose prior is even in `u` on `(0, pi / 2)`; the midpoint rule is off by the
    square of its step.
    """
    cells = 20_000
    tau = 5.0 * np.tan((np.arange(cells) + 0.5) / cells * np.pi / 2)[:, None]
    spread = ERRORS**2 + tau**2
    precision = 1 / 25.0 + np.sum(1 / spread, axis=1)
    mu = np.sum(ESTIMATES / spread, axis=1) / precision
    log_density = 0.5 * precision * mu**2 - 0.5 * np.log(precision)
    log_density -= 0.5 * np.sum(ESTIMATES**2 / spread + np.log(spread), axis=1)
    weight = np.exp(log_density - log_density.max())
    weight /= weight.sum()
    pull = tau**2 / spread
    effects = pull * ESTIMATES + (1 - pull) * mu[:, None]
    return Truth(weight @ mu, weight @ tau[:, 0], weight @ effects)


@pytest.fixture(scope="module")
def nuts():
    """Short trajectories could slip past the neck of the funnel: a high acceptance is asked for."""
    with unoptimised():
        backend = Nuts(
            schools(), chains=CHAINS, warmup=500, samples=SAMPLES, capacity=8, target_accept=0.95
        )
        state = backend.condition(backend.init(jax.random.key(0)), *SEEN)
        posterior = backend.posterior(state)
        return backend, posterior, backend.draws(posterior.state)


def test_the_quadrature_gives_the_known_values(truth):
    """4.41 and 3.60: means of 10,000 draws, whose standard errors are about 0.033 and 0.035."""
    assert abs(truth.mu - 4.41) < 0.033
    assert abs(truth.tau - 3.60) < 0.035


@pytest.mark.slow
def test_means(nuts, truth):
    _, _, draws = nuts
    for site, expected in (
        ("effect", np.reshape(truth.mu, (1, 1))),
        ("action_scale", truth.tau),
        ("action", truth.schools[:, None]),
    ):
        found = estimate(draws[site])
        assert standard_errors_off(found.mean, found.mean_error, expected) < MOST_ERRORS, site
        # Errors small enough to tell: mu and tau have deviations of three, schools of five.
        assert np.max(found.mean_error) < 0.12, site


def test_nothing_diverges(nuts):
    backend, posterior, _ = nuts
    assert int(posterior.state.divergences) == 0
    assert int(posterior.state.transitions) >= CHAINS * SAMPLES
    assert backend.status(posterior.state).ok


def test_diagnostics(nuts):
    backend, posterior, _ = nuts
    table = backend.diagnostics(posterior.state)
    assert set(table.index) == {"effect", "action", "action_scale"}
    assert (table["r_hat"] < 1.01).all()
    assert (table["ess"] > 100 * CHAINS).all()
    assert (table["draws"] == CHAINS * SAMPLES).all()
    assert (table["divergences"] == 0).all()


def test_arviz_shows_the_scale_chain_by_chain(nuts):
    _, posterior, draws = nuts
    group = posterior.to_arviz(n=CHAINS * SAMPLES)["posterior"]
    assert group["action_scale"].dims == ("chain", "draw")
    for site in ("effect", "action", "action_scale"):
        np.testing.assert_array_equal(group[site].values, draws[site])
    assert "action_base" not in group
    few = posterior.to_arviz(n=30)["posterior"]["action_scale"]  # eight of each chain
    np.testing.assert_array_equal(few.values, draws["action_scale"][:, -8:])


def test_svi_has_the_scale_too(nuts, truth):
    """A Gaussian guide for `log tau` is not exact; it is known to come close, as is its mean of mu.

    2,000 draws of a deviation of three have a mean within 4 * 3 / sqrt(2,000) = 0.27.
    """
    with unoptimised():
        backend = Svi(schools(), capacity=8)
        state = backend.condition(backend.init(jax.random.key(1)), *SEEN)
        draws = backend.draws(jax.random.key(2), state, 2000)
    assert draws["action_scale"].shape == (2000,)
    assert np.all(np.asarray(draws["action_scale"]) > 0)
    assert abs(np.mean(draws["action_scale"]) - truth.tau) < 0.27 + 0.7
    assert abs(np.mean(draws["effect"]) - truth.mu) < 0.27 + 0.3
    group = backend.posterior(state).to_arviz(jax.random.key(2), 2000)["posterior"]
    np.testing.assert_array_equal(group["action_scale"].values[0], draws["action_scale"])
