"""The longest wait of any call while an agent serves: clicks come in, and products are added.

An agent on `ExpectationPropagation` is warmed up for what is to come, and then makes a decision and learns
its reward 100,000 times; after every hundred clicks a product is added, 1,000 in all. Each call is timed on
its own.
On a machine that others use too, threads wait for a core now and then, that of the call or one of XLA's
that it needs, and a virtual machine for its host. The second verdict is on what calls compute: the CPU time
of all threads of the process meanwhile. Time that the host takes away may count as CPU time, so how much
that was is printed: where it is not about zero, neither verdict says much.

`--grow` makes no room beforehand: then room for rewards doubles seven times and room for actions twice,
with programs that are compiled in the background. At full speed clicks come faster than XLA compiles, and
the one that finds no room has to wait; its wait is shown, and not judged.
"""

import argparse
import os
import time
from pathlib import Path

import jax
import numpy as np
from timing import verdict

from mixts.bandit import Agent, ThompsonSampling
from mixts.inference import ExpectationPropagation
from mixts.models import glm

DIM, EFFECTS, LONGEST = 5, 3, 20.0


class Waits:
    """The seconds of every call, and the CPU seconds of all threads of the process meanwhile."""

    def __init__(self, most: int):
        self.seconds, self.computed = np.zeros(most), np.zeros(most)
        self.kinds: list[str] = []

    def call(self, kind: str, function, *args, **kwargs):
        computed, start = time.process_time(), time.perf_counter()
        result = function(*args, **kwargs)
        n, self.seconds[len(self.kinds)] = len(self.kinds), time.perf_counter() - start
        self.computed[n] = time.process_time() - computed
        self.kinds.append(kind)
        return result

    def report(self, what: str, seconds: np.ndarray) -> bool:
        kinds = np.array(self.kinds)
        for kind in dict.fromkeys(self.kinds):
            some = seconds[kinds == kind] * 1e3
            spread = ", ".join(f"{np.percentile(some, q):.3g}" for q in (50, 99, 99.9, 100))
            print(
                f"      {what}, {kind}: {spread} ms (median, 99%, 99.9%, longest of {len(some):,})"
            )
        slowest = [
            f"{seconds[i] * 1e3:.3g} ms ({kinds[i]} {i:,})" for i in np.argsort(-seconds)[:4]
        ]
        print(f"      {what}: the longest are {', '.join(slowest)}")
        return verdict(f"{what}: longest over median", seconds.max() / np.median(seconds), LONGEST)


def stolen() -> float:
    """The seconds so far in which the host of a virtual machine ran others, on all cores."""
    return int(Path("/proc/stat").read_text().split()[8]) / os.sysconf("SC_CLK_TCK")


def serve(actions: int, clicks: int, products: int, grow: bool) -> list[bool]:
    rng = np.random.default_rng(0)
    clicks_of = glm(rng.uniform(-1, 1, (actions, EFFECTS)), DIM)
    agent = Agent(ThompsonSampling(ExpectationPropagation(clicks_of)))
    start = time.perf_counter()
    room = {} if grow else {"rewards": clicks, "actions": products}
    agent.warm_up(**room)
    print(f"      warm_up: {time.perf_counter() - start:.1f} s")
    contexts = rng.normal(size=(4096, DIM)).astype(np.float32)
    clicked = (rng.random(clicks) < 0.3).astype(float).tolist()
    waits, every, start = Waits(2 * clicks + products), clicks // products, stolen()
    for t in range(clicks):
        decision = waits.call("act", agent.act, contexts[t % 4096])
        waits.call("reward", agent.reward, decision.id, clicked[t])
        if t % every == every - 1:
            waits.call("add_actions", agent.add_actions, rng.uniform(-1, 1, (1, EFFECTS)))
    n = len(waits.kinds)
    seconds, computed = waits.seconds[:n], waits.computed[:n]
    times = f"{computed.sum():.1f} s of CPU time, {stolen() - start:.1f} s taken by the host"
    print(f"      {agent}: {seconds.sum():.1f} s, {times}")
    results = [
        waits.report("any call", seconds),
        waits.report("any call, CPU time", computed),
    ]
    return [] if grow else results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actions", type=int, default=300)
    parser.add_argument("--clicks", type=int, default=100_000)
    parser.add_argument("--products", type=int, default=1_000)
    parser.add_argument("--grow", action="store_true")
    options = parser.parse_args()
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    return 0 if all(serve(**vars(options))) else 1


if __name__ == "__main__":
    raise SystemExit(main())
