"""`Laplace(sites="mle")` is the paper's scheme (Section 3.3), its `1e-3` included."""

import jax
import numpy as np
import pytest

from backends import updated
from hierarchies import Rows, covariance
from mixts.inference import Laplace
from mixts.models import glm
from sampling import unoptimised
from scipy_sites import site
from tolerance import tolerance

pytestmark = pytest.mark.usefixtures("x64")

K, L, DIM, N = 5, 3, 2, 60
RIDGE = 1e-3 * np.eye(DIM)


@pytest.fixture(autouse=True)
def compile_quickly():
    with unoptimised():
        yield


def problem():
    """Action 1 has separable rewards, action 2 a single one, action 3 none."""
    rng = np.random.default_rng(0)
    prior = {
        "b": rng.normal(size=(K, L)),
        "mu": rng.normal(size=(L, DIM)),
        "Sigma": covariance("joint", L, DIM, rng),
        "own": covariance("matrices", K, DIM, rng),
    }
    contexts, actions = rng.normal(size=(N, DIM)), rng.choice([0, 1, 4], N)
    rewards = rng.integers(0, 2, N)
    rewards = np.where(actions == 1, contexts[:, 0] > 0, rewards).astype(float)
    actions[7] = 2
    return prior, Rows(contexts, actions, rewards)


def declared(prior):
    weights, (mu, Sigma, own) = prior["b"], (prior[name] for name in ("mu", "Sigma", "own"))
    return glm(weights, DIM, effect_mean=mu, effect_cov=Sigma, action_cov=own)


def by_the_paper(prior, seen):
    """Propositions 1 and 2 with `mu_lap` and `G_lap + 1e-3 I` put in.

    Every inverse is written as in the paper; the marginals are those of Lemma 3.
    """
    b, own = prior["b"], prior["own"]
    precision = np.linalg.inv(prior["Sigma"])
    information = precision @ prior["mu"].ravel()
    mu_lap, G_lap = np.zeros((K, DIM)), np.zeros((K, DIM, DIM))
    for i in range(K):
        x, y = seen.contexts[seen.actions == i], seen.rewards[seen.actions == i]
        found = site("bernoulli", x, y, np.zeros(DIM), RIDGE)
        mu_lap[i], G_lap[i] = found.mode, found.precision + RIDGE
        M = np.linalg.inv(own[i] + np.linalg.inv(G_lap[i]))
        precision = precision + np.kron(np.outer(b[i], b[i]), M)
        information = information + np.kron(b[i], M @ mu_lap[i])
    Sigma_bar = np.linalg.inv(precision)
    mu_bar = Sigma_bar @ information
    means, covs = [], []
    for i in range(K):
        Gamma, Lambda = np.kron(b[i], np.eye(DIM)), np.linalg.inv(own[i])
        S = np.linalg.inv(Lambda + G_lap[i])
        means.append(S @ (Lambda @ Gamma @ mu_bar + G_lap[i] @ mu_lap[i]))
        gain = S @ Lambda @ Gamma
        covs.append(S + gain @ Sigma_bar @ gain.T)
    places = range(0, L * DIM, DIM)
    effects = np.array([Sigma_bar[j : j + DIM, j : j + DIM] for j in places])
    return mu_bar.reshape(L, DIM), effects, np.array(means), np.array(covs)


@jax.jit
def learn(hierarchy, seen):
    """Before data, after all of it at once, and after one row at a time."""
    backend = Laplace(hierarchy, sites="mle", capacity=N)
    prior = backend.init()
    states = prior, backend.condition(prior, *seen), updated(backend, prior, *seen)
    posteriors = [backend.posterior(state) for state in states]
    unconverged = sum(state.info.unconverged for state in states)
    return [(posterior.mean, posterior.cov) for posterior in posteriors], unconverged


def assert_is(found, expected):
    mean, cov = found
    parts = mean["effect"], cov["effect"], mean["action"], cov["action"]
    for part, reference in zip(parts, expected, strict=True):
        # The maximum of a separable likelihood is flat, so both optimisers leave it sooner.
        np.testing.assert_allclose(part, reference, **tolerance(10))


def test_the_papers_formulas():
    """The expansion of an action does not depend on the others, so the order of arrival does not matter."""
    prior, seen = problem()
    (before, at_once, one_by_one), unconverged = learn(declared(prior), seen)
    assert int(unconverged) == 0
    nothing = Rows(*(column[:0] for column in seen))
    assert_is(before, by_the_paper(prior, nothing))
    expected = by_the_paper(prior, seen)
    assert_is(at_once, expected)
    assert_is(one_by_one, expected)


def test_the_ridge_speaks_before_any_data_does():
    """The effects' precision has grown by `sum_i b_i b_i' x (Sigma_0 + 1e3 I)^-1`, the ridge's messages.

    Tilted sites say nothing.
    """
    prior, _ = problem()
    precision = np.linalg.inv(prior["Sigma"])
    for b, own in zip(prior["b"], prior["own"], strict=True):
        precision = precision + np.kron(np.outer(b, b), np.linalg.inv(own + 1e3 * np.eye(DIM)))
    for sites, expected in {"mle": np.linalg.inv(precision), "tilted": prior["Sigma"]}.items():
        backend = Laplace(declared(prior), sites=sites, capacity=N)
        root = jax.jit(Laplace.init)(backend).effects.root
        np.testing.assert_allclose(root @ root.T, expected, **tolerance())
