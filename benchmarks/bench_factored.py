"""What the factored backend costs with very many actions and effects.

A million slates of 10 items each from a catalogue of 100,000: memory, and an update against one in a
problem a thousand times smaller. The work of an update does not depend on either size; what is left
of a difference is that a large state does not fit the caches.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from bench_closed_form import many_updates
from timing import fastest, peak_memory, verdict

from mixts.inference import Factored
from mixts.models import Sparse, linear


def slates(K: int, L: int, m: int = 10, d: int = 4) -> Factored:
    """Each slate has one item from each of `m` shelves of the catalogue."""
    rng = np.random.default_rng(0)
    shelf = L // m
    items = rng.integers(0, shelf, (K, m)) + shelf * np.arange(m)
    biases = 1.0 / (1.0 + np.arange(m))
    weights = Sparse(items, np.broadcast_to(biases, (K, m)), num_parents=L)
    return Factored(linear(weights, d, effect_cov=3.0))


def work(backend: Factored) -> float:
    """How many floating-point operations one update takes, as compiled."""
    context = jnp.ones(backend.hierarchy.dim)
    compiled = jax.jit(lambda b, s: b.update(s, context, 0, 0.5)).lower(backend, backend.init())
    return compiled.compile().cost_analysis()["flops"]


def main() -> int:
    small, large = slates(1_000, 100), slates(1_000_000, 100_000)
    rounds = 20_000
    calls = {"small": many_updates(small, rounds), "large": many_updates(large, rounds)}
    score = jax.jit(lambda b, k, s: b.sample_scores(k, s, jnp.ones(4)))
    state = large.init()
    calls["scores"] = lambda: score(large, jax.random.key(0), state).block_until_ready()
    seconds = fastest(calls, repeats=5)
    print(f"      update, K = 1,000, L = 100:         {seconds['small'] / rounds * 1e6:.1f} us")
    print(f"      update, K = 1,000,000, L = 100,000: {seconds['large'] / rounds * 1e6:.1f} us")
    print(f"      scores of 1,000,000 slates:         {seconds['scores'] * 1e3:.0f} ms")
    return not all(
        [
            verdict("work of an update, large over small", work(large) / work(small), 1.0),
            verdict(
                "time of an update, large over small", seconds["large"] / seconds["small"], 8.0
            ),
            verdict("peak memory in GB", peak_memory() / 1e9, 6.0),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
