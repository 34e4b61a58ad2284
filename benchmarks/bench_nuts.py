"""A warm round of `Nuts` beside a fresh `MCMC.run` of NumPyro that is worth as many draws.

Both see the same 500 observations of 20 actions. Draws are counted by their effective sample size: that
of a transition is measured on a long run of each, and a round makes `chains * steps` transitions. Of the
46 unknowns the median counts, as the worst of 46 estimates is mostly noise; the worst is printed too.
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS
from timing import at_least, fastest

from mixts.inference import Nuts
from mixts.models import Hierarchy, linear

K, L, D, ROWS = 20, 3, 2, 500
WARMUP = 200  # transitions of an adaptation, for both
LONG = 2000  # transitions that the worth of one is measured on


def problem() -> tuple[Hierarchy, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    weights = rng.uniform(-1, 1, (K, L))
    theta = weights @ rng.normal(scale=np.sqrt(3.0), size=(L, D)) + rng.normal(size=(K, D))
    contexts, actions = rng.normal(size=(ROWS, D)), rng.integers(0, K, ROWS)
    rewards = np.sum(contexts * theta[actions], axis=1) + rng.normal(size=ROWS)
    return linear(weights, D, effect_cov=3.0), contexts, actions, rewards


def worth(draws: dict[str, np.ndarray]) -> tuple[float, float]:
    """Effective draws of a transition, the median and the least of all unknowns.

    Draws of alternating sign are worth more than independent ones for a mean, not for anything else:
    none counts for more than one.
    """
    made = np.prod(next(iter(draws.values())).shape[:2])
    sizes = [np.ravel(effective_sample_size(np.asarray(value))) for value in draws.values()]
    each = np.minimum(np.concatenate(sizes) / made, 1.0)
    return float(np.median(each)), float(np.min(each))


def main() -> int:
    hierarchy, *seen = problem()
    contexts, actions, rewards = map(jnp.asarray, seen)

    backend = Nuts(hierarchy, warmup=WARMUP, samples=LONG, capacity=512)
    state = backend.init(jax.random.key(0))
    state = jax.block_until_ready(backend.condition(state, contexts[1:], actions[1:], rewards[1:]))
    chain_worth, chain_least = worth(backend.draws(backend.posterior(state).state))
    round_worth = chain_worth * backend.chains * backend.steps

    def play(backend, state, key, context, action, reward):
        state = backend.update(state, context, action, reward)
        return state, jnp.argmax(backend.sample_scores(key, state, context))

    compiled = jax.jit(play)
    last = contexts[0], actions[0], rewards[0]

    def warm_round():
        jax.block_until_ready(compiled(backend, state, jax.random.key(1), *last))

    def fresh(samples: int, warmup: int = WARMUP) -> MCMC:
        kernel = NUTS(hierarchy.program)
        mcmc = MCMC(kernel, num_warmup=warmup, num_samples=samples, progress_bar=False)
        mcmc.run(jax.random.key(2), contexts, actions, rewards)
        return mcmc

    long = fresh(LONG)
    fresh_worth, fresh_least = worth(long.get_samples(group_by_chain=True))
    samples = max(int(np.ceil(round_worth / fresh_worth)), 1)
    print(f"      effective draws of a transition, median and least of {L * D + K * D} unknowns:")
    print(
        f"      Nuts {chain_worth:.2f} {chain_least:.2f}, MCMC {fresh_worth:.2f} {fresh_least:.2f}"
    )
    print(
        f"      a round: {backend.chains * backend.steps} transitions worth {round_worth:.1f} draws"
    )
    print(f"      a fresh run: {WARMUP} transitions of warm-up and {samples} more, one chain")

    start = time.perf_counter()
    fresh(samples)
    whole = time.perf_counter() - start

    # The same run compiled beforehand: a run whose transitions, warm-up and all, are one jitted call.
    @jax.jit
    def run_again(key, contexts, actions, rewards):
        kernel = NUTS(hierarchy.program)
        mcmc = MCMC(kernel, num_warmup=WARMUP, num_samples=samples, progress_bar=False)
        mcmc.run(key, contexts, actions, rewards)
        return mcmc.get_samples()

    def compiled_run():
        jax.block_until_ready(run_again(jax.random.key(2), contexts, actions, rewards))

    seconds = fastest({"round": warm_round, "run": compiled_run}, repeats=30)
    print(f"      a warm round {seconds['round'] * 1e3:.2f} ms; a fresh run {whole:.2f} s,")
    print(f"      of which all but {seconds['run'] * 1e3:.1f} ms is compiling")
    steps = int(jnp.sum(state.chains.num_steps)) / backend.chains
    print(
        f"      what limits a round: {backend.steps} transitions of about {steps:.0f} gradients each,"
    )
    print("      both chains in step with the longer of their trajectories")
    ratio = seconds["run"] / seconds["round"]
    print(f"      a fresh run over a warm round, were it compiled before: {ratio:.1f};")
    print(
        f"      it makes {WARMUP + samples} transitions where a round makes {backend.steps} at a time"
    )
    good = at_least("a fresh run over a warm round", whole / seconds["round"], 100)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
