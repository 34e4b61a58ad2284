"""Two commands: `mixts compare` compares posteriors of backends, `mixts bench` speed with peers."""

import argparse
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ...inference import (
    Backend,
    ClosedForm,
    ExpectationPropagation,
    Factored,
    Laplace,
    Nuts,
    Svi,
    compare,
)
from ...models import (
    Bernoulli,
    Data,
    Gaussian,
    Hierarchy,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Probit,
    Reward,
    StudentT,
    glm,
)

__all__ = ["run_bench", "run_compare", "synthetic"]

REWARDS: dict[str, Callable[[], Reward]] = {
    "gaussian": Gaussian,
    "bernoulli": Bernoulli,
    "poisson": Poisson,
    "probit": Probit,
    "negative-binomial": lambda: NegativeBinomial(2.0),
    "student": lambda: StudentT(3.0),
    "stars": lambda: Ordinal([-2.0, -0.7, 0.7, 2.0]),
}
BACKENDS: dict[str, Callable[[Hierarchy], Backend[Any]]] = {
    "EP": ExpectationPropagation,
    "EP, online": lambda h: ExpectationPropagation(h, sweep=False),
    "Laplace": Laplace,
    "NUTS": Nuts,
    "SVI, full rank": Svi,
    "SVI, mean field": lambda h: Svi(h, guide="mean_field"),
    "Factored": Factored,
}

# The full-rank guide of Svi and its optimiser hold a few matrices with so many rows and columns.
MOST_UNKNOWNS = 3000
MOST_OBSERVATIONS = 1_000_000

# At the root of a checkout, and beside `mixts.bandit` in a wheel.
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PEERS = ("bayesianbandits", "mabwiser", "numba")


def run_compare(options: argparse.Namespace) -> None:
    """Compare on a synthetic problem; print the table and write it and a picture into a folder."""
    actions, effects, dim = options.actions, options.effects, options.dim
    observations, out = options.observations, options.out
    unknowns = (actions + effects) * dim
    if unknowns > MOST_UNKNOWNS:
        options.error(
            f"({actions:,} actions + {effects:,} effects) x {dim:,} = {unknowns:,} unknown numbers; "
            f"expected at most {MOST_UNKNOWNS:,}, whose covariance takes part in the comparison"
        )
    if observations > MOST_OBSERVATIONS:
        options.error(f"{observations:,} observations; expected at most {MOST_OBSERVATIONS:,}")
    out.mkdir(parents=True, exist_ok=True)
    hierarchy, data = synthetic(options.rewards, actions, effects, dim, observations, options.seed)
    print(
        f"{hierarchy}\n\n{observations:,} rewards. Compiling takes most of the time ...\n",
        flush=True,
    )
    backends, reference = BACKENDS, "exact"
    if hierarchy.why_not_exact is None:
        backends, reference = {"ClosedForm": ClosedForm, **BACKENDS}, "ClosedForm"
    comparison = compare(hierarchy, data, backends, reference, key=jax.random.key(options.seed))
    print(comparison)
    comparison.table.to_csv(out / "comparison.csv")
    comparison.plot().savefig(out / "comparison.png", dpi=150)
    print(f"\nWritten: {out / 'comparison.csv'}, {out / 'comparison.png'}")


def synthetic(
    rewards: str, actions: int, effects: int, dim: int, observations: int, seed: int
) -> tuple[Hierarchy, Data]:
    """The paper's synthetic problem (Section 5.1), and rewards of random actions.

    Weights and contexts are uniform in [-1, 1], effects have covariance 3 I and actions I.
    """
    rng = np.random.default_rng(seed)
    weights = rng.uniform(-1, 1, (actions, effects))
    hierarchy = glm(weights, dim, reward=REWARDS[rewards](), effect_cov=3.0)
    key_truth, key_rewards = jax.random.split(jax.random.key(seed))
    theta = hierarchy.sample_prior(key_truth)["action"]
    contexts = rng.uniform(-1, 1, (observations, dim))
    chosen = rng.integers(0, actions, observations)
    law = hierarchy.reward.law((contexts * theta[chosen]).sum(-1))
    return hierarchy, Data(contexts, chosen, law.sample(key_rewards))


def run_bench(options: argparse.Namespace) -> None:
    """Run some benchmarks or all, each in a process of its own; one that fails does not stop the others."""
    files = sorted(BENCHMARKS.glob("bench_*.py"))
    known = {path.stem.removeprefix("bench_"): path for path in files}
    for name in options.benchmarks:
        if name not in known:
            options.error(f"unknown benchmark '{name}'; expected some of: {', '.join(known)}")
    missing = [peer for peer in PEERS if find_spec(peer) is None]
    if missing:
        raise OSError(
            f"{', '.join(missing)} not installed, beside which mixts is measured: "
            "pip install 'mixts[bench]'"
        )
    missed = []
    for name in dict.fromkeys(options.benchmarks or known):
        print(f"== {name}", flush=True)
        if subprocess.run([sys.executable, known[name]], check=False).returncode:
            missed.append(name)
    if missed:
        raise ChildProcessError(
            f"not as fast as it should be, or not measured: {', '.join(missed)}"
        )
