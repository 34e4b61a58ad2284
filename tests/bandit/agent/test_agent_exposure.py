"""Rewards that stand for several: learned, logged, written down, and taken along."""

import numpy as np
import pytest

from agents import assert_same_agent
from mixts.bandit import Agent, AgentError, LinUCB, ThompsonSampling, off_policy_value
from mixts.inference import ClosedForm, Laplace
from mixts.models import Bernoulli, Data, Gaussian, Hierarchy, Level
from sampling import unoptimised

X = np.array([1.0, 0.5], np.float32)


@pytest.fixture(scope="module", autouse=True)
def compiled_fast():
    with unoptimised():
        yield


def policy(reward=None, kind=ClosedForm, noise=0.5):
    levels = [Level("genre", 2), Level("movie", 3, parents={"genre": np.eye(2)[[0, 1, 0]]})]
    return ThompsonSampling(kind(Hierarchy(levels, reward or Gaussian(noise), 2)))


def clicks():
    return policy(Bernoulli(), Laplace)


def lived(agent: Agent) -> list[tuple]:
    """One reward with an exposure, one without, many of both kinds, and observations from elsewhere."""
    first, second = agent.act(X), agent.act(-X)
    agent.reward(first.id, 3, exposure=8)
    agent.reward(second.id, 1)
    several = agent.act_many([X, 2 * X])
    agent.reward(several.ids, [2, 0], exposure=[5, 1])
    agent.update(X, 2, 4, exposure=9)
    agent.update([X, -X], [0, 1], [6, 0], exposure=7)
    return [
        (X, first.index, 3, 8),
        (-X, second.index, 1, 1),
        (X, several.indices[0], 2, 5),
        (2 * X, several.indices[1], 0, 1),
        (X, 2, 4, 9),
        (X, 0, 6, 7),
        (-X, 1, 0, 7),
    ]


@pytest.mark.parametrize("make", [policy, clicks])
def test_they_are_learned(make):
    agent = Agent(make())
    rows = zip(*lived(agent), strict=True)
    backend = agent.policy.backend
    state = backend.init()
    for x, a, y, m in zip(*rows, strict=True):
        state = backend.update(state, x, a, y, m)
    found, expected = agent.posterior(), backend.posterior(state)
    np.testing.assert_allclose(found.mean["movie"], expected.mean["movie"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.cov["movie"], expected.cov["movie"], rtol=1e-4, atol=1e-5)


def test_many_at_once():
    """So many that they are conditioned on together; and an agent that starts from them."""
    rng = np.random.default_rng(0)
    x, a, y = rng.normal(size=(40, 2)), rng.integers(0, 3, 40), rng.normal(size=40)
    m = rng.integers(1, 9, 40)
    agent = Agent(policy())
    agent.update(x, a, y, m)
    backend = agent.policy.backend
    expected = backend.posterior(backend.condition(backend.init(), x, a, y, m))
    started = Agent(policy(), data=Data(x, a, y, m))
    for found in (agent, started):
        mean = found.posterior().mean["movie"]
        np.testing.assert_allclose(mean, expected.mean["movie"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [policy, clicks])
def test_they_are_written_down(make, tmp_path):
    """In a file, and in the journal of a folder."""
    plain = Agent(make())
    lived(plain)
    plain.save(tmp_path / "file")
    assert_same_agent(Agent.load(tmp_path / "file"), plain)
    with Agent.open(tmp_path / "folder", make()) as agent:
        lived(agent)
    with Agent.open(tmp_path / "folder") as again:
        assert_same_agent(again, plain)


def test_another_policy_learns_them():
    agent = Agent(policy())
    rows = [np.array(column) for column in zip(*lived(agent), strict=True)]
    agent.migrate(policy(noise=2.0))
    backend = policy(noise=2.0).backend
    expected = backend.posterior(backend.condition(backend.init(), *rows))
    mean = agent.posterior().mean["movie"]
    np.testing.assert_allclose(mean, expected.mean["movie"], rtol=1e-4, atol=1e-5)
    assert agent.log().exposure.tolist() == [8, 1, 5, 1]
    with pytest.raises(AgentError, match=r"LinUCB learns from one reward a row"):
        agent.migrate(LinUCB(agent.policy.problem))


def test_they_are_logged():
    agent = Agent(policy(), propensity_draws=20)
    agent.reward(agent.act(X).id, 0.5)
    assert agent.log().exposure is None
    agent.reward(agent.act(X).id, 0.5, exposure=4)
    log = agent.log()
    assert log.exposure.tolist() == [1, 4]
    with pytest.raises(ValueError, match=r"log: some rewards stand for several"):
        off_policy_value(log, np.full((2, 3), 1 / 3))


@pytest.mark.parametrize(
    ("make", "reward", "exposure", "message"),
    [
        (clicks, 2, 1.0, "reward is 2, which Bernoulli rewards never are"),
        (clicks, 9, 8, "reward is 9, which Bernoulli rewards never are"),
        (clicks, 1, 1.5, "exposure is 1.5; expected positive whole numbers"),
        (policy, 1, 0, "exposure is 0; expected positive numbers"),
        (policy, 1, -2.0, "exposure is -2; expected positive numbers"),
        (policy, 1, np.nan, "exposure is nan; expected positive numbers"),
        (policy, 1, "two", "exposure: got 'two'; expected numbers"),
        (policy, 1, [1, 2], r"exposure has shape \(2,\); expected one number for each reward"),
        (
            lambda: LinUCB(policy().problem),
            1,
            3,
            "exposure: got one, and LinUCB learns from one reward a row",
        ),
    ],
)
def test_those_that_cannot_be_are_refused(make, reward, exposure, message):
    agent = Agent(make())
    decision = agent.act(X)
    with pytest.raises(AgentError, match=message):
        agent.reward(decision.id, reward, exposure)
    with pytest.raises(AgentError, match=message):
        agent.update(X, 0, reward, exposure)
    assert agent.counts["observations"] == 0
    agent.reward(decision.id, 1.0)
