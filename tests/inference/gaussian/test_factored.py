"""`Factored` is what the paper displays, or what its proof gives, as asked (Appendix E.1).

All formulas are written out here, by loops over single actions and effects.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from backends import assert_same_posterior, updated
from dense_posterior import dense_posterior, level_slices
from gaussian_models import crossed_effects, rows
from hierarchies import Few, Group, Model, covariance
from mistakes import as_a_user
from mixts.inference import ClosedForm, Factored
from mixts.models import Gaussian, Hierarchy, Level, Sparse, linear, mab, three_level
from scipy_density import spread
from tolerance import tolerance

pytestmark = pytest.mark.usefixtures("x64")


class Action(NamedTuple):
    """One action: its arrows (effect level, effect, matrix), and what its rewards say of it.

    `message` is `Lambda_0 - Lambda_0 S Lambda_0` and `vector` is `Lambda_0 S B`, which for invertible
    G are the paper's `(Sigma_0 + G^-1)^-1` and `(Sigma_0 + G^-1)^-1 G^-1 B`.
    """

    arrows: list[tuple[str, int, np.ndarray]]
    prior_precision: np.ndarray
    S: np.ndarray
    B: np.ndarray
    message: np.ndarray
    vector: np.ndarray


def own_arrows(group: Group, i: int, dim: int) -> list[tuple[str, int, np.ndarray]]:
    found = []
    for parent, weights in group.parents.items():
        if isinstance(weights, Few):
            pairs = zip(weights.indices[i], weights.values[i], strict=True)
            found += [(parent, int(j), value * np.eye(dim)) for j, value in pairs if value]
        else:
            found += [
                (parent, j, w if np.ndim(w) else w * np.eye(dim)) for j, w in enumerate(weights[i])
            ]
    return found


def actions(model: Model, seen) -> list[Action]:
    d, group = model.dim, model.groups[-1]
    result = []
    for i in range(group.size):
        prior_precision = np.linalg.inv(spread(group, {}, d)[i])
        intercept = np.broadcast_to(group.mean, (group.size, d))[i]
        G, B = np.zeros((d, d)), prior_precision @ intercept * 0
        for x, a, y in zip(*seen, strict=True):
            if a == i:
                G += np.outer(x, x) / model.noise**2
                B = B + x * (y - x @ intercept) / model.noise**2
        S = np.linalg.inv(prior_precision + G)
        result.append(
            Action(
                own_arrows(group, i, d),
                prior_precision,
                S,
                B,
                prior_precision - prior_precision @ S @ prior_precision,
                prior_precision @ S @ B,
            )
        )
    return result


def prior_blocks(model: Model) -> dict[str, np.ndarray]:
    """The diagonal blocks of the effects' prior covariance, (size, d, d) for each level."""
    d, blocks = model.dim, {}
    for group in model.groups[:-1]:
        cov = spread(group, {}, d)
        if cov.ndim == 2:
            cov = np.array([cov[j : j + d, j : j + d] for j in range(0, len(cov), d)])
        blocks[group.name] = cov
    return blocks


def displayed(model: Model, seen):
    """The displayed formulas: each effect from all actions, the other effects at their prior means.

    The paper displays them for prior means of zero; others are taken off the rewards first.
    """
    means, covs = {}, {}
    acts = actions(model, seen)
    before = {g.name: np.broadcast_to(g.mean, (g.size, model.dim)) for g in model.groups[:-1]}
    for group in model.groups[:-1]:
        prior = prior_blocks(model)[group.name]
        prior_mean = before[group.name]
        means[group.name], covs[group.name] = [], []
        for j in range(group.size):
            precision = np.linalg.inv(prior[j])
            information = precision @ prior_mean[j]
            for action in acts:
                for name, effect, C in action.arrows:
                    if (name, effect) == (group.name, j):
                        precision = precision + C.T @ action.message @ C
                        all_parents = sum(D @ before[above][k] for above, k, D in action.arrows)
                        others = all_parents - C @ prior_mean[j]
                        own = action.vector - action.message @ others
                        information = information + C.T @ own
            covs[group.name].append(np.linalg.inv(precision))
            means[group.name].append(np.linalg.solve(precision, information))
    return means, covs, acts


def given_effects(model: Model, acts: list[Action], means, covs):
    """Actions' means and marginal covariances under independent effects."""
    group = model.groups[-1]
    own_means, own_covs = [], []
    for i, action in enumerate(acts):
        intercept = np.broadcast_to(group.mean, (group.size, model.dim))[i]
        location, between = np.zeros(model.dim), np.zeros((model.dim, model.dim))
        for name, effect, C in action.arrows:
            location = location + C @ means[name][effect]
            between = between + C @ covs[name][effect] @ C.T
        gain = action.S @ action.prior_precision
        own_means.append(intercept + action.S @ (action.prior_precision @ location + action.B))
        own_covs.append(action.S + gain @ between @ gain.T)
    return np.array(own_means), np.array(own_covs)


def posterior(backend, seen):
    return backend.posterior(backend.condition(backend.init(), *seen))


def assert_factors(found, means, covs, own):
    for name in means:
        np.testing.assert_allclose(found.mean[name], means[name], **tolerance())
        np.testing.assert_allclose(found.cov[name], covs[name], **tolerance())
    np.testing.assert_allclose(found.mean["item"], own[0], **tolerance())
    np.testing.assert_allclose(found.cov["item"], own[1], **tolerance())


def test_prior_means_of_the_other_effects_count():
    """Nothing is credited to an effect that another was expected to explain; exact is 5.06."""
    parents = {"effect": [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]]}
    levels = [Level("effect", 2, mean=5.0), Level("action", 3, parents=parents, cov=0.1)]
    hierarchy = Hierarchy(levels, Gaussian(1.0), dim=1)
    noise = np.random.default_rng(0).normal(size=60)
    seen = np.ones((60, 1)), np.repeat([0, 1], 30), 4.5 + noise
    unseen = float(posterior(Factored(hierarchy), seen).mean["action"][2, 0])
    exact = posterior(ClosedForm(hierarchy), seen)
    sd = float(np.sqrt(exact.cov["action"][2, 0, 0]))
    # Without them it was 7.97. What is left is what decoupling costs: the first effect is not asked.
    assert abs(unseen - float(exact.mean["action"][2, 0])) < sd
    at_prior = posterior(Factored(hierarchy), (seen[0], seen[1], np.full(60, 5.0)))
    np.testing.assert_allclose(at_prior.mean["action"], 5.0, rtol=1e-9)


@pytest.mark.parametrize("correlated", [True, False])
def test_decoupled_is_what_the_paper_displays(correlated):
    """Crossed parents, matrices, padded rows. A correlated prior gives its diagonal blocks."""
    model = crossed_effects(joint=correlated)
    seen = rows(model, 30, np.random.default_rng(0), taken=4)
    means, covs, acts = displayed(model, seen)
    found = posterior(Factored(model.hierarchy()), seen)
    assert_factors(found, means, covs, given_effects(model, acts, means, covs))
    assert found.log_evidence is None


def test_decoupled_multi_armed_bandit():
    """The scalar formulas for Eq. 17; arm 4 is never taken."""
    rng, K, L, noise = np.random.default_rng(1), 5, 3, 0.6
    b, mu, Sigma = rng.normal(size=(K, L)), rng.normal(size=L), covariance("joint", L, 1, rng)
    variances = rng.uniform(0.3, 2.0, K)
    taken, y = rng.integers(0, K - 1, 25), rng.normal(size=25)
    hierarchy = mab(b, effect_mean=mu, effect_cov=Sigma, action_cov=variances, noise=noise)
    found = posterior(Factored(hierarchy), (np.ones((25, 1)), taken, y))
    for j in range(L):
        precision, information = 1 / Sigma[j, j], mu[j] / Sigma[j, j]
        for i in range(K):
            N, B = np.sum(taken == i), np.sum(y[taken == i])
            others = b[i] @ mu - b[i, j] * mu[j]
            precision += b[i, j] ** 2 * N / (N * variances[i] + noise**2)
            information += b[i, j] * (B - N * others) / (N * variances[i] + noise**2)
        np.testing.assert_allclose(found.mean["effect"][j, 0], information / precision, rtol=1e-9)
        np.testing.assert_allclose(found.cov["effect"][j, 0, 0], 1 / precision, rtol=1e-9)


def test_joint_has_the_exact_means_and_the_blocks_of_the_precision():
    """What the proof gives, also where the prior is correlated."""
    model = crossed_effects()
    seen = rows(model, 30, np.random.default_rng(2))
    found = posterior(Factored(model.hierarchy(), means="joint"), seen)
    exact = posterior(ClosedForm(model.hierarchy()), seen)
    dense = dense_posterior(model, seen)
    parts, d = level_slices(model), model.dim
    above = slice(0, parts["item"].start)
    precision = np.linalg.inv(dense.cov[above, above])
    means, covs = dense.means(), {}
    for name in ("zone", "brand"):
        places = range(parts[name].start, parts[name].stop, d)
        covs[name] = np.array([np.linalg.inv(precision[j : j + d, j : j + d]) for j in places])
        np.testing.assert_allclose(found.mean[name], exact.mean[name], **tolerance())
    effects = {name: means[name] for name in covs}
    own = given_effects(model, actions(model, seen), effects, covs)
    assert_factors(found, effects, covs, own)


def test_the_two_means_differ_and_variances_are_understated():
    """As the docstring warns, wherever an action has two parents."""
    model = crossed_effects(joint=False)
    seen = rows(model, 30, np.random.default_rng(3))
    decoupled = posterior(Factored(model.hierarchy()), seen)
    exact = posterior(ClosedForm(model.hierarchy()), seen)
    for name in ("zone", "brand"):
        assert np.abs(decoupled.mean[name] - exact.mean[name]).max() > 0.05
        lost = np.linalg.eigvalsh(np.asarray(exact.cov[name] - decoupled.cov[name]))
        assert lost.min() > -1e-12
        assert lost.max() > 0.01


@pytest.mark.parametrize("means", ["decoupled", "joint"])
def test_one_parent_each_is_exact(means):
    """Disjoint groups: effects do not meet in any action, so nothing is lost."""
    rng, K, L, d = np.random.default_rng(4), 6, 3, 2
    owner, strength = rng.integers(0, L, K), rng.normal(size=(K, 1))
    hierarchy = linear(
        Sparse(owner[:, None], strength, num_parents=L),
        d,
        effect_mean=rng.normal(size=(L, d)),
        effect_cov=covariance("matrices", L, d, rng),
        action_cov=covariance("matrix", K, d, rng),
        noise=0.5,
    )
    seen = rng.normal(size=(40, d)), rng.integers(0, K, 40), rng.normal(size=40)
    found = posterior(Factored(hierarchy, means=means), seen)
    exact = posterior(ClosedForm(hierarchy), seen)
    for name in ("effect", "action"):
        np.testing.assert_allclose(found.mean[name], exact.mean[name], **tolerance())
        np.testing.assert_allclose(found.cov[name], exact.cov[name], **tolerance())


@pytest.mark.parametrize("means", ["decoupled", "joint"])
def test_without_effects_it_is_exact(means):
    hierarchy = Hierarchy([Level("action", 4, mean=0.5, cov=2.0)], Gaussian(0.5), 2)
    rng = np.random.default_rng(5)
    seen = rng.normal(size=(20, 2)), rng.integers(0, 4, 20), rng.normal(size=20)
    backend = Factored(hierarchy, means=means)
    found, exact = posterior(backend, seen), posterior(ClosedForm(hierarchy), seen)
    np.testing.assert_allclose(found.mean["action"], exact.mean["action"], **tolerance())
    np.testing.assert_allclose(found.cov["action"], exact.cov["action"], **tolerance())
    assert_same_posterior(backend, updated(backend, backend.init(), *seen), found.state)


@pytest.mark.parametrize("means", ["decoupled", "joint"])
def test_sparse_weights_are_dense_ones(means):
    """Padding, which names a parent again with weight zero, changes nothing; updates included."""
    model = crossed_effects(6)
    few = model.groups[-1].parents["brand"]
    dense = np.zeros((5, 3))
    for i, (indices, values) in enumerate(zip(*few, strict=True)):
        for j, value in zip(indices, values, strict=True):
            dense[i, j] += value
    parents = model.groups[-1].parents | {"brand": dense}
    other = replace(model, groups=[*model.groups[:-1], replace(model.groups[-1], parents=parents)])
    seen = rows(model, 20, np.random.default_rng(6))
    a, b = (Factored(m.hierarchy(), means=means) for m in (model, other))
    for state in (a.condition(a.init(), *seen), updated(a, a.init(), *seen)):
        found, expected = a.posterior(state), posterior(b, seen)
        for name in expected.mean:
            np.testing.assert_allclose(found.mean[name], expected.mean[name], **tolerance())
            np.testing.assert_allclose(found.cov[name], expected.cov[name], **tolerance())


class TestRefuses:
    def test_unknown_means(self):
        with pytest.raises(ValueError, match="means is 'exact'; expected 'decoupled' or 'joint'"):
            Factored(linear(np.ones((3, 2)), 2), means="exact")

    def test_more_than_two_levels(self):
        hierarchy = three_level(np.ones((3, 2)), np.ones((4, 3)), 2)
        with pytest.raises(ValueError, match=r"'item' has parents \['effect'\]: use ClosedForm"):
            Factored(hierarchy)

    def test_actions_that_are_tied_without_effects(self):
        cov = covariance("joint", 3, 2, np.random.default_rng(0))
        hierarchy = Hierarchy([Level("action", 3, cov=cov)], Gaussian(1.0), 2)
        with pytest.raises(ValueError, match=r"'action' has a joint covariance.*use ClosedForm"):
            Factored(hierarchy)

    def test_something_else(self):
        message = "Factored: got 3; expected a Hierarchy"
        with as_a_user(), pytest.raises(TypeError, match=message):
            Factored(3)

    def test_joint_means_of_too_many_effects(self):
        parents = {"effect": Sparse([[0], [1]], [[1.0], [1.0]])}
        levels = [Level("effect", 100_000), Level("action", 2, parents=parents)]
        hierarchy = Hierarchy(levels, Gaussian(1.0), 4)
        with pytest.raises(ValueError, match=r"GiB.*use Factored with means='decoupled'"):
            Factored(hierarchy, means="joint")
