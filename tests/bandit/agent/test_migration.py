"""An agent moved to another hierarchy knows what one would that had been made with it."""

from dataclasses import replace

import numpy as np
import pytest

from agents import assert_same_agent
from mistakes import as_a_user
from mixts.bandit import Agent, AgentError, AgentFileError, ThompsonSampling
from mixts.inference import ClosedForm, Laplace
from mixts.models import Bernoulli, Gaussian, Hierarchy, Level, glm
from sampling import unoptimised
from tolerance import tolerance

LABELS, WIDER = ("a", "b", "c"), ("c", "new", "a", "b")
WEIGHTS = np.eye(2)[[0, 1, 0]]
WIDER_WEIGHTS = np.array([[1.0, 0.0, 0.5], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])


@pytest.fixture(scope="module", autouse=True)
def compiled_fast():
    with unoptimised():
        yield


def policy(weights=WEIGHTS, labels=LABELS, cov=1.0, noise=1.0, dim=2) -> ThompsonSampling:
    genre = Level("genre", weights.shape[1], cov=cov)
    own = Level("movie", len(weights), parents={"genre": weights}, labels=labels)
    return ThompsonSampling(ClosedForm(Hierarchy([genre, own], Gaussian(noise), dim)))


def wider(**options) -> ThompsonSampling:
    """A third genre, other variances, a movie more, and another order."""
    return policy(WIDER_WEIGHTS, WIDER, cov=3.0, noise=0.5, **options)


def lived(agent: Agent) -> list[tuple]:
    """Rewarded and waiting decisions, and observations from elsewhere; all that was learned."""
    rng, learned = np.random.default_rng(1), []
    for t in range(8):
        x = rng.normal(size=2)
        decision = agent.act(x)
        if t % 2:
            agent.reward(decision.id, float(t))
            learned.append((x, decision.action, float(t)))
    x, y = rng.normal(size=(4, 2)), rng.normal(size=4)
    agent.update(x, ["a", "c", "b", "a"], y)
    return learned + list(zip(x, ["a", "c", "b", "a"], y, strict=True))


def check_knows(agent: Agent, learned: list[tuple], made: ThompsonSampling) -> None:
    labels = made.problem.actions.labels
    contexts, actions, rewards = zip(*learned, strict=True)
    rows = [labels.index(action) for action in actions]
    backend = made.backend
    expected = backend.posterior(
        backend.condition(backend.init(), np.array(contexts), rows, rewards)
    )
    found = agent.posterior()
    for level in expected.mean:
        np.testing.assert_allclose(found.mean[level], expected.mean[level], **tolerance(10))
        np.testing.assert_allclose(found.cov[level], expected.cov[level], **tolerance(10))


def test_another_hierarchy_learns_all_again():
    agent = Agent(policy(), seed=3)
    learned = lived(agent)
    agent.remove_actions("b")
    waiting = agent.act([1.0, 0.5], eligible=["c"])
    counts = agent.counts
    agent.migrate(wider())
    assert agent.labels == ["c", "new", "a"]
    assert agent.counts == counts
    check_knows(agent, learned, wider())
    agent.reward(waiting.id, 2.0)  # a late reward is that of the action it was for
    check_knows(agent, [*learned, (np.array([1.0, 0.5]), "c", 2.0)], wider())
    times = [action for *_, action, _ in learned].count
    agent.reopen_actions("b")
    assert agent.summary([1.0, 0.0], draws=2)["rewards"].to_dict() == {
        "c": times("c") + 1,
        "new": 0,
        "a": times("a"),
        "b": times("b"),
    }
    assert agent.act([1.0, 0.0]).id == waiting.id + 1


def test_it_is_kept_in_its_folder(tmp_path):
    with Agent.open(tmp_path / "agent", policy(), seed=3) as agent:
        learned = lived(agent)
        agent.migrate(wider())
        agent.update([1.0, 0.0], "new", 1.0)
        learned.append((np.array([1.0, 0.0]), "new", 1.0))
    with pytest.raises(AgentFileError, match="another policy or hierarchy"):
        Agent.open(tmp_path / "agent", policy(), seed=3)
    with Agent.open(tmp_path / "agent", wider(), seed=3) as again:
        assert_same_agent(again, agent)
        check_knows(again, learned, wider())
    with pytest.raises(OSError, match="was closed; open the agent again"):
        again.migrate(wider())


def test_a_write_that_fails_changes_nothing(tmp_path, monkeypatch):
    with Agent.open(tmp_path / "agent", policy(), seed=3) as agent:
        lived(agent)
        before = agent.state()

        def full(*_):
            raise OSError("no space left")

        monkeypatch.setattr("mixts.bandit.agent.storage.folder.write_state", full)
        with pytest.raises(OSError, match="no space left"):
            agent.migrate(wider())
        assert agent.state().labels == before.labels
        agent.update([1.0, 0.0], "a", 1.0)
    monkeypatch.undo()
    with Agent.open(tmp_path / "agent", policy(), seed=3) as again:
        assert_same_agent(again, agent)


def test_evidence_is_not_lost_in_silence():
    agent = Agent(policy(), keep=6)
    agent.update(np.ones((9, 2)), ["a"] * 9, np.arange(9.0))
    with pytest.raises(AgentError, match="learned from 9 observations and keeps 6 of them"):
        agent.migrate(wider())
    assert agent.labels == list(LABELS)
    agent.migrate(wider(), partial=True)
    assert agent.counts["observations"] == 6
    assert agent.state().observations.newest()[2].tolist() == list(range(3, 9))


def test_what_came_before_the_agent_is_not_lost_in_silence(tmp_path):
    state = Agent(policy()).state()
    begun = replace(state.observations, from_prior=False)
    agent = Agent.restore(state._replace(observations=begun))
    agent.save(tmp_path / "agent")
    for each in (agent, Agent.load(tmp_path / "agent")):
        with pytest.raises(AgentError, match="the agent started from a posterior"):
            each.migrate(policy(cov=2.0))
        each.migrate(policy(cov=2.0), partial=True)


def test_without_labels_actions_are_matched_by_number():
    agent = Agent(policy(labels=None))
    agent.update([1.0, 0.0], 2, 3.0)
    agent.migrate(policy(WIDER_WEIGHTS, None))
    assert agent.labels == [0, 1, 2, 3]
    assert agent.summary([1.0, 0.0], draws=2)["rewards"].tolist() == [0, 0, 1, 0]
    agent.migrate(policy(WIDER_WEIGHTS, None), labels=WIDER)
    assert agent.labels == list(WIDER)


@pytest.mark.parametrize(
    ("move", "error", "message"),
    [
        (lambda a: a.migrate(policy(labels=None)), AgentError, "hand in labels=.* in the order"),
        (lambda a: a.migrate(policy(WEIGHTS[:2], LABELS[:2])), AgentError, "no action 'c', which"),
        (lambda a: a.migrate(policy(dim=3)), AgentError, "have 2 numbers and the policy's 3"),
        (lambda a: a.migrate(policy(), labels=["a"]), ValueError, "got 1 labels"),
        (lambda a: a.migrate(policy().problem), TypeError, "expected a policy"),
        (
            lambda a: a.migrate(
                ThompsonSampling(Laplace(glm(WEIGHTS, 2, reward=Bernoulli()))), labels=LABELS
            ),
            AgentError,
            "which Bernoulli rewards never are",
        ),
    ],
)
def test_what_does_not_fit(move, error, message):
    agent = Agent(policy())
    agent.update([1.0, 0.0], "c", 3.0)
    before = agent.state()
    with as_a_user(), pytest.raises(error, match=message):
        move(agent)
    assert_same_agent(agent, Agent.restore(before))


def test_an_action_that_is_gone_for_good():
    """A removed action of which nothing is known need not be in the new hierarchy."""
    agent = Agent(policy())
    agent.update([1.0, 0.0], "c", 3.0)
    agent.remove_actions("a")
    agent.migrate(policy(WEIGHTS[1:], LABELS[1:]))
    assert agent.labels == ["b", "c"]
    assert agent.state().observations.newest()[1].tolist() == [1]
