"""A million actions shared out between two processes, beside one process that holds them all.

Products in a tree (50 / 1,000 / 20,000 / 1,000,000 nodes, d = 5) are played for some rounds: a decision and
an update in one compiled call, with the state donated, as an agent does it. Two processes talk to one
another over the loopback device.

- a process of two needs little more than half the memory of one alone, for its arrays and for what a
  round computes;
- both decide the same.

Shown and not judged: by how much the process grew at its peak, which also counts what the compiler and the
libraries keep, tens of megabytes more or less; and how long a round takes, as two processes on one
machine share its cores.
"""

import json
import socket
import subprocess
import sys
import time
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from timing import peak_memory, verdict

from mixts.bandit import best_action
from mixts.inference import ClosedForm, over_devices
from mixts.models import tree

SIZES, DIM, ROUNDS = (50, 1_000, 20_000, 1_000_000), 5, 20


def declared(sizes: tuple[int, ...]) -> ClosedForm:
    rng = np.random.default_rng(0)
    parents = [rng.integers(0, above, size, np.int32) for above, size in pairwise(sizes)]
    return ClosedForm(tree(parents, DIM, num_roots=sizes[0]))


@jax.jit
def prior(backend: ClosedForm):
    """The first state, in buffers of its own, which can be donated."""
    return jax.tree.map(jnp.copy, backend.init())


def played(sizes: tuple[int, ...], shared: bool) -> dict[str, Any]:
    """The decisions of some rounds, the seconds of the fastest, and the bytes that they need."""
    backend = declared(sizes)
    backend, state = over_devices(backend) if shared else (backend, prior(backend))
    held = sum(
        shard.data.nbytes for array in jax.live_arrays() for shard in array.addressable_shards
    )

    def play(backend, state, key, context):
        action = best_action(backend.sample_scores(key, state, context))
        return backend.update(state, context, action, 0.5), action

    context, decisions, seconds = jnp.full(DIM, 0.3), [], []
    donating = jax.jit(play, donate_argnums=1)
    compiled = donating.lower(backend, state, jax.random.key(0), context).compile()
    for i in range(ROUNDS):
        start = time.perf_counter()
        state, action = compiled(backend, state, jax.random.key(i), context)
        decisions.append(int(action))
        seconds.append(time.perf_counter() - start)
    needs = held + compiled.memory_analysis().temp_size_in_bytes
    return {"decisions": decisions, "seconds": min(seconds), "bytes": needs}


def measure(port: str | None = None, process: str = "0") -> None:
    """In a process of its own, alone or one of two, whose peak is then this model's."""
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # as a service does
    if port is not None:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"127.0.0.1:{port}", 2, int(process))
    played((2, 4, 8, 16), shared=port is not None)
    before = peak_memory()  # the interpreter, the libraries and the compiler
    found = played(SIZES, shared=port is not None)
    print(json.dumps(found | {"growth": peak_memory() - before}))


def measured(*processes: list[str]) -> list[dict[str, Any]]:
    """What each of some processes finds that run at the same time."""
    command = [sys.executable, __file__, "measure"]
    running = [
        subprocess.Popen([*command, *process], stdout=subprocess.PIPE) for process in processes
    ]
    printed = [each.communicate()[0] for each in running]
    if any(each.returncode for each in running):
        raise RuntimeError(f"processes ended with {[each.returncode for each in running]}")
    return [json.loads(text.splitlines()[-1]) for text in printed]


def main() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    (alone,), two = measured([]), measured([port, "0"], [port, "1"])
    for name, found in zip(("alone", "first of two", "second"), (alone, *two), strict=True):
        print(
            f"      {name}: {found['bytes'] / 1e6:.0f} MB, {found['growth'] / 1e6:.0f} MB with the "
            f"process's own; {found['seconds'] * 1e3:.1f} ms a round"
        )
    different = sum(found["decisions"] != alone["decisions"] for found in two)
    share = max(found["bytes"] for found in two) / alone["bytes"]
    results = [
        verdict("processes that decide otherwise than one alone", different, 0),
        verdict("memory of a process of two over one alone, K = 1,000,000", share, 0.6),
    ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(*sys.argv[2:])
        sys.exit()
    sys.exit(main())
