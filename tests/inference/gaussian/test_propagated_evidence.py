"""The evidence of expectation propagation and its slope, beside the textbook's and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dense_propagation import dense_propagation
from glm_models import STRUCTURES, simulate, two_levels
from mixts.inference import ExpectationPropagation, log_evidence
from mixts.models import (
    Bernoulli,
    Data,
    Hierarchy,
    Level,
    NegativeBinomial,
    Ordinal,
    Poisson,
    StudentT,
)
from random_trees import random_tree
from sampling import unoptimised


@pytest.fixture(autouse=True)
def compile_quickly(x64):
    with unoptimised():
        yield


@pytest.mark.parametrize("reward", ["bernoulli", "poisson"])
@pytest.mark.parametrize("structure", ["two levels", "tree"])
def test_the_evidence_is_that_of_the_textbook(structure, reward):
    model = random_tree([2, 3, 5], 2, crossed=True, seed=3)
    model = model if structure == "tree" else STRUCTURES[structure](3)
    contexts = np.random.default_rng(2).normal(size=(25, 2)) / 5
    model, seen = simulate(model, 25, np.random.default_rng(1), reward, contexts)
    dense = dense_propagation(model, seen)
    found = log_evidence(model.hierarchy(), Data(*seen))
    assert abs(float(found) - dense.log_evidence) < 1e-6
    at_once = ExpectationPropagation(model.hierarchy())
    state = at_once.condition(at_once.init(), *seen)
    assert abs(float(found) - float(state.log_evidence)) < 1e-6


LAWS = {
    "clicks": (Bernoulli(), None),
    "clicks of many": (Bernoulli(), 5),
    "counts": (Poisson(), None),
    "negative binomial": (NegativeBinomial(1.5), None),
    "stars": (Ordinal([-1.0, 0.2, 1.0]), None),
    "student": (StudentT(4.0, 0.5), None),
}


@pytest.mark.parametrize("name", LAWS)
def test_its_slope_is_that_of_finite_differences(name):
    """In every number of the hierarchy, those of the law of rewards among them."""
    reward, trials = LAWS[name]
    rng = np.random.default_rng(0)
    declared = two_levels(3).hierarchy()
    hierarchy = Hierarchy(declared.levels, reward, 2)
    n = 30
    contexts, actions = rng.normal(size=(n, 2)) / 2, rng.integers(0, 4, n)
    predictor = rng.normal(size=n) / 2
    exposure = None if trials is None else np.full(n, float(trials))
    drawn = reward.law_of(jnp.asarray(predictor), exposure).sample(jax.random.key(0))
    data = Data(contexts, actions, np.asarray(drawn, float), exposure)

    def value(leaves):
        return log_evidence(jax.tree.unflatten(structure, leaves), data)

    leaves, structure = jax.tree.flatten(hierarchy)
    slopes = jax.grad(value)(leaves)
    step = 1e-5
    for i, (leaf, slope) in enumerate(zip(leaves, slopes, strict=True)):
        direction = np.random.default_rng(i).normal(size=leaf.shape)
        if leaf.ndim == 3 or leaf.shape == (4, 4):  # covariances stay symmetric
            direction = (direction + np.swapaxes(direction, -1, -2)) / 2
        ends = [
            float(value([*leaves[:i], leaf + h * direction, *leaves[i + 1 :]]))
            for h in (step, -step)
        ]
        expected = (ends[0] - ends[1]) / (2 * step)
        found = float(np.sum(np.asarray(slope) * direction))
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-4)


def test_gaussian_rewards_by_messages_have_the_exact_evidence_and_slope():
    from mixts.inference.gaussian.propagated_evidence import propagated_log_evidence

    model, seen = simulate(two_levels(0), 20, np.random.default_rng(0))
    hierarchy = model.hierarchy()
    rows = [jnp.asarray(part) for part in seen]

    def exact(h):
        return log_evidence(h, Data(*seen))

    def matched(h):
        return propagated_log_evidence(h, *rows, None)

    np.testing.assert_allclose(matched(hierarchy), exact(hierarchy), rtol=1e-8)
    for ours, theirs in zip(
        jax.tree.leaves(jax.grad(matched)(hierarchy)),
        jax.tree.leaves(jax.grad(exact)(hierarchy)),
        strict=True,
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_rows_that_are_no_observations_do_not_count():
    model, seen = simulate(two_levels(0), 12, np.random.default_rng(0), "bernoulli")
    hierarchy = model.hierarchy()
    whole = log_evidence(hierarchy, Data(*seen))
    more = [np.concatenate([part, part[:3]]) for part in seen]

    @jax.jit
    def padded(actions):
        return log_evidence(hierarchy, Data(more[0], actions, more[2]))

    actions = jnp.asarray(more[1]).at[-3:].set(99)
    np.testing.assert_allclose(padded(actions), whole, rtol=1e-7)


def test_levels_that_are_not_gaussian_are_refused():
    hierarchy = Hierarchy(
        [Level("effect", 1), Level("action", 2, parents={"effect": [[1.0], [1.0]]}, link=jnp.tanh)],
        Bernoulli(),
        dim=1,
    )
    with pytest.raises(ValueError, match="log_evidence needs linear-Gaussian levels"):
        log_evidence(hierarchy, Data([[1.0]], [0], [1.0]))
