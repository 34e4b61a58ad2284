"""Agents and lives for tests of what outlives them: what an agent is asked, and what is left of it."""

from pathlib import Path

import numpy as np

from mixts.bandit import Agent, LinUCB, Position, ThompsonSampling
from mixts.bandit.agent.storage.snapshot import to_file
from mixts.inference import ClosedForm, Laplace
from mixts.models import glm, linear

__all__ = ["POLICIES", "D", "K", "assert_same_agent", "contents", "live", "policy"]

K, L, D = 6, 2, 2


def weights() -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, (K, L))


POLICIES = {
    "closed form": lambda: ThompsonSampling(ClosedForm(linear(weights(), D))),
    "clicks": lambda: ThompsonSampling(Laplace(glm(weights(), D), capacity=4)),
    "ucb": lambda: LinUCB(linear(weights(), D)),
}


def policy():
    return POLICIES["closed form"]()


def live(agent: Agent, rounds: int, seed: int, many: bool = False) -> list[int]:
    """Decisions, rewards late or never, observations from elsewhere; the numbers of the actions.

    With `many`, also several decisions and rewards at once, which are programs of their own.
    """
    rng = np.random.default_rng(seed)
    chosen, waiting = [], []
    for _ in range(rounds):
        decision = agent.act(
            rng.normal(size=D), eligible=Position([0, 2, 3, 5]) if rng.random() < 0.2 else None
        )
        chosen.append(decision.index)
        waiting.append(decision.id)
        if rng.random() < 0.6:
            agent.reward(waiting.pop(rng.integers(len(waiting))), int(rng.integers(2)))
        if rng.random() < 0.2:
            agent.update(rng.normal(size=D), Position(rng.integers(K)), int(rng.integers(2)))
        if many and rng.random() < 0.2:
            several = agent.act_many(rng.normal(size=(3, D)))
            chosen += several.indices.tolist()
            agent.reward(several.ids[:2], rng.integers(0, 2, 2))
    return chosen


def assert_same_agent(found: Agent, expected: Agent) -> None:
    """All that both know is the same, bit for bit."""
    (header, arrays), (other, others) = to_file(found.state()), to_file(expected.state())
    assert header == other
    assert list(arrays) == list(others)
    for name, array in arrays.items():
        assert array.dtype == others[name].dtype, name
        np.testing.assert_array_equal(array, others[name], err_msg=name)


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder."""
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}
