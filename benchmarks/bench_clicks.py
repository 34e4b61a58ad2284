"""Clicks by expectation propagation: what a round costs, and what a fit of many rows does.

- an online round at K = 100, beside an exact round with Gaussian rewards; and a round after a million of
  them beside one after a thousand, in turns: nothing is kept, so nothing grows;
- a fit of 100,000 clicks of 1,000 actions until their messages agree, beside full-rank SVI. SVI gets a few
  hundred steps only, so that the ratio is the least that it can be: how far it still is from where
  expectation propagation ends is shown with it.
"""

import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from bench_laplace import DIM, K, L, rounds_played
from timing import at_least, fastest, verdict

from mixts.bandit import best_action
from mixts.inference import ClosedForm, ExpectationPropagation, Svi
from mixts.models import glm, linear

FIT_ACTIONS, FIT_ROWS, SVI_STEPS = 1_000, 100_000, 800


def rounds() -> bool:
    weights = np.random.default_rng(1).uniform(-1, 1, (K, L))
    exact = ClosedForm(linear(weights, DIM, effect_cov=3.0))
    clicks = ExpectationPropagation(glm(weights, DIM, effect_cov=3.0))
    few = 1_000
    seconds = fastest(
        {"exact": rounds_played(exact, few), "clicks": rounds_played(clicks, few)}, repeats=50
    )
    for name, value in seconds.items():
        print(f"      {few:,} rounds, {name}: {value / few * 1e6:.1f} us each")
    return verdict("round with clicks over an exact one", seconds["clicks"] / seconds["exact"], 1.8)


def rounds_long_after() -> bool:
    """A thousand rounds after the first thousand, and after a million."""
    weights = np.random.default_rng(1).uniform(-1, 1, (K, L))
    clicks = ExpectationPropagation(glm(weights, DIM, effect_cov=3.0))
    hidden = jnp.asarray(np.random.default_rng(0).normal(size=(K, DIM)))

    @partial(jax.jit, static_argnames="count")
    def played(backend, state, first, count):
        def play(i, state):
            key, key_context, key_reward = jax.random.split(jax.random.key(first + i), 3)
            context = jax.random.uniform(key_context, (DIM,), minval=-1.0)
            action = best_action(backend.sample_scores(key, state, context))
            rate = jax.nn.sigmoid(hidden[action] @ context)
            reward = jax.random.bernoulli(key_reward, rate).astype(float)
            return backend.update(state, context, action, reward)

        return jax.lax.fori_loop(0, count, play, state)

    few, many = 1_000, 1_000_000
    early = played(clicks, clicks.init(), 0, few)
    late = played(clicks, early, few, many)
    print(f"      status after {many:,} rounds: {clicks.status(late)}")
    calls = {"early": early, "late": late}
    seconds = fastest(
        {
            name: lambda state=state: jax.block_until_ready(played(clicks, state, 7 * many, few))
            for name, state in calls.items()
        },
        repeats=50,
    )
    ratio = seconds["late"] / seconds["early"]
    return verdict(f"a round after {many:,} over one after {few:,}", ratio, 1.2)


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

    # Compiling is part of it, a few seconds of minutes.
    guide = Svi(hierarchy, fit_steps=SVI_STEPS, capacity=FIT_ROWS)
    begun = jax.block_until_ready(guide.init())
    start = time.perf_counter()
    found = jax.block_until_ready(guide.condition(begun, *seen))
    svi_seconds = time.perf_counter() - start
    off = (guide.posterior(found).mean["action"] - posterior.mean["action"]) / sd
    print(f"      EP: {seconds:.2f} s; SVI, {SVI_STEPS} steps: {svi_seconds:.1f} s")
    print(f"      SVI is then {np.sqrt(np.mean(np.square(off))):.2g} sd from EP (rms)")
    return at_least("time of SVI, not yet converged, over that of EP", svi_seconds / seconds, 50.0)


def main() -> int:
    return 0 if rounds() & rounds_long_after() & fit() else 1


if __name__ == "__main__":
    raise SystemExit(main())
