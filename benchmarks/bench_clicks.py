"""Clicks by expectation propagation: what a round costs, and what a fit of many rows does.

- an online round at K = 100, beside an exact round with Gaussian rewards, and in a
  thousand times as many rounds: nothing is kept, so nothing grows;
- a fit of 100,000 clicks of 1,000 actions until their messages agree, beside full-rank SVI. SVI gets a few
  hundred steps only, so that the ratio is the least that it can be: how far it still is from where
  expectation propagation ends is shown with it.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
from bench_laplace import DIM, K, L, rounds_played
from timing import at_least, fastest, verdict

from mixts.inference import ClosedForm, ExpectationPropagation, Svi
from mixts.models import glm, linear

FIT_ACTIONS, FIT_ROWS, SVI_STEPS = 1_000, 100_000, 300


def rounds() -> bool:
    weights = np.random.default_rng(1).uniform(-1, 1, (K, L))
    exact = ClosedForm(linear(weights, DIM, effect_cov=3.0))
    clicks = ExpectationPropagation(glm(weights, DIM, effect_cov=3.0))
    short, long = 1_000, 1_000_000
    seconds = fastest(
        {"exact": rounds_played(exact, short), "clicks": rounds_played(clicks, short)}, repeats=50
    )
    many = fastest({"clicks": rounds_played(clicks, long)}, repeats=2)["clicks"] / long
    for name, value in seconds.items():
        print(f"      {short:,} rounds, {name}: {value / short * 1e6:.1f} us each")
    print(f"      {long:,} rounds, clicks: {many * 1e6:.1f} us each")
    ratio = seconds["clicks"] / seconds["exact"]
    flat = many * short / seconds["clicks"]
    return verdict("round with clicks over an exact one", ratio, 1.8) & verdict(
        f"a round of {long:,} over one of {short:,}", flat, 1.2
    )


def fit() -> bool:
    rng = np.random.default_rng(0)
    weights = rng.uniform(-1, 1, (FIT_ACTIONS, L))
    hierarchy = glm(weights, DIM, effect_cov=3.0)
    theta = np.asarray(hierarchy.sample_prior(jax.random.key(0))["action"])
    contexts = rng.uniform(-1, 1, (FIT_ROWS, DIM))
    actions = rng.integers(0, FIT_ACTIONS, FIT_ROWS)
    predictors = np.sum(contexts * theta[actions], axis=1)
    rewards = (rng.uniform(size=FIT_ROWS) < 1 / (1 + np.exp(-predictors))).astype(np.float32)
    seen = jnp.asarray(contexts), jnp.asarray(actions), jnp.asarray(rewards)

    matching = ExpectationPropagation(hierarchy)
    fitted = lambda: jax.block_until_ready(matching.condition(matching.init(), *seen))  # noqa: E731
    state = fitted()
    print(f"      status of the fit: {matching.status(state)}")
    seconds = fastest({"EP": fitted}, repeats=3)["EP"]
    posterior = matching.posterior(state)
    sd = np.sqrt(np.diagonal(np.asarray(posterior.cov["action"]), axis1=1, axis2=2))

    guide = Svi(hierarchy, fit_steps=SVI_STEPS, capacity=FIT_ROWS)
    variational = lambda: jax.block_until_ready(guide.condition(guide.init(), *seen))  # noqa: E731
    variational()
    start = time.perf_counter()
    found = variational()
    svi_seconds = time.perf_counter() - start
    off = (guide.posterior(found).mean["action"] - posterior.mean["action"]) / sd
    print(f"      EP: {seconds:.2f} s; SVI, {SVI_STEPS} steps: {svi_seconds:.1f} s")
    print(f"      SVI is then {np.sqrt(np.mean(np.square(off))):.2g} sd from EP (rms)")
    return at_least("time of SVI, not yet converged, over that of EP", svi_seconds / seconds, 50.0)


def main() -> int:
    return 0 if rounds() & fit() else 1


if __name__ == "__main__":
    raise SystemExit(main())
