"""What an agent computes with stays its own, and whole, whatever happens around it."""

import signal

import jax
import numpy as np
import pytest

from agents import D, policy
from mixts.bandit import Agent, ThompsonSampling
from mixts.inference import ClosedForm
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


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that interrupts")
@pytest.mark.parametrize("many", [False, True])
def test_an_interrupt_does_not_take_what_was_learned(many):
    """Control-C at any moment: before the state was kept in one step, every fourth one lost it."""
    agent, rng = Agent(policy()), np.random.default_rng(0)
    contexts, actions = np.ones((2, D)), [0, 1]

    def learn():
        if many:
            agent.update(contexts, actions, [0.0, 1.0])
        else:
            agent.update(contexts[0], 0, 1.0)

    def interrupt(*_):
        raise KeyboardInterrupt

    def learn_until(seconds):
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        while True:
            learn()

    learn()
    before = signal.signal(signal.SIGVTALRM, interrupt)
    try:
        for _ in range(60):
            with pytest.raises(KeyboardInterrupt):
                learn_until(rng.uniform(1e-4, 1e-3))
            learn()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    agent.act(np.ones(D))
