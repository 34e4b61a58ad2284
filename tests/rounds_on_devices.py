"""Rounds with the actions on many devices beside the same rounds on one, as a program of its own.

    python rounds_on_devices.py MODEL 4               # four devices in one process
    python rounds_on_devices.py MODEL 1 PORT PROCESS  # one device in each of two processes

Prints what it found as JSON. How many devices there are must be said before JAX starts.
"""

import json
import os
import re
import sys
from typing import Any

DEVICES, ROUNDS, K, DIM = int(sys.argv[2]), 40, 1204, 2

os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from mixts.bandit import ThompsonSampling  # noqa: E402
from mixts.inference import ClosedForm, over_devices  # noqa: E402
from mixts.models import Gaussian, Hierarchy, Level, Sparse  # noqa: E402


def crossed() -> Hierarchy:
    """Two kinds of parents, matrices and sparse numbers, and a covariance for each action."""
    rng = np.random.default_rng(0)
    roots = rng.normal(size=(K, DIM, DIM))
    brands = Sparse(np.arange(K)[:, None] % 5, rng.normal(size=(K, 1)), num_parents=5)
    action = Level(
        "action",
        K,
        parents={"brand": brands, "effect": rng.normal(size=(K, 3, DIM, DIM))},
        cov=roots @ np.swapaxes(roots, 1, 2) + np.eye(DIM),
    )
    return Hierarchy([Level("brand", 5), Level("effect", 3), action], Gaussian(), DIM)


def tree() -> Hierarchy:
    """Products in categories, which belong to departments and have attributes; with intercepts."""
    rng = np.random.default_rng(1)

    def below(size: int, num_parents: int) -> Sparse:
        return Sparse(rng.integers(0, num_parents, (size, 1)), num_parents=num_parents)

    above = {"attribute": rng.normal(size=(40, 4)), "department": below(40, 6)}
    category = Level("category", 40, parents=above)
    product = Level("product", K, parents={"category": below(K, 40)}, mean=rng.normal(size=(K, 2)))
    tops = Level("attribute", 4), Level("department", 6)
    return Hierarchy([*tops, category, product], Gaussian(), DIM)


def act(policy, key, state, context):
    return policy.act(key, state, context)


def update(policy, state, context, action, reward):
    return policy.update(state, context, action, reward)


def same_bits(state: Any, alone: Any) -> bool:
    """Whether each device holds just its share of what one device alone holds."""
    return all(
        np.array_equal(np.asarray(shard.data), np.asarray(whole)[shard.index])
        for leaf, whole in zip(jax.tree.leaves(state), jax.tree.leaves(alone), strict=True)
        for shard in leaf.addressable_shards
    )


def collectives(compiled: Any) -> list[str]:
    """The shapes of what devices send one another in a compiled program."""
    kinds = (
        "all-gather|all-reduce|all-to-all|collective-permute|collective-broadcast|reduce-scatter"
    )
    found = re.findall(rf"= (\(?[^=]*?) (?:{kinds})(?:-start)?\(", compiled.as_text())
    return [shape for shapes in found for shape in re.findall(r"\w+\[[\d,]*\]", shapes)]


class Player:
    """A policy, its state and its decisions; compiled once, for arrays placed as they are at first."""

    def __init__(self, backend: ClosedForm, state: Any):
        self.policy, self.state, self.decisions = ThompsonSampling(backend), state, []
        key, context = jax.random.key(0), jnp.zeros(DIM)
        choice = jax.jit(act).lower(self.policy, key, state, context)
        self.act = choice.compile()
        action = jax.device_put(jnp.int32(0), self.act.output_shardings)
        self.update = jax.jit(update).lower(self.policy, state, context, action, 0.0).compile()

    def play(self, key: Any, context: Any, reward: float) -> None:
        action = self.act(self.policy, key, self.state, context)
        self.state = self.update(self.policy, self.state, context, action, reward)
        self.decisions.append(int(action))


def play(hierarchy: Hierarchy) -> dict[str, Any]:
    backend = ClosedForm(hierarchy)
    alone, devices = Player(backend, backend.init()), Player(*over_devices(backend))
    rng = np.random.default_rng(2)
    for i in range(ROUNDS):
        key, context = jax.random.key(i), jnp.asarray(rng.normal(size=DIM))
        reward = float(rng.normal())
        alone.play(key, context, reward)
        devices.play(key, context, reward)
    return {
        "alone": alone.decisions,
        "devices": devices.decisions,
        "same_bits": same_bits(devices.state, alone.state),
        "held": [
            leaf.addressable_shards[0].data.shape[-1]
            for leaf in jax.tree.leaves(devices.state.actions)
        ],
        "act": collectives(devices.act),
        "update": collectives(devices.update),
    }


def main() -> None:
    if len(sys.argv) > 3:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{sys.argv[3]}", 2, int(sys.argv[4]))
    hierarchy = {"crossed": crossed, "tree": tree}[sys.argv[1]]()
    print(json.dumps(play(hierarchy)))


if __name__ == "__main__":
    main()
