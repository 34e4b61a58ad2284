"""`Factored` with rewards that are not Gaussian: the formulas of Appendix E.1."""

from dataclasses import replace

import jax
import numpy as np
import pytest
import scipy.linalg

from backends import updated
from gaussian_models import crossed_effects
from glm_models import simulate
from hierarchies import Few, Group, Model
from mixts.inference import Factored
from sampling import unoptimised
from scipy_density import spread
from scipy_sites import site
from tolerance import tolerance

pytestmark = pytest.mark.usefixtures("x64")

N = 48


@pytest.fixture(autouse=True)
def compile_quickly():
    with unoptimised():
        yield


def learn(hierarchy, seen, means="decoupled"):
    return _learn(Factored(hierarchy, means=means, capacity=N), seen)


@jax.jit
def _learn(backend, seen):
    state = backend.condition(backend.init(), *seen)
    posterior = backend.posterior(state)
    return posterior.mean, posterior.cov, state.memory, state.info.unconverged


@jax.jit
def _learn_one_by_one(backend, seen):
    state = updated(backend, backend.init(), *seen)
    posterior = backend.posterior(state)
    return posterior.mean, posterior.cov, state.memory, state.info.unconverged


def problem(model: Model | None = None):
    """Two levels of effects under five actions, the last of which is never taken."""
    model = model or crossed_effects(joint=False)
    model, seen = simulate(model, N, np.random.default_rng(1), "bernoulli")
    return model, seen._replace(actions=seen.actions % (model.groups[-1].size - 1))


def dense(weights, size: int, parents: int, dim: int) -> np.ndarray:
    """Weights of any form as (size, d, parents * d): what stands before all of a level's vectors."""
    maps = np.zeros((size, dim, parents, dim))
    if isinstance(weights, Few):
        for i in range(size):
            for j, value in zip(weights.indices[i], weights.values[i], strict=True):
                maps[i, :, j, :] += value * np.eye(dim)
    elif weights.ndim == 4:
        maps += np.moveaxis(weights, 1, 2)
    else:
        maps += weights[:, None, :, None] * np.eye(dim)[:, None, :]
    return maps.reshape(size, dim, parents * dim)


class Written:
    """A two-level model written out: effects stacked, `Gamma_i` before them, actions one by one."""

    def __init__(self, model: Model):
        *above, item = model.groups
        self.above, self.dim, d = above, model.dim, model.dim
        maps = [dense(item.parents[g.name], item.size, g.size, d) for g in above]
        self.Gamma = np.concatenate(maps, axis=2)
        self.mu = np.concatenate([np.broadcast_to(g.mean, (g.size, d)).ravel() for g in above])
        self.Sigma = scipy.linalg.block_diag(*(b for g in above for b in spread(g, {}, d)))
        self.intercepts = np.broadcast_to(item.mean, (item.size, d))
        self.own = spread(item, {}, d)

    def blocks(self) -> list[slice]:
        return [slice(j, j + self.dim) for j in range(0, len(self.mu), self.dim)]

    def messages(self, G, B):
        """`(Sigma_0 + G^-1)^-1` and that times the estimate, for `G` that may be singular."""
        for own, intercept, g, b in zip(self.own, self.intercepts, G, B, strict=True):
            Lambda = np.linalg.inv(own)
            S = np.linalg.inv(Lambda + g)
            yield Lambda - Lambda @ S @ Lambda, Lambda @ S @ (b - g @ intercept)

    def decoupled(self, G, B):
        """The displayed formulas: each effect as if the others were at their prior means."""
        mean, cov = np.zeros_like(self.mu), np.zeros_like(self.Sigma)
        messages = list(self.messages(G, B))
        for block in self.blocks():
            precision = np.linalg.inv(self.Sigma[block, block])
            information = precision @ self.mu[block]
            for Gamma, (M, k) in zip(self.Gamma, messages, strict=True):
                C = Gamma[:, block]
                others = Gamma @ self.mu - C @ self.mu[block]
                precision = precision + C.T @ M @ C
                information = information + C.T @ (k - M @ others)
            cov[block, block] = np.linalg.inv(precision)
            mean[block] = cov[block, block] @ information
        return mean, cov

    def joint(self, G, B):
        """The proof: the joint posterior's means, and the inverses of its precision's blocks."""
        precision = np.linalg.inv(self.Sigma)
        information = precision @ self.mu
        for C, (M, k) in zip(self.Gamma, self.messages(G, B), strict=True):
            precision, information = precision + C.T @ M @ C, information + C.T @ k
        cov = np.zeros_like(self.Sigma)
        for block in self.blocks():
            cov[block, block] = np.linalg.inv(precision[block, block])
        return np.linalg.solve(precision, information), cov

    def actions(self, G, B, mean, cov):
        """Proposition 2 at the effects' means, and Lemma 3."""
        for i in range(len(self.own)):
            Lambda = np.linalg.inv(self.own[i])
            S = np.linalg.inv(Lambda + G[i])
            location = self.intercepts[i] + self.Gamma[i] @ mean
            gain = S @ Lambda @ self.Gamma[i]
            yield S @ (Lambda @ location + B[i]), S + gain @ cov @ gain.T


@pytest.mark.parametrize("means", ["decoupled", "joint"])
def test_formulas_of_the_paper(means):
    """From the likelihoods in the state; and one by one is all at once, to rounding.

    An action's likelihood is expanded under its marginal prior, which no other action changes.
    """
    model, seen = problem()
    written, backend = Written(model), Factored(model.hierarchy(), means=means, capacity=N)
    mean, cov, likelihoods, _ = _learn(backend, seen)
    G, B = np.asarray(likelihoods.precision), np.asarray(likelihoods.information)
    expected, spreads = getattr(written, means)(G, B)
    found = np.concatenate([mean[group.name].ravel() for group in written.above])
    np.testing.assert_allclose(found, expected, **tolerance())
    found = np.concatenate([cov[group.name] for group in written.above])
    blocks = [spreads[block, block] for block in written.blocks()]
    np.testing.assert_allclose(found, blocks, **tolerance())
    for i, (action_mean, action_cov) in enumerate(written.actions(G, B, expected, spreads)):
        np.testing.assert_allclose(mean["item"][i], action_mean, **tolerance())
        np.testing.assert_allclose(cov["item"][i], action_cov, **tolerance())

    again = _learn_one_by_one(backend, seen)
    for one, all_ in zip(
        jax.tree.leaves(again[:3]), jax.tree.leaves((mean, cov, likelihoods)), strict=True
    ):
        np.testing.assert_allclose(one, all_, **tolerance(10))


def test_likelihoods_are_expanded_under_the_marginal_prior():
    model, seen = problem()
    written = Written(model)
    _, _, likelihoods, unconverged = learn(model.hierarchy(), seen)
    assert int(unconverged) == 0
    for i, (Gamma, own) in enumerate(zip(written.Gamma, written.own, strict=True)):
        x, y = seen.contexts[seen.actions == i], seen.rewards[seen.actions == i]
        prior = np.linalg.inv(own + Gamma @ written.Sigma @ Gamma.T)
        expected = site("bernoulli", x, y, written.intercepts[i] + Gamma @ written.mu, prior)
        np.testing.assert_allclose(likelihoods.precision[i], expected.precision, **tolerance())
        np.testing.assert_allclose(likelihoods.information[i], expected.information, **tolerance())


def test_sparse_weights_are_dense_weights():
    model, seen = problem()
    *above, item = model.groups
    few = item.parents["brand"]
    full = np.zeros((item.size, 3))
    np.add.at(full, (np.arange(item.size)[:, None], few.indices), few.values)
    item = replace(item, parents=item.parents | {"brand": full})
    other = replace(model, groups=[*above, item])
    found, expected = learn(other.hierarchy(), seen), learn(model.hierarchy(), seen)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, **tolerance())


def test_a_single_parent_each_leaves_nothing_to_couple():
    """Then effects are independent given the likelihoods, and the displayed formulas are the joint's."""
    rng = np.random.default_rng(2)
    parents = Few(np.array([[0], [1], [1], [2], [0]]), rng.normal(size=(5, 1)))
    groups = [Group("zone", 3, mean=0.4, cov=2.0), Group("item", 5, parents={"zone": parents})]
    model, seen = problem(Model(groups, 2))
    found = learn(model.hierarchy(), seen, "decoupled")
    expected = learn(model.hierarchy(), seen, "joint")
    for a, b in zip(jax.tree.leaves(found[:2]), jax.tree.leaves(expected[:2]), strict=True):
        np.testing.assert_allclose(a, b, **tolerance())
    written = Written(model)
    G, B = np.asarray(found[2].precision), np.asarray(found[2].information)
    np.testing.assert_allclose(found[0]["zone"].ravel(), written.joint(G, B)[0], **tolerance())
