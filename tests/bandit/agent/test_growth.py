"""Room for more is made in a thread of its own, while the agent serves with the room it has."""

import threading

import pytest

from agents import assert_same_agent
from mixts.bandit import Agent, ThompsonSampling
from mixts.bandit.agent import growth
from mixts.bandit.agent.growth import Preparation, RoomNotReadyError, patiently
from mixts.inference import ClosedForm, Laplace
from mixts.models import glm, linear

WEIGHTS = [[1.0], [0.5], [-1.0]]
LONG = 60.0  # seconds after which a test has failed


class Held:
    """Preparations that wait to be let go before they compile, and how many have begun to wait."""

    def __init__(self, monkeypatch):
        self.go, self.begun = threading.Event(), threading.Semaphore(0)
        for name in ("more_places", "more_rewards"):
            monkeypatch.setattr(growth, name, self._holding(getattr(growth, name)))

    def _holding(self, make):
        def made(*args):
            self.begun.release()
            assert self.go.wait(LONG)
            return make(*args)

        return made


def called_aside(call):
    """A call in a thread of its own, with what it returned in a list."""
    returned: list[object] = []
    thread = threading.Thread(target=lambda: returned.append(call()))
    thread.start()
    return thread, returned


def clicking() -> Agent:
    """An agent that has room for one more reward."""
    agent = Agent(ThompsonSampling(Laplace(glm(WEIGHTS, dim=1), capacity=2)))
    agent.update([1.0], 0, 1.0)
    return agent


CALLS = {
    "actions": (
        lambda: Agent(ThompsonSampling(ClosedForm(linear(WEIGHTS, dim=1)))),
        lambda agent: agent.add_actions([[0.7]]),
    ),
    "rewards": (
        lambda: clicking(),
        lambda agent: agent.update([[1.0]] * 4, [0, 1, 2, 0], [1.0, 0.0, 1.0, 1.0]),
    ),
}


@pytest.mark.parametrize(("make", "call"), CALLS.values(), ids=CALLS)
def test_others_are_served_while_a_call_waits_for_room(make, call, monkeypatch):
    held, agent, other = Held(monkeypatch), make(), make()
    thread, returned = called_aside(lambda: call(agent))
    assert held.begun.acquire(timeout=LONG)
    before = agent.counts
    found = [agent.act([1.0]) for _ in range(3)]  # would wait for ever if the lock were held
    assert agent.counts["observations"] == before["observations"]
    assert not returned
    held.go.set()
    thread.join(LONG)
    expected = [other.act([1.0]) for _ in range(3)]
    assert returned == [call(other)]
    assert found == expected
    assert agent.act([0.5]) == other.act([0.5])
    assert agent.counts == other.counts


def test_a_call_that_waited_for_room_is_in_the_journal_once(tmp_path, monkeypatch):
    held, policy = Held(monkeypatch), ThompsonSampling(ClosedForm(linear(WEIGHTS, dim=1)))
    with Agent.open(tmp_path, policy) as agent:
        thread, returned = called_aside(lambda: agent.add_actions([[0.7]]))
        assert held.begun.acquire(timeout=LONG)
        decision = agent.act([1.0])
        held.go.set()
        thread.join(LONG)
        assert returned == [[3]]
        agent.reward(decision.id, 1.0)
        assert agent.trouble is None
    with Agent.open(tmp_path, policy) as again:
        assert_same_agent(again, agent)


def test_two_calls_wait_for_the_same_room(monkeypatch):
    held = Held(monkeypatch)
    agent = Agent(ThompsonSampling(ClosedForm(linear(WEIGHTS, dim=1))))
    first, one = called_aside(lambda: agent.add_actions([[0.7]]))
    second, two = called_aside(lambda: agent.add_actions([[0.2]]))
    assert held.begun.acquire(timeout=LONG)
    held.go.set()
    first.join(LONG)
    second.join(LONG)
    assert sorted([*one, *two]) == [[3], [4]]
    assert not held.begun.acquire(blocking=False)  # room was made once


def test_room_that_cannot_be_made_is_an_error_and_changes_nothing(monkeypatch):
    def failing(*_):
        raise MemoryError("no room")

    agent = Agent(ThompsonSampling(ClosedForm(linear(WEIGHTS, dim=1))))
    monkeypatch.setattr(growth, "more_places", failing)
    with pytest.raises(MemoryError, match="no room"):
        agent.add_actions([[0.7]])
    assert list(agent.labels) == [0, 1, 2]
    monkeypatch.undo()
    assert agent.act([1.0]).action in (0, 1, 2)


def test_what_is_given_up_is_not_made():
    made = []
    blocked, go = threading.Event(), threading.Event()
    first = Preparation("one", lambda: (blocked.set(), go.wait(LONG), made.append(1)))
    assert blocked.wait(LONG)
    second = Preparation("two", lambda: made.append(2))
    second.give_up()
    go.set()
    first.wait()
    second.wait()
    assert made == [1]
    assert not second.is_ready


def test_a_call_is_made_again_when_there_is_room():
    tries = []

    def call():
        tries.append(len(tries))
        if len(tries) < 3:
            raise RoomNotReadyError(Preparation("more", lambda: None))
        return "done"

    assert patiently(call) == "done"
    assert tries == [0, 1, 2]


def test_an_agent_that_was_warmed_up_prepares_the_next_room_at_once():
    agent = Agent(ThompsonSampling(ClosedForm(linear(WEIGHTS, dim=1))))
    agent.warm_up(freeze=False)
    agent.add_actions([[0.7]])  # room for six
    agent.add_actions([[0.2]] * 2)
    known = agent.engine.programs
    agent.warm_up(freeze=False)  # waits for what is under way
    agent.add_actions([[0.1]])
    assert agent.engine.programs is not known
    assert agent.engine.capacity == 12
