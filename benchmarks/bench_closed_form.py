"""What a round of the exact backend costs, and how the cost grows.

- an update does not get dearer with more actions;
- it grows with the number of effects no faster than their square;
- a whole round reads the actions' covariances about once;
- memory stays within a few times the state.
"""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
from rounds import many_updates, own_buffers
from timing import fastest, peak_memory, verdict

from mixts.bandit import best_action
from mixts.inference import ClosedForm
from mixts.models import linear


def declared(K: int, L: int, d: int) -> ClosedForm:
    weights = np.random.default_rng(0).uniform(-1, 1, (K, L))
    return ClosedForm(linear(weights, d, effect_cov=3.0))


def flat_in_actions() -> bool:
    rounds = 20_000  # of as many different actions as there are
    sizes = (100, 1_000, 10_000, 100_000)
    seconds = fastest({K: many_updates(declared(K, L=3, d=5), rounds) for K in sizes})
    for K, value in seconds.items():
        print(f"      update, K = {K:>7,}: {value / rounds * 1e6:.2f} us")
    return verdict("update time, K = 100,000 over K = 100", seconds[100_000] / seconds[100], 1.5)


def square_in_effects() -> bool:
    rounds = 200
    sizes = (2, 5, 10, 20, 50, 100, 200)
    seconds = fastest({L: many_updates(declared(K=200, L=L, d=5), rounds) for L in sizes})
    for L, value in seconds.items():
        print(f"      update, L d = {5 * L:>5,}: {value / rounds * 1e6:.2f} us")
    exponent = np.polyfit(np.log(sizes), np.log([seconds[L] for L in sizes]), 1)[0]
    return verdict("exponent of update time in L, L d = 10 to 1,000", exponent, 2.0)


def one_pass_a_round(K: int = 100_000, L: int = 10, d: int = 10) -> bool:
    backend = declared(K, L, d)

    def play(backend, state, key, context):
        action = best_action(backend.sample_scores(key, state, context))
        return backend.update(state, context, action, 0.5), action

    compiled = jax.jit(play, donate_argnums=1)
    state = own_buffers(backend.init())
    context = jnp.full(d, 0.3)
    key = jax.random.key(0)
    floats = np.random.default_rng(2).normal(size=K * d * d).astype(np.float32)

    def call():
        nonlocal state, key
        key = jax.random.fold_in(key, 1)
        state, action = compiled(backend, state, key, context)
        jax.block_until_ready((state, action))

    seconds = fastest({"round": call, "pass": floats.sum}, repeats=40)
    for name, value in seconds.items():
        print(f"      {name}, K d^2 = {K * d * d:,} floats: {value * 1e3:.2f} ms")
    return verdict("a round over one pass", seconds["round"] / seconds["pass"], 4.0)


def memory_of_a_million(K: int = 1_000_000, L: int = 10, d: int = 5) -> None:
    """Runs in a process of its own, whose peak is then this model's."""

    def play(backend, state, keys):
        context = jnp.full(d, 0.3)

        def step(state, key):
            action = best_action(backend.sample_scores(key, state, context))
            return backend.update(state, context, action, 0.5), action

        return jax.lax.scan(step, state, keys)

    compiled = jax.jit(play, donate_argnums=1)
    keys = jax.random.split(jax.random.key(0), 20)
    small = declared(10, L, d)
    jax.block_until_ready(compiled(small, own_buffers(small.init()), keys))
    before = peak_memory()  # the interpreter, the libraries and the compiler
    backend = declared(K, L, d)
    state = own_buffers(backend.init())
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    jax.block_until_ready(compiled(backend, state, keys))
    peak = peak_memory() - before
    print(f"      state {size / 1e6:.0f} MB, peak {peak / 1e6:.0f} MB")
    sys.exit(not verdict("peak memory over state, K = 1,000,000", peak / size, 3))


def main() -> int:
    results = [flat_in_actions(), square_in_effects(), one_pass_a_round()]
    alone = subprocess.run([sys.executable, __file__, "memory"], check=False)
    return 0 if all(results) and alone.returncode == 0 else 1


if __name__ == "__main__":
    if sys.argv[1:] == ["memory"]:
        memory_of_a_million()
    sys.exit(main())
