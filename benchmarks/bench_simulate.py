"""Rounds of Thompson sampling per second, beside the same algorithm written in the usual ways.

The paper's setting, K = 100, L = 3, d = 2, 50 runs. mixts plays them with `simulate`'s own compiled
tiles; the others play one run at a time, on one core. Per core is measured in seconds of processor
time, so that a busy machine counts for all alike. The panel is timed as a user sees it, compilation
and all.
"""

import os
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np
from peers import by_formula, compiled_loop, draw_world, over_actions
from timing import verdict

from mixts.bandit import HierTS, LinTS, LinUCB, SyntheticProblem, ThompsonSampling, simulate
from mixts.bandit.simulation.loop import compiled_tile
from mixts.inference import ClosedForm, Factored

K, L, DIM, RUNS = 100, 3, 2, 50


def mets(hierarchy):
    return ThompsonSampling(ClosedForm(hierarchy))


def seconds_a_round() -> dict[str, float]:
    """Processor seconds of one round of one run, the least of several turns."""
    rng = np.random.default_rng(0)
    world = draw_world(K, L, DIM, rng)
    rounds = 1_000
    begin, stretch = compiled_tile(SyntheticProblem(K, L, DIM), mets, rounds, RUNS, key=0)
    run = begin()

    def tile():
        nonlocal run
        run, seen, _ = stretch(run, jnp.zeros((), jnp.uint32))
        jax.block_until_ready(seen)

    turns = {
        "mixts": (tile, rounds * RUNS),
        "Numba": (lambda: compiled_loop(world, 20_000, rng), 20_000),
        "NumPy over actions": (lambda: over_actions(world, 200, rng), 200),
        "NumPy by formula": (lambda: by_formula(world, 5, rng), 5),
    }
    least = dict.fromkeys(turns, float("inf"))
    for turn in range(31):
        for name, (call, count) in turns.items():
            start = time.process_time()
            call()
            if turn:  # the first one compiles
                least[name] = min(least[name], (time.process_time() - start) / count)
    return least


def panel() -> float:
    """Seconds of the five linear policies, 50 runs of 5,000 rounds, nothing compiled before."""
    policies = {
        "meTS-Lin": mets,
        "meTS-Lin-Fa": lambda h: ThompsonSampling(Factored(h)),
        "HierTS": HierTS,
        "LinTS": LinTS,
        "LinUCB": LinUCB,
    }
    with tempfile.TemporaryDirectory() as empty:
        os.environ["MIXTS_CACHE"] = empty
        start = time.perf_counter()
        result = simulate(SyntheticProblem(K, L, DIM), policies, 5_000, RUNS, 0, progress=False)
        seconds = time.perf_counter() - start
        start = time.perf_counter()
        simulate(SyntheticProblem(K, L, DIM), policies, 5_000, RUNS, 0, progress=False)
        again = time.perf_counter() - start
    print(result.summary().to_string())
    print(f"      the panel took {seconds:.1f} s, and {again:.1f} s with compiled programs on disk")
    return seconds


def main() -> int:
    seconds = seconds_a_round()
    for name, value in seconds.items():
        print(f"      a round, {name}: {value * 1e6:.2f} us of one core")
    ours = seconds["mixts"]
    cores = len(os.sched_getaffinity(0))
    results = [
        verdict("round over a hand-tuned Numba loop's, per core", ours / seconds["Numba"], 1.5),
        verdict(
            f"round over NumPy's by formula, mixts on {cores} cores",
            ours / cores / seconds["NumPy by formula"],
            1 / 2_000,
        ),
        verdict(
            f"round over NumPy's over actions, mixts on {cores} cores",
            ours / cores / seconds["NumPy over actions"],
            1 / 10,
        ),
        verdict("seconds of the five-policy panel, compilation included", panel(), 60.0),
    ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
