"""A process that lives to be killed: an agent in a folder, under load, that tells what it was answered.

    python killed_agent.py FOLDER THREADS SNAPSHOT_EVERY SEED

Every line is written at once, so that what stands in the output had happened:

    open {...}      what the agent knows now that it is open
    ask act X Y     an action is about to be asked for in the context (X, Y)
    act ID ACTION   and was answered
    ask reward ID R a reward is about to be handed in
    reward ID R     and was acknowledged
"""

import json
import os
import sys
import threading

import numpy as np

from agents import policy
from mixts.bandit import Agent

__all__ = ["SEED", "history"]

SEED = 5


def history(agent: Agent) -> dict:
    """Which action every decision took, and which decisions wait."""
    log = agent.state().decisions
    return {
        "actions": log.actions[: log.made].tolist(),
        "waiting": np.flatnonzero(log.waiting[: log.made]).tolist(),
        "observations": agent.counts["observations"],
    }


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def _use(agent: Agent, seed: list[int]) -> None:
    rng = np.random.default_rng(seed)
    waiting: list[int] = []
    while True:
        context = rng.normal(size=2).astype(np.float32)
        _say(f"ask act {context[0]!s} {context[1]!s}")
        decision = agent.act(context)
        _say(f"act {decision.id} {decision.index}")
        waiting.append(decision.id)
        if rng.random() < 0.7:
            rewarded = waiting.pop(int(rng.integers(len(waiting))))
            value = round(float(rng.normal()), 3)
            _say(f"ask reward {rewarded} {value}")
            agent.reward(rewarded, value)
            _say(f"reward {rewarded} {value}")


def _main(folder: str, threads: int, snapshot_every: int, seed: int) -> None:
    agent = Agent.open(folder, policy(), SEED, snapshot_every=snapshot_every)
    _say("open " + json.dumps(history(agent)))
    for i in range(threads):
        threading.Thread(target=_use, args=(agent, [seed, i])).start()


if __name__ == "__main__":
    _main(sys.argv[1], *map(int, sys.argv[2:]))
