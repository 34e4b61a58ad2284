"""`simulate`: every policy on the same instances, all runs of a policy in compiled, vmapped loops.

A run draws an instance, makes a policy for it and plays `horizon` rounds of Algorithm 1: context,
action, reward, update. Runs are played side by side in tiles and rounds in stretches, so that memory is
bounded and a user can watch and stop; tiles of all policies share the processor's cores. A run depends
on its own key alone: neither tiles nor stretches change a bit of it.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ...inference import Status
from ...inference.program_cache import compile_cache
from ...inference.progress import task
from ...inference.random import fused_key
from ...inference.status import warn_of_trouble
from ...models.arrays import as_count
from ...models.messages import short
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
_MOST_PROGRAMS = 32  # kept in memory: the policies of a few simulations

# NumPyro keeps its effect handlers for the process: of several threads, one at a time may trace a program.
_tracing = threading.Lock()


def simulate(
    problem: Problem,
    policies: Mapping[str, Maker],
    horizon: int,
    runs: int,
    key: Any,
    progress: bool | Callable[[int], None] | None = None,
    *,
    runs_at_once: int | None = None,
    rounds_at_once: int | None = None,
) -> Simulation:
    """Play `runs` runs of `horizon` rounds with each policy, on the same instances and contexts.

    Rewards are common random numbers too: two policies that choose the same action in the same round
    of a run get the same reward. Warns, with a `TroubleWarning`, of policies whose status is not ok.
    Interrupted (Ctrl-C), it returns the runs that are finished, with
    `interrupted` set.

    A second call with the same problem object and the same functions does not compile again, so what a
    function returns must not depend on variables that change in between, as with `jax.jit`.

    Args:
        problem: what draws instances.
        policies: name -> function from the agent's hierarchy to a `Policy`, such as `LinTS`, or
            `lambda h: ThompsonSampling(ClosedForm(h))`. A function with an attribute `sees_truth` is
            called with the environment too.
        horizon: rounds of a run.
        runs: independent runs.
        key: a seed or a key; it decides everything.
        progress: whether to show a progress bar; by default, if it takes longer than two seconds. Or a
            function that is called after every stretch with the number of rounds played in it; what it
            raises ends the simulation.
        runs_at_once: runs side by side; None chooses up to 50, as memory allows.
        rounds_at_once: rounds of a stretch, after which Ctrl-C takes effect; None is up to a thousand.

    Example:
        >>> from mixts.bandit import SyntheticProblem, UniformRandom, simulate
        >>> problem = SyntheticProblem(num_actions=5, num_effects=2, dim=2)
        >>> found = simulate(problem, {"random": UniformRandom}, 10, runs=3, key=0, progress=False)
        >>> found.regret["random"].shape
        (3, 10)
    """
    problem, makers = _checked(problem, policies)
    horizon, runs = as_count(horizon, "simulate horizon"), as_count(runs, "simulate runs")
    at_once = runs_at_once, rounds_at_once
    plan = _plan(horizon, runs, len(makers), *at_once, _runs_that_fit(problem))
    key = fused_key(key)
    jobs = [_Job(name, problem, make, plan, key) for name, make in makers.items()]
    with compile_cache():
        played, interrupted = _play_all(jobs, plan, progress)
    found = Simulation(played, horizon, interrupted)
    warn_of_trouble("simulate", found.troubles())
    return found


class _Plan(NamedTuple):
    """`tiles` tiles of `width` runs, `stretches` stretches of `rounds` rounds; a few too many of each."""

    horizon: int
    runs: int
    tiles: int
    width: int
    stretches: int
    rounds: int
    workers: int


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
    most = _MOST_ROUNDS if rounds_at_once is None else rounds_at_once
    stretches = -(-horizon // as_count(most, "simulate rounds_at_once"))
    rounds = -(-horizon // stretches)
    return _Plan(horizon, runs, -(-runs // width), width, stretches, rounds, workers)


class _Same:
    """A key of a cache that equals another if both hold the same object, which it keeps alive."""

    def __init__(self, it: Any):
        self.it = it

    def __hash__(self) -> int:
        return id(self.it)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.it is other.it


@lru_cache(_MOST_PROGRAMS)
def _vectors(problem: _Same) -> Any:
    return jax.jit(lambda key: problem.it.sample(key).environment.theta)


def _runs_that_fit(problem: Problem) -> int:
    """How many runs side by side: as many as pay, or as few as keep their actions small in memory."""
    with _tracing:
        theta = _vectors(_Same(problem)).eval_shape(jax.random.key(0))
    K, d = theta.shape
    fit = _TILE_BYTES // (K * d * (d + 4) * theta.dtype.itemsize)
    return max(_LEAST_RUNS, min(_MOST_RUNS, fit))


@lru_cache(_MOST_PROGRAMS)
def _programs(problem: _Same, make: _Same, room: int, width: int, rounds: int) -> tuple[Any, Any]:
    """The two programs of a tile: `width` runs before their first round, and `rounds` rounds of them.

    JAX keeps what is compiled for as long as these functions live, by precision and device.
    """
    begin_run = partial(begin, problem.it, make.it, room)

    def begin_all(key: Array, first: Array) -> Any:
        keys = jax.vmap(partial(jax.random.fold_in, key))(first + jnp.arange(width))
        # One run after the other: side by side, a product with weights that all runs share would be one
        # product for all, which rounds according to how many there are.
        return jax.lax.map(begin_run, keys)

    play_all = jax.vmap(partial(stretch, rounds=rounds), in_axes=(0, None, None))
    # For many small operations over all actions, where XLA's own choices are for few large ones. Tiles
    # already keep all cores busy: one tile's operations run one after the other. Vectors are as wide
    # as the processor has them, which makes a round up to 15% shorter.
    on_cpu = {
        "xla_cpu_enable_concurrency_optimized_scheduler": False,
        "xla_cpu_prefer_vector_width": 512,
    }
    compile_as = partial(
        jax.jit, compiler_options=on_cpu if jax.default_backend() == "cpu" else None
    )
    return compile_as(begin_all), compile_as(play_all, donate_argnums=0)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Name in an error the policy that it came from."""
    try:
        yield
    except Exception as error:
        error.add_note(f"simulate: this happened in the policy '{name}'")
        raise


def _count(n: int) -> Array:
    return jnp.asarray(n, jnp.uint32)


class _Job(NamedTuple):
    """One policy of a simulation."""

    name: str
    problem: Problem
    make: Maker
    plan: _Plan
    key: Array

    def lower(self) -> tuple[Any, Any]:
        """Both programs, traced here in the caller's thread and precision, to be compiled in any."""
        plan, problem, make = self.plan, _Same(self.problem), _Same(self.make)
        begin_all, play_all = _programs(problem, make, plan.horizon, plan.width, plan.rounds)
        with _named(self.name), _tracing:
            tile = begin_all.eval_shape(self.key, _count(0))
            playing = play_all.lower(tile, _count(0), _count(0))
            return begin_all.lower(self.key, _count(0)), playing

    def begin(self, tile: int, begin_all: Any) -> Any:
        """The runs of a tile, in arrays of their own, which the first stretch may overwrite."""
        return jax.tree.map(jnp.copy, begin_all(self.key, _count(tile * self.plan.width)))

    def play(self, tile: int, compiled: Any, tick: Callable[[], None], stop: Any) -> Played | None:
        """All rounds of one tile of runs; None if it was stopped on the way."""
        begin_all, play_all = compiled
        regrets, actions, run, status = [], [], None, Status()
        for i in range(self.plan.stretches):
            if stop.is_set():
                return None
            run = self.begin(tile, begin_all) if run is None else run
            start, end = _count(i * self.plan.rounds), _count(self.plan.horizon)
            run, (regret, action), status = play_all(run, start, end)
            regrets.append(np.asarray(regret))
            actions.append(np.asarray(action))
            tick()
        first, (runs, horizon) = tile * self.plan.width, (self.plan.runs, self.plan.horizon)
        kept = slice(0, min(self.plan.width, runs - first))
        return Played(
            np.concatenate(regrets, 1)[kept, :horizon],
            np.concatenate(actions, 1)[kept, :horizon],
            jax.tree.map(lambda count: np.asarray(count)[kept], status),
            np.arange(first, first + kept.stop),
        )


def compiled_tile(
    problem: Problem, make: Maker, rounds: int, runs: int, key: Any
) -> tuple[Callable[[], Any], Callable[[Any, Array], Any]]:
    """The programs of `simulate` alone, to be measured.

    One function begins `runs` runs; the other plays them for `rounds` rounds from a given one on, and
    returns the runs, regrets and actions, and their status.
    """
    job = _Job("measured", problem, make, _plan(rounds, runs, 1, runs, rounds), fused_key(key))
    begin_all, play_all = (program.compile() for program in job.lower())
    end = _count(rounds)
    return partial(job.begin, 0, begin_all), lambda run, start: play_all(run, start, end)


def _stage(uncompiled: list[str]) -> str:
    """What a simulation does, while some policies have no programs yet."""
    return f"simulate: {'preparing ' + ', '.join(uncompiled) if uncompiled else 'playing'}"


def _play_all(
    jobs: list[_Job], plan: _Plan, progress: bool | Callable[[int], None] | None
) -> tuple[dict[str, Played], bool]:
    """Compile and play everything on as many threads as there are cores."""
    stop = threading.Event()
    done: dict[str, dict[int, Played]] = {job.name: {} for job in jobs}
    futures: list[Future[None]] = []
    rounds = plan.width * plan.rounds
    total = rounds * len(jobs) * plan.tiles * plan.stretches
    with (
        task("simulate", total, "rounds", False if callable(progress) else progress) as bar,
        ThreadPoolExecutor(plan.workers) as pool,
    ):
        tick = partial(progress if callable(progress) else bar.advance, rounds)
        uncompiled = [job.name for job in jobs]
        bar.say(_stage(uncompiled))

        def play(job: _Job, tile: int, compiled: Any) -> None:
            with _named(job.name):
                played = job.play(tile, compiled, tick, stop)
            if played is not None:
                done[job.name][tile] = played

        def start(job: _Job, lowered: tuple[Any, Any]) -> None:
            if not stop.is_set():
                with _named(job.name):
                    compiled = tuple(program.compile() for program in lowered)
                uncompiled.remove(job.name)
                bar.say(_stage(uncompiled))
                for tile in range(plan.tiles):
                    futures.append(pool.submit(play, job, tile, compiled))

        try:
            with interrupt_sets(stop):
                for job in jobs:
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
    """Until all have ended, also those that they add; an error in one is raised here."""
    ended = lambda future: future.done() and future.result() is None  # noqa: E731
    while waiting := [future for future in futures if not ended(future)]:
        wait(waiting, timeout=0.2, return_when=FIRST_EXCEPTION)  # short waits let Ctrl-C through


def _joined(parts: dict[int, Played], plan: _Plan) -> Played:
    """The finished tiles one after the other."""
    if not parts:
        empty = np.zeros((0, plan.horizon))
        return Played(empty, empty.astype(np.int32), Status(), np.arange(0))
    return jax.tree.map(lambda *tiles: np.concatenate(tiles), *(parts[i] for i in sorted(parts)))


def _checked(problem: Any, policies: Any) -> tuple[Problem, dict[str, Maker]]:
    if not isinstance(problem, Problem):
        raise TypeError(
            f"simulate problem: got {short(problem)}; expected one such as SyntheticProblem()"
        )
    if not isinstance(policies, Mapping) or not policies:
        raise TypeError(
            f"simulate policies: got {short(policies)}; expected a dict from names to functions of a "
            "hierarchy, such as {'LinTS': LinTS}"
        )
    for name, make in policies.items():
        if not isinstance(name, str) or not name:
            raise TypeError(f"simulate policies: got the name {short(name)}; expected words")
        if not callable(make):
            raise TypeError(
                f"simulate policies['{name}'] is {short(make)}; expected a function from a hierarchy to a "
                "policy, such as LinTS or lambda h: ThompsonSampling(ClosedForm(h))"
            )
    return problem, dict(policies)
