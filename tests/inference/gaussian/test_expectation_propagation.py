"""`ExpectationPropagation` beside the textbook on a dense matrix, and beside `ClosedForm`."""

import itertools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from backends import updated
from dense_propagation import dense_propagation
from glm_models import STRUCTURES, simulate, two_levels
from hierarchies import Model
from mixts.inference import ClosedForm, ExpectationPropagation, Factored, best_backend
from mixts.models import Bernoulli, Gaussian, Hierarchy, Level, Poisson, Reward, glm, linear
from random_trees import random_tree
from sampling import unoptimised


class Robust(Reward):
    def law(self, predictor):
        return dist.StudentT(4.0, predictor, 0.5)

    def mean(self, predictor):
        return predictor


@pytest.fixture(autouse=True)
def compile_quickly():
    with unoptimised():
        yield


def compare_with_dense(backend, state, dense, error: float = 1e-6):
    """Means to so many standard deviations, covariances and the evidence to so many of their size."""
    posterior = backend.posterior(state)
    for name, cov in dense.covs().items():
        sd = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
        assert np.max(np.abs(posterior.mean[name] - dense.means()[name]) / sd) < error
        scale = sd[:, :, None] * sd[:, None, :]
        assert np.max(np.abs(posterior.cov[name] - cov) / scale) < error
    assert abs(state.log_evidence - dense.log_evidence) < 10 * error


def tree(seed: int) -> Model:
    return random_tree([2, 3, 5], 2, crossed=True, seed=seed)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("reward", ["bernoulli", "poisson"])
@pytest.mark.parametrize("structure", [*STRUCTURES, "tree"])
def test_messages_that_agree_are_those_of_the_textbook(structure, reward):
    make = tree if structure == "tree" else STRUCTURES[structure]
    rng = np.random.default_rng(1)
    # Predictors whose variance is about one, of which quadrature has all digits.
    contexts = rng.normal(size=(25, 2)) / 5
    model, seen = simulate(make(3), 25, rng, reward, contexts)
    backend = ExpectationPropagation(model.hierarchy())
    state = backend.condition(backend.init(), *seen)
    assert backend.status(state).ok
    compare_with_dense(backend, state, dense_propagation(model, seen))


@pytest.mark.usefixtures("x64")
def test_a_law_that_is_not_log_concave():
    model, seen = simulate(two_levels(3), 25, np.random.default_rng(4), "poisson")
    rewards = np.random.default_rng(5).standard_t(2, size=25)
    seen = seen._replace(rewards=rewards)
    declared = model.hierarchy()
    backend = ExpectationPropagation(Hierarchy(declared.levels, Robust(), dim=model.dim))
    state = backend.condition(backend.init(), *seen)
    assert backend.status(state).ok
    dense = dense_propagation(replace(model, reward="student"), seen, damping=0.7)
    # 32 nodes have four digits of a density with two humps.
    compare_with_dense(backend, state, dense, error=1e-3)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("structure", ["three levels", "tree"])
def test_gaussian_rewards_are_exact(structure):
    make = tree if structure == "tree" else STRUCTURES[structure]
    model, seen = simulate(make(0), 30, np.random.default_rng(0))
    hierarchy = model.hierarchy()
    exact, matching = ClosedForm(hierarchy), ExpectationPropagation(hierarchy)
    expected = exact.condition(exact.init(), *seen)
    at_once = matching.condition(matching.init(), *seen)
    one_by_one = updated(matching, matching.init(), *seen)
    for found in (at_once, one_by_one):
        assert abs(found.log_evidence - expected.log_evidence) < 1e-8
        ours, theirs = matching.posterior(found), exact.posterior(expected)
        for name in theirs.mean:
            np.testing.assert_allclose(ours.mean[name], theirs.mean[name], rtol=1e-8, atol=1e-8)
            np.testing.assert_allclose(ours.cov[name], theirs.cov[name], rtol=1e-8, atol=1e-8)


def clicks(seed: int = 0, K: int = 20, n: int = 500, reward=None):
    """The paper's setting, with clicks."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.ones(3), K)
    levels = [Level("effect", 3), Level("action", K, parents={"effect": weights}, cov=0.5)]
    hierarchy = Hierarchy(levels, reward or Bernoulli(), dim=2)
    contexts, actions = rng.uniform(-1, 1, (n, 2)), rng.integers(0, K, n)
    theta = weights @ rng.normal(size=(3, 2)) + np.sqrt(0.5) * rng.normal(size=(K, 2))
    predictor = np.sum(contexts * theta[actions], axis=1)
    drawn = rng.uniform(size=n) < 1 / (1 + np.exp(-predictor))
    return hierarchy, (contexts, actions, drawn.astype(float))


def test_the_order_of_rows():
    hierarchy, seen = clicks()
    backend = ExpectationPropagation(hierarchy)
    order = np.random.default_rng(1).permutation(len(seen[0]))
    mixed = tuple(part[order] for part in seen)
    swept = backend.condition(backend.init(), *seen)
    reference = backend.posterior(swept)
    sd = np.sqrt(np.diagonal(reference.cov["action"], axis1=1, axis2=2))

    def apart(state):
        off = backend.posterior(state).mean["action"] - reference.mean["action"]
        return np.max(np.abs(off) / sd)

    assert apart(backend.condition(backend.init(), *mixed)) < 1e-4  # float32
    online, otherwise = (updated(backend, backend.init(), *rows) for rows in (seen, mixed))
    assert apart(online) < 0.1
    moved = backend.posterior(online).mean["action"] - backend.posterior(otherwise).mean["action"]
    assert np.sqrt(np.mean(np.square(moved / sd))) < 0.05


def test_without_sweeps_rows_are_matched_one_by_one():
    hierarchy, seen = clicks(K=4, n=30)
    backend = ExpectationPropagation(hierarchy, sweep=False)
    expected = updated(backend, backend.init(), *seen)
    found = backend.condition(backend.init(), *seen)
    np.testing.assert_allclose(found.log_evidence, expected.log_evidence, rtol=1e-5)
    for name, mean in backend.posterior(expected).mean.items():
        np.testing.assert_allclose(backend.posterior(found).mean[name], mean, atol=1e-5)


def two_batches(backend, seen):
    state = backend.condition(backend.init(), *(part[:250] for part in seen))
    return backend.condition(state, *(part[250:] for part in seen))


def test_batches_one_after_the_other():
    """Messages of an earlier batch are not taken out again: between one by one and all at once."""
    hierarchy, seen = clicks()
    backend = ExpectationPropagation(hierarchy)
    whole = backend.posterior(backend.condition(backend.init(), *seen))
    found = backend.posterior(two_batches(backend, seen))
    sd = np.sqrt(np.diagonal(whole.cov["action"], axis1=1, axis2=2))
    assert np.max(np.abs(found.mean["action"] - whole.mean["action"]) / sd) < 0.05


HARD = {
    "separable": (Bernoulli(), lambda x, a, rng: (x[:, 0] > 0).astype(float)),
    "all clicks": (Bernoulli(), lambda x, a, rng: np.ones(len(x))),
    "one row an action": (Bernoulli(), None),
    "counts of thousands": (Poisson(), lambda x, a, rng: rng.poisson(3000.0, len(x)).astype(float)),
}


@pytest.mark.parametrize("case", HARD)
def test_hard_data_are_right_in_float32(case):
    reward, draw = HARD[case]
    rng = np.random.default_rng(0)
    n = 4 if draw is None else 60
    contexts = np.column_stack([rng.normal(size=n), np.ones(n)])
    actions = np.arange(n) % 4
    rewards = np.ones(n) if draw is None else draw(contexts, actions, rng)

    def fitted(way):
        levels = [
            Level("effect", 2, cov=10.0),
            Level("action", 4, parents={"effect": np.ones((4, 2))}, cov=10.0),
        ]
        backend = ExpectationPropagation(Hierarchy(levels, reward, dim=2))
        seen = contexts, actions, rewards
        if way == "at once":
            state = backend.condition(backend.init(), *seen)
        else:
            state = updated(backend, backend.init(), *seen)
        assert backend.status(state).ok
        posterior = backend.posterior(state)
        return jax.tree.map(np.asarray, (posterior.mean, posterior.cov, state.log_evidence))

    for way in ("at once", "one by one"):
        means, covs, log_evidence = fitted(way)
        assert np.isfinite(log_evidence)
        with jax.enable_x64(True):
            exact_means, exact_covs, _ = fitted(way)
        for name, cov in exact_covs.items():
            sd = np.sqrt(np.diagonal(cov, axis1=1, axis2=2))
            assert np.max(np.abs(means[name] - exact_means[name]) / sd) < 0.02
            found_sd = np.sqrt(np.diagonal(covs[name], axis1=1, axis2=2))
            np.testing.assert_allclose(found_sd, sd, rtol=0.02)


@pytest.mark.parametrize("bad", ["action 2", "action -1", "nan reward", "infinite context"])
def test_a_bad_observation_inside_jit_is_only_counted(bad):
    backend = ExpectationPropagation(glm([[1.0], [1.0]], dim=1))
    before = backend.update(backend.init(), [1.0], 0, 1.0)
    row = [jnp.ones(1), jnp.int32(0), jnp.ones(())]
    match bad:
        case "action 2" | "action -1":
            row[1] = jnp.int32(bad.split()[1])
        case "nan reward":
            row[2] = jnp.nan * row[2]
        case "infinite context":
            row[0] = jnp.inf * row[0]
    for after in (
        jax.jit(ExpectationPropagation.update)(backend, before, *row),
        jax.jit(ExpectationPropagation.condition)(
            backend, before, *(jnp.stack([part, part]) for part in row)
        ),
    ):
        assert int(after.info.rejected) > 0
        assert int(after.info.observed) == int(before.info.observed)
        same = before._replace(info=after.info)
        for old, new in zip(jax.tree.leaves(same), jax.tree.leaves(after), strict=True):
            np.testing.assert_allclose(new, old, rtol=1e-6)


def test_forgetting_gaussian_rewards_is_that_of_the_closed_form():
    hierarchy, (contexts, actions, _) = clicks(K=4, n=40, reward=Gaussian(0.5))
    rewards = np.random.default_rng(0).normal(size=40)
    found = []
    for kind in (ClosedForm, ExpectationPropagation):
        backend = kind(hierarchy)
        state = backend.condition(backend.init(), contexts, actions, rewards)
        found.append(backend.posterior(backend.forget(state, 0.3)))
    for name in found[0].mean:
        np.testing.assert_allclose(found[1].mean[name], found[0].mean[name], atol=2e-4)
        np.testing.assert_allclose(found[1].cov[name], found[0].cov[name], atol=2e-4)


def test_forgetting_clicks_tends_to_the_prior():
    hierarchy, seen = clicks(K=4, n=60)
    backend = ExpectationPropagation(hierarchy)
    state = backend.condition(backend.init(), *seen)
    spread = [np.trace(np.asarray(backend.posterior(state).cov["effect"])[0])]
    for _ in range(3):
        state = backend.forget(state, 0.3)
        spread.append(np.trace(np.asarray(backend.posterior(state).cov["effect"])[0]))
    prior = np.trace(np.asarray(backend.posterior(backend.init()).cov["effect"])[0])
    assert all(a < b for a, b in itertools.pairwise(spread))
    assert 0.9 * prior < spread[-1] < prior


def test_factored_effects_with_gaussian_rewards():
    hierarchy = linear([[1.0, 0.5], [0.5, 1.0], [1.0, 1.0]], dim=2)
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(20, 2)), rng.integers(0, 3, 20), rng.normal(size=20)
    factored = Factored(hierarchy)
    expected = factored.posterior(updated(factored, factored.init(), *seen))
    backend = ExpectationPropagation(hierarchy, factored=True)
    found = backend.posterior(updated(backend, backend.init(), *seen))
    for name in expected.mean:
        np.testing.assert_allclose(found.mean[name], expected.mean[name], atol=1e-4)
        np.testing.assert_allclose(found.cov[name], expected.cov[name], atol=1e-4)
    assert found.log_evidence is None


def test_refusals():
    deep = Hierarchy(
        [
            Level("top", 1),
            Level("effect", 2, parents={"top": [[1.0], [1.0]]}),
            Level("action", 2, parents={"effect": [[1.0, 0.0], [0.0, 1.0]]}),
        ],
        Bernoulli(),
        dim=1,
    )
    with pytest.raises(ValueError, match="takes two levels"):
        ExpectationPropagation(deep, factored=True)
    learned = Hierarchy([Level("action", 2, scale=dist.HalfNormal(1.0))], Bernoulli(), dim=1)
    with pytest.raises(ValueError, match="needs linear-Gaussian levels"):
        ExpectationPropagation(learned)


def test_it_is_the_best_backend_for_clicks():
    choice = best_backend(glm([[1.0], [1.0]], dim=1))
    assert isinstance(choice.backend, ExpectationPropagation)
    assert "matches the moments" in choice.why
