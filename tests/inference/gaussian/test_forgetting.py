"""Forgetting is exact: it is the posterior under noise that grows with the age of an observation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from backends import BACKENDS, assert_same_posterior, make
from dense_posterior import dense_posterior, largest_error
from gaussian_models import case, rows, three_levels
from hierarchies import Rows
from mistakes import as_a_user
from mixts.inference import ClosedForm, Factored, Laplace
from mixts.models import Sparse, glm, linear, nonlinear
from tolerance import tolerance

# Seeds of structures with every depth, crossed and skipped parents, sparse and matrix weights.
STRUCTURES = [1, 2, 7, 11, 12, 25, 28, 35]

SLOW = [name for name in BACKENDS if name != "decoupled"]


@jax.jit
def live(backend, seen, factors):
    """Every observation is followed by some loss of memory."""

    def step(state, row):
        *one, factor = row
        return backend.forget(backend.update(state, *one), factor), None

    return jax.lax.scan(step, backend.init(), (*seen, factors))[0]


def aged(seen, factors) -> Rows:
    """The same with noise that has grown with age: a smaller signal under the same noise."""
    signal = np.sqrt(np.cumprod(factors[::-1])[::-1])
    return Rows(signal[:, None] * seen.contexts, seen.actions, signal * seen.rewards)


def error(backend, state, dense) -> float:
    posterior = backend.posterior(state)
    return largest_error(posterior.mean, posterior.cov, dense.log_evidence, dense)


def check_growing_noise(structure: int) -> None:
    model, _ = case(structure, seed=structure)
    rng = np.random.default_rng(structure)
    seen, factors = rows(model, 40, rng), rng.choice([1.0, 0.99, 0.9, 0.6], 40)
    backend = ClosedForm(model.hierarchy())
    found = live(backend, seen, factors)
    assert error(backend, found, dense_posterior(model, aged(seen, factors))) < tolerance()["rtol"]


def test_a_hierarchy_is_that_of_growing_noise(x64):
    check_growing_noise(28)


@pytest.mark.slow
@pytest.mark.parametrize("structure", STRUCTURES)
def test_any_hierarchy_is_that_of_growing_noise(structure, precision):
    check_growing_noise(structure)


@pytest.mark.parametrize(
    "name", ["decoupled", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_backends_agree_with_conditioning_on_less(name, x64):
    """Also those whose effects are factored, for which there is no dense reference."""
    model, backend = make(name)
    rng = np.random.default_rng(1)
    seen, factors = rows(model, 40, rng), rng.uniform(0.5, 1.0, 40)
    found = live(backend, seen, factors)
    expected = backend.condition(backend.init(), *aged(seen, factors))
    assert_same_posterior(backend, found, expected._replace(log_evidence=found.log_evidence))


def test_a_link_is_refitted(x64):
    rng = np.random.default_rng(3)
    backend = Laplace(nonlinear(rng.normal(size=(6, 2)), 2))
    x, a, y = rng.normal(size=(40, 2)), rng.integers(0, 6, 40), rng.normal(size=40)
    seen = backend.condition(backend.init(), x, a, y)
    found = backend.posterior(backend.forget(seen, 0.25))
    expected = backend.posterior(backend.condition(backend.init(), x / 2, a, y / 2))
    for level in found.mean:
        # Newton's method stops where the density no longer rises: the mode is known to its root.
        np.testing.assert_allclose(found.mean[level], expected.mean[level], atol=1e-6)
        np.testing.assert_allclose(found.cov[level], expected.cov[level], atol=1e-6)


def test_a_factor_of_one_changes_no_bit():
    model, backend = make("closed form")
    state = backend.condition(backend.init(), *rows(model, 9, np.random.default_rng(4)))
    jax.tree.map(np.testing.assert_array_equal, backend.forget(state, 1), state)


def test_before_any_data_there_is_nothing_to_forget():
    _, backend = make("closed form")
    state = backend.forget(backend.init(), 0.3)
    # The prior's root was made by substitution, this one by a Cholesky factor of the identity.
    found, prior = backend.posterior(state), backend.posterior(backend.init())
    jax.tree.map(np.testing.assert_array_equal, state.actions, backend.init().actions)
    for level in prior.mean:
        np.testing.assert_allclose(found.mean[level], prior.mean[level], **tolerance())
        np.testing.assert_allclose(found.cov[level], prior.cov[level], **tolerance())


def test_all_is_forgotten_in_the_end():
    """The posterior tends to the prior, and no rounding error is left of the way there."""
    model, backend = make("closed form")
    state = backend.condition(backend.init(), *rows(model, 60, np.random.default_rng(5)))
    step = jax.jit(lambda state, _: (backend.forget(state, 0.8), None))
    state, _ = jax.lax.scan(step, state, None, length=500)
    found, prior = backend.posterior(state), backend.posterior(backend.init())
    for level in prior.mean:
        np.testing.assert_allclose(found.mean[level], prior.mean[level], **tolerance())
        np.testing.assert_allclose(found.cov[level], prior.cov[level], **tolerance())


@pytest.mark.slow
def test_a_long_life_in_float32():
    """A thousand rounds of updates and forgetting lose no more digits than one."""
    model = three_levels()
    seen, factors = rows(model, 1000, np.random.default_rng(6)), np.full(1000, 0.99)
    backend = ClosedForm(model.hierarchy())
    dense = dense_posterior(model, aged(seen, factors))
    assert error(backend, live(backend, seen, factors), dense) < tolerance()["rtol"]


def test_what_is_left_is_no_evidence():
    model, backend = make("closed form")
    state = backend.condition(backend.init(), *rows(model, 9, np.random.default_rng(7)))
    forgotten = backend.forget(state, 0.5)
    assert np.isnan(backend.posterior(forgotten).log_evidence)
    assert (int(forgotten.info.observed), int(forgotten.info.rejected)) == (9, 0)
    _, factored = make("decoupled")
    forgotten = factored.forget(factored.init(), 0.5)
    assert float(forgotten.log_evidence) == 0.0
    assert factored.posterior(forgotten).log_evidence is None


@pytest.mark.slow
def test_states_and_factors_may_be_batched(x64):
    model, backend = make("closed form")
    state = backend.condition(backend.init(), *rows(model, 20, np.random.default_rng(8)))
    factors = jnp.array([0.2, 0.7, 1.0])
    together = jax.vmap(backend.forget, in_axes=(None, 0))(state, factors)
    for i, factor in enumerate(factors):
        alone = backend.forget(state, factor)
        one = jax.tree.map(lambda leaf, i=i: leaf[i], together)
        assert_same_posterior(backend, one, alone)


def test_inside_jit_a_bad_factor_is_counted():
    model, backend = make("closed form")
    state = backend.condition(backend.init(), *rows(model, 9, np.random.default_rng(9)))
    forget = jax.jit(backend.forget)
    for factor in (0.0, -0.5, 1.5, np.nan):
        found = forget(state, factor)
        assert int(backend.status(found).counts["rejected"]) == 1
        jax.tree.map(np.testing.assert_array_equal, found._replace(info=state.info), state)


@pytest.mark.parametrize(
    ("factor", "error", "message"),
    [
        (0.0, ValueError, r"forget factor is 0; expected one in \(0, 1\]"),
        (1.01, ValueError, r"forget factor is 1\.01; expected one in \(0, 1\]"),
        (-1, ValueError, r"forget factor is -1; expected"),
        (np.nan, ValueError, "forget factor: holds nan"),
        ([0.5, 0.5], ValueError, r"shape \(2,\); expected one number"),
        ("half", TypeError, "expected a number"),
    ],
)
def test_bad_factors_are_refused(factor, error, message):
    _, backend = make("closed form")
    with as_a_user(), pytest.raises(error, match=message):
        backend.forget(backend.init(), factor)


@pytest.mark.parametrize(
    "backend",
    [
        lambda: Laplace(glm(Sparse([[0], [1]], [[1.0], [1.0]]), 2)),
        lambda: Factored(glm(Sparse([[0], [1]], [[1.0], [1.0]]), 2)),
        lambda: Laplace(linear(np.ones((3, 2)), 2)),
    ],
)
def test_rewards_that_are_kept_are_not_forgotten(backend):
    with (
        as_a_user(),
        pytest.raises(ValueError, match=r"keeps every reward.*use ExpectationPropagation"),
    ):
        backend().forget(None, 0.5)
