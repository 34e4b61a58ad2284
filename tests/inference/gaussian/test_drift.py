"""Levels that drift, beside one dense Gaussian of all rounds, and beside a filter on a dense matrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from backends import updated
from dense_drift import declared, dense_drift, dense_filter
from dense_posterior import largest_error
from glm_models import simulate, two_levels
from hierarchies import Model, Rows, covariance
from mistakes import as_a_user
from mixts.inference import ClosedForm, ExpectationPropagation, Factored, Laplace, Nuts
from mixts.models import Bernoulli, Gaussian, Hierarchy, Level, glm, linear
from random_trees import random_tree
from sampling import unoptimised


@pytest.fixture(autouse=True)
def compile_quickly():
    with unoptimised():
        yield


def tree(seed: int) -> Model:
    return random_tree([2, 3, 5], 2, crossed=True, seed=seed)


def drifts_of(model: Model, which: str) -> dict[str, np.ndarray]:
    """A covariance of steps, in a form each, of the levels named."""
    rng = np.random.default_rng(7)
    last = model.groups[-1]
    if which == "actions":
        return {last.name: covariance("matrices", last.size, model.dim, rng) / 5}
    forms = ["variance", "diagonal", "matrix"]
    chosen = model.groups[:1] if which == "top" else model.groups
    return {
        group.name: covariance(forms[i % 3], group.size, model.dim, rng) / 5
        for i, group in enumerate(chosen)
    }


def lived(backend, seen: Rows, moments: np.ndarray, now: float):
    """A state that takes rewards in when they come, some of a round at once."""
    state, before = backend.init(), 0.0
    for moment in np.unique(moments):
        state, before = backend.advance(state, moment - before), moment
        own = moments == moment
        rows = [part[own] for part in seen]
        at_once = own.sum() > 2
        state = backend.condition(state, *rows) if at_once else updated(backend, state, *rows)
    return backend.advance(state, now - before)


STRUCTURES = {"two levels": two_levels, "tree": tree}
MOMENTS = np.sort(np.random.default_rng(3).integers(0, 12, 30)).astype(float)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("kind", [ClosedForm, ExpectationPropagation])
@pytest.mark.parametrize("which", ["actions", "top", "all"])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_gaussian_rewards_are_exact(structure, which, kind):
    model, seen = simulate(STRUCTURES[structure](0), 30, np.random.default_rng(0))
    drifts = drifts_of(model, which)
    backend = kind(declared(model, drifts))
    state = lived(backend, seen, MOMENTS, 14.5)
    dense = dense_drift(model, drifts, seen, MOMENTS, 14.5)
    posterior = backend.posterior(state)
    assert backend.status(state).ok
    bound = 1e-9 if kind is ClosedForm else 1e-8  # by quadrature
    assert largest_error(posterior.mean, posterior.cov, state.log_evidence, dense) < bound


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("which", ["actions", "all"])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_clicks_are_matched_as_by_a_dense_filter(structure, which):
    contexts = np.random.default_rng(2).normal(size=(30, 2)) / 5
    rng = np.random.default_rng(1)
    model, seen = simulate(STRUCTURES[structure](3), 30, rng, "bernoulli", contexts)
    drifts, moments = drifts_of(model, which), np.arange(30.0)
    backend = ExpectationPropagation(declared(model, drifts))
    state = lived(backend, seen, moments, 30.0)
    dense = dense_filter(model, drifts, seen, moments, 30.0)
    posterior = backend.posterior(state)
    assert largest_error(posterior.mean, posterior.cov, state.log_evidence, dense) < 1e-6


@pytest.mark.parametrize("which", ["actions", "all"])
def test_draws_have_the_moments_of_the_posterior(which):
    model, seen = simulate(two_levels(0), 20, np.random.default_rng(0))
    backend = ClosedForm(declared(model, drifts_of(model, which)))
    state = lived(backend, seen, np.arange(20.0), 20.0)
    posterior, n = backend.posterior(state), 20_000
    draws = posterior.draw(jax.random.key(0), n)
    context = jnp.array([0.5, -1.0])
    for name, mean in posterior.mean.items():
        sd = np.sqrt(np.diagonal(posterior.cov[name], axis1=1, axis2=2))
        off = (draws[name].mean(0) - mean) / sd
        assert np.max(np.abs(off)) < 4.5 / np.sqrt(n)
        np.testing.assert_allclose(draws[name].std(0) / sd, 1, atol=4.5 / np.sqrt(2 * n))
    scores = posterior.draw_scores(jax.random.key(1), n, context)
    mean, cov = posterior.mean["item"], posterior.cov["item"]
    sd = np.sqrt(np.einsum("d,kde,e->k", context, cov, context))
    assert np.max(np.abs((scores.mean(0) - mean @ context) / sd)) < 4.5 / np.sqrt(n)
    np.testing.assert_allclose(scores.std(0) / sd, 1, atol=4.5 / np.sqrt(2 * n))


def test_factored_effects_above_actions_that_drift():
    """One effect is not mixed with any other: factored is exact."""
    levels = [Level("effect", 1, cov=2.0)]
    levels += [Level("action", 3, parents={"effect": np.ones((3, 1))}, drift=0.3)]
    hierarchy = Hierarchy(levels, Gaussian(0.5), dim=2)
    rng = np.random.default_rng(0)
    seen = Rows(rng.normal(size=(15, 2)), rng.integers(0, 3, 15), rng.normal(size=15))
    exact, factored = ClosedForm(hierarchy), Factored(hierarchy)
    ours, theirs = (b.posterior(lived(b, seen, np.arange(15.0), 15.0)) for b in (factored, exact))
    for name in theirs.mean:
        np.testing.assert_allclose(ours.mean[name], theirs.mean[name], atol=1e-4)
        np.testing.assert_allclose(ours.cov[name], theirs.cov[name], atol=1e-4)


@pytest.mark.parametrize("which", ["actions", "all"])
def test_twenty_thousand_rounds_in_float32(which):
    """What is known is forgotten at the rate at which it is learned, and rounding errors with it."""
    rng = np.random.default_rng(0)
    weights, n = rng.normal(size=(6, 2)), 20_000
    contexts, actions = rng.normal(size=(n, 2)), rng.integers(0, 6, n)
    rewards = rng.normal(size=n)

    def played():
        levels = [
            Level("effect", 2, drift=1e-3 if which == "all" else None),
            Level("action", 6, parents={"effect": weights}, drift=1e-3),
        ]
        backend = ClosedForm(Hierarchy(levels, Gaussian(0.5), dim=2))

        def one(state, row):
            return backend.advance(backend.update(state, *row)), None

        rows = jnp.asarray(contexts), jnp.asarray(actions), jnp.asarray(rewards)
        state = jax.jit(lambda: jax.lax.scan(one, backend.init(), rows)[0])()
        assert backend.status(state).ok
        posterior = backend.posterior(state)
        return jax.tree.map(np.asarray, (posterior.mean, posterior.cov))

    means, covs = played()
    with jax.enable_x64(True):
        exact_means, exact_covs = played()
    for name, cov in exact_covs.items():
        sd = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
        assert np.max(np.abs(means[name] - exact_means[name]) / sd) < 0.01
        found_sd = np.sqrt(np.diagonal(covs[name], axis1=1, axis2=2))
        np.testing.assert_allclose(found_sd, sd, rtol=0.01)


def test_no_time_changes_nothing_and_without_drift_no_time_does():
    hierarchy = linear([[1.0], [1.0]], dim=1)
    backend = ClosedForm(hierarchy)
    state = backend.update(backend.init(), [1.0], 0, 1.0)
    assert backend.advance(state, 5) is state
    for other in (Nuts(hierarchy), Laplace(glm([[1.0], [1.0]], dim=1))):
        state = other.init(jax.random.key(0))
        assert other.advance(state, 5) is state


def walking(reward=None) -> Hierarchy:
    levels = [Level("effect", 1, drift=0.1), Level("action", 2, parents={"effect": [[1.0], [1.0]]})]
    return Hierarchy(levels, reward or Gaussian(1.0), dim=1)


def test_rounds_that_are_no_number_pass_no_time_inside_jit():
    backend = ClosedForm(walking())
    state = backend.update(backend.init(), [1.0], 0, 1.0)
    for bad in (-1.0, np.nan, np.inf):
        later = jax.jit(backend.advance)(state, bad)
        assert int(later.info.rejected) == 1
        before, after = backend.posterior(state), backend.posterior(later)
        np.testing.assert_allclose(after.cov["action"], before.cov["action"], rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        (lambda b: b.advance(b.init(), -1), ValueError, "advance rounds is -1; expected how many"),
        (lambda b: b.advance(b.init(), [1.0]), ValueError, r"advance rounds has shape \(1,\)"),
        (lambda b: b.forget(b.init(), 0.9), ValueError, "levels that drift"),
        (lambda b: b.with_hierarchy(b.hierarchy), TypeError, "where a level above them drifts"),
        (lambda b: Factored(b.hierarchy), ValueError, "a level above the actions drifts"),
        (lambda b: Laplace(walking(Bernoulli())), ValueError, "as rewards of one moment"),
        (lambda b: Nuts(b.hierarchy).advance(None), TypeError, "Nuts knows one moment only"),
        (
            lambda b: Hierarchy([Level("a", 2, drift=[1.0, 2.0])], Gaussian(), dim=3),
            ValueError,
            r"level 'a': drift has shape \(2,\); expected one of",
        ),
        (
            lambda b: Hierarchy([Level("a", 2, drift=0.0)], Gaussian(), dim=1),
            ValueError,
            "level 'a': drift holds the variance 0",
        ),
    ],
)
def test_what_is_refused(call, kind, said):
    backend = ClosedForm(walking())
    with as_a_user(), pytest.raises(kind, match=said):
        call(backend)
