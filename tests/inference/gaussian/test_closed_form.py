"""`ClosedForm` is the posterior: means, covariances and evidence are those of dense conditioning."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dense_posterior import dense_posterior, largest_error, posterior_by_sums
from gaussian_models import CONTEXTS, case, rows, three_levels
from hierarchies import Few, Group, Model, Rows, covariance
from mixts.inference import ClosedForm
from tolerance import tolerance


@jax.jit
def exact(hierarchy, seen):
    """All of it in one compilation; the numbers of the hierarchy are traced."""
    backend = ClosedForm(hierarchy)
    posterior = backend.posterior(backend.condition(backend.init(), *seen))
    return posterior.mean, posterior.cov, posterior.log_evidence


def check(model: Model, seen) -> None:
    error = largest_error(*exact(model.hierarchy(), seen), dense_posterior(model, seen))
    assert error < tolerance()["rtol"]


# Seeds of structures that between them have every depth, dimension and form, and 0 to 200 rows.
STRUCTURES = [1, 2, 7, 11, 12, 14, 19, 25, 26, 28, 35]


@pytest.mark.parametrize("structure", STRUCTURES)
@settings(max_examples=4)
@given(seed=st.integers(0, 2**32 - 1))
def test_any_hierarchy(structure, seed, precision):
    check(*case(structure, seed))


def test_any_contexts(precision):
    """Where contexts repeat, share a direction or are zero, G is singular; action 3 is not taken."""
    model, rng = three_levels(), np.random.default_rng(1)
    for contexts in CONTEXTS:
        check(model, rows(model, 40, rng, contexts, taken=3))


def test_a_single_level_of_correlated_actions(precision):
    rng, size = np.random.default_rng(2), 3
    mean, cov = rng.normal(size=(size, 1)), covariance("joint", size, 1, rng)
    model = Model([Group("item", size, mean=mean, cov=cov)], 1, noise=0.5)
    check(model, rows(model, 30, rng))


def test_an_action_without_parents_of_its_own(precision):
    """All weights of its sparse row are padding: it is known from its own rewards alone."""
    rng = np.random.default_rng(3)
    few = Few(np.array([[0, 1], [2, 2], [1, 2]]), np.array([[0.5, -1.0], [0.0, 0.0], [2.0, 1.0]]))
    groups = [Group("zone", 3, cov=0.8), Group("item", 3, parents={"zone": few}, cov=1.2)]
    model = Model(groups, 2)
    check(model, rows(model, 20, rng))


def test_declared_eagerly():
    """Every step on its own, with concrete numbers: the checks of a declaration run too."""
    model, rng = three_levels(4), np.random.default_rng(4)
    seen = rows(model, 25, rng)
    backend = ClosedForm(model.hierarchy())
    posterior = backend.posterior(backend.condition(backend.init(jax.random.key(0)), *seen))
    found = posterior.mean, posterior.cov, posterior.log_evidence
    assert largest_error(*found, dense_posterior(model, seen)) < tolerance()["rtol"]
    assert {value.dtype.name for value in jax.tree.leaves(found)} == {"float32"}


def test_one_context_over_and_over_in_float32():
    """Ten thousand times the same context: across it, the prior's variance is left."""
    rng, n = np.random.default_rng(5), 10_000
    weights = np.array([[1.0, 0.5], [0.3, 1.0]])
    model = Model([Group("zone", 2), Group("item", 2, parents={"zone": weights})], 2)
    seen = Rows(np.tile([1.0, 0.7], (n, 1)), np.zeros(n, int), rng.normal(size=n))
    mean, cov, _ = exact(model.hierarchy(), seen)
    expected = posterior_by_sums(model, seen)
    # Measured: 3.4e-4; ten thousand roundings of a root that hardly moves any more.
    assert largest_error(mean, cov, expected.log_evidence, expected) < 1e-3
