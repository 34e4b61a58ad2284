"""A warm round of `Svi` beside NumPyro's `SVI.run` from scratch to the same evidence lower bound.

Both fit a Gaussian with a full covariance to the same 500 observations of 20 actions. NumPyro's guide is
`AutoMultivariateNormal` with Adam, at the learning rate that gets there in the fewest steps.
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from bench_nuts import D, K, L, problem
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal
from numpyro.optim import Adam
from timing import at_least, fastest

from mixts.inference import ClosedForm, Svi

RATES = (0.003, 0.01, 0.03)
MOST, WINDOW = 20_000, 200
SLACK = 0.5  # nats: the bound's mean over a window has an error of about 0.2


def main() -> int:
    hierarchy, *seen = problem()
    rows = tuple(map(jnp.asarray, seen))
    exact = ClosedForm(hierarchy)
    evidence = float(exact.condition(exact.init(), *rows).log_evidence)

    backend = Svi(hierarchy, capacity=512)
    state = backend.init(jax.random.key(0))
    state = backend.condition(state, *(part[1:] for part in rows))
    last = tuple(part[0] for part in rows)

    def play(backend, state, key, context, action, reward):
        state = backend.update(state, context, action, reward)
        return state, jnp.argmax(backend.sample_scores(key, state, context))

    compiled = jax.jit(play)

    def warm_round():
        return jax.block_until_ready(compiled(backend, state, jax.random.key(1), *last))

    bound = float(warm_round()[0].elbo)

    def fresh(rate: float) -> SVI:
        guide = AutoMultivariateNormal(hierarchy.program)
        loss = Trace_ELBO(num_particles=backend.particles)
        return SVI(hierarchy.program, guide, Adam(rate), loss)

    needed: dict[float, int] = {}
    for rate in RATES:
        losses = fresh(rate).run(jax.random.key(2), MOST, *rows, progress_bar=False).losses
        means = np.convolve(-np.asarray(losses), np.ones(WINDOW) / WINDOW, "valid")
        there = np.flatnonzero(means > bound - SLACK)
        needed[rate] = int(there[0]) + WINDOW // 2 if there.size else MOST
        best = f"{means.max() - evidence:.2f}"
        print(f"      Adam({rate}): {needed[rate]} steps; best bound {best} from the evidence")
    rate = min(needed, key=needed.__getitem__)
    steps = needed[rate]
    print(f"      bound after a warm round: {bound - evidence:.3f} from the evidence")

    start = time.perf_counter()
    fresh(rate).run(jax.random.key(3), steps, *rows, progress_bar=False)
    whole = time.perf_counter() - start

    svi = fresh(rate)

    @jax.jit
    def run_again(key, *rows):
        begun = svi.init(key, *rows)
        return jax.lax.scan(lambda s, _: svi.update(s, *rows), begun, length=steps)

    def compiled_run():
        jax.block_until_ready(run_again(jax.random.key(3), *rows))

    seconds = fastest({"round": warm_round, "run": compiled_run}, repeats=10)
    print(f"      a warm round {seconds['round'] * 1e3:.2f} ms; a fresh run {whole:.2f} s,")
    print(f"      of which all but {seconds['run'] * 1e3:.0f} ms is compiling")
    print(
        f"      what limits a round: {backend.steps} steps of {backend.particles} gradients each,"
    )
    print(f"      of {backend.capacity} rows, and {L * D + K * D}^2 numbers of the root")
    good = at_least("a fresh run over a warm round", whole / seconds["round"], 100)
    ratio = seconds["run"] / seconds["round"]
    good &= at_least("a fresh run over a warm round, compiled before", ratio, 100)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
