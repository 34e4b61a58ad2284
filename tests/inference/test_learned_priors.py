"""Every backend that learns numbers, on learned kernels, covariances and means, against a fine grid."""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from mixts.inference import Collapsed, Nuts, Svi
from mixts.models import AR1, Gaussian, Hierarchy, Level, LKJCovariance
from sampling import unoptimised

pytestmark = pytest.mark.slow

SIZE, DIM, N, NOISE = 6, 2, 50, 0.5
RNG = np.random.default_rng(5)
CONTEXTS = np.column_stack([np.ones(N), RNG.normal(size=N)])
ACTIONS = RNG.integers(0, SIZE, N)
WALK = np.cumsum(RNG.normal(size=(SIZE, DIM)), axis=0)
REWARDS = np.sum(CONTEXTS * WALK[ACTIONS], axis=1) + NOISE * RNG.normal(size=N)

# A draw's mean is off by its sd over the root of the number of independent draws, of which chains give
# at least 400 here; each of at most four means is allowed four of these errors.
MOST_ERRORS, WORTH = 4.0, 400


class Truth(NamedTuple):
    """Posterior means and standard deviations, by site, of numbers and of the vectors."""

    mean: dict[str, np.ndarray]
    sd: dict[str, np.ndarray]


def exact(mean: np.ndarray, cov: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """The log evidence, and the posterior of all vectors, by dense conditioning."""
    rows = np.zeros((N, SIZE * DIM))
    for i, (context, action) in enumerate(zip(CONTEXTS, ACTIONS, strict=True)):
        rows[i, DIM * action : DIM * (action + 1)] = context
    spread = rows @ cov @ rows.T + NOISE**2 * np.eye(N)
    evidence = scipy.stats.multivariate_normal.logpdf(REWARDS, rows @ mean, spread)
    gain = np.linalg.solve(spread, rows @ cov).T
    return evidence, mean + gain @ (REWARDS - rows @ mean), np.diag(cov - gain @ rows @ cov)


def on_a_grid(numbers, prior, moments) -> Truth:
    """Weighted by prior and evidence, over all combinations of the midpoints of cells."""
    found = []
    for values in itertools.product(*numbers.values()):
        given = dict(zip(numbers, values, strict=True))
        evidence, mean, variance = exact(*moments(**given))
        found.append((evidence + prior(**given), *values, mean, variance))
    logs = np.array([each[0] for each in found])
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean, sd = {}, {}
    for i, name in enumerate(numbers, 1):
        each = np.array([row[i] for row in found])
        mean[name] = weights @ each
        sd[name] = np.sqrt(weights @ (each - mean[name]) ** 2)
    means, variances = (np.array([row[i] for row in found]) for i in (-2, -1))
    mean["item"] = (weights @ means).reshape(SIZE, DIM)
    second = weights @ (variances + means**2)
    sd["item"] = np.sqrt(second.reshape(SIZE, DIM) - mean["item"] ** 2)
    return Truth(mean, sd)


def autoregression() -> tuple[Level, Truth]:
    level = Level("item", SIZE, kernel=AR1(dist.Uniform(0.0, 1.0)), scale=dist.LogNormal(0.0, 0.5))
    cells = 40
    places = np.arange(SIZE)
    away = np.abs(places[:, None] - places)
    normals = scipy.stats.norm.ppf((np.arange(cells) + 0.5) / cells)  # equal shares of the prior
    numbers = {
        "item_correlation": (np.arange(cells) + 0.5) / cells,
        "item_scale": np.exp(0.5 * normals),
    }

    def moments(item_correlation, item_scale):
        cov = item_scale**2 * np.kron(item_correlation**away, np.eye(DIM))
        return np.zeros(SIZE * DIM), cov

    return level, on_a_grid(numbers, lambda **_: 0.0, moments)


def covariance() -> tuple[Level, Truth]:
    """Known standard deviations are not a law of covariances: the grid is over both and a correlation."""
    scale = dist.LogNormal(0.5, 0.4)
    level = Level("item", SIZE, cov=LKJCovariance(DIM, 2.0, scale))
    cells = 20
    shares = (np.arange(cells) + 0.5) / cells
    deviations = np.exp(0.5 + 0.4 * scipy.stats.norm.ppf(shares))
    # An LKJ correlation of two with concentration 2 is `2 Beta(2, 2) - 1`.
    correlations = 2 * scipy.stats.beta.ppf(shares, 2, 2) - 1

    def moments(first, second, correlation):
        shared = correlation * first * second
        own = np.array([[first**2, shared], [shared, second**2]])
        return np.zeros(SIZE * DIM), np.kron(np.eye(SIZE), own)

    numbers = {"first": deviations, "second": deviations, "correlation": correlations}
    return level, on_a_grid(numbers, lambda **_: 0.0, moments)


def mean() -> tuple[Level, Truth]:
    """A learned mean, and the standard deviation of one coordinate of two."""
    law = dist.Laplace(0.0, 2.0)
    level = Level("item", SIZE, mean=law, scale=[dist.LogNormal(0.0, 0.5), 2.0])
    cells = 60
    numbers = {
        "item_mean": np.linspace(-7.0, 7.0, cells),
        "item_scale_0": np.exp(0.5 * scipy.stats.norm.ppf((np.arange(cells) + 0.5) / cells)),
    }

    def moments(item_mean, item_scale_0):
        cov = np.kron(np.eye(SIZE), np.diag([item_scale_0**2, 4.0]))
        return np.full(SIZE * DIM, item_mean), cov

    def prior(item_mean, item_scale_0):
        return scipy.stats.laplace.logpdf(item_mean, scale=2.0)

    return level, on_a_grid(numbers, prior, moments)


def by_name(draws) -> dict[str, np.ndarray]:
    """All draws of one chain after another, with a covariance as its parts."""
    flat = {k: np.asarray(v).reshape(-1, *np.shape(v)[2:]) for k, v in draws.items()}
    if "item_cov" in flat:
        cov = flat.pop("item_cov")
        first, second = np.sqrt(cov[:, 0, 0]), np.sqrt(cov[:, 1, 1])
        flat |= {"first": first, "second": second, "correlation": cov[:, 0, 1] / (first * second)}
    return flat


def draws_of(kind: str, hierarchy: Hierarchy) -> dict[str, np.ndarray]:
    if kind == "Collapsed":
        backend = Collapsed(hierarchy, particles=64, samples=500)
    elif kind == "Nuts":
        backend = Nuts(hierarchy, warmup=500, samples=500, capacity=N, target_accept=0.95)
    else:
        backend = Svi(hierarchy, capacity=N)
    state = backend.condition(backend.init(jax.random.key(0)), CONTEXTS, ACTIONS, REWARDS)
    if isinstance(backend, Svi):
        drawn = backend.draws(jax.random.key(1), state, 2000)
        return by_name({name: value[None] for name, value in drawn.items()})
    posterior = backend.posterior(state)
    assert posterior.status.ok, posterior.status
    return by_name(backend.draws(posterior.state))


@pytest.mark.parametrize("kind", ["Collapsed", "Nuts", "Svi"])
@pytest.mark.parametrize("make", [autoregression, covariance, mean])
def test_agrees_with_a_grid(make, kind, x64):
    """Within Monte Carlo error; a Gaussian guide within half a standard deviation.

    Scales and vectors form a funnel, of which a Gaussian guide covers the narrow part of the numbers: their
    standard deviations are too small, by up to a factor of three.
    """
    level, truth = make()
    with unoptimised():
        draws = draws_of(kind, Hierarchy([level], Gaussian(NOISE), DIM))
    allowed = 0.5 if kind == "Svi" else MOST_ERRORS / np.sqrt(WORTH)
    for name, expected in truth.mean.items():
        off = np.abs(draws[name].mean(0) - expected) / truth.sd[name]
        assert np.max(off) < allowed, (name, off)
        ratio = draws[name].std(0) / truth.sd[name]
        # Skewed numbers have deviations that are known to about twice what normal ones have.
        assert np.max(np.abs(np.log(ratio))) < (np.log(3.0) if kind == "Svi" else 0.25), (
            name,
            ratio,
        )


SCHOOLS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


@pytest.mark.parametrize("kind", [Collapsed, Nuts])
def test_eight_schools_as_in_a_textbook(kind, x64):
    """One level, whose mean and scale have priors; each estimate counts by its own error.

    4.41 and 3.60 are the posterior means of `mu ~ N(0, 5)`, `tau ~ HalfCauchy(5)`; their posterior standard
    deviations, 3.3 and 3.2, over the root of 400.
    """
    school = Level("school", 8, mean=dist.Normal(0.0, 5.0), scale=dist.HalfCauchy(5.0))
    hierarchy = Hierarchy([school], Gaussian(1.0), dim=1)
    with unoptimised():
        backend = kind(hierarchy, samples=1000)
        seen = jnp.ones((8, 1)), jnp.arange(8), SCHOOLS, ERRORS**-2.0
        posterior = backend.posterior(backend.condition(backend.init(jax.random.key(2)), *seen))
        draws = backend.draws(posterior.state)
    assert abs(np.mean(draws["school_mean"]) - 4.41) < MOST_ERRORS * 3.3 / 20
    assert abs(np.mean(draws["school_scale"]) - 3.60) < MOST_ERRORS * 3.2 / 20
