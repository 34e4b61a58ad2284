"""Catalogues as trees: exact posteriors in blocks, beside a sparse regression and a joint covariance.

- 20 / 200 / 2,000 / 20,000 nodes, d = 5, after 100,000 rewards: an update and a joint draw with all scores
  beside bayesianbandits' sparse `NormalRegressor`, which has the same posterior, as is checked;
- a smaller tree beside the same with all levels in one joint vector;
- an update does not get dearer with more products, and scores take a few passes over K d^2 numbers;
- a million products: what they need in memory, and how long an agent takes to answer.

`--ten-million` declares 10,000,000 products with d = 3 and plays them, and judges nothing.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from linear_peers import bayesianbandits_tree
from rounds import many_updates, own_buffers
from timing import at_least, fastest, peak_memory, verdict

from mixts.bandit import Agent, ThompsonSampling, best_action
from mixts.inference import ClosedForm
from mixts.inference.random import fused_key
from mixts.models import Hierarchy, tree

DIM = 5
SHOP = (20, 200, 2_000, 20_000)
SMALL = (5, 25, 125, 1_500)
LARGE = (50, 1_000, 20_000, 1_000_000)
HUGE = (50, 1_000, 20_000, 10_000_000)


def parents_of(sizes: Sequence[int]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, above, size, np.int32) for above, size in pairwise(sizes)]


def declared(sizes: Sequence[int], dim: int = DIM) -> Hierarchy:
    return tree(parents_of(sizes), dim, num_roots=sizes[0])


def jointly(hierarchy: Hierarchy) -> Hierarchy:
    """The same law, of which nothing is known to be a tree: one joint vector above the actions."""
    return hierarchy.remade(levels=[level.remade(branching=False) for level in hierarchy.levels])


class Calls:
    """One update and one draw of all scores, each a compiled call; the state is donated."""

    def __init__(self, backend: ClosedForm, state=None):
        self.backend = backend
        self.state = own_buffers(backend.init() if state is None else state)
        self._update = jax.jit(lambda b, s, *seen: b.update(s, *seen), donate_argnums=1)
        self._scores = jax.jit(lambda b, key, s, x: b.sample_scores(key, s, x))
        self.key, self.context = fused_key(0), jnp.full(backend.hierarchy.dim, 0.3)  # as agents do

    def update(self) -> None:
        action = self.backend.hierarchy.num_actions // 2
        self.state = self._update(self.backend, self.state, self.context, action, 0.5)
        jax.block_until_ready(self.state)

    def scores(self) -> None:
        jax.block_until_ready(self._scores(self.backend, self.key, self.state, self.context))


def beside_sparse_regression(rewards: int = 100_000) -> list[bool]:
    theirs = bayesianbandits_tree(parents_of(SHOP), SHOP[0], DIM)
    if theirs is None:
        print("skip  bayesianbandits is not installed: pip install 'mixts[bench]'")
        return []
    rng, K = np.random.default_rng(2), SHOP[-1]
    contexts = rng.uniform(-1, 1, (rewards, DIM)).astype(np.float32)
    seen = contexts, rng.integers(0, K, rewards), rng.normal(size=rewards).astype(np.float32)
    backend = ClosedForm(declared(SHOP))
    state = backend.condition(backend.init(), *seen)
    theirs.update(theirs.rows(*seen[:2]), seen[2])
    ours = Calls(backend, state)
    every = theirs.rows(np.broadcast_to(ours.context, (K, DIM)), np.arange(K))
    means = np.asarray(backend.posterior(state).mean["action"] @ ours.context)
    apart = np.abs(means - theirs.model.predict(every)).max() / np.std(means)
    one = every[[K // 2]]
    seconds = fastest({"update": ours.update, "scores": ours.scores}, repeats=200)
    peers = {
        "update": lambda: theirs.update(one, np.array([0.5])),
        "scores": lambda: theirs.scores(every),
    }
    peer_seconds = fastest(peers, repeats=5)
    for what, value in seconds.items():
        print(
            f"      {what}, K = {K:,}: {value * 1e3:.3f} ms, bayesianbandits {peer_seconds[what] * 1e3:.1f}"
        )
    faster = {what: peer_seconds[what] / seconds[what] for what in seconds}
    return [
        verdict("means of scores apart, over their spread", apart, 1e-3),
        at_least("update faster than bayesianbandits'", faster["update"], 300),
        at_least("a draw with scores faster than bayesianbandits'", faster["scores"], 15),
    ]


def beside_the_joint_vector() -> list[bool]:
    hierarchy = declared(SMALL)
    ours, dense = Calls(ClosedForm(hierarchy)), Calls(ClosedForm(jointly(hierarchy)))
    calls: dict[str, Callable[[], None]] = {"blocks": ours.update, "joint": dense.update}
    seconds = fastest(calls, repeats=100)
    for what, value in seconds.items():
        print(f"      update, K = {SMALL[-1]:,}, {what}: {value * 1e3:.3f} ms")
    return [at_least("update faster than jointly", seconds["joint"] / seconds["blocks"], 2)]


def flat_in_products() -> list[bool]:
    rounds = 5_000
    backends = {sizes: ClosedForm(declared(sizes)) for sizes in (SMALL, SHOP, LARGE)}
    seconds = fastest({s: many_updates(backends[s], rounds) for s in backends})
    for sizes, value in seconds.items():
        print(f"      update, K = {sizes[-1]:>9,}: {value / rounds * 1e6:.2f} us")
    what = f"update time, K = {LARGE[-1]:,} over K = {SMALL[-1]:,}"
    return [verdict(what, seconds[LARGE] / seconds[SMALL], 2.0)]


def scores_in_passes() -> list[bool]:
    results = []
    for sizes in (SHOP, LARGE):
        K = sizes[-1]
        floats = np.random.default_rng(3).normal(size=K * DIM**2).astype(np.float32)
        calls = {"scores": Calls(ClosedForm(declared(sizes))).scores, "pass": floats.sum}
        seconds = fastest(calls, repeats=40)
        for name, value in seconds.items():
            print(f"      {name}, K = {K:,}: {value * 1e3:.3f} ms")
        what = f"scores over one pass, K = {K:,}"
        results.append(verdict(what, seconds["scores"] / seconds["pass"], 6.0))
    return results


def play(sizes: Sequence[int], dim: int, rounds: int = 20) -> dict[str, float]:
    """Rounds in compiled calls: how long the declaration and a round take, and the bytes they need."""
    start = time.perf_counter()
    backend = ClosedForm(declared(sizes, dim))
    state = jax.jit(lambda b: own_buffers(b.init()))(backend)
    jax.block_until_ready(state)
    ready = time.perf_counter() - start
    held = sum(array.nbytes for array in jax.live_arrays())

    def one(backend, state, key, context):
        action = best_action(backend.sample_scores(key, state, context))
        return backend.update(state, context, action, 0.5), action

    context, seconds = jnp.full(dim, 0.3), []
    lowered = jax.jit(one, donate_argnums=1).lower(backend, state, fused_key(0), context)
    compiled = lowered.compile()
    for i in range(rounds):
        start = time.perf_counter()
        state, action = compiled(backend, state, fused_key(i), context)
        jax.block_until_ready((state, action))
        seconds.append(time.perf_counter() - start)
    needs = held + compiled.memory_analysis().temp_size_in_bytes
    return {"ready": ready, "round": min(seconds), "bytes": needs}


def answer(sizes: Sequence[int], dim: int, rounds: int = 50) -> dict[str, float]:
    """What an agent takes for a decision, and for a reward."""
    agent = Agent(ThompsonSampling(ClosedForm(declared(sizes, dim))))
    rng = np.random.default_rng(4)
    times = np.zeros((rounds, 2))
    for pair in times:
        context = rng.uniform(-1, 1, dim).astype(np.float32)
        start = time.perf_counter()
        decision = agent.act(context)
        pair[0] = time.perf_counter() - start
        agent.reward(decision.id, 0.5)
        pair[1] = time.perf_counter() - start - pair[0]
    act, reward = times.min(axis=0)
    return {"act": float(act), "reward": float(reward)}


def alone(what: str, *sizes: int, dim: int) -> dict[str, float]:
    """A measurement in a process of its own, whose peak memory is then this model's."""
    command = [sys.executable, __file__, "--alone", what, str(dim), *map(str, sizes)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return json.loads(printed.splitlines()[-1])


def measure_alone(what: str, dim: int, *sizes: int) -> None:
    """Runs in a process of its own; the first call has a small tree, and loads and compiles."""
    measure = {"play": play, "answer": answer}[what]
    measure((2, 4, 8, 16), dim)
    before = peak_memory()
    found = measure(sizes, dim)
    print(json.dumps(found | {"growth": peak_memory() - before}))


def a_million() -> list[bool]:
    played, answered = (alone(what, *LARGE, dim=DIM) for what in ("play", "answer"))
    K = LARGE[-1]
    print(
        f"      K = {K:,}: {played['bytes'] / 1e6:.0f} MB; the process grew by "
        f"{played['growth'] / 1e6:.0f} MB, {answered['growth'] / 1e6:.0f} with an agent"
    )
    print(
        f"      K = {K:,}: a round {played['round'] * 1e3:.1f} ms; an agent decides in "
        f"{answered['act'] * 1e3:.1f} ms, learns in {answered['reward'] * 1e3:.2f}"
    )
    return [
        verdict(f"GB of state and working memory, K = {K:,}", played["bytes"] / 1e9, 1.0),
        verdict(f"ms to an agent's answer, K = {K:,}", answered["act"] * 1e3, 50.0),
    ]


def ten_million(dim: int = 3) -> None:
    found = alone("play", *HUGE, dim=dim)
    print(
        f"      K = {HUGE[-1]:,}, d = {dim}: ready after {found['ready']:.1f} s; a round "
        f"{found['round'] * 1e3:.0f} ms; {found['bytes'] / 1e9:.2f} GB of state and working memory, "
        f"the process grew by {found['growth'] / 1e9:.2f}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ten-million", action="store_true")
    parser.add_argument("--alone", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # as a service does
    if options.alone:
        what, *numbers = options.alone
        measure_alone(what, *map(int, numbers))
        return 0
    if options.ten_million:
        ten_million()
        return 0
    parts = (
        beside_sparse_regression,
        beside_the_joint_vector,
        flat_in_products,
        scores_in_passes,
        a_million,
    )
    results = [result for part in parts for result in part()]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
