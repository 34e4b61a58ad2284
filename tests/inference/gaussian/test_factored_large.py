"""`Factored` at the size it is made for: a million actions over a hundred thousand effects."""

import subprocess
import sys
import textwrap

import pytest

K, L, PARENTS, DIM = 1_000_000, 100_000, 10, 4
GIGABYTE = 1024**3

PROGRAM = f"""
import time
import jax, jax.numpy as jnp, numpy as np
from mixts.benchmarks.timing import peak_memory
from mixts.inference import Factored
from mixts.models import Sparse, linear

K, L, m, d, rounds = {K}, {L}, {PARENTS}, {DIM}, 100
rng = np.random.default_rng(0)
# Ten different parents each: a random start, and steps that do not come round.
starts, steps = rng.integers(0, L, (K, 1)), rng.integers(1, L // m, (K, 1))
indices = (starts + steps * np.arange(m)) % L
values = rng.uniform(-1, 1, (K, m)).astype(np.float32)
hierarchy = linear(Sparse(indices, values, num_parents=L), d, effect_cov=3.0)
del starts, steps, indices, values
backend = Factored(hierarchy)

@jax.jit
def run(backend, contexts, actions, rewards):
    def step(state, row):
        return backend.update(state, *row), None
    return jax.lax.scan(step, backend.init(), (contexts, actions, rewards))[0]

x = rng.normal(size=(rounds, d)).astype(np.float32)
a, y = rng.integers(0, K, rounds), rng.normal(size=rounds).astype(np.float32)
start = time.perf_counter()
state = jax.block_until_ready(run(backend, jnp.asarray(x), jnp.asarray(a), jnp.asarray(y)))
updates = time.perf_counter() - start
start = time.perf_counter()
scores = backend.sample_scores(jax.random.key(0), state, x[0])
assert scores.shape == (K,) and bool(jnp.isfinite(scores).all())
sampling = time.perf_counter() - start
assert int(state.info.observed) == rounds
levels = state.effects.levels["effect"]
moved = np.flatnonzero(np.asarray(levels.mean).any(axis=1))
parents = np.unique(np.asarray(hierarchy.actions.parents["effect"].indices)[a])
assert set(moved) == set(parents), "the parents of the actions taken, and no others"
peak = peak_memory()
print(f"updates {{updates:.1f}} s and scores {{sampling:.1f}} s with compilation")
print(peak)
"""


@pytest.mark.slow
def test_a_million_actions():
    """In a process of its own, since the peak of memory is that of a whole process."""
    program = textwrap.dedent(PROGRAM)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *words, peak = done.stdout.splitlines()
    print(*words, f"peak memory {int(peak) / GIGABYTE:.2f} GiB", sep="; ")
    assert int(peak) < 6 * GIGABYTE
