"""`simulate`: every policy on the same instances, all runs of a policy in compiled, vmapped scans.

A run draws an instance, makes a policy for what it is told, and plays `horizon` rounds of Algorithm 1:
context, action, reward, update. Runs are played side by side in tiles, and rounds in stretches, so that
memory is bounded and a user can watch and stop; tiles of all policies share the processor's cores. A
run depends on its own key alone: neither tiles nor stretches change a bit of it.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from tqdm.auto import tqdm

from ...inference.program_cache import compile_cache, compile_or_take
from ...inference.random import fused_key
from ...models.arrays import as_count
from ..problems.environment import Problem
from .results import Played, Simulation
from .run import Maker, begin, stretch
from .workers import cores, interrupt_sets

__all__ = ["compiled_tile", "simulate"]

_MOST_RUNS = 50  # side by side: more would only take more memory
# XLA leaves out an axis of length one and then rounds differently: a lone run gets a companion.
_LEAST_RUNS = 2
_TILE_BYTES = 2**28  # of the actions of all runs of a tile, about
_MOST_ROUNDS = 1000  # of a stretch, after which a user may stop

# NumPyro keeps its effect handlers for the process: of several threads, one at a time may trace a program.
_tracing = threading.Lock()


def simulate(
    problem: Problem,
    policies: Mapping[str, Maker],
    horizon: int,
    runs: int,
    key: Any,
    progress: bool | Callable[[int], None] = True,
    *,
    runs_at_once: int | None = None,
    rounds_at_once: int | None = None,
) -> Simulation:
    """Play `runs` runs of `horizon` rounds with each policy, on the same instances and contexts.

    Rewards are common random numbers too: two policies that choose the same action in the same round
    of a run get the same reward. Interrupted (Ctrl-C), it returns the runs that are finished, with
    `interrupted` set.

    Args:
        problem: what draws instances.
        policies: name -> function from the hierarchy that the agent is told to a `Policy`, such as
            `LinTS`, or `lambda h: ThompsonSampling(ClosedForm(h))`. A function with an attribute
            `sees_truth` is called with the environment too.
        horizon: rounds of a run.
        runs: independent runs.
        key: a seed or a key; it decides everything.
        progress: whether to show a progress bar; or a function that is called now and then with the
            number of rounds that were played since. What it raises ends the simulation.
        runs_at_once: runs side by side; None takes as many as pay.
        rounds_at_once: rounds between two looks at the keyboard; None takes up to a thousand.
    """
    problem, makers = _checked(problem, policies)
    horizon, runs = as_count(horizon, "simulate horizon"), as_count(runs, "simulate runs")
    at_once = runs_at_once, rounds_at_once
    with _tracing:
        plan = _plan(horizon, runs, len(makers), *at_once, _runs_that_fit(problem))
    key = fused_key(key)
    jobs = {name: _Job(name, problem, make, plan, key) for name, make in makers.items()}
    with compile_cache():
        played, interrupted = _play_all(jobs, plan, progress)
    return Simulation(played, horizon, interrupted)


class _Plan(NamedTuple):
    """`tiles` tiles of `width` runs, `stretches` stretches of `rounds` rounds; a few too many of each."""

    horizon: int
    runs: int
    tiles: int
    width: int
    stretches: int
    rounds: int
    workers: int


def _runs_that_fit(problem: Problem) -> int:
    """How many runs side by side: as many as pay, or as few as keep their actions small in memory."""
    theta = jax.eval_shape(lambda key: problem.sample(key).environment.theta, jax.random.key(0))
    K, d = theta.shape
    return max(
        _LEAST_RUNS, min(_MOST_RUNS, _TILE_BYTES // (K * d * (d + 4) * theta.dtype.itemsize))
    )


def _plan(
    horizon: int,
    runs: int,
    policies: int,
    runs_at_once: int | None,
    rounds_at_once: int | None,
    most_runs: int = _MOST_RUNS,
) -> _Plan:
    workers = cores()
    if runs_at_once is None:
        tiles = max(-(-runs // most_runs), min(runs, -(-workers // policies)))
    else:
        tiles = -(-runs // as_count(runs_at_once, "simulate runs_at_once"))
    width = max(-(-runs // tiles), _LEAST_RUNS)
    tiles = -(-runs // width)
    most = _MOST_ROUNDS
    if rounds_at_once is not None:
        most = as_count(rounds_at_once, "simulate rounds_at_once")
    stretches = -(-horizon // most)
    return _Plan(horizon, runs, tiles, width, stretches, -(-horizon // stretches), workers)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Say in an error which policy it came from."""
    try:
        yield
    except Exception as error:
        error.add_note(f"simulate: this happened in the policy '{name}'")
        raise


@dataclass
class _Job:
    """One policy: its compiled halves and what its tiles have brought so far."""

    name: str
    problem: Problem
    make: Maker
    plan: _Plan
    key: Array

    def lower(self) -> tuple[Any, Any]:
        """Traced here, in the caller's thread and precision; compiled wherever there is time."""
        plan = self.plan
        # One run after the other: side by side, a product with weights that all runs share would be one
        # product for all, which rounds according to how many there are.
        begin_all = partial(jax.lax.map, partial(begin, self.problem, self.make, plan.horizon))
        play_all = jax.vmap(partial(stretch, rounds=plan.rounds), in_axes=(0, None, None))
        keys, count = self._keys(0), jnp.zeros((), jnp.uint32)
        with _named(self.name), _tracing:
            tile = jax.eval_shape(begin_all, keys)
            playing = jax.jit(play_all, donate_argnums=0).lower(tile, count, count)
            return jax.jit(begin_all).lower(keys), playing

    def _keys(self, tile: int) -> Array:
        runs = tile * self.plan.width + jnp.arange(self.plan.width)
        return jax.vmap(partial(jax.random.fold_in, self.key))(runs)

    def play(self, tile: int, compiled: Any, tick: Callable[[], None], stop: Any) -> Played | None:
        """All rounds of one tile of runs; None if it was stopped on the way."""
        begin_all, play_all = compiled
        regrets, actions, run, troubles = [], [], None, {}
        end = jnp.asarray(self.plan.horizon, jnp.uint32)
        for i in range(self.plan.stretches):
            if stop.is_set():
                return None
            if run is None:
                run = jax.tree.map(jnp.copy, begin_all(self._keys(tile)))  # its own, to give away
            start = jnp.asarray(i * self.plan.rounds, jnp.uint32)
            run, (regret, action), troubles = play_all(run, start, end)
            regrets.append(np.asarray(regret))
            actions.append(np.asarray(action))
            tick()
        first, (runs, horizon) = tile * self.plan.width, (self.plan.runs, self.plan.horizon)
        kept = slice(0, min(self.plan.width, runs - first))
        return Played(
            np.concatenate(regrets, 1)[kept, :horizon],
            np.concatenate(actions, 1)[kept, :horizon],
            {name: np.asarray(count)[kept] for name, count in troubles.items()},
            np.arange(first, first + kept.stop),
        )


def _options() -> dict[str, Any]:
    """For many small operations over all actions, where XLA's own choices are for few large ones.

    Tiles already keep all cores busy: one tile's operations run one after the other. Vectors are as wide
    as the processor has them, which makes a round up to 15% shorter.
    """
    if jax.default_backend() != "cpu":
        return {}
    return {
        "xla_cpu_enable_concurrency_optimized_scheduler": False,
        "xla_cpu_prefer_vector_width": 512,
    }


def _compiled(lowered: tuple[Any, Any]) -> tuple[Any, Any]:
    begin_all, play_all = (compile_or_take(half, _options()) for half in lowered)
    return begin_all, play_all


def compiled_tile(
    problem: Problem, make: Maker, rounds: int, runs: int, key: Any
) -> tuple[Callable[[], Any], Callable[[Any, Array], Any]]:
    """What `simulate` runs, bare, to be measured.

    One function begins `runs` runs; the other plays them on for `rounds` rounds from a given one, and
    gives the runs, regrets and actions, and troubles.
    """
    job = _Job("measured", problem, make, _plan(rounds, runs, 1, runs, rounds), fused_key(key))
    begin_all, play_all = _compiled(job.lower())
    end = jnp.asarray(rounds, jnp.uint32)
    first = lambda: jax.tree.map(jnp.copy, begin_all(job._keys(0)))  # noqa: E731
    return first, lambda run, start: play_all(run, start, end)


def _play_all(
    jobs: Mapping[str, _Job], plan: _Plan, progress: bool | Callable[[int], None]
) -> tuple[dict[str, Played], bool]:
    """Compile and play everything on as many threads as there are cores."""
    stop = threading.Event()
    done: dict[str, dict[int, Played]] = {name: {} for name in jobs}
    bar = tqdm(
        total=len(jobs) * plan.tiles * plan.width * plan.stretches * plan.rounds,
        unit="round",
        unit_scale=True,
        disable=progress is not True,
        desc="compiling",
    )

    def tick() -> None:
        if callable(progress):
            progress(plan.width * plan.rounds)
        bar.set_description("playing", refresh=False)
        bar.update(plan.width * plan.rounds)

    def play(job: _Job, tile: int, compiled: Any) -> None:
        with _named(job.name):
            played = job.play(tile, compiled, tick, stop)
        if played is not None:
            done[job.name][tile] = played

    with bar, ThreadPoolExecutor(plan.workers) as pool:
        futures: list[Future[None]] = []

        def start(job: _Job, lowered: tuple[Any, Any]) -> None:
            if not stop.is_set():
                with _named(job.name):
                    compiled = _compiled(lowered)
                for tile in range(plan.tiles):
                    futures.append(pool.submit(play, job, tile, compiled))

        try:
            with interrupt_sets(stop):
                for job in jobs.values():
                    if not stop.is_set():
                        futures.append(pool.submit(start, job, job.lower()))
                _wait(futures)
        except KeyboardInterrupt:
            if stop.is_set():  # the second one: the user will not wait
                raise
            stop.set()
            _wait(futures)
        except BaseException:
            stop.set()
            raise
    return {name: _joined(parts, plan) for name, parts in done.items()}, stop.is_set()


def _wait(futures: list[Future[None]]) -> None:
    """Until all are through, with those that they add; short waits let Ctrl-C through."""
    while waiting := [future for future in futures if not _is_through(future)]:
        wait(waiting, timeout=0.2, return_when=FIRST_EXCEPTION)


def _is_through(future: Future[None]) -> bool:
    """Whether it has come to its end; what it raised is raised here."""
    return future.done() and future.result() is None


def _joined(parts: dict[int, Played], plan: _Plan) -> Played:
    """The finished tiles one after the other."""
    if not parts:
        empty = np.zeros((0, plan.horizon))
        return Played(empty, empty.astype(np.int32), {}, np.arange(0))
    kept = [parts[tile] for tile in sorted(parts)]
    return Played(
        np.concatenate([part.regret for part in kept]),
        np.concatenate([part.actions for part in kept]),
        {name: np.concatenate([part.troubles[name] for part in kept]) for name in kept[0].troubles},
        np.concatenate([part.numbers for part in kept]),
    )


def _checked(problem: Any, policies: Any) -> tuple[Problem, dict[str, Maker]]:
    if not isinstance(problem, Problem):
        raise TypeError(
            f"simulate problem: got {problem!r}; expected one such as SyntheticProblem()"
        )
    if not isinstance(policies, Mapping) or not policies:
        raise TypeError(
            f"simulate policies: got {policies!r}; expected a dict from names to functions of a "
            "hierarchy, such as {'LinTS': LinTS}"
        )
    for name, make in policies.items():
        if not isinstance(name, str) or not name:
            raise TypeError(f"simulate policies: got the name {name!r}; expected words")
        if not callable(make):
            raise TypeError(
                f"simulate policies['{name}'] is {make!r}; expected a function from a hierarchy to a "
                "policy, such as LinTS or lambda h: ThompsonSampling(ClosedForm(h))"
            )
    return problem, dict(policies)
