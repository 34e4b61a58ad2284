"""The command `mixts compare`: every backend on one synthetic problem."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ...inference import Backend, ClosedForm, Comparison, Factored, Laplace, Nuts, Svi, compare
from ...models import Bernoulli, Data, Gaussian, Hierarchy, Poisson, Reward, glm

__all__ = ["MOST_OBSERVATIONS", "MOST_UNKNOWNS", "run_compare", "synthetic"]

REWARDS: dict[str, Callable[[], Reward]] = {
    "gaussian": Gaussian,
    "bernoulli": Bernoulli,
    "poisson": Poisson,
}
BACKENDS: dict[str, Callable[[Hierarchy], Backend[Any]]] = {
    "Laplace": Laplace,
    "NUTS": Nuts,
    "SVI, full rank": Svi,
    "SVI, mean field": lambda h: Svi(h, guide="mean_field"),
    "Factored": Factored,
}

# The full-rank guide of Svi and its optimiser keep a few matrices of so many rows and columns.
MOST_UNKNOWNS = 3000
MOST_OBSERVATIONS = 1_000_000


def run_compare(
    rewards: str,
    observations: int,
    seed: int,
    out: Path,
    *,
    actions: int = 20,
    effects: int = 3,
    dim: int = 2,
) -> Comparison:
    """Compare on a synthetic problem; print the table and write it and a picture into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    hierarchy, data = synthetic(rewards, actions, effects, dim, observations, seed)
    print(
        f"{hierarchy}\n\n{observations:,} rewards. Compiling takes most of the time ...\n",
        flush=True,
    )
    backends, reference = BACKENDS, "exact"
    if hierarchy.why_not_exact is None:
        backends, reference = {"ClosedForm": ClosedForm, **BACKENDS}, "ClosedForm"
    comparison = compare(hierarchy, data, backends, reference, key=jax.random.key(seed))
    print(comparison)
    comparison.table.to_csv(out / "comparison.csv")
    comparison.plot().savefig(out / "comparison.png", dpi=150)
    print(f"\nWritten: {out / 'comparison.csv'}, {out / 'comparison.png'}")
    return comparison


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
    taken = rng.integers(0, actions, observations)
    law = hierarchy.reward.law((contexts * theta[taken]).sum(-1))
    return hierarchy, Data(contexts, taken, law.sample(key_rewards))
