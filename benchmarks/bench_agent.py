"""An agent's decisions per second, beside linear Thompson sampling by others, in one process.

One `act` and one `update` per call, d = 5, float32. The comparison is with `LinTS`, which is the same
algorithm; what effects cost on top is shown beside it. JAX's dispatch is synchronous, as in a service
that asks for it (see `docs/agent.md`); `--async` measures with JAX's default. `--long ROUNDS` plays
many rounds and looks at latency and memory; `--long 1000000` takes a few minutes.
"""

import argparse
import gc
import time
from pathlib import Path

import jax
import numpy as np
from linear_peers import NumpySampler, bayesianbandits_sampler, mabwiser_sampler
from timing import fastest, verdict

from mixts.bandit import Agent, LinTS, ThompsonSampling
from mixts.inference import ClosedForm
from mixts.models import linear

DIM, EFFECTS, BATCH = 5, 3, 1_000


def hierarchy(num_actions: int):
    weights = np.random.default_rng(0).uniform(-1, 1, (num_actions, EFFECTS))
    return linear(weights, DIM)


def contexts(n: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(n, DIM)).astype(np.float32)


def rounds(agent, count: int):
    """So many rounds, each with a context of its own; agents of mixts say more than a number."""
    seen = contexts(count)

    def ours() -> None:
        for context in seen:
            agent.update(context, agent.act(context).index, 0.5)

    def theirs() -> None:
        for context in seen:
            agent.update(context, agent.act(context), 0.5)

    return ours if isinstance(agent, Agent) else theirs


def seconds_a_round(samplers: dict, count: dict[str, int], turns: int) -> dict[str, float]:
    """The least over turns that alternate, so that a busy machine counts for all alike."""
    calls = {name: rounds(sampler, count[name]) for name, sampler in samplers.items()}
    least = fastest(calls, turns)
    return {name: least[name] / count[name] for name in calls}


def few_actions() -> list[bool]:
    K = 100
    samplers = {
        "mixts LinTS": Agent(LinTS(hierarchy(K))),
        "mixts meTS": Agent(ThompsonSampling(ClosedForm(hierarchy(K)))),
        "NumPy": NumpySampler(K, DIM),
        "bayesianbandits": bayesianbandits_sampler(K, DIM),
        "mabwiser": mabwiser_sampler(K, DIM),
    }
    missing = [name for name, sampler in samplers.items() if sampler is None]
    for name in missing:
        del samplers[name]
        print(f"skip  {name} is not installed: pip install 'mixts[bench]'")
    slow = ("bayesianbandits", "mabwiser")
    count = {name: 3 if name in slow else 1_000 for name in samplers}
    seconds = seconds_a_round(samplers, count, turns=60)
    for name, value in seconds.items():
        print(f"      act and update, K = {K}, {name}: {value * 1e6:.1f} us")
    ours = seconds["mixts LinTS"]
    results = [verdict(f"act and update over NumPy's, K = {K}", ours / seconds["NumPy"], 2.0)]
    results += [
        verdict(f"act and update over {name}'s, K = {K}", ours / seconds[name], 1 / 50)
        for name in slow
        if name in seconds
    ]
    return results


def many_actions() -> list[bool]:
    K = 10_000
    samplers = {
        "mixts LinTS": Agent(LinTS(hierarchy(K))),
        "mixts meTS": Agent(ThompsonSampling(ClosedForm(hierarchy(K)))),
        "NumPy": NumpySampler(K, DIM),
    }
    seconds = seconds_a_round(samplers, dict.fromkeys(samplers, 20), turns=30)
    for name, value in seconds.items():
        print(f"      act and update, K = {K:,}, {name}: {value * 1e6:.0f} us")
    ratio = seconds["mixts LinTS"] / seconds["NumPy"]
    return [verdict(f"act and update over NumPy's, K = {K:,}", ratio, 1.0)]


def batches() -> list[bool]:
    results, x = [], contexts(BATCH)
    policies = {
        "LinTS": LinTS(hierarchy(100)),
        "meTS": ThompsonSampling(ClosedForm(hierarchy(100))),
    }
    for name, policy in policies.items():
        agent = Agent(policy)
        calls = {
            "one": lambda agent=agent: [agent.act(context) for context in x[:200]],
            "many": lambda agent=agent: agent.act_many(x),
        }
        least = fastest(calls, 60)
        one, many = least["one"] / 200, least["many"] / BATCH
        print(
            f"      a decision of {name}, K = 100: {one * 1e6:.2f} us alone, {many * 1e6:.2f} of 1,000"
        )
        results.append(verdict(f"a decision of 1,000 over one alone, {name}", many / one, 1 / 20))
    return results


def resident() -> int:
    """The bytes this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def long_run(total: int) -> list[bool]:
    """Decisions with rewards that come late: latency and memory at the end as at the start."""
    agent = Agent(ThompsonSampling(ClosedForm(hierarchy(100))), keep=10_000)
    x, tenth = contexts(4096), total // 10
    latency, memory = [], []
    waiting: list[int] = []
    for part in range(10):
        times = np.empty(tenth)
        for t in range(tenth):
            start = time.perf_counter()
            waiting.append(agent.act(x[t % 4096]).id)
            if len(waiting) > 1_000:
                agent.reward(waiting.pop(0), 0.5)
            times[t] = time.perf_counter() - start
        gc.collect()
        latency.append(np.median(times))
        memory.append(resident())
        print(
            f"      after {(part + 1) * tenth:,}: {latency[-1] * 1e6:.1f} us, {memory[-1] / 2**20:.1f} MiB"
        )
    counts = agent.counts
    assert counts["observations"] == total - 1_000, counts
    return [
        verdict("latency of the last tenth over the second's", latency[-1] / latency[1], 1.2),
        verdict("memory after the last tenth over the second's", memory[-1] / memory[1], 1.02),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--async", dest="asynchronous", action="store_true")
    parser.add_argument("--long", type=int, metavar="ROUNDS", default=0)
    options = parser.parse_args()
    jax.config.update("jax_cpu_enable_async_dispatch", options.asynchronous)
    parts = (few_actions, many_actions, batches)
    results = long_run(options.long) if options.long else [r for part in parts for r in part()]
    return 0 if all(results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
