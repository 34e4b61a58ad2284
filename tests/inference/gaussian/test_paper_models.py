"""The paper's models by name have the posteriors that the paper writes down."""

import numpy as np
import pytest

from dense_posterior import dense_posterior, largest_error
from gaussian_models import mixing, rows
from hierarchies import Group, Model, covariance
from mixts.inference import ClosedForm
from mixts.models import finer, linear, mab, three_level
from tolerance import tolerance

pytestmark = pytest.mark.usefixtures("x64")

K, L = 5, 3
NOISE = 0.6


def posterior(hierarchy, contexts, actions, rewards):
    backend = ClosedForm(hierarchy)
    return backend.posterior(backend.condition(backend.init(), contexts, actions, rewards))


def test_multi_armed_bandit():
    """Eq. 18 and Eq. 19; arm 4 is never taken."""
    rng = np.random.default_rng(0)
    b, mu, Sigma = rng.normal(size=(K, L)), rng.normal(size=L), covariance("joint", L, 1, rng)
    variances = rng.uniform(0.3, 2.0, K)
    actions, rewards = rng.integers(0, K - 1, 30), rng.normal(size=30)
    hierarchy = mab(b, effect_mean=mu, effect_cov=Sigma, action_cov=variances, noise=NOISE)
    found = posterior(hierarchy, np.ones((30, 1)), actions, rewards)

    N = np.array([np.sum(actions == i) for i in range(K)])
    B = np.array([np.sum(rewards[actions == i]) for i in range(K)])
    precision, information = np.linalg.inv(Sigma), np.linalg.inv(Sigma) @ mu
    for i in range(K):
        precision = precision + N[i] / (N[i] * variances[i] + NOISE**2) * np.outer(b[i], b[i])
        information = information + B[i] / (N[i] * variances[i] + NOISE**2) * b[i]
    Sigma_bar = np.linalg.inv(precision)
    mu_bar = Sigma_bar @ information
    np.testing.assert_allclose(found.mean["effect"][:, 0], mu_bar, **tolerance())
    np.testing.assert_allclose(found.cov["effect"][:, 0, 0], np.diag(Sigma_bar), **tolerance())
    for i in range(K):
        variance = 1 / (1 / variances[i] + N[i] / NOISE**2)
        mean = variance * (mu_bar @ b[i] / variances[i] + B[i] / NOISE**2)
        # The conditional mean moves with Psi by variance / variances[i] * b_i.
        spread = variance + (variance / variances[i]) ** 2 * b[i] @ Sigma_bar @ b[i]
        np.testing.assert_allclose(found.mean["action"][i, 0], mean, **tolerance())
        np.testing.assert_allclose(found.cov["action"][i, 0, 0], spread, **tolerance())


def paper_posterior(maps, mu, Sigma, own, seen):
    """Appendix E.2, of which Proposition 1 is the case `C_il = b_il I`, and
    Lemma 3. Inverts every `G_i`, as the paper writes it.
    """
    dim = len(own[0])
    G, B = np.zeros((K, dim, dim)), np.zeros((K, dim))
    for x, i, y in zip(*seen, strict=True):
        G[i] += np.outer(x, x) / NOISE**2
        B[i] += x * y / NOISE**2
    C = [np.hstack(list(maps[i])) for i in range(K)]
    precision, information = np.linalg.inv(Sigma), np.linalg.inv(Sigma) @ mu
    for i in range(K):
        M = np.linalg.inv(own[i] + np.linalg.inv(G[i]))
        precision = precision + C[i].T @ M @ C[i]
        information = information + C[i].T @ M @ np.linalg.inv(G[i]) @ B[i]
    Sigma_bar = np.linalg.inv(precision)
    mu_bar = Sigma_bar @ information
    means, covs = [], []
    for i in range(K):
        S = np.linalg.inv(np.linalg.inv(own[i]) + G[i])
        gain = S @ np.linalg.inv(own[i])
        means.append(S @ (np.linalg.inv(own[i]) @ C[i] @ mu_bar + B[i]))
        covs.append(S + gain @ C[i] @ Sigma_bar @ C[i].T @ gain.T)
    effects = [Sigma_bar[j : j + dim, j : j + dim] for j in range(0, L * dim, dim)]
    return mu_bar.reshape(L, dim), np.array(effects), np.array(means), np.array(covs)


def assert_is(found, expected):
    effect_mean, effect_cov, action_mean, action_cov = expected
    np.testing.assert_allclose(found.mean["effect"], effect_mean, **tolerance())
    np.testing.assert_allclose(found.cov["effect"], effect_cov, **tolerance())
    np.testing.assert_allclose(found.mean["action"], action_mean, **tolerance())
    np.testing.assert_allclose(found.cov["action"], action_cov, **tolerance())


def every_action_often(dim, rng):
    """Each action meets more than `dim` contexts, so that every `G_i` has an inverse."""
    actions = np.repeat(np.arange(K), dim + 3)
    return rng.normal(size=(len(actions), dim)), actions, rng.normal(size=len(actions))


@pytest.mark.parametrize("dim", [1, 3])
def test_linear_bandit(dim):
    """Proposition 1, Proposition 2 and Lemma 3."""
    rng = np.random.default_rng(dim)
    b, mu = rng.normal(size=(K, L)), rng.normal(size=(L, dim))
    Sigma, own = covariance("joint", L, dim, rng), covariance("matrices", K, dim, rng)
    seen = every_action_often(dim, rng)
    hierarchy = linear(b, dim, effect_mean=mu, effect_cov=Sigma, action_cov=own, noise=NOISE)
    maps = b[:, :, None, None] * np.eye(dim)
    assert_is(posterior(hierarchy, *seen), paper_posterior(maps, mu.ravel(), Sigma, own, seen))


def test_finer_effects():
    rng, dim = np.random.default_rng(5), 2
    maps, mu = rng.normal(size=(K, L, dim, dim)), rng.normal(size=dim)
    Sigma, own = covariance("joint", L, dim, rng), covariance("matrix", K, dim, rng)
    seen = every_action_often(dim, rng)
    hierarchy = finer(maps, effect_mean=mu, effect_cov=Sigma, action_cov=own, noise=NOISE)
    expected = paper_posterior(maps, np.tile(mu, L), Sigma, [own] * K, seen)
    assert_is(posterior(hierarchy, *seen), expected)


def test_three_levels():
    """Eq. 53; the paper has no formulas for it, so against dense conditioning."""
    rng, dim, J = np.random.default_rng(6), 2, 4
    items, actions = mixing("scalars", J, L, dim, rng), mixing("scalars", K, J, dim, rng)
    covs = [covariance(form, size, dim, rng) for form, size in [("joint", L), ("matrices", J)]]
    model = Model(
        [
            Group("effect", L, mean=0.5, cov=covs[0]),
            Group("item", J, parents={"effect": items}, cov=covs[1]),
            Group("action", K, parents={"item": actions}, cov=0.4),
        ],
        dim,
        noise=NOISE,
    )
    seen = rows(model, 50, rng)
    hierarchy = three_level(
        items,
        actions,
        dim,
        effect_mean=0.5,
        effect_cov=covs[0],
        item_cov=covs[1],
        action_cov=0.4,
        noise=NOISE,
    )
    found = posterior(hierarchy, *seen)
    error = largest_error(found.mean, found.cov, found.log_evidence, dense_posterior(model, seen))
    assert error < tolerance()["rtol"]
