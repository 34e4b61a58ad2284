"""While data grow nothing is compiled again but for a new capacity, and no memory is left behind."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax
import jax.monitoring
import numpy as np
import pytest

from mixts.inference import ClosedForm, Factored, Laplace, Nuts, Svi
from mixts.models import Bernoulli, Gaussian, glm, linear
from sampling import unoptimised

K, L, D, CAPACITY = 5, 2, 2, 64
COMPILED = "/jax/core/compile/backend_compile_duration"


@pytest.fixture(scope="module", autouse=True)
def compiled_fast():
    with unoptimised():
        yield


def weights() -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, (K, L))


def clicks():
    return glm(weights(), D, reward=Bernoulli())


def numbers():
    return linear(weights(), D, noise=0.5)


# As few steps as will do: it is not the answers that are looked at here.
BACKENDS = {
    "ClosedForm": lambda: ClosedForm(numbers()),
    "Factored": lambda: Factored(numbers()),
    "Laplace": lambda: Laplace(clicks()),
    "Nuts": lambda: Nuts(
        clicks(), chains=1, steps=1, warmup=5, samples=5, max_depth=2, capacity=CAPACITY
    ),
    "Svi": lambda: Svi(clicks(), steps=2, fit_steps=5, particles=2, capacity=CAPACITY),
}
SLOW = {"Nuts"}
each = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in BACKENDS]
)


def observations(backend, n: int):
    rng = np.random.default_rng(1)
    contexts, actions = rng.normal(size=(n, D)), rng.integers(0, K, n)
    continuous = isinstance(backend.hierarchy.reward, Gaussian)
    rewards = rng.normal(size=n) if continuous else rng.integers(0, 2, n).astype(float)
    return zip(contexts, actions, rewards, strict=True)


@contextmanager
def count_compilations() -> Iterator[list[float]]:
    """The seconds of everything that XLA compiles, one number for each."""
    seconds: list[float] = []
    watching = True

    def listen(event: str, duration: float, **_) -> None:
        if watching and event == COMPILED:
            seconds.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield seconds
    finally:
        watching = False  # JAX has no public way to take a listener off


def play(backend, state, rows):
    """What an agent asks for in each round: an observation, and then scores of a draw."""
    for t, (context, action, reward) in enumerate(rows):
        state = backend.update(state, context, int(action), float(reward))
        backend.sample_scores(jax.random.key(t), state, context)
    return state


def capacity_of(state) -> int:
    """0 where a backend keeps sums and no observations."""
    buffer = getattr(state, "buffer", None)
    return 0 if buffer is None else buffer.capacity


@each
def test_two_hundred_rounds(name):
    """Something is compiled in the rounds in which the capacity is new, and in no other."""
    backend = BACKENDS[name]()
    state = backend.init(jax.random.key(2))
    capacities, compiling = [], []
    for t, row in enumerate(observations(backend, 200)):
        if hasattr(backend, "reserve"):  # padding a record is not the backend's work
            state = backend.reserve(state, 1)
        with count_compilations() as compiled:
            state = play(backend, state, [row])
        capacities.append(capacity_of(state))
        if compiled:
            compiling.append(t)
    new = [t for t, capacity in enumerate(capacities) if capacity not in capacities[:t]]
    if name in ("Nuts", "Svi"):
        assert [capacities[t] for t in new] == [CAPACITY, 2 * CAPACITY, 4 * CAPACITY]
    assert compiling == new


def test_a_shape_that_leaks_is_counted():
    """What the test above is for: a buffer that grows by a row a round compiles in each."""
    backend = BACKENDS["Svi"]()
    state = backend.init(jax.random.key(2))
    rows = list(observations(backend, 3))
    state = play(backend, state, rows[:1])
    counts = []
    for row in rows[1:]:
        buffer = jax.tree.map(
            lambda leaf: np.append(leaf, leaf[-1:], axis=0) if leaf.ndim else leaf, state.buffer
        )
        state = state._replace(buffer=jax.tree.map(jax.numpy.asarray, buffer))
        with count_compilations() as compiled:
            state = play(backend, state, [row])
        counts.append(len(compiled))
    assert all(count >= 1 for count in counts)


def resident() -> int:
    """Bytes of memory that this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.slow
@each
def test_memory_is_flat(name):
    """Over 2,000 rounds with room for all: no array is left behind, nor anything else to speak of.

    The process may grow by what allocators and caches do: 20 MB is 10 kB a round, less than one array
    of the 2,048 contexts or one state of any backend here.
    """
    backend = BACKENDS[name]()
    rows = list(observations(backend, 2000))
    state = backend.init(jax.random.key(3), room=2048)
    state = play(backend, state, rows[:100])
    gc.collect()
    arrays, memory = sum(array.nbytes for array in jax.live_arrays()), resident()
    state = play(backend, state, rows[100:])
    jax.block_until_ready(state)
    gc.collect()
    assert sum(array.nbytes for array in jax.live_arrays()) <= arrays
    assert resident() - memory < 20e6
