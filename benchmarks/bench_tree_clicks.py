"""Agents on catalogue trees with clicks: ready soon, quick for ever, in the same memory, saved at once.

20 / 200 / 2,000 / 20,000 nodes, d = 5, with expectation propagation and with Laplace, and
50 / 1,000 / 20,000 / 1,000,000 nodes with expectation propagation. Each in a process of its own, with no
compiled programs on disk:

- how long it takes from the start of the process until the agent has answered for the first time;
- 100,000 decisions and their clicks (5,000 with a million products): the 99th percentile of each call, and
  what memory they leave behind;
- how long it takes to save the agent.

`--clicks N` plays fewer.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
from timing import verdict

DIM = 5
SHOP = (20, 200, 2_000, 20_000)
LARGE = (50, 1_000, 20_000, 1_000_000)
CASES = {
    "expectation propagation": ("ExpectationPropagation", SHOP, 100_000),
    "Laplace": ("Laplace", SHOP, 100_000),
    "a million products": ("ExpectationPropagation", LARGE, 5_000),
}


def memory_now() -> int:
    """The bytes that this process holds."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmRSS: memory is measured on Linux only")


def measure(case: str, clicks: int, started: float) -> dict[str, float]:
    import jax

    jax.config.update("jax_cpu_enable_async_dispatch", False)  # as a service does
    from mixts import inference
    from mixts.bandit import Agent, ThompsonSampling
    from mixts.models import Bernoulli, tree

    backend, sizes, _ = CASES[case]
    rng = np.random.default_rng(0)
    parents = [rng.integers(0, above, size, np.int32) for above, size in pairwise(sizes)]
    shop = tree(parents, DIM, num_roots=sizes[0], reward=Bernoulli())
    agent = Agent(ThompsonSampling(getattr(inference, backend)(shop)))
    agent.warm_up(rewards=clicks)
    contexts = rng.uniform(-1, 1, (1024, DIM)).astype(np.float32)
    hidden = rng.normal(size=(sizes[-1], DIM))
    agent.act(contexts[0])
    ready, worked = time.time() - started, time.process_time()

    waits, before = np.empty((2, clicks)), 0
    for i in range(clicks):
        if i == clicks // 10:
            before = memory_now()
        context = contexts[i % 1024]
        begin = time.perf_counter()
        decision = agent.act(context)
        middle = time.perf_counter()
        rate = 1 / (1 + np.exp(-hidden[decision.action] @ context))
        click = float(rng.uniform() < rate)
        again = time.perf_counter()
        agent.reward(decision.id, click)
        waits[:, i] = middle - begin, time.perf_counter() - again
    after = memory_now()
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        agent.save(Path(folder) / "agent.mixts")
        saved = time.perf_counter() - begin
    act, learn = np.percentile(waits, 99, axis=1)
    return {
        "ready": ready,
        "worked": worked,
        "act": act,
        "learn": learn,
        "longest": float(waits.max()),
        "growth": after - before,
        "saved": saved,
        "ok": float(str(agent.status()) == "ok"),
    }


def judged(case: str, clicks: int) -> list[bool]:
    """One case in a process of its own."""
    command = [sys.executable, __file__, "--clicks", str(clicks), "--alone", case]
    printed = subprocess.run(
        [*command, "--started", str(time.time())],
        check=True,
        stdout=subprocess.PIPE,
        env=os.environ | {"MIXTS_CACHE": ""},
    ).stdout
    found = json.loads(printed.splitlines()[-1])
    print(
        f"      {case}: longest call {found['longest'] * 1e3:.1f} ms over {clicks:,} clicks; "
        f"{found['worked']:.1f} s of processor time until the first answer"
    )
    return [
        verdict("seconds from a cold start to the first answer", found["ready"], 30.0),
        verdict("99th percentile of a decision, ms", found["act"] * 1e3, 50.0),
        verdict("99th percentile of a click, ms", found["learn"] * 1e3, 50.0),
        verdict("memory after nine tenths of all clicks more, MB", found["growth"] / 1e6, 50.0),
        verdict("seconds to save the agent", found["saved"], 2.0),
        verdict("trouble of any kind", 1 - found["ok"], 0.0),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clicks", type=int)
    parser.add_argument("--case", choices=CASES, action="append", help="all of them by default")
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    parser.add_argument("--started", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone is not None:
        print(json.dumps(measure(options.alone, options.clicks, options.started)))
        return 0
    results = [
        result
        for case in options.case or CASES
        for result in judged(case, options.clicks or CASES[case][2])
    ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
