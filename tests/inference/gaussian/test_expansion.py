"""The Gaussian that stands for an action's likelihood, against SciPy's optimum of the same density."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from mixts.inference.buffer import append, empty, rows_of, sort
from mixts.inference.gaussian.expansion import GaussianPriors, expand_all, expand_rows, fit_sites
from mixts.models import Bernoulli, Gaussian, Poisson, Reward
from sampling import unoptimised
from scipy_sites import site
from tolerance import tolerance

# One shape for all tests, since each compiles: three actions and rows that belong to none of them.
N, K, DIM = 60, 3, 2
NOBODY = -1

FAMILIES = {"bernoulli": Bernoulli(), "poisson": Poisson()}
# Newton stops when a step gains less than about ten ulps of the log density: the step before it was
# off by the root of that in standard deviations, and the last step squares this.
CLOSE = {"float32": 1e-3, "float64": 1e-9}


@pytest.fixture(autouse=True)
def compile_quickly():
    with unoptimised():
        yield


@jax.jit
def fit(reward, rows, priors, start):
    return fit_sites(partial(expand_all, reward, *rows), priors, start)


def fit_rows(reward, contexts, actions, rewards, priors, start):
    x, y = jnp.asarray(contexts, float), jnp.asarray(rewards, float)
    rows = x, jnp.asarray(actions, jnp.int32), y
    mean, root = priors[0], np.linalg.cholesky(np.linalg.inv(priors[1]))
    parts = mean, root, np.zeros_like(root), np.zeros_like(mean)  # no site to be taken out
    priors = GaussianPriors(*(jnp.asarray(part, float) for part in parts))
    return fit(reward, rows, priors, jnp.asarray(start, float))


def correlated_priors(rng):
    root = rng.normal(size=(K, DIM, DIM))
    return rng.normal(size=(K, DIM)), root @ np.swapaxes(root, 1, 2) + 0.3 * np.eye(DIM)


def flat_priors(precision: float):
    return np.zeros((K, DIM)), np.broadcast_to(precision * np.eye(DIM), (K, DIM, DIM))


def data(kind, name, rng):
    """Rows of each kind: of many rewards an action, of one, or of rewards that a line separates."""
    contexts = rng.normal(size=(N, DIM))
    actions = rng.integers(0, K, N)
    actions[rng.random(N) < 0.2] = NOBODY
    actions[rng.random(N) < 0.1] = K
    rewards = rng.integers(0, 2, N) if name == "bernoulli" else rng.poisson(2.0, N)
    if kind == "separable":
        high = 1 if name == "bernoulli" else 7
        rewards = np.where(contexts[:, 0] > 0, high, 0)
    if kind == "single":
        actions = np.full(N, NOBODY)
        actions[[3, 7, 40]] = [0, 1, 2]
    return contexts, actions, rewards.astype(float)


def assert_sites(name, sites, rows, priors, close):
    contexts, actions, rewards = rows
    assert np.asarray(sites.converged).all()
    for i in range(K):
        own = actions == i
        mode, G, B = site(name, contexts[own], rewards[own], priors[0][i], priors[1][i])
        sd = np.sqrt(np.diag(np.linalg.inv(G + priors[1][i])))
        assert np.all(np.abs(sites.mode[i] - mode) < close * sd)
        np.testing.assert_allclose(sites.precision[i], G, atol=close * np.abs(G).max())
        np.testing.assert_allclose(sites.information[i], B, atol=close * np.abs(B).max())


@pytest.mark.parametrize("kind", ["ordinary", "separable", "single"])
@pytest.mark.parametrize("name", FAMILIES)
def test_expands_at_the_mode(name, kind, precision):
    """Separable rewards have no maximum of the likelihood, a single one no unique one: a mode exists."""
    rng = np.random.default_rng(0)
    rows, priors = data(kind, name, rng), correlated_priors(rng)
    sites = fit_rows(FAMILIES[name], *rows, priors, rng.normal(size=(K, DIM)))
    assert all(part.dtype == precision for part in sites[:3])
    assert_sites(name, sites, rows, priors, CLOSE[precision.name])


@pytest.mark.parametrize("name", FAMILIES)
def test_an_action_without_rewards_says_nothing(name, precision):
    rng = np.random.default_rng(1)
    contexts, actions, rewards = data("ordinary", name, rng)
    actions[actions == 1] = NOBODY
    priors = correlated_priors(rng)
    sites = fit_rows(FAMILIES[name], contexts, actions, rewards, priors, rng.normal(size=(K, DIM)))
    np.testing.assert_array_equal(sites.precision[1], np.zeros((DIM, DIM)))
    np.testing.assert_array_equal(sites.information[1], np.zeros(DIM))
    np.testing.assert_allclose(sites.mode[1], priors[0][1], rtol=1e-5)
    assert np.asarray(sites.converged).all()
    assert np.asarray(sites.precision[0]).any()


def counts(rate: float, rng):
    """Counts of about `rate`, with an intercept, so that the predictor starts far from its mode."""
    contexts = np.column_stack([np.ones(N), rng.normal(size=N)])
    theta = np.array([[1.0, 0.5], [-0.5, 0.2], [0.3, 0.3]])
    actions = rng.integers(0, K, N)
    log_rate = np.sum(contexts * theta[actions], axis=1) + np.log(rate)
    return contexts, actions, rng.poisson(np.exp(log_rate)).astype(float)


@pytest.mark.parametrize("rate", [1.0, 1e4])
def test_counts_from_a_bad_start(rate, precision):
    """A full Newton step from below overshoots to `exp(1000)`; it is damped until it fits.

    Where counts are large, terms of a million cancel in the log density: what they leave behind is
    rounding, which must neither stop the search nor be taken for its end.
    """
    rng = np.random.default_rng(2)
    rows, priors = counts(rate, rng), flat_priors(1e-3)
    for start in (-10.0, -5.0, 0.0, 5.0):
        sites = fit_rows(Poisson(), *rows, priors, np.full((K, DIM), start))
        assert_sites("poisson", sites, rows, priors, CLOSE[precision.name])


def test_a_predictor_far_below_zero(precision):
    """No counts where `exp(u)` is tiny: the likelihood is flat there, and its curvature no NaN."""
    rng = np.random.default_rng(3)
    contexts, actions, rewards = counts(1.0, rng)
    contexts[0], actions[0], rewards[0] = [-80.0, 0.0], 0, 0.0
    priors = flat_priors(1.0)
    sites = fit_rows(Poisson(), contexts, actions, rewards, priors, np.ones((K, DIM)))
    assert_sites("poisson", sites, (contexts, actions, rewards), priors, CLOSE[precision.name])


def test_a_search_that_cannot_start_says_so(precision):
    rows = counts(1.0, np.random.default_rng(4))
    sites = fit_rows(Poisson(), *rows, flat_priors(1.0), np.full((K, DIM), 400.0))
    assert not np.asarray(sites.converged).any()


class PoissonOfRate(Reward):
    """Counts, written by someone who differentiates through the rate."""

    def law(self, predictor):
        return dist.Poisson(jnp.exp(predictor))

    def mean(self, predictor):
        return jnp.exp(predictor)


def test_derivatives_that_overflow_are_no_end_of_the_search():
    """At `u = -60` in float32 the log density is finite, but its curvature is not: nothing was found."""
    contexts, actions, rewards = counts(1.0, np.random.default_rng(4))
    contexts[:, 1], start = 0.0, np.full((K, DIM), -60.0)
    sites = fit_rows(PoissonOfRate(), contexts, actions, rewards, flat_priors(1.0), start)
    assert not np.asarray(sites.converged).any()


@jax.jit
def expand_own_rows(reward, contexts, actions, rewards, theta):
    """Each action's rows, found side by side in a buffer, expanded on their own."""
    buffer, _ = append(empty(len(rewards), DIM), contexts, actions, rewards, actions >= 0)
    buffer = sort(buffer)

    def one(i, point):
        return expand_rows(reward, buffer, *rows_of(buffer, i), point[None])

    return jax.vmap(one)(jnp.arange(K), theta)


@pytest.mark.parametrize("n", [1, N, 1000])
@pytest.mark.parametrize("name", FAMILIES)
def test_actions_together_or_one_at_a_time(name, n, precision):
    """Fewer rows than are read at a time, and several times as many."""
    rng = np.random.default_rng(5)
    x, y = jnp.asarray(rng.normal(size=(n, DIM))), jnp.asarray(1.0 * rng.integers(0, 2, n))
    actions = jnp.asarray(rng.choice([NOBODY, 0, 1], n), jnp.int32)  # nobody takes the last one
    theta = jnp.asarray(rng.normal(size=(K, DIM)))
    together = derivatives(jax.jit(expand_all)(FAMILIES[name], x, actions, y, theta))
    alone = derivatives(expand_own_rows(FAMILIES[name], x, actions, y, theta))
    for found, expected in zip(alone, together, strict=True):
        np.testing.assert_allclose(found[:, 0], expected, **tolerance())
        assert not np.asarray(found[K - 1]).any()


def derivatives(found):
    """Values, sizes, gradients and curvatures: rows that say the same may differ in sign."""
    U = np.asarray(found.factor)
    gradient = np.einsum("...de,...d->...e", U, found.residual)
    assert np.asarray(found.concave).all()
    return found.value, found.size, gradient, np.swapaxes(U, -1, -2) @ U


def test_gaussian_rewards_enter_by_their_sums(precision):
    """Whatever the prior and the start, `G = sum x x' / sigma^2` and `B = sum x y / sigma^2`."""
    rng, noise = np.random.default_rng(6), 0.7
    contexts, actions, _ = data("ordinary", "poisson", rng)
    rewards = rng.normal(size=N)
    start = rng.normal(size=(K, DIM))
    sites = fit_rows(Gaussian(noise), contexts, actions, rewards, correlated_priors(rng), start)
    assert np.asarray(sites.converged).all()
    for i in range(K):
        x, y = contexts[actions == i], rewards[actions == i]
        G, B = x.T @ x / noise**2, x.T @ y / noise**2
        close = 20 * np.finfo(precision).eps * np.abs(G).max()
        np.testing.assert_allclose(sites.precision[i], G, atol=close)
        np.testing.assert_allclose(sites.information[i], B, atol=close)
