"""An agent that is given what spoils a posterior: it says so, leaves it out and goes on."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

from mixts.bandit import Agent, AgentError, AgentWarning, Policy
from mixts.inference import Status, Trouble
from mixts.models import Gaussian, Hierarchy, Level

K, BAD, ODD = 3, 13.0, 7.0


class Sums(Policy):
    """Sums of rewards; one of 13 makes them NaN, one of 7 is reported."""

    hierarchy: Hierarchy
    start: float = 0.0

    def init(self, key, *, room=0):
        return jnp.full(K, self.start), jnp.zeros((), jnp.int32)

    def scores(self, key, state, context):
        return state[0] * context[0]

    def update(self, state, context, action, reward):
        sums, odd = state
        return sums.at[action].add(jnp.where(reward == BAD, jnp.nan, reward)), odd + (reward == ODD)

    def status(self, state):
        return Status({Trouble.UNCONVERGED: state[1]})


def agent(start: float = 0.0, **settings) -> Agent:
    return Agent(Sums(Hierarchy([Level("action", K)], Gaussian(1.0), dim=1), start), **settings)


def sums(agent: Agent) -> list[float]:
    return np.asarray(agent.state().posterior[0]).tolist()


def test_a_choice_is_never_made_by_scores_that_are_no_numbers():
    found = agent()
    for reward in (1.0, 1.0, 1.0, 0.5):
        found.update([1.0], 1, reward)
    found.update([1.0], 0, BAD)
    found.update([1.0], 2, 1.5)  # nobody has noticed yet
    with pytest.warns(AgentWarning, match="not finite"):
        assert found.act([1.0]).index == 1
    assert sums(found) == [0.0, 3.5, 1.5]
    assert int(found.status().counts[Trouble.NOT_FINITE]) == 1
    found.update([1.0], 2, 9.0)
    assert found.act([1.0]).index == 2


@pytest.mark.parametrize(
    "ask",
    [
        lambda agent: agent.act_many(np.ones((2, 1))).indices[0],
        lambda agent: agent.slate([1.0], 2).indices[0],
        lambda agent: agent.probabilities([1.0], 10).probability.argmax(),
        lambda agent: agent.state().posterior[0].argmax(),
    ],
    ids=["act_many", "slate", "probabilities", "state"],
)
def test_every_way_to_ask_notices(ask):
    found = agent()
    found.update([1.0], 1, 1.0)
    found.update([1.0], 1, 1.0)
    found.update([1.0], 0, BAD)
    with pytest.warns(AgentWarning):
        assert ask(found) == 1


@pytest.mark.parametrize("n", [5, 40], ids=["few", "many"])
def test_of_many_only_the_bad_are_left_out(n):
    rewards, actions = np.ones(n), np.arange(n) % K
    rewards[3] = BAD
    found = agent()
    found.update([1.0], 2, 4.0)
    with pytest.warns(AgentWarning):
        found.update(np.ones((n, 1)), actions, rewards)
    expected = np.bincount(actions[rewards != BAD], minlength=K) + np.array([0, 0, 4])
    assert sums(found) == expected.tolist()
    assert found.counts["observations"] == n + 1


def test_a_prior_that_gives_no_numbers_is_an_error():
    with pytest.raises(AgentError, match="scores are not numbers, whatever was observed"):
        agent(start=np.nan).act([1.0])


def test_trouble_is_a_warning_once():
    found = agent()
    with pytest.warns(AgentWarning, match="1 fits stopped before they had converged"):
        found.update([1.0], 0, ODD)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(5):
            found.update([1.0], 0, ODD)
        found.status()
    assert int(found.status().counts[Trouble.UNCONVERGED]) == 6


def test_an_agent_without_trouble_is_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = agent()
        for _ in range(4):
            found.reward(found.act([1.0]).id, 1.0)
        found.update(np.ones((40, 1)), np.zeros(40, int), np.ones(40))
    assert str(found.status()) == "ok"


@pytest.mark.filterwarnings("error::mixts.bandit.AgentWarning")
def test_a_warning_that_is_an_error_comes_when_the_change_is_made(tmp_path):
    policy = Sums(Hierarchy([Level("action", K)], Gaussian(1.0), dim=1))
    with Agent.open(tmp_path, policy) as found:
        with pytest.raises(AgentWarning, match="1 fits stopped"):
            found.update([1.0], 0, ODD)
        assert found.trouble is None
        found.update([1.0], 1, 1.0)  # the journal goes on
        assert sums(found) == [ODD, 1.0, 0.0]
    with Agent.open(tmp_path, policy) as again:  # makes the same changes again
        with pytest.raises(AgentWarning, match="1 fits stopped"):
            again.act([1.0])
        assert again.trouble is None
        assert sums(again) == [ODD, 1.0, 0.0]


@pytest.mark.filterwarnings("error::mixts.bandit.AgentWarning")
def test_warnings_that_are_errors_do_not_keep_a_snapshot_from_being_written(tmp_path):
    policy = Sums(Hierarchy([Level("action", K)], Gaussian(1.0), dim=1))
    with Agent.open(tmp_path, policy, snapshot_every=3) as found:
        for reward in (1.0, 1.0):
            found.update([1.0], 1, reward)
        with pytest.raises(AgentWarning):
            found.update([1.0], 0, BAD)
    assert (tmp_path / f"snapshot-{3:020}").exists()


def test_what_was_left_out_is_known_after_a_restart(tmp_path):
    policy = Sums(Hierarchy([Level("action", K)], Gaussian(1.0), dim=1))
    with Agent.open(tmp_path, policy) as found:
        with pytest.warns(AgentWarning, match="not finite"):
            found.update(np.ones((5, 1)), np.zeros(5, int), [1.0, BAD, 1.0, BAD, 1.0])
        found.snapshot()
        found.update(np.ones((2, 1)), np.zeros(2, int), [BAD, 1.0])
        assert found.counts["left_out"] == 3
    with Agent.open(tmp_path, policy) as again:
        assert again.counts["left_out"] == 3  # two of the snapshot, one of the journal
        with pytest.warns(AgentWarning, match="not finite"):
            assert int(again.status().counts[Trouble.NOT_FINITE]) == 3
        assert Agent.restore(again.state()).counts["left_out"] == 3
