"""Random trees of two to six levels against dense conditioning: the posterior, draws and the evidence."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dense_posterior import dense_posterior, largest_error, slope_of_evidence
from gaussian_models import rows
from mixts.inference import ClosedForm, log_evidence
from mixts.inference.gaussian import action_blocks, backend, joint_levels
from mixts.inference.gaussian.block_levels import in_blocks
from mixts.models import Data, Gaussian, Hierarchy, tree
from random_trees import any_tree, neighbour, random_tree
from sampling import unoptimised
from tolerance import tolerance

TREES = {
    "two levels": random_tree([3, 6], 5),
    "three levels, crossed top": random_tree([2, 4, 6], 2, crossed=True),
    "four levels": random_tree([1, 2, 4, 6], 3),
    "five levels, crossed top": random_tree([2, 3, 3, 4, 6], 1, crossed=True),
    "six levels": random_tree([2, 2, 3, 3, 4, 6], 4),
}
QUICK = "three levels, crossed top"
EVERY = [name if name == QUICK else pytest.param(name, marks=pytest.mark.slow) for name in TREES]


@pytest.fixture(autouse=True)
def compile_quickly():
    with unoptimised():
        yield


def seen_of(model):
    """Rows of all actions but one; so few that what is said of most vectors is singular."""
    return rows(model, 12, np.random.default_rng(1), taken=max(1, model.groups[-1].size - 1))


def jointly(hierarchy):
    """The same law, of which nothing is known to be a tree."""
    levels = [level.remade(branching=False) for level in hierarchy.levels]
    return hierarchy.remade(levels=levels)


def slopes(hierarchy, seen):
    """Those of missing arrows left out: they are structure, which blocks do not question."""
    numbers = eqx.filter(hierarchy, eqx.is_inexact_array)
    found = eqx.filter_jit(eqx.filter_grad(lambda h: log_evidence(h, Data(*seen))))(hierarchy)
    return jax.tree.leaves(jax.tree.map(lambda f, n: jnp.where(n != 0, f, 0), found, numbers))


@pytest.mark.parametrize("name", EVERY)
def test_posterior_and_evidence(name, precision):
    check_posterior(TREES[name])


def check_posterior(model):
    seen, hierarchy = seen_of(model), model.hierarchy()

    @jax.jit
    def found(hierarchy):
        backend = ClosedForm(hierarchy)
        posterior = backend.posterior(backend.condition(backend.init(), *seen))
        return posterior.mean, posterior.cov, log_evidence(hierarchy, Data(*seen))

    assert in_blocks(hierarchy) == len(model.groups) - (3 if "zone" in hierarchy else 1)
    error = largest_error(*found(hierarchy), dense_posterior(model, seen))
    assert error < tolerance()["rtol"]


@pytest.mark.parametrize("name", EVERY)
def test_slope_of_the_evidence(name, precision):
    """That of all levels jointly, which is checked against differences elsewhere."""
    hierarchy, seen = TREES[name].hierarchy(), seen_of(TREES[name])
    for a, b in zip(slopes(hierarchy, seen), slopes(jointly(hierarchy), seen), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance()["rtol"], atol=tolerance()["rtol"])


@pytest.mark.parametrize("name", EVERY)
def test_slope_of_the_evidence_is_the_dense_one(name, precision):
    """Along the way to other covariances, means, weights and noise."""
    check_slope(TREES[name])


def check_slope(model):
    seen, hierarchy = seen_of(model), model.hierarchy()
    slope = eqx.filter_jit(eqx.filter_grad(lambda h: log_evidence(h, Data(*seen))))(hierarchy)
    for seed in range(4):
        other = neighbour(model, seed)
        parts = jax.tree.map(
            lambda a, b, g: np.sum((np.asarray(b, float) - np.asarray(a, float)) * g),
            *(eqx.filter(h, eqx.is_inexact_array) for h in (hierarchy, other.hierarchy())),
            slope,
        )
        parts = np.array(jax.tree.leaves(parts))
        error = abs(parts.sum() - slope_of_evidence(model, other, seen))
        assert error < tolerance()["rtol"] * max(1.0, np.abs(parts).sum())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_any_tree(seed, precision):
    model = any_tree(seed)
    check_posterior(model)
    check_slope(model)


@pytest.mark.slow
def test_curvature_of_the_evidence(x64):
    """A second derivative is right too, though `gather` has a derivative of its own."""
    hierarchy = tree([[0, 0, 1], [0, 0, 1, 2, 2]], 1, covs=[0.5, 0.3])
    contexts = np.random.default_rng(0).normal(size=(20, 1))
    data = Data(contexts, np.arange(20) % 5, 2 * contexts[:, 0] + 1.0)

    def evidence(numbers, declare):
        levels = [
            level.remade(cov=numbers[i], mean=numbers[3 + i])
            for i, level in enumerate(hierarchy.levels)
        ]
        return log_evidence(declare(Hierarchy(levels, Gaussian(numbers[-1]), 1)), data)

    at = jnp.array([1.0, 0.5, 0.3, 0.2, -0.1, 0.4, 0.8])
    found, expected = (
        jax.jit(jax.hessian(lambda numbers, declare=declare: evidence(numbers, declare)))(at)
        for declare in (lambda h: h, jointly)
    )
    np.testing.assert_allclose(found, expected, **tolerance())


@pytest.mark.parametrize("name", EVERY)
def test_draws_have_the_joint_covariance(name, precision, monkeypatch):
    """Across levels too: a draw is `mean + J eps`, linear in its noise, and so has `J J'`."""
    model = TREES[name]
    seen, closed_form = seen_of(model), ClosedForm(model.hierarchy())
    state = closed_form.condition(closed_form.init(), *seen)
    monkeypatch.setattr(backend, "_sample", backend._sample.__wrapped__)  # compiled with real noise

    def draw(eps):
        used = []

        def noise(key, shape, dtype):
            start = sum(used)
            used.append(np.prod(shape))
            return eps[start : start + used[-1]].reshape(shape)

        for module in (action_blocks, joint_levels):
            monkeypatch.setattr(module, "standard_normal", noise)
        vectors = closed_form.sample(jax.random.key(0), state)
        return jnp.concatenate([vectors[group.name].ravel() for group in model.groups])

    nothing = jnp.zeros(model.dim * sum(group.size for group in model.groups))
    mean, J = jax.jit(lambda eps: (draw(eps), jax.jacfwd(draw)(eps)))(nothing)
    dense = dense_posterior(model, seen)
    np.testing.assert_allclose(mean, dense.mean, **tolerance())
    size = tolerance()["rtol"] * np.abs(dense.cov).max()
    np.testing.assert_allclose(J @ J.T, dense.cov, rtol=tolerance()["rtol"], atol=size)


def test_a_tree_too_large_for_its_joint_covariance():
    """What all levels share would take 7 GB; the recursion of `ClosedForm` has the same evidence."""
    rng, sizes = np.random.default_rng(0), [20, 200, 2_000, 20_000]
    parents = [rng.integers(0, P, K) for P, K in itertools.pairwise(sizes)]
    hierarchy = tree(parents, 2, covs=[0.5, 0.3, 0.1], reward=Gaussian(0.5))
    closed_form = ClosedForm(hierarchy)
    assert in_blocks(hierarchy) == 3
    seen = rng.normal(size=(300, 2)), rng.integers(0, 20_000, 300), rng.normal(size=300)
    state = closed_form.condition(closed_form.init(), *seen)
    value, slope = eqx.filter_value_and_grad(log_evidence)(hierarchy, Data(*seen))
    np.testing.assert_allclose(value, state.log_evidence, rtol=1e-4)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slope))
    assert float(slope.actions.cov) != 0.0
