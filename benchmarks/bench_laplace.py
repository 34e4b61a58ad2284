"""What a round with clicks costs, against an exact round with Gaussian rewards of the same size."""

import jax
import jax.numpy as jnp
import numpy as np
from timing import fastest, verdict

from mixts.bandit import best_action
from mixts.inference import Backend, ClosedForm, Laplace
from mixts.models import glm, linear

K, L, DIM = 100, 3, 2


def rounds_played(backend: Backend, rounds: int):
    """A bandit that plays so many rounds in one compiled scan, against clicks of some hidden actions."""
    rng = np.random.default_rng(0)
    contexts = jnp.asarray(rng.uniform(-1, 1, (rounds, DIM)))
    hidden = jnp.asarray(rng.normal(size=(K, DIM)))
    uniforms = jnp.asarray(rng.uniform(size=rounds))
    keys = jax.random.split(jax.random.key(0), rounds)

    @jax.jit
    def run(backend, keys):
        def play(state, seen):
            key, context, uniform = seen
            action = best_action(backend.sample_scores(key, state, context))
            reward = (uniform < jax.nn.sigmoid(hidden[action] @ context)).astype(float)
            return backend.update(state, context, action, reward), action

        state = backend.init(room=rounds)
        return jax.lax.scan(play, state, (keys, contexts, uniforms))[1]

    return lambda: jax.block_until_ready(run(backend, keys))


def main() -> int:
    weights = np.random.default_rng(1).uniform(-1, 1, (K, L))
    exact = ClosedForm(linear(weights, DIM, effect_cov=3.0))
    clicks = Laplace(glm(weights, DIM, effect_cov=3.0), capacity=1)
    good = True
    for rounds in (1_000, 5_000):
        seconds = fastest(
            {"exact": rounds_played(exact, rounds), "clicks": rounds_played(clicks, rounds)}
        )
        for name, value in seconds.items():
            print(f"      {rounds:,} rounds, {name}: {value / rounds * 1e6:.1f} us each")
        ratio = seconds["clicks"] / seconds["exact"]
        good &= verdict(f"round with clicks over an exact one, {rounds:,} rounds", ratio, 20.0)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
