"""`Collapsed` beside NUTS on all numbers, and its rounds beside as many of `ClosedForm`.

The problem: K = 100 actions, L = 3 effects, d = 2, two scales and the noise unknown. Compared are effective
draws of these three numbers a second, from 500 observations, with everything compiled; and a round of 256
particles with 256 posteriors of `ClosedForm` whose numbers are known, updated as one batch.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.diagnostics import effective_sample_size
from timing import at_least, fastest, verdict

from mixts.inference import ClosedForm, Collapsed, Nuts
from mixts.inference.mixture.population import CollapsedState
from mixts.models import Gaussian, Hierarchy, Level

K, L, D, ROWS = 100, 3, 2, 500
ROUNDS, PARTICLES = 5000, 256
NUMBERS = ("effect_scale", "action_scale", "reward_noise")


def problem(rows: int) -> tuple[Hierarchy, tuple[jax.Array, ...]]:
    rng = np.random.default_rng(0)
    weights = rng.uniform(-1, 1, (K, L))
    theta = weights @ rng.normal(scale=1.5, size=(L, D)) + 0.7 * rng.normal(size=(K, D))
    contexts, actions = rng.uniform(-1, 1, (rows, D)), rng.integers(0, K, rows)
    rewards = np.sum(contexts * theta[actions], axis=1) + 0.5 * rng.normal(size=rows)
    scale = dist.HalfNormal(2.0)
    effect = Level("effect", L, scale=scale)
    action = Level("action", K, parents={"effect": weights}, scale=scale)
    hierarchy = Hierarchy([effect, action], Gaussian(dist.HalfNormal(2.0)), D)
    return hierarchy, tuple(map(jnp.asarray, (contexts, actions, rewards)))


def worth(draws: dict[str, jax.Array]) -> float:
    """Effective draws of the unknown number that has the fewest; of each at most those made."""
    sizes = [float(effective_sample_size(np.asarray(draws[name]))) for name in NUMBERS]
    made = np.asarray(draws[NUMBERS[0]]).size
    return min(*sizes, made)


def draws_a_second() -> bool:
    """From the same rewards, both adapted before: what `posterior` takes, and what its draws are worth.

    An adaptation is part of `Collapsed.posterior`, and none of `Nuts.posterior`: its chains have adapted
    when they were conditioned.
    """
    hierarchy, seen = problem(ROWS)
    collapsed, nuts = Collapsed(hierarchy), Nuts(hierarchy, chains=4, warmup=500, capacity=ROWS)
    states = {
        "Collapsed": collapsed.condition(collapsed.init(jax.random.key(0)), *seen),
        "Nuts": nuts.condition(nuts.init(jax.random.key(0)), *seen),
    }
    backends = {"Collapsed": collapsed, "Nuts": nuts}

    def call(name: str):
        return lambda: jax.block_until_ready(backends[name].posterior(states[name]).mean)

    seconds = fastest({name: call(name) for name in backends}, repeats=3)
    rates = {}
    for name, backend in backends.items():
        own = worth(backend.draws(backend.posterior(states[name]).state))
        rates[name] = own / seconds[name]
        print(f"      {name}: {own:.0f} effective draws of the numbers in {seconds[name]:.2f} s")
    return at_least(
        "effective draws a second, over those of Nuts", rates["Collapsed"] / rates["Nuts"], 50
    )


def rounds() -> bool:
    """A decision and an update, over many rounds in one scan."""
    hierarchy, seen = problem(ROUNDS)
    backend = Collapsed(hierarchy, particles=PARTICLES)
    start = backend.init(jax.random.key(0))
    mixing, numbers = backend.mixing, backend.mixing.numbers

    @jax.jit
    def whole(state: CollapsedState) -> CollapsedState:
        return jax.lax.scan(lambda s, row: (backend.update(s, *row), None), state, seen)[0]

    @jax.jit
    def without_moves(state: CollapsedState) -> CollapsedState:
        def one(state: CollapsedState, row: tuple) -> tuple[CollapsedState, None]:
            particles = mixing.updated(state.particles, row)
            rows = (*(part[None] for part in row), None)
            return CollapsedState(
                particles, mixing.rewards.add(hierarchy, state.kept, rows)[0]
            ), None

        return jax.lax.scan(one, state, seen)[0]

    known = jax.vmap(numbers.given)(start.particles.positions)

    @jax.jit
    def closed_form(known: Hierarchy) -> jax.Array:
        def one(states, row):
            return jax.vmap(lambda h, s: ClosedForm(h).update(s, *row))(known, states), None

        first = jax.vmap(lambda h: ClosedForm(h).init())(known)
        return jax.lax.scan(one, first, seen)[0]

    calls = {
        "closed form": lambda: jax.block_until_ready(closed_form(known)),
        "without moves": lambda: jax.block_until_ready(without_moves(start)),
        "whole": lambda: jax.block_until_ready(whole(start)),
    }
    seconds = fastest(calls, repeats=4)
    renewals = int(whole(start).particles.info.renewals)
    for name, each in seconds.items():
        print(f"      {name}: {each / ROUNDS * 1e6:.1f} us a round")
    print(f"      {renewals} times in {ROUNDS:,} rounds the particles were resampled and moved")
    least = seconds["closed form"]
    good = verdict("a round with moves, over those of ClosedForm", seconds["whole"] / least, 3.0)
    return verdict("without moves", seconds["without moves"] / least, 1.5) and good


def main() -> int:
    good = rounds()
    return 0 if draws_a_second() and good else 1


if __name__ == "__main__":
    sys.exit(main())
