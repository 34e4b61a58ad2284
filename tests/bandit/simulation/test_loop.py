"""The loop: what is played, that nothing but the key decides it, and what happens when it stops."""

import _thread
import gc
import os
import signal
import threading
import weakref
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mistakes import as_a_user, cases, check_refused
from mixts.bandit import (
    Box,
    Environment,
    Instance,
    KnownEffects,
    Policy,
    Problem,
    Simulation,
    SyntheticProblem,
    ThompsonSampling,
    UniformRandom,
    best_action,
    instance_of_run,
    simulate,
    told_truth,
)
from mixts.bandit.simulation import loop
from mixts.inference import ClosedForm, Laplace, Nuts, Status, TroubleWarning
from mixts.models import Bernoulli, Gaussian, Hierarchy, Level, Poisson
from sampling import common_taste, common_taste_hierarchy, unoptimised

# Policies here report as their status what a test wants to know.
pytestmark = pytest.mark.filterwarnings("ignore::mixts.inference.TroubleWarning")

PROBLEM = SyntheticProblem(4, 2, 3)
HORIZON, RUNS, KEY = 12, 7, 5


# Policies and problems ---------------------------------------------------------------------------


class Best(Policy[None]):
    """Told what it should find out."""

    environment: Environment

    def init(self, key, *, room=0):
        return None

    def act(self, key, state, context):
        return best_action(self.environment.mean_rewards(context))

    def update(self, state, context, action, reward):
        return None


def best(hierarchy, environment) -> Best:
    return Best(environment)


best.sees_truth = True


def bits(value):
    """The bits of numbers as one number, whatever their order."""
    whole = jnp.int64 if value.dtype == jnp.float64 else jnp.int32
    words = jax.lax.bitcast_convert_type(value, whole)
    return (words % 99_991).sum().astype(jnp.int32)


class Notes(Policy[Any]):
    """Takes action 0 for so many rounds, then action 1, and counts what it sees."""

    zeros: Any

    def init(self, key, *, room=0):
        names = ("rounds", "contexts", "early rewards", "late rewards")
        return dict.fromkeys(names, jnp.zeros((), jnp.int32))

    def act(self, key, state, context):
        return (state["rounds"] >= self.zeros).astype(jnp.int32)

    def update(self, state, context, action, reward):
        early = state["rounds"] < HORIZON // 2
        seen = bits(reward)
        return {
            "rounds": state["rounds"] + 1,
            "contexts": state["contexts"] + (state["rounds"] + 1) * bits(context),
            "early rewards": state["early rewards"] + jnp.where(early, seen, 0),
            "late rewards": state["late rewards"] + jnp.where(early, 0, seen),
        }

    def status(self, state):
        return Status(state)


def noting(zeros: int):
    return lambda hierarchy: Notes(jnp.asarray(zeros))


class Greedy(Policy[Any]):
    """The action with the best average so far, at first the sum of its weights."""

    start: Any

    def init(self, key, *, room=0):
        return self.start, jnp.ones_like(self.start)

    def act(self, key, state, context):
        return best_action(state[0] / state[1])

    def update(self, state, context, action, reward):
        total, count = state
        return total.at[action].add(reward), count.at[action].add(1.0)


def greedy(hierarchy: Hierarchy) -> Greedy:
    return Greedy(hierarchy.actions.parents["effect"].sum(1))


def exact(hierarchy: Hierarchy) -> ThompsonSampling:
    return ThompsonSampling(ClosedForm(hierarchy))


class Permuted(Problem):
    """The same world, whose actions have other numbers: `order[i]` was the number of action `i`."""

    order: np.ndarray

    def sample(self, key):
        told, environment = PROBLEM.sample(key)
        weights = told.actions.parents["effect"][self.order]
        names = dict(environment.levels, action=environment.levels["action"][self.order])
        hierarchy = Hierarchy(
            [told["effect"], Level("action", 4, parents={"effect": weights})], told.reward, told.dim
        )
        return Instance(hierarchy, Environment(hierarchy, names, environment.contexts))


class Silent(Gaussian):
    """Rewards that are not numbers."""

    def law(self, predictor):
        return super().law(predictor * jnp.nan)


class Broken(Problem):
    """Rewards get lost on the way."""

    def sample(self, key):
        told, environment = PROBLEM.sample(key)
        silent = Hierarchy(told.levels, Silent(1.0), told.dim)
        return Instance(told, Environment(silent, environment.levels, environment.contexts))


# What is played ----------------------------------------------------------------------------------


def played(problem=PROBLEM, horizon=HORIZON, runs=RUNS, key=KEY, progress=False, *, make, **more):
    """As quickly compiled as may be."""
    with unoptimised():
        return simulate(problem, make, horizon, runs, key, progress, **more)


def optimised(problem=PROBLEM, horizon=HORIZON, runs=RUNS, *, make, **more):
    """As users run it: optimisations are what could change bits."""
    return simulate(problem, make, horizon, runs, KEY, False, **more)


@cache
def simple() -> Simulation:
    """Policies that compile in no time, side by side."""
    makers = {"best": best, "uniform": UniformRandom, "greedy": greedy}
    return played(make=makers | {"0": noting(HORIZON), "0, 1": noting(HORIZON // 2)})


@cache
def closed_form() -> Simulation:
    return optimised(make={"exact": exact, "uniform": UniformRandom})


def means(problem: Problem = PROBLEM, horizon: int = HORIZON) -> np.ndarray:
    """(runs, horizon, K) the mean rewards that a simulation meets, by its keys, in NumPy."""

    @jax.jit
    @jax.vmap
    def world(run):
        instance, _, rounds = jax.random.split(jax.random.fold_in(jax.random.key(KEY), run), 3)
        keys = jax.vmap(lambda t: jax.random.split(jax.random.fold_in(rounds, t), 3)[0])
        contexts = jax.vmap(Box(3).draw)(keys(jnp.arange(horizon)))
        return contexts, problem.sample(instance).environment.theta

    contexts, theta = (np.asarray(part, float) for part in world(jnp.arange(RUNS)))
    return contexts @ theta.transpose(0, 2, 1)


def assert_same(a: Simulation, b: Simulation, name: str) -> None:
    """The runs and rounds that both have are the same to the last bit."""
    runs = min(len(a.regret[name]), len(b.regret[name]))
    rounds = min(a.horizon, b.horizon)
    np.testing.assert_array_equal(a.actions[name][:runs, :rounds], b.actions[name][:runs, :rounds])
    np.testing.assert_array_equal(a.regret[name][:runs, :rounds], b.regret[name][:runs, :rounds])
    assert set(a.status[name].counts) == set(b.status[name].counts)
    if a.horizon == b.horizon:
        for trouble, count in a.status[name].counts.items():
            np.testing.assert_array_equal(count[:runs], b.status[name].counts[trouble][:runs])


def test_regret_is_the_best_mean_less_that_of_the_action():
    world = means()
    for name, actions in simple().actions.items():
        assert actions.shape == (RUNS, HORIZON)
        taken = np.take_along_axis(world, actions[:, :, None], axis=2)[:, :, 0]
        found = simple().regret[name]
        np.testing.assert_allclose(found, world.max(2) - taken, rtol=1e-4, atol=1e-5)


def test_who_is_told_the_best_action_has_no_regret():
    assert np.all(simple().regret["best"] == 0.0)
    assert np.all(simple().regret["uniform"].sum(1) > 0.0)
    np.testing.assert_array_equal(simple().actions["best"], means().argmax(2))


def test_random_actions_have_the_analytic_regret():
    """The sum of `max - mean over actions`; its variance is the sum of variances over actions."""
    horizon = 400
    found = played(make={"uniform": UniformRandom}, horizon=horizon, rounds_at_once=100)
    world = means(horizon=horizon)
    expected = (world.max(2) - world.mean(2)).sum(1)
    error = np.sqrt(world.var(2).sum(1))
    assert np.all(np.abs(found.regret["uniform"].sum(1) - expected) < 5 * error)
    everything = found.regret["uniform"].sum() - expected.sum()
    assert abs(everything) < 5 * np.sqrt((error**2).sum())
    counts = np.bincount(found.actions["uniform"].ravel(), minlength=4)
    n = RUNS * horizon
    assert np.all(np.abs(counts - n / 4) < 5 * np.sqrt(n * 3 / 16))


def test_permuted_actions_permute_what_is_played():
    """Exactly: a policy without chance of its own meets the same rewards under other numbers."""
    order = np.array([2, 0, 3, 1])
    found = played(Permuted(order), make={"greedy": greedy})
    np.testing.assert_array_equal(order[found.actions["greedy"]], simple().actions["greedy"])
    np.testing.assert_array_equal(found.regret["greedy"], simple().regret["greedy"])
    assert len(np.unique(simple().actions["greedy"])) == 4


def test_policies_meet_the_same_contexts_and_rewards():
    first, second = (simple().status[name].counts for name in ("0", "0, 1"))
    np.testing.assert_array_equal(first["contexts"], second["contexts"])
    np.testing.assert_array_equal(first["early rewards"], second["early rewards"])
    assert np.all(first["late rewards"] != second["late rewards"])
    assert len(set(first["contexts"].tolist())) == RUNS
    assert np.all(first["rounds"] == HORIZON)


# Nothing but the key decides ---------------------------------------------------------------------


@pytest.mark.parametrize("tiles", [{"runs_at_once": 1, "rounds_at_once": 5}, {"runs_at_once": 3}])
def test_tiles_stretches_and_company_change_nothing(tiles):
    assert_same(optimised(make={"exact": exact}, **tiles), closed_form(), "exact")


def test_a_shorter_simulation_is_the_beginning_of_a_longer_one():
    assert_same(optimised(make={"exact": exact}, runs=1, horizon=8), closed_form(), "exact")


def test_tiles_and_stretches_change_nothing_of_other_policies():
    makers = {"greedy": greedy, "0": noting(HORIZON)}
    found = played(make=makers, runs_at_once=2, rounds_at_once=5)
    for name in makers:
        assert_same(found, simple(), name)


def test_another_key_is_another_simulation():
    found = played(make={"uniform": UniformRandom}, key=KEY + 1).regret["uniform"]
    assert np.all(found.sum(1) != simple().regret["uniform"].sum(1))
    same = played(make={"uniform": UniformRandom}, key=jax.random.key(KEY))
    assert_same(same, simple(), "uniform")


def test_the_precision_is_that_of_the_caller(x64):
    """Set for one thread only, it holds in all that play: regrets are right to sixteen digits."""
    found = played(make={"exact": exact}, rounds_at_once=5)
    world = means(SyntheticProblem(4, 2, 3))
    for name, actions in found.actions.items():
        assert found.regret[name].dtype == np.float64
        taken = np.take_along_axis(world, actions[:, :, None], axis=2)[:, :, 0]
        np.testing.assert_allclose(found.regret[name], world.max(2) - taken, atol=1e-13)


LOGISTIC = SyntheticProblem(4, 2, 2, reward=Bernoulli())


def clicks(hierarchy: Hierarchy) -> ThompsonSampling:
    return ThompsonSampling(Laplace(hierarchy, capacity=16))


def chains(program: Any, actions: str = "action", dim: int | None = None) -> ThompsonSampling:
    backend = Nuts(
        program, actions, dim, chains=1, steps=1, warmup=10, samples=4, capacity=16, max_depth=3
    )
    return ThompsonSampling(backend)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "make"), [(LOGISTIC, clicks), (PROBLEM, chains)], ids=["clicks", "chains"]
)
def test_tiles_and_stretches_change_nothing_of_approximate_posteriors(problem, make):
    whole = optimised(problem, make={"it": make})
    assert whole.regret["it"].shape == (RUNS, HORIZON)
    for tiles in ({"runs_at_once": 1, "rounds_at_once": 5}, {"runs_at_once": 3}):
        assert_same(optimised(problem, make={"it": make}, **tiles), whole, "it")


@pytest.mark.slow
def test_tiles_change_nothing_of_larger_problems():
    """Of weights that all runs share, too, which XLA could multiply for all at once."""
    weights = np.random.default_rng(0).uniform(-1, 1, (60, 5))
    problem = SyntheticProblem(60, 5, 4, weights=weights)
    whole = optimised(problem, make={"exact": exact}, horizon=40, runs=11)
    for width in (1, 4):
        found = optimised(problem, make={"exact": exact}, horizon=40, runs=11, runs_at_once=width)
        assert_same(found, whole, "exact")


class Tastes(Problem):
    """Five movies around one common taste."""

    def sample(self, key):
        hierarchy = common_taste_hierarchy()
        return Instance(hierarchy, Environment(hierarchy, hierarchy.sample_prior(key), Box(2)))


@pytest.mark.slow
def test_a_program_written_by_hand_plays_in_the_same_call():
    makers = {
        "by hand": lambda hierarchy: chains(common_taste, "movie", 2),
        "declared": lambda hierarchy: chains(hierarchy, "movie"),
        "exact": exact,
        "random": UniformRandom,
    }
    found = played(Tastes(), make=makers, horizon=60, runs=10)
    for name in makers:
        assert found.regret[name].shape == (10, 60)
        assert np.all(np.isfinite(found.regret[name]))
    total = found.summary()["mean"]
    assert total["by hand"] < 0.7 * total["random"]
    assert total["declared"] < 0.7 * total["random"]


# Programs are kept in the process ----------------------------------------------------------------


def counted(calls: list[str]):
    """A policy function that notes each call."""

    def make(hierarchy: Hierarchy) -> UniformRandom:
        calls.append(str(hierarchy["effect"].cov.dtype))
        return UniformRandom(hierarchy)

    return make


def test_a_second_simulation_traces_nothing_again():
    """Whatever the key and the number of tiles; what it plays is what a fresh function would play."""
    calls: list[str] = []
    problem, make = SyntheticProblem(4, 2, 3), counted(calls)
    first = played(problem, make={"it": make}, runs_at_once=2)
    traced = len(calls)
    again = played(problem, make={"other name": make}, runs=3, runs_at_once=2)
    other = played(problem, make={"it": make}, key=KEY + 1, runs_at_once=2)
    assert len(calls) == traced > 0
    np.testing.assert_array_equal(again.regret["other name"], first.regret["it"][:3])
    fresh = played(make={"it": counted([])}, key=KEY + 1, runs_at_once=2)
    assert_same(other, fresh, "it")


def test_what_a_program_depends_on_is_traced_again():
    calls: list[str] = []
    problem, make = SyntheticProblem(4, 2, 3), counted(calls)
    counts = []
    for problem_, changes in (
        (problem, {}),
        (problem, {"runs_at_once": 4}),
        (problem, {"rounds_at_once": 6}),
        (problem, {"horizon": HORIZON - 1}),
        (SyntheticProblem(4, 2, 3), {}),
    ):
        played(problem_, make={"it": make}, **{"runs_at_once": 2, **changes})
        counts.append(len(calls))
    assert counts == sorted(set(counts))
    with jax.enable_x64(True):
        found = played(SyntheticProblem(4, 2, 3), make={"it": make}, runs_at_once=2)
    assert calls[-1] == "float64"
    assert found.regret["it"].dtype == np.float64


def test_programs_that_are_not_used_are_let_go():
    problem = SyntheticProblem(4, 2, 3)
    watched = weakref.ref(problem)
    loop._programs(loop._Same(problem), loop._Same(exact), 2, 2, 2)
    del problem
    gc.collect()
    assert watched() is not None  # so that no other object gets its id
    for room in range(loop._MOST_PROGRAMS):
        loop._programs(loop._Same(PROBLEM), loop._Same(exact), room, 2, 2)
    gc.collect()
    assert watched() is None


# Rewards and troubles ----------------------------------------------------------------------------


@pytest.mark.parametrize("reward", [Bernoulli(), Poisson()], ids=["clicks", "counts"])
def test_every_family_of_rewards_is_played(reward):
    problem = SyntheticProblem(4, 2, 3, reward=reward, effect_cov=0.5)
    found = played(problem, make={"greedy": greedy})
    assert np.all(found.regret["greedy"].sum(1) > 0.0)
    assert np.all(np.isfinite(found.regret["greedy"]))


@pytest.mark.parametrize("rounds", [5, 2])
def test_troubles_are_those_of_the_rounds_that_count(rounds):
    """Stretches of two rounds make six of five: what happens in the sixth is not reported."""
    with pytest.warns(TroubleWarning, match="simulate: exact: 15 observations were ignored"):
        found = played(Broken(), make={"exact": exact}, horizon=5, runs=3, rounds_at_once=rounds)
    np.testing.assert_array_equal(found.status["exact"].counts["rejected"], [5, 5, 5])
    assert np.all(np.isfinite(found.regret["exact"]))
    assert found.summary().loc["exact", "rejected"] == 15


def test_no_troubles_are_zeros():
    np.testing.assert_array_equal(closed_form().status["exact"].counts["rejected"], np.zeros(RUNS))
    assert closed_form().status["uniform"].counts == {}


class Confession(Best):
    """Says what it was told of the effects' variance, in hundredths."""

    told: Any

    def status(self, state):
        return Status({"variance": jnp.round(100 * self.told).astype(jnp.int32)})


def confession(hierarchy, environment=None) -> Confession:
    return Confession(environment, hierarchy["effect"].cov)


def seeing(hierarchy, environment) -> Confession:
    return confession(hierarchy, environment)


seeing.sees_truth = True


def test_who_is_told_the_truth():
    """Of wrong hyper-parameters; a policy that sees the environment may be told the truth as well."""
    problem = SyntheticProblem(4, 2, 3, misspecified=True)
    found = played(problem, make={"told": seeing, "true": told_truth(seeing)}).status
    assert np.all(found["true"].counts["variance"] == 300)
    assert np.all(found["told"].counts["variance"] != 300)
    drawn = problem.sample(jax.random.key(0))
    known = told_truth(KnownEffects)(*drawn)
    assert isinstance(known, ThompsonSampling)


# Stopping ----------------------------------------------------------------------------------------


@pytest.fixture
def one_at_a_time(monkeypatch):
    """Tiles one after the other, and a main thread that heeds Ctrl-C."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press(monkeypatch):
    """Ctrl-C as it usually comes."""
    return _thread.interrupt_main


def raise_elsewhere(monkeypatch):
    """Ctrl-C as an exception, where an application has a handler that raises one."""
    pressed, original = threading.Event(), loop.wait

    def wait(*args, **kwargs):
        if pressed.is_set():
            pressed.clear()
            raise KeyboardInterrupt
        return original(*args, **kwargs)

    monkeypatch.setattr(loop, "wait", wait)
    return pressed.set


@pytest.mark.usefixtures("one_at_a_time")
@pytest.mark.parametrize(("how", "missed"), [(press, ()), (press, (1,)), (raise_elsewhere, ())])
def test_an_interrupt_keeps_what_is_finished(monkeypatch, how, missed):
    """Tiles of two runs: Ctrl-C comes in the third, and a tile before it may have been stopped."""
    whole, original, interrupt = simple(), loop._Job.play, how(monkeypatch)

    def play(job, tile, compiled, tick, stop):
        if tile in missed:
            return None
        if tile == 2 and not stop.is_set():
            interrupt()
            assert stop.wait(60)
        return original(job, tile, compiled, tick, stop)

    monkeypatch.setattr(loop._Job, "play", play)
    makers = {"greedy": greedy, "uniform": UniformRandom}
    found = played(make=makers, runs_at_once=2, rounds_at_once=5)
    assert found.interrupted
    assert not whole.interrupted
    kept = np.array([run for run in range(4) if run // 2 not in missed])
    np.testing.assert_array_equal(found.played["greedy"].runs, kept)
    np.testing.assert_array_equal(found.regret["greedy"], whole.regret["greedy"][kept])
    np.testing.assert_array_equal(found.actions["greedy"], whole.actions["greedy"][kept])
    assert found.regret["uniform"].shape == (0, HORIZON)
    assert found.summary().loc["uniform", "runs"] == 0
    data = found.to_xarray().regret.sel(policy="greedy", run=int(kept[-1]))
    np.testing.assert_array_equal(data, whole.regret["greedy"][kept[-1]])


@pytest.mark.usefixtures("one_at_a_time")
def test_a_stop_within_a_tile_comes_after_a_stretch(monkeypatch):
    stretches, original = [], loop._Job.play

    def play(job, tile, compiled, tick, stop):
        def interrupt():
            tick()
            stretches.append(tile)
            _thread.interrupt_main()
            assert stop.wait(60)

        return original(job, tile, compiled, interrupt, stop)

    monkeypatch.setattr(loop._Job, "play", play)
    found = played(make={"uniform": UniformRandom}, rounds_at_once=4)
    assert stretches == [0]
    assert found.interrupted
    assert found.regret["uniform"].shape == (0, HORIZON)


@pytest.mark.usefixtures("one_at_a_time")
def test_nothing_more_is_made_after_an_interrupt():
    made = []

    def making(name):
        def make(hierarchy):
            if not made:
                _thread.interrupt_main()
            made.append(name)
            return UniformRandom(hierarchy)

        return make

    found = played(make={name: making(name) for name in ("first", "second")})
    assert found.interrupted
    assert set(made) == {"first"}
    assert len(found.regret["first"]) == len(found.regret["second"]) == 0


def failing_maker(hierarchy):
    raise ArithmeticError("no such policy today")


class Failing(UniformRandom):
    def act(self, key, state, context):
        raise ArithmeticError("no such policy today")


@pytest.mark.parametrize("make", [failing_maker, lambda hierarchy: Failing(None)])
def test_an_error_says_whose_it_is(make):
    with as_a_user(), pytest.raises(ArithmeticError, match="today") as failure:
        played(make={"fine": UniformRandom, "the third": make})
    assert any("'the third'" in note for note in failure.value.__notes__)


def test_an_error_while_playing_says_whose_it_is(monkeypatch):
    """And stops the others, which would otherwise go on to the end."""

    def play(job, tile, compiled, tick, stop):
        if job.name == "the first":
            raise MemoryError("too much of it")
        assert stop.wait(60)

    monkeypatch.setattr(loop._Job, "play", play)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    with pytest.raises(MemoryError, match="too much") as failure:
        played(make={"the first": UniformRandom, "fine": greedy})
    assert any("'the first'" in note for note in failure.value.__notes__)
    assert not [thread for thread in threading.enumerate() if "ThreadPool" in thread.name]


def test_progress_may_be_a_function():
    """It hears of every round; what it raises ends the simulation."""
    counts: list[int] = []
    played(make={"uniform": UniformRandom}, runs=4, progress=counts.append, rounds_at_once=5)
    assert len(counts) >= 3
    assert sum(counts) >= 4 * HORIZON

    def enough(rounds: int) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        played(make={"uniform": UniformRandom}, progress=enough)


def test_the_instance_of_a_run_is_the_one_that_is_played():
    """With one context, regret is what the best action of that instance has more than the one taken."""
    context = np.array([[1.0, -0.5, 0.3]])
    problem = SyntheticProblem(4, 2, 3, contexts=context)
    found = played(problem, make={"uniform": UniformRandom})
    for run in range(RUNS):
        theta = instance_of_run(problem, KEY, run).environment.theta
        means = np.asarray(theta @ context[0])
        expected = means.max() - means[found.actions["uniform"][run]]
        np.testing.assert_allclose(found.regret["uniform"][run], expected, atol=1e-5)


def test_progress_is_shown_if_wanted(capsys):
    played(make={"uniform": UniformRandom}, progress=True, runs=2)
    assert "100%" in capsys.readouterr().err
    played(make={"uniform": UniformRandom}, runs=2)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("workers", [1, 2, 7, 40, 128])
@pytest.mark.parametrize("at_once", [None, 1, 4])
def test_tiles_and_stretches_cover_all_runs_and_rounds_once(monkeypatch, workers, at_once):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(workers)), raising=False)
    for policies in (1, 5):
        for runs in (1, 2, 3, 49, 50, 51, 101):
            plan = loop._plan(runs * 30, runs, policies, at_once, at_once)
            assert plan.width >= 2
            assert plan.width <= max(2, 50 if at_once is None else at_once)
            assert (plan.tiles - 1) * plan.width < runs <= plan.tiles * plan.width
            assert (plan.stretches - 1) * plan.rounds < runs * 30 <= plan.stretches * plan.rounds
            assert plan.rounds <= (1000 if at_once is None else at_once)


def _refused(**changes):
    given = {"problem": PROBLEM, "policies": {"uniform": UniformRandom}, "horizon": 2, "runs": 2}
    given |= {"key": 0, "progress": False} | changes
    return lambda: simulate(**given)


REFUSED = {
    "no policies": (_refused(policies={}), TypeError, ["expected a dict", "LinTS"]),
    "a list": (_refused(policies=[UniformRandom]), TypeError, ["expected a dict"]),
    "a name that is a number": (_refused(policies={1: UniformRandom}), TypeError, ["name 1"]),
    "no name": (_refused(policies={"": UniformRandom}), TypeError, ["expected words"]),
    "a policy, not a function": (
        _refused(policies={"A": UniformRandom(PROBLEM._hierarchy(jax.random.key(0)))}),
        TypeError,
        ["policies['A']", "a function from a hierarchy"],
    ),
    "a backend": (
        _refused(policies={"A": ClosedForm}),
        TypeError,
        ["expected a Policy", "write ThompsonSampling(ClosedForm("],
    ),
    "nothing": (_refused(policies={"A": lambda h: None}), TypeError, ["None; expected a Policy"]),
    "no problem": (_refused(problem="movies"), TypeError, ["'movies'", "SyntheticProblem()"]),
    "the class of a problem": (_refused(problem=SyntheticProblem), TypeError, ["simulate problem"]),
    "no rounds": (_refused(horizon=0), ValueError, ["horizon", "at least 1"]),
    "half a round": (_refused(horizon=1.5), ValueError, ["horizon"]),
    "no runs": (_refused(runs=0), ValueError, ["runs", "at least 1"]),
    "no tiles": (_refused(runs_at_once=0), ValueError, ["runs_at_once"]),
    "no stretches": (_refused(rounds_at_once=-1), ValueError, ["rounds_at_once"]),
    "no key": (_refused(key=0.5), TypeError, ["key", "whole numbers"]),
}


@cases(simulate=REFUSED)
def test_what_cannot_be_played_is_refused(declare, error, parts):
    check_refused(declare, error, parts)


def test_many_actions_are_played_a_few_runs_at_a_time():
    """Whatever a problem draws inside is only looked at, not made."""
    few, many = (loop._runs_that_fit(SyntheticProblem(K, dim=d)) for K, d in ((100, 2), (10**6, 5)))
    assert few == loop._MOST_RUNS
    assert many == loop._LEAST_RUNS
