"""What `empirical_bayes` finds from good and bad starts in several units, its time and its memory."""

import time

import numpy as np
from timing import peak_memory, verdict

from mixts.inference import EmpiricalBayes, Trouble, empirical_bayes
from mixts.models import Data, Gaussian, Hierarchy, Level, Sparse, linear

UNITS = (1e-3, 1.0, 1e3, 1e4)
SCALES = (1e-6, 1e-3, 1.0, 1e3, 1e6)


def random_slopes(unit: float, scale: float) -> tuple[Hierarchy, Data, tuple[str, ...]]:
    """18 subjects on 10 days, each with a line of its own; declared so many times too wide."""
    rng = np.random.default_rng(0)
    lines = [250.0, 10.0] + rng.normal(size=(18, 2)) * [25.0, 6.0]
    subjects, days = np.repeat(np.arange(18), 10), np.tile(np.arange(10.0), 18)
    contexts = np.column_stack([np.ones(180), days])
    rewards = np.sum(contexts * lines[subjects], axis=1) + 25.0 * rng.normal(size=180)
    level = Level("subject", 18, mean=np.zeros(2), cov=(25.0 * unit * scale) ** 2 * np.eye(2))
    hierarchy = Hierarchy([level], Gaussian(25.0 * unit * scale), dim=2)
    return hierarchy, Data(contexts, subjects, unit * rewards), ("cov", "noise", "mean")


def crossed(unit: float, scale: float) -> tuple[Hierarchy, Data, tuple[str, ...]]:
    """60 actions that mix 4 effects; declared so many times too wide."""
    rng = np.random.default_rng(1)
    weights = rng.uniform(-1, 1, (60, 4))
    theta = weights @ rng.normal(size=(4, 2)) + 0.5 * rng.normal(size=(60, 2))
    contexts, actions = rng.normal(size=(600, 2)), rng.integers(0, 60, 600)
    rewards = np.sum(contexts * theta[actions], axis=1) + 0.7 * rng.normal(size=600)
    size = (unit * scale) ** 2
    hierarchy = linear(weights, 2, effect_cov=size, action_cov=size, noise=unit * scale)
    return hierarchy, Data(contexts, actions, unit * rewards), ("cov", "noise")


def regions(unit: float, scale: float) -> tuple[Hierarchy, Data, tuple[str, ...]]:
    """12 regions with a joint covariance of their 24 numbers, above 40 actions."""
    rng = np.random.default_rng(2)
    apart = np.abs(np.subtract.outer(np.arange(12), np.arange(12)))
    cov = np.kron(0.8**apart, [[1.0, 0.3], [0.3, 0.5]])
    where = np.arange(40) % 12
    theta = rng.multivariate_normal(np.zeros(24), cov).reshape(12, 2)[where]
    theta = theta + 0.3 * rng.normal(size=(40, 2))
    contexts, actions = rng.normal(size=(400, 2)), rng.integers(0, 40, 400)
    rewards = np.sum(contexts * theta[actions], axis=1) + 0.5 * rng.normal(size=400)
    size = (unit * scale) ** 2
    above = Level("region", 12, cov=size * cov)
    own = Level("action", 40, parents={"region": np.eye(12)[where]}, cov=size)
    hierarchy = Hierarchy([above, own], Gaussian(unit * scale), dim=2)
    return hierarchy, Data(contexts, actions, unit * rewards), ("cov", "noise")


def many_effects() -> tuple[Hierarchy, Data]:
    """1,000 rows of 800 actions under 500 effects: fewer rows than unknown numbers."""
    rng = np.random.default_rng(3)
    parents = rng.integers(0, 500, (800, 1))
    theta = 2.0 * rng.normal(size=500)[parents[:, 0]] + 0.5 * rng.normal(size=800)
    actions = rng.integers(0, 800, 1000)
    rewards = theta[actions] + 0.3 * rng.normal(size=1000)
    weights = Sparse(parents, np.ones((800, 1)), num_parents=500)
    return linear(weights, 1), Data(np.ones((1000, 1)), actions, rewards)


def has_failed(fit: EmpiricalBayes) -> bool:
    return Trouble.FAILED in fit.status or Trouble.STEP_LIMIT in fit.status


def main() -> int:
    good = True
    for make in (random_slopes, crossed, regions):
        ends, seconds, failed = [], [], 0
        for unit in UNITS:
            for scale in SCALES:
                hierarchy, data, learn = make(unit, scale)
                begun = time.perf_counter()
                fit = empirical_bayes(hierarchy, data, learn=learn)
                seconds.append(time.perf_counter() - begun)
                ends.append(fit.log_evidence + len(data) * np.log(unit))
                failed += has_failed(fit)
        name, fits = make.__name__.replace("_", " "), len(ends)
        print(
            f"      {name}: first fit {seconds[0]:.1f} s, then {np.median(seconds[1:]):.3f} s each"
        )
        print(f"      {name}: log evidence {min(ends):.4f} to {max(ends):.4f} in {fits} fits")
        good &= verdict(f"{name}: fits that failed", failed, 0)
        # What differs is how float32 rounds the rewards, and holds a singular covariance.
        good &= verdict(f"{name}: nats between the best and the worst", float(np.ptp(ends)), 0.05)
    before = peak_memory()
    begun = time.perf_counter()
    fit = empirical_bayes(*many_effects())
    print(f"      500 effects, 1,000 rows: {time.perf_counter() - begun:.1f} s, {fit.steps} steps")
    good &= verdict("500 effects, 1,000 rows: GB more", (peak_memory() - before) / 1e9, 0.5)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
