"""Messages are short, however large is what a user gave."""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import mixts.bandit
import mixts.inference
import mixts.models
from mistakes import as_a_user
from mixts.bandit import Agent, HierarchyProblem, LinTS, simulate
from mixts.inference import (
    ClosedForm,
    Laplace,
    Nuts,
    Svi,
    best_backend,
    calibrate,
    compare,
    empirical_bayes,
    plot_forest,
)
from mixts.models import Data, Gaussian, Hierarchy, Level, Sparse, linear
from mixts.models.messages import listed, short

LONGEST = 2000  # letters of a message

NAMES = [f"product {i}" for i in range(20_000)]
HUGE: dict[str, Any] = {
    "words": "word " * 40_000,
    "a name": "x" * 100_000,
    "labels": NAMES,
    "a tuple": tuple(NAMES),
    "a dict": dict.fromkeys(NAMES, 1.0),
    "a set": set(NAMES),
    "nested": [[NAMES] * 5] * 5,
    "numbers": np.full((300, 300), np.nan),
    "texts": np.array(NAMES),
    "an integer": 10**4000,
    "whole numbers": list(range(100_000)),
}
# An enumeration, and a path: the messages are those of Python and the operating system.
PYTHONS_OWN = ("Trouble", "MovieLensProblem")
PUBLIC = {
    f"{package.__name__}.{name}": getattr(package, name)
    for package in (mixts.models, mixts.inference, mixts.bandit)
    for name in package.__all__
    if callable(getattr(package, name)) and name not in PYTHONS_OWN
}
SMALL = linear(np.ones((3, 2)), 2)
DATA = Data(np.ones((4, 2)), [0, 1, 2, 0], np.ones(4))


def check(call: Callable[[], object]) -> None:
    """If it fails, it says so in a few words."""
    with as_a_user():
        try:
            call()
        except Exception as error:
            message = "\n".join([str(error), *getattr(error, "__notes__", [])])
            assert len(message) <= LONGEST, f"{len(message):,} letters: {message[:300]}"


@pytest.mark.parametrize("name", PUBLIC)
def test_all_that_is_public_refuses_in_few_words(name):
    """Every argument without a default is the same wrong value, of every kind."""
    function = PUBLIC[name]
    try:
        arguments = inspect.signature(function).parameters.values()
    except ValueError:
        return
    needed = [a for a in arguments if a.default is a.empty and a.kind < a.VAR_POSITIONAL]
    for huge in HUGE.values():
        check(lambda huge=huge: function(*[huge] * max(len(needed), 1)))


ONE_WRONG: dict[str, Callable[[Any], object]] = {
    "level name": lambda huge: Level(huge, 3),
    "level size": lambda huge: Level("a", huge),
    "level labels": lambda huge: Level("a", 3, labels=huge),
    "level mean": lambda huge: Hierarchy([Level("a", 3, mean=huge)], Gaussian(), 2),
    "level cov": lambda huge: Hierarchy([Level("a", 3, cov=huge)], Gaussian(), 2),
    "level scale": lambda huge: Level("a", 3, scale=huge),
    "level link": lambda huge: Level("a", 3, parents={"b": np.ones((3, 2))}, link=huge),
    "level family": lambda huge: Level("a", 3, family=huge),
    "level centered": lambda huge: Level("a", 3, centered=huge),
    "level parents": lambda huge: Level("a", 3, parents={"b": huge}),
    "unknown parents": lambda huge: Hierarchy(
        [Level("a", 3, parents=dict.fromkeys(map(str, list(huge)[:2000]), np.ones((3, 1))))],
        Gaussian(),
        2,
    ),
    "long names": lambda huge: Hierarchy(
        [Level("x" * 100_000, 2), Level("y" * 100_000, 2, cov=-np.ones(7))], Gaussian(), 2
    ),
    "hierarchy levels": lambda huge: Hierarchy(huge, Gaussian(), 2),
    "hierarchy reward": lambda huge: Hierarchy([Level("a", 3)], huge, 2),
    "hierarchy dim": lambda huge: Hierarchy([Level("a", 3)], Gaussian(), huge),
    "unknown level": lambda huge: SMALL[huge if isinstance(huge, str) else "b"],
    "noise": lambda huge: Gaussian(huge),
    "sparse": lambda huge: Sparse(huge, huge),
    "data": lambda huge: Data(huge, [0], [1.0]),
    "actions": lambda huge: Data([[1.0]], huge, [1.0]),
    "key": lambda huge: SMALL.sample_prior(huge),
    "context": lambda huge: ClosedForm(SMALL).update(ClosedForm(SMALL).init(), huge, 0, 1.0),
    "reward": lambda huge: ClosedForm(SMALL).update(ClosedForm(SMALL).init(), [1, 1], 0, huge),
    "action": lambda huge: ClosedForm(SMALL).update(ClosedForm(SMALL).init(), [1, 1], huge, 1.0),
    "sites": lambda huge: Laplace(SMALL, sites=huge),
    "guide": lambda huge: Svi(SMALL, guide=huge),
    "chains": lambda huge: Nuts(SMALL, chains=huge),
    "target_accept": lambda huge: Nuts(SMALL, target_accept=huge),
    "action site": lambda huge: Nuts(lambda c, a, r: None, actions=huge, dim=2),
    "calibrated backend": lambda huge: calibrate(SMALL, lambda h: huge),
    "simulations": lambda huge: calibrate(SMALL, ClosedForm, simulations=huge),
    "compared": lambda huge: compare(SMALL, DATA, huge),
    "a compared backend": lambda huge: compare(SMALL, DATA, {"a": huge}),
    "reference": lambda huge: compare(SMALL, DATA, {"a": ClosedForm}, huge),
    "many backends": lambda huge: compare(SMALL, DATA, dict.fromkeys(NAMES, ClosedForm), "none"),
    "observations": lambda huge: best_backend(SMALL, huge),
    "learned parts": lambda huge: empirical_bayes(SMALL, DATA, learn=huge),
    "learned levels": lambda huge: empirical_bayes(SMALL, DATA, levels=huge),
    "agent labels": lambda huge: Agent(LinTS(SMALL), labels=huge),
    "agent forget": lambda huge: Agent(LinTS(SMALL), forget=huge),
    "agent data": lambda huge: Agent(LinTS(SMALL), data=huge),
    "level branching": lambda huge: Level("a", 3, branching=huge),
    "values of unknowns": lambda huge: SMALL.unknowns.given(dict.fromkeys(map(str, huge), 1.0)),
    "forest": lambda huge: plot_forest({"a": huge}),
    "forest levels": lambda huge: plot_forest(
        ClosedForm(SMALL).posterior(ClosedForm(SMALL).init()), levels=huge
    ),
    "policies": lambda huge: simulate(HierarchyProblem(SMALL), huge, 5, 2, 0),
    "a policy": lambda huge: simulate(HierarchyProblem(SMALL), {"a": huge}, 5, 2, 0),
    "horizon": lambda huge: simulate(HierarchyProblem(SMALL), {"a": LinTS}, huge, 2, 0),
    "seed": lambda huge: simulate(HierarchyProblem(SMALL), {"a": LinTS}, 5, 2, huge),
}


@pytest.mark.parametrize("what", ONE_WRONG)
def test_one_wrong_value_is_named_in_few_words(what):
    for huge in HUGE.values():
        check(lambda huge=huge: ONE_WRONG[what](huge))


def test_a_value_is_cut():
    assert short("a" * 30) == repr("a" * 30)
    assert len(short("a" * 3000)) <= 200
    assert short(np.ones((30, 40))) == "<array of shape (30, 40) and type float64>"
    assert short(jax.numpy.ones(3)).startswith("Array([1., 1., 1.]")
    assert listed(NAMES).endswith("and 19,988 more")

    class Mute:
        def __repr__(self) -> str:
            raise RuntimeError("no words")

    assert "Mute" in short(Mute())
