"""kill -9 at random moments: nothing that was acknowledged is lost, and no decision changes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from agents import assert_same_agent, policy
from killed_agent import SEED
from mixts.bandit import Agent
from mixts.bandit.agent.storage.journal import read_journal

TESTS = Path(__file__).parents[3]
NEVER = 10**9


class Lives:
    """Processes that work in one folder, one after the other, each killed.

    `on_line` is called with every line of their output, in order.
    """

    def __init__(self, tmp_path: Path, threads: int, snapshot_every: int, on_line: Callable):
        self.folder, self.output = tmp_path / "agent", tmp_path / "output"
        self._options, self._on_line = [str(threads), str(snapshot_every)], on_line
        self._rng = np.random.default_rng(threads)
        # Programs that one process has compiled are read by the next.
        self._environment = os.environ | {
            "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
            "PYTHONPATH": str(TESTS),
        }
        self._starting = 0.0

    def one(self, number: int) -> None:
        """Start a process, kill it while it starts or works, and read its output."""
        command = [sys.executable, str(TESTS / "killed_agent.py"), str(self.folder)]
        with open(self.output, "wb") as output:
            process = subprocess.Popen(
                [*command, *self._options, str(number)], stdout=output, env=self._environment
            )
            try:
                if self._starting and self._rng.random() < 0.15:
                    time.sleep(self._rng.uniform(0.3, 1.0) * self._starting)
                else:
                    self._wait_until_busy(process)
                    time.sleep(self._rng.exponential(0.2))
            finally:
                process.kill()
                process.wait()
        assert process.returncode == -9, "it must not have ended by itself"
        *lines, torn = self.output.read_text().split("\n")
        assert torn == "", "a line is written at once"
        for line in lines:
            self._on_line(*line.split(" ", 1))

    def _wait_until_busy(self, process: subprocess.Popen) -> None:
        """Until it has been answered often enough for what is counted at the end, however slow it is."""
        begun = time.monotonic()
        while self.output.read_bytes().count(b"\nreward") < 15:
            assert process.poll() is None, "it must not have ended by itself"
            assert time.monotonic() < begun + 600
            time.sleep(0.01)
        self._starting = time.monotonic() - begun


def check_threads(kills: int, tmp_path: Path) -> None:
    """Four threads, and a journal that holds the whole story, which another agent then repeats."""
    acted: dict[int, int] = {}
    rewarded: set[int] = set()

    def on_line(word: str, rest: str) -> None:
        if word == "act":
            number, action = map(int, rest.split())
            assert number not in acted, "no id is given twice"
            acted[number] = action
        elif word == "reward":
            rewarded.add(int(rest.split()[0]))
        elif word == "open":
            found = json.loads(rest)
            assert {number: found["actions"][number] for number in acted} == acted
            assert not rewarded & set(found["waiting"])
            assert found["observations"] >= len(rewarded)

    lives = Lives(tmp_path, 4, NEVER, on_line)
    for number in range(kills):
        lives.one(number)
    with Agent.open(lives.folder, policy(), SEED) as agent:
        log = agent.state().decisions
        assert {number: log.actions[number] for number in acted} == acted
        assert not any(log.waiting[number] for number in rewarded)
        uninterrupted = Agent(policy(), SEED)
        journal = lives.folder / f"journal-{0:020}"
        for _, header, arrays in read_journal(journal, 1, is_last=False)[0]:
            arguments = header["arguments"]["dict"]
            if header["call"] == "decide":
                decision = uninterrupted.act(arrays["['contexts']"][0])
                assert [decision.index] == arrays["['actions']"].tolist()
            else:
                value = float.fromhex(arguments["reward"]["float"])
                uninterrupted.reward(arguments["decision"], value)
        assert_same_agent(agent, uninterrupted)
    assert len(acted) > 10 * kills
    assert len(rewarded) > 5 * kills


def check_snapshots(kills: int, tmp_path: Path) -> None:
    """One thread, and a snapshot every 25 changes; an agent that is never killed gets the same calls."""
    uninterrupted = Agent(policy(), SEED)
    asked: list[list[str]] = []

    def answer() -> None:
        kind, *values = asked.pop()
        if kind == "act":
            uninterrupted.act([np.float32(value) for value in values])
        else:
            uninterrupted.reward(int(values[0]), float(values[1]))

    def on_line(word: str, rest: str) -> None:
        if word == "ask":
            asked.append(rest.split())
        elif word == "open":
            found = json.loads(rest)
            counts = uninterrupted.counts
            done = len(found["actions"]), found["observations"]
            if asked and done != (counts["decisions"], counts["observations"]):
                answer()  # it was not acknowledged, but had got as far as the disk
            asked.clear()
            log = uninterrupted.state().decisions
            assert found["actions"] == log.actions[: log.made].tolist()
            assert found["waiting"] == np.flatnonzero(log.waiting[: log.made]).tolist()
            assert found["observations"] == uninterrupted.counts["observations"]
        else:
            answer()
            if word == "act":
                number, action = map(int, rest.split())
                log = uninterrupted.state().decisions
                assert (number, action) == (log.made - 1, log.actions[log.made - 1])

    lives = Lives(tmp_path, 1, 25, on_line)
    for number in range(kills):
        lives.one(number)
    with Agent.open(lives.folder, policy(), SEED) as agent:
        state = agent.state()
        if asked and state.decisions.made + state.counts["observations"] > (
            uninterrupted.counts["decisions"] + uninterrupted.counts["observations"]
        ):
            answer()
        assert_same_agent(agent, uninterrupted)
    assert len(list(lives.folder.glob("snapshot-*"))) == 2
    assert uninterrupted.counts["decisions"] > 10 * kills


@pytest.mark.slow
def test_killed(tmp_path):
    check_threads(2, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("check", [check_threads, check_snapshots])
def test_killed_fifty_times(check, tmp_path):
    check(50, tmp_path)
