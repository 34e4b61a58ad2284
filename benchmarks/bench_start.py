"""What first calls take in a process that finds no compiled programs on the disk, and in the next one.

Each case runs twice, in processes of their own with a folder of compiled programs that is empty at first.
CPU time counts, of all threads, from the end of the imports: it is what compiling takes, whatever else the
machine does. A second process traces and loads programs that the first one compiled.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable

import jax
import numpy as np
from timing import verdict

from mixts.bandit import Agent, ThompsonSampling
from mixts.inference import (
    ClosedForm,
    ExpectationPropagation,
    Laplace,
    Nuts,
    Svi,
    calibrate,
    compare,
)
from mixts.models import Data, glm, linear

K, L, D, ROWS = 20, 3, 2, 500
AGAIN = 0.6  # of the first process's CPU time


def weights() -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, (K, L))


def clicks() -> Data:
    rng = np.random.default_rng(1)
    contexts, actions = rng.normal(size=(ROWS, D)), rng.integers(0, K, ROWS)
    return Data(contexts, actions, rng.integers(0, 2, ROWS).astype(float))


def begin_and_update(make: Callable) -> None:
    """A backend's first calls: `init`, `condition`, `update`, scores and a posterior."""
    backend, data = make(glm(weights(), D)), clicks()
    state = backend.condition(backend.init(), *data)
    state = backend.update(state, data.contexts[0], 0, 1.0)
    backend.sample_scores(jax.random.key(0), state, data.contexts[0]).block_until_ready()
    backend.posterior(state)


def serve(make: Callable) -> None:
    """An agent that is warmed up and serves."""
    agent = Agent(ThompsonSampling(make(glm(weights(), D))))
    agent.warm_up(rewards=100, actions=10)
    agent.reward(agent.act(np.ones(D)).id, 1.0)


CASES = {
    "Nuts.init": lambda: Nuts(glm(weights(), D)).init(),
    "Nuts, all calls": lambda: begin_and_update(Nuts),
    "Svi.init": lambda: Svi(glm(weights(), D)).init(),
    "Svi, all calls": lambda: begin_and_update(Svi),
    "agent on ExpectationPropagation": lambda: serve(ExpectationPropagation),
    "agent on Laplace": lambda: serve(Laplace),
    "compare": lambda: compare(
        glm(weights(), D), clicks(), {"nuts": Nuts, "svi": Svi, "laplace": Laplace}, "nuts"
    ),
    "calibrate": lambda: calibrate(linear(weights(), D), ClosedForm, simulations=40),
}


def run(case: str) -> None:
    warnings.simplefilter("ignore")  # chains this short have not mixed
    start = time.process_time()
    jax.block_until_ready(CASES[case]())
    print(time.process_time() - start)


def seconds(case: str, folder: str) -> float:
    """The CPU seconds of a case in a process of its own."""
    settings = {**os.environ, "MIXTS_CACHE": folder, "MIXTS_PROGRESS": "0"}
    command = [sys.executable, __file__, "--case", case]
    ran = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(ran.stderr)
    return float(ran.stdout.split()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=CASES, help="run one, here")
    options = parser.parse_args()
    if options.case:
        run(options.case)
        return 0
    results = []
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            first, second = seconds(case, folder), seconds(case, folder)
        print(f"      {case}: {first:.1f} s of CPU time, in a second process {second:.1f} s")
        results.append(verdict(f"{case}: second process over first", second / first, AGAIN))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
