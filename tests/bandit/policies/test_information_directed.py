"""Shortfalls, gains and the least information ratio, against sums over a grid and over mixtures."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mixts.bandit import Agent, InformationDirected, SyntheticProblem, simulate
from mixts.bandit.policies.information_directed import best_pair, gains, shortfalls
from mixts.inference import ClosedForm
from three_arms import arms, chosen_shares, grid

EVERY = jnp.ones(3, bool)


def plain_shortfalls_and_gains(values, weights):
    """By the definitions, one action after the other."""
    best, means = values.argmax(1), weights @ values
    losses = weights @ values.max(1) - means
    found = np.zeros(values.shape[1])
    for b in range(values.shape[1]):
        share = weights[best == b].sum()
        if share:
            given = weights[best == b] @ values[best == b] / share
            found += share * np.square(given - means)
    return losses, found


def plain_ratio(p, losses, learned):
    loss, gain = p @ losses, p @ learned
    return np.inf if gain == 0 and loss > 0 else (0.0 if loss == 0 else loss**2 / gain)


def test_by_definition_on_the_same_draws(x64):
    draws = np.random.default_rng(0).normal(size=(40, 3)) * [1.0, 0.6, 0.3] + [0.0, 0.4, 0.5]
    losses, learned = plain_shortfalls_and_gains(draws, np.full(40, 1 / 40))
    np.testing.assert_allclose(shortfalls(jnp.asarray(draws), EVERY), losses, atol=1e-12)
    np.testing.assert_allclose(gains(jnp.asarray(draws), EVERY), learned, atol=1e-12)


def test_estimates_are_those_of_the_posterior():
    """2,000 draws: standard deviations of 0.02 for a mean, and less for a gain."""
    losses, learned = plain_shortfalls_and_gains(*grid(100))
    backend = arms()
    draws = backend.sample_many_scores(jax.random.key(0), backend.init(), jnp.ones(1), 2000)
    np.testing.assert_allclose(shortfalls(draws, EVERY), losses, atol=0.08)
    np.testing.assert_allclose(gains(draws, EVERY), learned, atol=0.08)


@pytest.mark.parametrize("seed", range(20))
def test_no_mixture_has_a_lower_ratio(seed, x64):
    rng = np.random.default_rng(seed)
    losses, learned = rng.exponential(size=4), rng.exponential(size=4) * (rng.random(4) < 0.8)
    found = best_pair(jnp.asarray(losses), jnp.asarray(learned))
    p = np.zeros(4)
    p[int(found.first)] += float(found.probability)
    p[int(found.second)] += 1 - float(found.probability)
    mixtures = [*np.eye(4), *rng.dirichlet(np.full(4, 0.3), size=4000)]
    least = min(plain_ratio(mixture, losses, learned) for mixture in mixtures)
    assert plain_ratio(p, losses, learned) <= least + 1e-12


def test_what_costs_nothing_is_chosen_and_without_information_the_least_loss():
    free = best_pair(jnp.array([1.0, 0.0, 2.0]), jnp.array([5.0, 0.0, 9.0]))
    blind = best_pair(jnp.array([1.0, 0.5, 2.0]), jnp.zeros(3))
    for pair in (free, blind):
        assert int(pair.first if pair.probability == 1 else pair.second) == 1


def test_chooses_the_best_pair_with_its_probabilities():
    """Shares move with the estimates of each round; 5% is more than 128 draws move them."""
    losses, learned = plain_shortfalls_and_gains(*grid(100))
    pair = best_pair(jnp.asarray(losses, "f4"), jnp.asarray(learned, "f4"))
    expected = np.zeros(3)
    expected[int(pair.first)] += float(pair.probability)
    expected[int(pair.second)] += 1 - float(pair.probability)
    found = chosen_shares(InformationDirected(arms(), draws=2000), 500)
    np.testing.assert_allclose(found, expected, atol=0.08)


def test_only_allowed_actions_compete():
    found = chosen_shares(InformationDirected(arms(), draws=64), 200, [True, True, False])
    assert found[2] == 0
    assert found[:2].min() > 0
    assert chosen_shares(InformationDirected(arms(), draws=64), 20, [False, False, True])[2] == 1


def test_agents_and_simulations_take_it():
    agent = Agent(InformationDirected(arms(), draws=32))
    agent.reward(agent.act([1.0]).id, 1.0)
    problem = SyntheticProblem(num_actions=4, num_effects=2, dim=2)
    make = {"ids": lambda h: InformationDirected(ClosedForm(h), draws=32)}
    assert np.isfinite(simulate(problem, make, 10, 2, 0, progress=False).regret["ids"]).all()


def test_refuses():
    with pytest.raises(ValueError, match="draws: got 0"):
        InformationDirected(arms(), draws=0)
