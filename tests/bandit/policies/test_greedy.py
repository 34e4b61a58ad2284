"""Greedy policies, Bayes-UCB and prices, against moments and draws written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from mixts.bandit import (
    Agent,
    BayesUCB,
    CostAware,
    EpsilonGreedy,
    Greedy,
    SyntheticProblem,
    simulate,
)
from mixts.bandit.policies.greedy import score_moments
from mixts.inference import ClosedForm, ExpectationPropagation, Nuts
from mixts.models import Bernoulli, Gaussian, Hierarchy, Level, linear
from three_arms import MEANS, SDS, arms, chosen_shares, standard_errors

KEY = jax.random.key(0)


def test_moments_of_scores_are_those_of_draws(x64):
    """In contexts of their own, on a posterior with data; the error of 20,000 draws is below 1%."""
    backend = ClosedForm(linear([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]], dim=2))
    state = backend.condition(backend.init(), [[1.0, 2.0], [0.5, -1.0]], [0, 2], [1.0, 3.0])
    context = jnp.array([[1.0, 0.0], [0.3, 0.4], [-1.0, 2.0]])
    found = score_moments(backend, KEY, state, context)
    draws = backend.sample_many_scores(KEY, state, context, 20_000)
    np.testing.assert_allclose(found.mean, draws.mean(0), atol=0.05)
    np.testing.assert_allclose(found.sd, draws.std(0), rtol=0.03)


def test_epsilon_greedy():
    assert chosen_shares(Greedy(arms()), 50)[2] == 1.0
    found, n = chosen_shares(EpsilonGreedy(arms(), epsilon=0.3), 10_000), 10_000
    expected = np.array([0.1, 0.1, 0.8])
    assert (np.abs(found - expected) < 4 * standard_errors(expected, n)).all()


def test_quantiles():
    policy = BayesUCB(arms(), level=0.9)
    found = policy.scores(KEY, policy.init(KEY), jnp.ones(1))
    np.testing.assert_allclose(found, norm.ppf(0.9, MEANS, SDS), rtol=1e-5)
    rising = BayesUCB(arms())
    state = rising.init(KEY)
    np.testing.assert_allclose(rising.scores(KEY, state, jnp.ones(1)), MEANS, atol=1e-6)
    state = rising.update(state, [1.0], 0, 1.0)
    padded = rising.condition(state, jnp.ones((3, 1)), jnp.array([1, 1, 2]), jnp.zeros(3))
    assert int(padded.observed) == 4
    after = ClosedForm(rising.problem).posterior(padded.known)
    moments = after.mean["arm"][:, 0], jnp.sqrt(after.cov["arm"][:, 0, 0])
    expected = norm.ppf(1 - 1 / 6, *moments)
    np.testing.assert_allclose(rising.scores(KEY, padded, jnp.ones(1)), expected, rtol=1e-5)


def test_prices_are_paid_in_rewards():
    """Of clicks: the best of `sigmoid(u) - price` in the same draw."""
    hierarchy = Hierarchy([Level("arm", 3)], Bernoulli(), dim=1)
    backend, prices = ExpectationPropagation(hierarchy), np.array([0.0, 0.2, -0.1])
    policy, state = CostAware(backend, prices), backend.init()
    drawn = np.asarray(backend.sample_scores(KEY, state, jnp.ones(1)))
    expected = 1 / (1 + np.exp(-drawn)) - prices
    np.testing.assert_allclose(policy.scores(KEY, state, jnp.ones(1)), expected, rtol=1e-5)


MAKERS = {
    "greedy": lambda h: Greedy(ClosedForm(h)),
    "epsilon": lambda h: EpsilonGreedy(ClosedForm(h), epsilon=0.2),
    "ucb": lambda h: BayesUCB(ClosedForm(h)),
    "priced": lambda h: CostAware(ClosedForm(h), jnp.zeros(4)),
}


def test_simulations_take_them():
    problem = SyntheticProblem(num_actions=4, num_effects=2, dim=2)
    found = simulate(problem, MAKERS, 30, 4, 0, progress=False)
    assert all(np.isfinite(regret).all() for regret in found.regret.values())


@pytest.mark.parametrize("name", MAKERS)
def test_agents_take_and_keep_them(name, tmp_path):
    hierarchy = linear([[1.0], [0.5], [0.0], [1.0]], dim=2)
    agent = Agent(MAKERS[name](hierarchy), seed=3)
    for _ in range(3):
        agent.reward(agent.act([1.0, 0.5]).id, 1.0)
    agent.update(np.ones((40, 2)), [1] * 40, [0.5] * 40)
    agent.save(tmp_path / "agent.npz")
    again = Agent.load(tmp_path / "agent.npz")
    assert [again.act([1.0, 0.5]).action for _ in range(5)] == [
        agent.act([1.0, 0.5]).action for _ in range(5)
    ]


def test_quantiles_follow_a_world_that_changes():
    """The sd of a score grows while rounds pass; evidence with a half-life fades."""
    drifting = Hierarchy([Level("arm", 2, drift=0.1)], Gaussian(1.0), dim=1)
    for policy in (BayesUCB(ClosedForm(drifting)), BayesUCB(arms(), half_life=5.0)):
        state = policy.update(policy.init(KEY), [1.0], 0, 1.0)
        later = policy.advance(state, 10.0)
        before, after = (
            score_moments(policy.backend, KEY, one.known, jnp.ones(1)).sd[0]
            for one in (state, later)
        )
        assert after > 1.05 * before
        assert int(later.observed) == 1


def test_new_actions():
    hierarchy = linear([[1.0], [0.5]], dim=1)
    agent = Agent(BayesUCB(ClosedForm(hierarchy)))
    assert agent.add_actions([[2.0]]) == [2]
    priced = Agent(CostAware(ClosedForm(hierarchy), [0.0, 0.1]))
    with pytest.raises(TypeError, match="whose prices it does not know"):
        priced.add_actions([[2.0]])


@pytest.mark.slow
def test_chains_have_moments_too():
    hierarchy = linear([[1.0], [0.5]], dim=1)
    policy = Greedy(Nuts(hierarchy, warmup=100, samples=200))
    state = policy.update(policy.init(KEY), [1.0], 1, 5.0)
    assert int(policy.act(KEY, state, jnp.ones(1))) == 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: EpsilonGreedy(arms(), epsilon=-0.1), "epsilon is -0.1; expected a probability"),
        (
            lambda: BayesUCB(arms(), level=[0.5, 0.5]),
            r"level has shape \(2,\); expected one number",
        ),
        (lambda: CostAware(arms(), [1.0]), r"prices have shape \(1,\); expected \(3,\)"),
    ],
)
def test_refuses(make, words):
    with pytest.raises((TypeError, ValueError), match=words):
        make()
