"""Values of policies under a posterior: against closed forms, and their coverage of the truth."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest

from mixts.bandit import PosteriorValue, posterior_value
from mixts.inference import ClosedForm, ExpectationPropagation
from mixts.inference.random import fused_key
from mixts.models import glm, linear

N, K, D = 40, 3, 2


def declared():
    return linear([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]], dim=2, noise=0.7)


def a_log(key, hierarchy):
    """Hidden vectors, contexts, actions of a random policy, and rewards."""
    keys = jax.random.split(key, 4)
    theta = hierarchy.sample_prior(keys[0])["action"]
    contexts = jax.random.normal(keys[1], (N, D))
    actions = jax.random.randint(keys[2], (N,), 0, K)
    predictors = jnp.einsum("nd,nd->n", contexts, theta[actions])
    return theta, contexts, actions, hierarchy.reward.law(predictors).sample(keys[3])


def test_mean_and_variance_are_those_of_a_linear_function(x64):
    """The value is linear in all vectors; 20,000 draws have errors of 0.7% and 0.5%."""
    backend = ClosedForm(declared())
    _, contexts, actions, rewards = a_log(jax.random.key(0), backend.hierarchy)
    posterior = backend.posterior(backend.condition(backend.init(), contexts, actions, rewards))
    p = np.random.default_rng(0).dirichlet(np.ones(K), N)
    found = posterior_value(posterior, contexts, p, draws=20_000)
    weights = np.einsum("nk,nd->kd", p, contexts) / N
    mean = np.sum(weights * np.asarray(posterior.mean["action"]))
    draws = np.asarray(posterior.draw(jax.random.key(9), 20_000)["action"])
    sd = np.einsum("kd,skd->s", weights, draws).std()
    assert found.mean == pytest.approx(mean, abs=4 * sd / np.sqrt(20_000))
    assert found.sd == pytest.approx(sd, rel=0.03)


def test_actions_and_own_contexts():
    """Of clicks, action by action, in the same draws."""
    hierarchy = glm([[1.0], [0.5], [0.0]], dim=2)
    backend = ExpectationPropagation(hierarchy)
    posterior, rng = backend.posterior(backend.init()), np.random.default_rng(1)
    contexts, actions = rng.normal(size=(5, K, D)), rng.integers(0, K, 5)
    found = posterior_value(posterior, contexts, actions, draws=50, key=3)
    theta = np.asarray(posterior.draw(fused_key(3), 50)["action"])
    expected = [
        np.mean([1 / (1 + np.exp(-contexts[t, a] @ draw[a])) for t, a in enumerate(actions)])
        for draw in theta
    ]
    np.testing.assert_allclose(found.draws, expected, rtol=1e-5)
    assert found.probability_above(0.0) == 1.0
    assert found.probability_above(found) == 0.0


def test_covers_the_truth_at_its_level():
    """1,000 logs: where the truth lies among the draws is uniform when the model is right."""
    backend, draws = ClosedForm(declared()), 99

    @jax.jit
    def rank(key):
        key_log, key_draws = jax.random.split(key)
        theta, contexts, actions, rewards = a_log(key_log, backend.hierarchy)
        state = backend.condition(backend.init(), contexts, actions, rewards)
        drawn = backend.sample_many(key_draws, state, draws)["action"]
        best = jnp.argmax(contexts @ backend.posterior(state).mean["action"].T, axis=1)
        value = lambda vectors: jnp.einsum("nd,nd->n", contexts, vectors[best]).mean()  # noqa: E731
        return jnp.sum(jax.vmap(value)(drawn) < value(theta))

    ranks = jax.lax.map(rank, jax.random.split(jax.random.key(5), 1000))
    places = (np.asarray(ranks) + np.random.default_rng(0).random(1000)) / (draws + 1)
    assert kstest(places, "uniform").pvalue > 0.001
    inside = np.mean((places > 0.05) & (places < 0.95))
    assert abs(inside - 0.9) < 4 * np.sqrt(0.9 * 0.1 / 1000)


def test_intervals():
    value = PosteriorValue(np.arange(101.0))
    np.testing.assert_allclose(value.interval(0.9), [5.0, 95.0])
    with pytest.raises(ValueError, match="level is 95; expected a probability"):
        value.interval(95)


@pytest.mark.parametrize(
    ("contexts", "p", "words"),
    [
        (np.ones((2, 3)), [0, 1], r"contexts have shape \(2, 3\); expected \(n, 2\)"),
        (np.ones((0, 2)), np.zeros((0, 3)), r"contexts have shape \(0, 2\)"),
        (np.ones((2, 2)), [0, 3], "hold the actions 0 to 3; expected 0 to 2"),
        (np.ones((2, 2)), np.ones((2, 3)), "of decision 0 sum to 3"),
        (np.ones((2, 2)), [0.1, 0.2], r"probabilities have shape \(2,\)"),
        (np.ones((1, 2)), [[1.5, -0.5, 0.0]], "the least is -0.5"),
    ],
)
def test_refuses(contexts, p, words):
    backend = ClosedForm(declared())
    with pytest.raises(ValueError, match=words):
        posterior_value(backend.posterior(backend.init()), contexts, p)
