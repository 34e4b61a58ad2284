"""What an agent computes with stays its own, and whole, whatever happens around it."""

import signal
from contextlib import suppress

import jax
import numpy as np
import pytest

from agents import D, policy
from mixts.bandit import Agent, ThompsonSampling
from mixts.inference import ClosedForm, ExpectationPropagation, Laplace
from mixts.models import linear


def as_jax_likes_it(values, dtype):
    """The same numbers where JAX would read them in place: at a multiple of 64 bytes."""
    size = np.dtype(dtype).itemsize * values.size
    room = np.empty(size + 64, np.uint8)
    start = -room.ctypes.data % 64
    own = room[start : start + size].view(dtype).reshape(values.shape)
    own[...] = values
    return own


def test_what_was_handed_in_may_be_changed_afterwards():
    """Compiled calls return before they have read their arguments, which may be the caller's arrays."""
    rng = np.random.default_rng(0)
    n = 4096  # a power of two, which needs no padding
    many, dim = 40, 8  # with fewer, JAX does not bother to return before it is done
    large = ThompsonSampling(ClosedForm(linear(rng.uniform(-1, 1, (many, 2)), dim)))
    agent, other = Agent(large), Agent(large)
    dtype = agent.state().decisions.contexts.dtype
    for _ in range(3):
        x, y = (as_jax_likes_it(rng.normal(size=size), dtype) for size in ((n, dim), n))
        actions = as_jax_likes_it(rng.integers(0, many, n), np.int32)
        other.update(x.copy(), actions.copy(), y.copy())
        jax.block_until_ready(other.state().posterior)
        agent.update(x, actions, y)
        x[:], y[:], actions[:] = 0, 99, 0
    found, expected = agent.state().posterior, other.state().posterior
    jax.tree.map(np.testing.assert_array_equal, found, expected)


CALLS = {
    "update": lambda agent: agent.update(np.ones(D), 0, 1.0),
    "update many": lambda agent: agent.update(np.ones((2, D)), [0, 1], [0.0, 1.0]),
    "reward": lambda agent: agent.reward(agent.act(np.ones(D)).id, 1.0),
    "reward many": lambda agent: agent.reward(agent.act_many(np.ones((2, D))).ids, [0.0, 1.0]),
}


def assert_learned_is_marked(agent):
    """As many observations as were learned are counted, and as many decisions marked as rewarded."""
    state = agent.state()
    rewarded = np.sum(~state.decisions.waiting[: state.decisions.made])
    assert int(state.posterior.info.observed) == state.counts["observations"]
    assert rewarded in (0, state.counts["observations"])


# In a callback an interrupt is dropped, and Python says so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that interrupts")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_interrupt_does_not_take_what_was_learned(call):
    """Control-C at any moment: before the state was kept in one step, every fourth one lost it."""
    agent, rng, armed, times = Agent(policy()), np.random.default_rng(0), False, 0

    def interrupt(*_):
        nonlocal armed
        armed = False
        raise KeyboardInterrupt

    def learn_until(seconds):
        nonlocal armed
        armed = True
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        while armed:
            call(agent)

    call(agent)
    before = signal.signal(signal.SIGVTALRM, interrupt)
    try:
        for _ in range(60):
            try:
                learn_until(rng.uniform(1e-4, 1e-3))
            except KeyboardInterrupt:
                times += 1
            call(agent)
            assert_learned_is_marked(agent)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    assert times > 40


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("is_learned", [False, True])
@pytest.mark.parametrize("method", ["learn", "learn_one"])
def test_what_is_interrupted_is_learned_and_marked_or_neither(
    call, method, is_learned, monkeypatch
):
    agent = Agent(policy())
    call(agent)
    learn = getattr(agent.engine, method)

    def interrupted(*seen):
        if is_learned:
            learn(*seen)
        raise KeyboardInterrupt

    monkeypatch.setattr(agent.engine, method, interrupted)
    before = agent.counts["observations"]
    with suppress(KeyboardInterrupt):  # the other method is not
        call(agent)
        is_learned = True
    assert (agent.counts["observations"] > before) is is_learned
    assert_learned_is_marked(agent)


@pytest.mark.parametrize(
    "backend",
    [ClosedForm, ExpectationPropagation, pytest.param(Laplace, marks=pytest.mark.slow)],
    ids=["sums", "matched", "rows"],
)
def test_after_a_warm_up_no_call_compiles_anything(backend):
    compiled = []

    def listen(event, duration, **_):
        if event.endswith("backend_compile_duration"):
            compiled.append(event)

    agent = Agent(ThompsonSampling(backend(linear(np.ones((3, 1)), dim=1))))
    agent.warm_up(rewards=40, actions=4)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        for t in range(40):
            agent.reward(agent.act([1.0]).id, float(t % 2))
            if t % 10 == 9:
                agent.add_actions([[0.5]])
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert compiled == []
