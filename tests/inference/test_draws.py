"""Draws have the law of the posterior, jointly over levels, vectors and components.

With n draws of a Gaussian with covariance C, a sample mean is off by sqrt(C_ii / n) and a sample
covariance by sqrt((C_ii C_jj + C_ij^2) / n), in standard deviations. A few hundred such numbers stay
within five of them but once in thousands of keys; the keys here are fixed.
"""

import functools

import jax
import numpy as np
import pytest
import scipy.stats

from backends import make
from dense_posterior import dense_posterior
from gaussian_models import rows

DRAWS = 200_000
DEVIATIONS = 5.0


def assert_moments(draws: np.ndarray, mean: np.ndarray, cov: np.ndarray) -> None:
    """Mean and covariance of the rows of `draws`, within Monte Carlo error."""
    n = len(draws)
    variance = np.diag(cov)
    mean_error = (draws.mean(0) - mean) / np.sqrt(variance / n)
    cov_error = (np.cov(draws.T) - cov) / np.sqrt((np.outer(variance, variance) + cov**2) / n)
    assert np.abs(mean_error).max() < DEVIATIONS
    assert np.abs(cov_error).max() < DEVIATIONS
    # And no closer than chance: all exactly equal would mean that nothing was drawn.
    assert np.abs(cov_error).max() > 0.5


def flat(draws: dict[str, np.ndarray], model) -> np.ndarray:
    """(n, numbers of all levels), from top to bottom."""
    return np.concatenate(
        [np.asarray(draws[g.name]).reshape(len(draws[g.name]), -1) for g in model.groups], axis=1
    )


@functools.cache
def seen_some():
    """Three levels with crossed arrows and data on three of the four actions."""
    model, backend = make("closed form")
    seen = rows(model, 12, np.random.default_rng(0), taken=3)
    state = backend.condition(backend.init(), *seen)
    return model, backend, state, dense_posterior(model, seen)


def test_sample_has_the_joint_posterior():
    model, backend, state, dense = seen_some()
    keys = jax.random.split(jax.random.key(1), DRAWS)
    draws = jax.vmap(backend.sample, in_axes=(0, None))(keys, state)
    assert_moments(flat(draws, model), dense.mean, dense.cov)


def test_posterior_draw_has_the_joint_posterior():
    model, backend, state, dense = seen_some()
    draws = backend.posterior(state).draw(jax.random.key(2), DRAWS)
    assert draws["brand"].shape == (DRAWS, 3, model.dim)
    assert_moments(flat(draws, model), dense.mean, dense.cov)


@pytest.mark.parametrize("shared", [True, False])
def test_scores_are_those_of_joint_draws(shared):
    """`x' theta_i` jointly over actions, in one context for all or one for each."""
    model, backend, state, dense = seen_some()
    size, dim = model.groups[-1].size, model.dim
    contexts = np.random.default_rng(3).normal(size=(size, dim))
    if shared:
        contexts[:] = contexts[0]
    keys = jax.random.split(jax.random.key(4), DRAWS)
    given = contexts[0] if shared else contexts
    scores = np.asarray(
        jax.vmap(lambda key: backend.sample_scores(key, state, given))(keys), dtype=float
    )
    X = np.zeros((size, size * dim))
    for i, x in enumerate(contexts):
        X[i, i * dim : (i + 1) * dim] = x
    theta = slice(-size * dim, None)
    mean, cov = X @ dense.mean[theta], X @ dense.cov[theta, theta] @ X.T
    assert_moments(scores, mean, cov)
    for i in range(size):
        standard = (scores[:, i] - mean[i]) / np.sqrt(cov[i, i])
        # For right draws one key in a thousand would give a smaller p.
        assert scipy.stats.kstest(standard, "norm").pvalue > 1e-3


def test_factors_are_drawn_independently():
    """`Factored`: effects with their own covariances and no others, and actions given them."""
    model, backend = make("decoupled")
    state = backend.condition(backend.init(), *rows(model, 12, np.random.default_rng(5)))
    posterior = backend.posterior(state)
    draws = posterior.draw(jax.random.key(6), DRAWS)
    effects = np.concatenate([np.asarray(draws[name]) for name in ("zone", "brand")], axis=1)
    blocks = np.concatenate([np.asarray(posterior.cov[name]) for name in ("zone", "brand")])
    means = np.concatenate([np.asarray(posterior.mean[name]) for name in ("zone", "brand")])
    cov = np.asarray(scipy.linalg.block_diag(*blocks), dtype=float)
    assert_moments(effects.reshape(DRAWS, -1), means.ravel(), cov)
    for i in range(model.groups[-1].size):
        own = np.asarray(draws["item"][:, i], dtype=float)
        assert_moments(own, posterior.mean["item"][i], np.asarray(posterior.cov["item"][i], float))


def test_keys_decide():
    _, backend, state, _ = seen_some()
    one, again, other = (backend.sample(jax.random.key(k), state)["item"] for k in (7, 7, 8))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)
