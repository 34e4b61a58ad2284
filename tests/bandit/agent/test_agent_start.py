"""Agents that learn many observations at once, start from what is known, and compile before they serve."""

import gc
import threading

import jax
import numpy as np
import pytest

from mixts.bandit import Agent, LinTS, ThompsonSampling
from mixts.inference import ClosedForm, Laplace
from mixts.models import Data, glm, linear
from sampling import unoptimised

K, L, D, N = 4, 2, 2, 40


@pytest.fixture(scope="module", autouse=True)
def compiled_fast():
    with unoptimised():
        yield


def rows(n: int = N):
    rng = np.random.default_rng(1)
    return rng.normal(size=(n, D)), rng.integers(0, K, n), rng.integers(0, 2, n).astype(float)


def weights():
    return np.random.default_rng(0).uniform(-1, 1, (K, L))


@pytest.fixture(scope="module")
def clicks():
    return ThompsonSampling(Laplace(glm(weights(), D), capacity=64))


def assert_close(found, expected):
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_many_observations_are_conditioned_on_at_once(clicks):
    """To the posterior of `condition`, with padding neither used nor counted."""
    agent, backend = Agent(clicks), clicks.backend
    agent.update(*rows())
    known = backend.condition(backend.init(), *rows())
    found = agent.state().posterior
    assert_close(backend.posterior(found).mean, backend.posterior(known).mean)
    assert_close(backend.posterior(found).cov, backend.posterior(known).cov)
    assert (int(found.info.observed), int(found.info.rejected)) == (N, 0)


def test_an_agent_starts_from_a_log_or_from_a_posterior(clicks):
    state = clicks.condition(clicks.init(jax.random.key(0)), *rows())
    from_log, from_state = Agent(clicks, data=Data(*rows())), Agent(clicks, posterior=state)
    later = Agent(clicks)
    later.update(*rows())
    assert from_log.counts["observations"] == N
    x = np.ones(D)
    assert from_log.act(x).index == from_state.act(x).index == later.act(x).index
    assert_close(from_log.state().posterior, later.state().posterior)
    from_state.update(x, 0, 1.0)
    assert int(state.info.observed) == N  # the caller's own is not touched
    assert int(from_state.state().posterior.info.observed) == N + 1


def test_what_is_no_start_is_refused(clicks):
    with pytest.raises(ValueError, match="which is no state of this"):
        Agent(clicks, posterior=ClosedForm(linear(weights(), D)).init())
    with pytest.raises(TypeError, match="expected Data"):
        Agent(clicks, data=rows())
    with pytest.raises(ValueError, match="action"):
        Agent(clicks, data=Data(np.ones((1, D)), [K], [1.0]))


def test_an_opened_agent_knows_what_it_started_from(clicks, tmp_path):
    with Agent.open(tmp_path, clicks, data=Data(*rows())) as agent:
        agent.reserve(rewards=100)
        before = agent.state().posterior
    with Agent.open(tmp_path, clicks, data=Data(*rows())) as agent:
        assert agent.counts["observations"] == N
        assert_close(agent.state().posterior, before)


@pytest.mark.slow
def test_after_warm_up_nothing_is_compiled_while_it_serves():
    """Not when room for rewards runs out, nor when actions join: that was compiled beforehand."""
    agent = Agent(ThompsonSampling(Laplace(glm(weights(), D + 1), capacity=8)))
    agent.warm_up(actions=1, act_many=[3])
    compiled, caller, is_serving = [], threading.current_thread(), True

    def listen(event: str, duration: float, **_) -> None:
        if is_serving and threading.current_thread() is caller:
            compiled.append(event)

    rng = np.random.default_rng(0)
    jax.monitoring.register_event_duration_secs_listener(listen)
    for _ in range(12):
        agent.reward(agent.act(np.ones(D + 1)).id, float(rng.integers(2)))
    agent.act_many(np.ones((3, D + 1)))
    agent.add_actions(rng.uniform(-1, 1, (1, L)))
    agent.reward(agent.act(np.ones(D + 1)).id, 1.0)
    is_serving = False
    assert [event for event in compiled if "backend_compile" in event] == []
    assert len(agent.labels) == K + 1


def test_warm_up_freezes_what_there_is():
    """The garbage collector leaves it alone afterwards, unless that is not wanted."""
    agent, before = Agent(LinTS(linear(weights(), D))), gc.get_freeze_count()
    try:
        agent.warm_up(freeze=False)
        assert gc.get_freeze_count() == before
        agent.warm_up()
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()


def test_warm_up_changes_nothing():
    """It runs programs once, on copies: state and decisions are those of an agent without it."""
    policy = ThompsonSampling(ClosedForm(linear(weights(), D)))
    agents = [Agent(policy), Agent(policy)]
    agents[0].warm_up(freeze=False)
    for _ in range(3):
        chosen = [agent.act(np.ones(D)) for agent in agents]
        assert chosen[0] == chosen[1]
        for agent, decision in zip(agents, chosen, strict=True):
            agent.reward(decision.id, 1.0)
    states = [agent.state() for agent in agents]
    assert states[0].labels == states[1].labels
    np.testing.assert_equal(*(jax.device_get(jax.tree.leaves(s.posterior)) for s in states))
