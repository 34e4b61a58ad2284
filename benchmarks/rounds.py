"""Rounds of a backend as calls to be timed."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mixts.inference import Backend

__all__ = ["many_updates", "own_buffers"]


def own_buffers(state: Any) -> Any:
    """A state that can be donated: several leaves of a fresh one are one broadcast value."""
    return jax.tree.map(jnp.copy, state)


def many_updates(backend: Backend, rounds: int) -> Callable[[], None]:
    """So many updates in one compiled scan; the state is donated, as an agent would do it."""
    K, d = backend.hierarchy.num_actions, backend.hierarchy.dim
    rng = np.random.default_rng(1)
    contexts = jnp.asarray(rng.uniform(-1, 1, (rounds, d)))
    actions = jnp.asarray(rng.integers(0, K, rounds))
    rewards = jnp.asarray(rng.normal(size=rounds))

    def run(backend, state, seen):
        return jax.lax.scan(lambda s, o: (backend.update(s, *o), None), state, seen)[0]

    compiled = jax.jit(run, donate_argnums=1)
    state = own_buffers(backend.init())

    def call() -> None:
        nonlocal state
        state = jax.block_until_ready(compiled(backend, state, (contexts, actions, rewards)))

    return call
