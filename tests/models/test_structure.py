"""Structure learned from offline estimates: what a mixture finds, and what it is turned into."""

from functools import cache

import jax
import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from mistakes import cases, check_refused
from mixts.models import Bernoulli, Gaussian, Hierarchy, learn_structure
from mixts.models.structure import fit_mixture
from tolerance import tolerance

CENTRES = np.array([[4.0, 0.0], [-4.0, 1.0], [0.0, 6.0]])
SPREADS = np.array([[[0.5, 0.2], [0.2, 0.3]], [[0.2, 0.0], [0.0, 0.8]], [[1.0, -0.6], [-0.6, 0.9]]])
EACH = 400


@cache
def clustered() -> tuple[np.ndarray, np.ndarray]:
    """Estimates from three clusters far apart, and the cluster of each."""
    rng = np.random.default_rng(0)
    rows = [
        rng.multivariate_normal(mean, cov, EACH) for mean, cov in zip(CENTRES, SPREADS, strict=True)
    ]
    truth, order = np.repeat(np.arange(3), EACH), rng.permutation(3 * EACH)
    return np.concatenate(rows)[order], truth[order]


def matched(means: np.ndarray) -> list[int]:
    """For each true cluster, the learned one that is nearest."""
    distance = np.linalg.norm(means[None] - CENTRES[:, None], axis=-1)
    order = [int(row.argmin()) for row in distance]
    assert sorted(order) == [0, 1, 2]
    return order


def test_known_clusters_are_recovered():
    """Centres within five standard errors, sqrt(C_jj / 400); covariances too, sqrt(2 / 400) of one."""
    estimates, truth = clustered()
    hierarchy = learn_structure(estimates, 3, covariances="mixture")
    effect, action = hierarchy.levels
    order = matched(np.asarray(effect.mean))
    errors = 5 * np.sqrt(np.diagonal(SPREADS, axis1=1, axis2=2) / EACH)
    assert (np.abs(np.asarray(effect.mean)[order] - CENTRES) < errors).all()
    size = np.sqrt(np.einsum("lii,ljj->lij", SPREADS, SPREADS))
    assert (np.abs(np.asarray(effect.cov)[order] - SPREADS) < 5 * size * np.sqrt(2 / EACH)).all()
    weights = np.asarray(action.parents["effect"])[:, order]
    assert adjusted_rand_score(truth, weights.argmax(1)) > 0.99


def test_the_paper_s_choice_of_covariances(precision):
    """`0.75 diag(v)` for effects and `0.25 diag(v)` for actions (Section 5.2)."""
    estimates, _ = clustered()
    hierarchy = learn_structure(estimates, 3)
    variance = ((estimates - estimates.mean(0)) ** 2).mean(0)
    np.testing.assert_allclose(hierarchy["effect"].cov, 0.75 * variance, **tolerance())
    np.testing.assert_allclose(hierarchy["action"].cov, 0.25 * variance, **tolerance())
    assert hierarchy["effect"].mean.dtype == precision
    half = learn_structure(estimates, 3, effect_share=0.5)
    np.testing.assert_allclose(half["action"].cov, 0.5 * variance, **tolerance())


def test_the_mixture_s_own_covariances():
    estimates, _ = clustered()
    mixture = fit_mixture(estimates, 3)
    hierarchy = learn_structure(estimates, 3, covariances="mixture", effect_share=0.8)
    np.testing.assert_allclose(hierarchy["effect"].cov, mixture.covs, **tolerance())
    cov = np.asarray(hierarchy["action"].cov)
    assert cov.shape == (len(estimates), 2, 2)
    for i in (0, 17, 400):
        expected = 0.25 * sum(mixture.weights[i, j] * mixture.covs[j] for j in range(3))
        np.testing.assert_allclose(cov[i], expected, **tolerance())


def test_clusters_without_correlation():
    estimates, _ = clustered()
    covs = fit_mixture(estimates, 3, cluster_shape="diag").covs
    assert (covs[:, 0, 1] == 0).all()
    order = matched(fit_mixture(estimates, 3, cluster_shape="diag").means)
    expected = np.diagonal(SPREADS, axis1=1, axis2=2)
    found = np.diagonal(covs[order], axis1=1, axis2=2)
    np.testing.assert_allclose(found, expected, rtol=5 * np.sqrt(2 / EACH))


def test_weights_are_posterior_probabilities():
    """By Bayes' rule from the mixture's own numbers, where clusters overlap."""
    rng = np.random.default_rng(1)
    estimates = np.concatenate([rng.normal(-1, 1, (300, 1)), rng.normal(1.5, 0.7, (100, 1))])
    mixture = fit_mixture(estimates, 2)
    weights = np.asarray(learn_structure(estimates, 2)["action"].parents["effect"])
    np.testing.assert_allclose(weights.sum(1), 1.0, **tolerance())
    assert ((weights > 0.05) & (weights < 0.95)).any()
    # At a fixed point, the proportion of a cluster is the mean of its weights: to the fit's tolerance.
    variance = mixture.covs[:, 0, 0]
    density = np.exp(-((estimates - mixture.means[:, 0]) ** 2) / 2 / variance) / np.sqrt(variance)
    joint = density * mixture.weights.mean(0)
    np.testing.assert_allclose(weights, joint / joint.sum(1, keepdims=True), atol=0.01)


def test_the_weighted_centres_average_to_the_mean_of_the_estimates():
    """So marginal prior means are right on average; a property of a fit at rest."""
    estimates, _ = clustered()
    mixture = fit_mixture(estimates, 4)
    np.testing.assert_allclose(
        (mixture.weights @ mixture.means).mean(0), estimates.mean(0), atol=0.01
    )


def test_the_number_of_effects_is_chosen_by_bic():
    estimates, _ = clustered()
    assert learn_structure(estimates)["effect"].size == 3
    assert learn_structure(estimates, range(1, 3))["effect"].size == 2
    alone = np.random.default_rng(2).normal(size=(300, 2))
    assert learn_structure(alone)["effect"].size == 1
    few = alone[:4]
    assert learn_structure(few, restarts=1)["effect"].size <= 4


def test_bic_is_that_of_the_estimates_as_given():
    """`p log K - 2 log likelihood`, for one cluster, whose maximum likelihood is known."""
    estimates = np.random.default_rng(3).normal(size=(200, 2)) * [3.0, 0.1] + 5
    cov = np.cov(estimates.T, bias=True)
    log_likelihood = -100 * (2 * np.log(2 * np.pi) + np.linalg.slogdet(cov)[1] + 2)
    expected = 5 * np.log(200) - 2 * log_likelihood
    np.testing.assert_allclose(fit_mixture(estimates, 1).bic, expected, rtol=1e-5)


def test_units_do_not_matter():
    """A thousandth of the estimates gives the same weights and a thousandth of the centres."""
    estimates, _ = clustered()
    here, there = fit_mixture(estimates, 3), fit_mixture(1e-3 * estimates, 3)
    np.testing.assert_allclose(there.weights, here.weights, atol=1e-6)
    np.testing.assert_allclose(there.means, 1e-3 * here.means, rtol=1e-6)
    np.testing.assert_allclose(there.covs, 1e-6 * here.covs, rtol=1e-6, atol=1e-12)


def test_a_seed_gives_one_structure():
    rng = np.random.default_rng(4)
    estimates = rng.normal(size=(60, 3))  # no clusters: the starting point decides
    first, again, other = (
        np.asarray(learn_structure(estimates, 4, restarts=1, seed=seed)["effect"].mean)
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.01


def test_labels_and_rewards_are_passed_on():
    estimates, _ = clustered()
    names = [f"movie {i}" for i in range(len(estimates))]
    hierarchy = learn_structure(estimates, 3, reward=Bernoulli(), labels=names)
    assert isinstance(hierarchy, Hierarchy)
    assert hierarchy["action"].labels == tuple(names)
    assert isinstance(hierarchy.reward, Bernoulli)
    assert isinstance(learn_structure(estimates, 3).reward, Gaussian)
    draw = hierarchy.sample_prior(jax.random.key(0))
    assert draw["action"].shape == estimates.shape


def test_a_fit_that_does_not_converge_is_an_error():
    estimates = np.random.default_rng(5).normal(size=(200, 3))
    assert not fit_mixture(estimates, 5, max_iter=2).converged
    with pytest.raises(RuntimeError, match=r"5 clusters did not converge in 2 .* raise max_iter"):
        learn_structure(estimates, 5, max_iter=2)


def rows(value: float = 0.5) -> np.ndarray:
    table = np.random.default_rng(6).normal(size=(6, 2))
    table[2, 1] = value
    return table


@cases(
    estimates={
        "NaN": (lambda: learn_structure(rows(np.nan), 2), ValueError, ["nan", "(2, 1)", "leave"]),
        "infinite": (lambda: learn_structure(rows(np.inf), 2), ValueError, ["inf", "(2, 1)"]),
        "a vector": (lambda: learn_structure(np.ones(4), 2), ValueError, ["(4,)", "(K, d)"]),
        "none": (lambda: learn_structure(np.ones((0, 2)), 2), ValueError, ["(0, 2)", "(K, d)"]),
        "words": (lambda: learn_structure([["a"]], 1), TypeError, ["(K, d)"]),
        "constant": (
            lambda: learn_structure(rows() * [1, 0] + [0, 7], 2),
            ValueError,
            ["7", "dimension 1"],
        ),
    },
    effects={
        "more than rows": (lambda: learn_structure(rows(), 7), ValueError, ["7", "6", "fewer"]),
        "more than different rows": (
            lambda: learn_structure(np.repeat(rows()[:3], 4, axis=0), 4),
            ValueError,
            ["4 effects", "12 estimates", "3 of them"],
        ),
        "zero": (lambda: learn_structure(rows(), 0), ValueError, ["num_effects", "0"]),
        "a fraction": (lambda: learn_structure(rows(), 2.5), ValueError, ["num_effects", "2.5"]),
        "none to try": (lambda: learn_structure(rows(), []), ValueError, ["num_effects", "empty"]),
    },
    choices={
        "covariances": (
            lambda: learn_structure(rows(), 2, covariances="full"),
            ValueError,
            ["covariances", "'full'", "'marginal'", "'mixture'"],
        ),
        "shape": (
            lambda: learn_structure(rows(), 2, cluster_shape="round"),
            ValueError,
            ["cluster_shape", "'round'", "'diag'"],
        ),
        "share": (
            lambda: learn_structure(rows(), 2, effect_share=1.0),
            ValueError,
            ["1.0", "below"],
        ),
        "labels": (lambda: learn_structure(rows(), 2, labels=["a"]), ValueError, ["labels", "6"]),
        "reward": (lambda: learn_structure(rows(), 2, reward="clicks"), TypeError, ["clicks"]),
    },
)
def test_refused(declare, error, parts):
    check_refused(declare, error, parts)
