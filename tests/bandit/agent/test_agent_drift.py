"""Agents whose levels drift: an observation is a round."""

import jax
import numpy as np
import pytest

from agents import assert_same_agent
from mistakes import as_a_user
from mixts.bandit import Agent, ThompsonSampling
from mixts.inference import ClosedForm, ExpectationPropagation
from mixts.models import Bernoulli, Gaussian, Hierarchy, Level
from sampling import unoptimised
from tolerance import tolerance

WEIGHTS = np.random.default_rng(0).uniform(-1, 1, (3, 2))


@pytest.fixture(scope="module", autouse=True)
def compiled_fast():
    with unoptimised():
        yield


def policy(which: str, reward=None) -> ThompsonSampling:
    levels = [
        Level("effect", 2, drift=0.2 if which == "effect" else None),
        Level("action", 3, parents={"effect": WEIGHTS}, drift=0.1),
    ]
    kind = ExpectationPropagation if reward else ClosedForm
    return ThompsonSampling(kind(Hierarchy(levels, reward or Gaussian(0.5), dim=2)))


def observations(n: int):
    rng = np.random.default_rng(1)
    return rng.normal(size=(n, 2)), rng.integers(0, 3, n), rng.integers(0, 2, n).astype(float)


@pytest.mark.parametrize("which", ["effect", "action"])
@pytest.mark.parametrize("reward", [None, Bernoulli()])
def test_a_round_passes_after_each_observation(x64, which, reward):
    """One by one, and in a call of so many that they would else be learned at once."""
    made = policy(which, reward)
    contexts, actions, rewards = observations(70)
    state = made.init(jax.random.key(0))
    for row in zip(contexts, actions, rewards, strict=True):
        state = made.advance(made.update(state, *row))
    expected = made.posterior(state)
    one_by_one, at_once = Agent(made), Agent(made)
    for row in zip(contexts[:5], actions[:5], rewards[:5], strict=True):
        one_by_one.update(*row)
    one_by_one.update(contexts[5:], actions[5:], rewards[5:])
    at_once.update(contexts, actions, rewards)
    for agent in (one_by_one, at_once):
        found = agent.posterior()
        for name in expected.mean:
            np.testing.assert_allclose(found.mean[name], expected.mean[name], **tolerance())
            np.testing.assert_allclose(found.cov[name], expected.cov[name], **tolerance())


def test_the_same_after_a_restart(tmp_path):
    twin, rows = Agent(policy("action"), 3), list(zip(*observations(8), strict=True))
    for part in (rows[:4], rows[4:]):
        with Agent.open(tmp_path / "a", policy("action"), 3) as agent:
            for each in (agent, twin):
                for row in part:
                    decision = each.act(row[0])
                    each.reward(decision.id, row[2])
            assert_same_agent(agent, twin)


def test_a_new_action_begins_as_uncertain_as_it_was_declared(x64):
    agent = Agent(policy("action"))
    agent.update(*observations(20))
    agent.add_actions(weights={"effect": [[1.0, 0.0]]})
    known = agent.posterior()
    own = known.cov["action"][3] - known.cov["effect"][0]
    np.testing.assert_allclose(own, np.eye(2), atol=1e-9)
    agent.update(np.ones(2), 3, 1.0)
    assert agent.status().ok


def test_two_ways_to_follow_a_world_are_refused():
    with as_a_user(), pytest.raises(ValueError, match="levels that drift"):
        Agent(policy("action"), forget=0.9)
