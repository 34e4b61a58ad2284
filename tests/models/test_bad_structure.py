"""A wrong structure fails where it is declared: what was given, expected, and what to do."""

import numpy as np
import numpyro.distributions as dist
import pytest

from mistakes import D, K, L, actions, cases, check_refused, effects, unchecked
from mixts.models import (
    Bernoulli,
    Gaussian,
    Hierarchy,
    Level,
    Sparse,
    finer,
    glm,
    linear,
    mab,
    three_level,
)

ONES = np.ones((K, L))


def rewarded(reward):
    return Hierarchy([Level("action", K)], reward, D)


NAMES = {
    "not an identifier": (
        lambda: Level("my movie", 3),
        ValueError,
        ["level name 'my movie'", "letters, digits and underscores", "such as 'movie'"],
    ),
    "empty": (lambda: Level("", 3), ValueError, ["level name ''", "such as 'movie'"]),
    "not a string": (lambda: Level(3, 3), ValueError, ["level name 3", "such as 'movie'"]),
    "reserved": (
        lambda: Level("reward", 3),
        ValueError,
        ["level name 'reward' is reserved", "reward_noise", "observation", "choose another"],
    ),
    "reserved noise": (
        lambda: Level("reward_noise", 3),
        ValueError,
        ["'reward_noise' is reserved"],
    ),
    "reserved plate": (lambda: Level("observation", 3), ValueError, ["'observation' is reserved"]),
    "twice": (
        lambda: Hierarchy([Level("a", 2), Level("a", 2, parents={"a": np.eye(2)})], Gaussian(), D),
        ValueError,
        ["levels 'a' and 'a' both need the name 'a'", "rename one level"],
    ),
    "that of a learned scale": (
        lambda: Hierarchy(
            [
                Level("a", 2, scale=dist.HalfNormal()),
                Level("a_scale", 2, parents={"a": np.eye(2)}),
            ],
            Gaussian(),
            D,
        ),
        ValueError,
        ["levels 'a' and 'a_scale' both need the name 'a_scale'", "rename one level"],
    ),
    "that of learned weights": (
        lambda: Hierarchy(
            [
                Level("a", 2),
                Level("b_weights_a", 2, parents={"a": np.eye(2)}),
                Level("b", 2, parents={"a": dist.Normal(), "b_weights_a": np.eye(2)}),
            ],
            Gaussian(),
            D,
        ),
        ValueError,
        ["levels 'b_weights_a' and 'b' both need the name 'b_weights_a'"],
    ),
    "that of a base": (
        lambda: Hierarchy(
            [Level("a", 2, centered=False), Level("a_base", 2, parents={"a": np.eye(2)})],
            Gaussian(),
            D,
        ),
        ValueError,
        ["levels 'a' and 'a_base' both need the name 'a_base'"],
    ),
    "that of a plate": (
        lambda: Hierarchy(
            [Level("a", 2), Level("a_plate", 2, parents={"a": np.eye(2)})], Gaussian(), D
        ),
        ValueError,
        ["levels 'a' and 'a_plate' both need the name 'a_plate'"],
    ),
}

SHAPES_OF_THINGS = {
    "size zero": (lambda: Level("a", 0), ValueError, ["level 'a': size: got 0", "at least 1"]),
    "size negative": (lambda: Level("a", -2), ValueError, ["level 'a': size: got -2"]),
    "size a float": (lambda: Level("a", 2.0), ValueError, ["level 'a': size: got 2.0", "whole"]),
    "size a bool": (lambda: Level("a", True), ValueError, ["level 'a': size: got True"]),
    "dim zero": (
        lambda: Hierarchy([Level("a", 2)], Gaussian(), 0),
        ValueError,
        ["Hierarchy dim: got 0", "whole number of at least 1"],
    ),
    "dim a float": (
        lambda: Hierarchy([Level("a", 2)], Gaussian(), 1.5),
        ValueError,
        ["Hierarchy dim: got 1.5", "whole number of at least 1"],
    ),
    "no levels": (
        lambda: Hierarchy([], Gaussian(), D),
        TypeError,
        ["Hierarchy levels: got []", "a list of Level", "the last of which holds the actions"],
    ),
    "one level, not in a list": (
        lambda: Hierarchy(Level("a", 2), Gaussian(), D),
        TypeError,
        ["Hierarchy levels: got Level('a', 2)", "a list of Level"],
    ),
    "something else among levels": (
        lambda: Hierarchy([Level("a", 2), "b"], Gaussian(), D),
        TypeError,
        ["Hierarchy levels: 'b' is not a Level", "write Level(name, size)"],
    ),
    "labels too few": (
        lambda: Level("a", 3, labels=["x", "y"]),
        ValueError,
        ["level 'a': got 2 labels", "expected 3 different ones"],
    ),
    "labels repeated": (
        lambda: Level("a", 3, labels=["x", "y", "x"]),
        ValueError,
        ["level 'a': got 3 labels, 2 of them different", "expected 3 different ones"],
    ),
    "labels one string": (
        lambda: Level("a", 3, labels="xyz"),
        TypeError,
        ["level 'a': labels are 'xyz'", "a sequence of 3 strings"],
    ),
    "labels that cannot be looked up": (
        lambda: Level("a", 2, labels=[[1], [2]]),
        TypeError,
        ["level 'a': labels hold [1]", "a sequence of 2 strings"],
    ),
    "labels one number": (
        lambda: Level("a", 2, labels=5),
        TypeError,
        ["level 'a': labels are 5", "a sequence of 2 strings"],
    ),
    "centered a word": (
        lambda: Level("a", 2, centered="no"),
        TypeError,
        ["level 'a': centered is 'no'", "expected True or False"],
    ),
}

ARROWS = {
    "unknown parent": (
        lambda: actions(parents={"genre": ONES}),
        ValueError,
        ["level 'action' has the unknown parent 'genre'", "levels above it: 'effect'"],
    ),
    "parent of itself": (
        lambda: actions(parents={"action": np.eye(K)}),
        ValueError,
        ["level 'action' has the parent 'action', which does not stand above it"],
    ),
    "upward": (
        lambda: Hierarchy([Level("a", 2, parents={"b": np.eye(2)}), Level("b", 2)], Gaussian(), D),
        ValueError,
        ["level 'a' has the parent 'b'", "list levels top to bottom, parents before children"],
    ),
    "cycle": (
        lambda: Hierarchy(
            [Level("a", 2, parents={"b": np.eye(2)}), Level("b", 2, parents={"a": np.eye(2)})],
            Gaussian(),
            D,
        ),
        ValueError,
        ["level 'a' has the parent 'b'", "without cycles"],
    ),
    "childless level": (
        lambda: Hierarchy([Level("effect", L), Level("action", K)], Gaussian(), D),
        ValueError,
        [
            "level 'effect' has no children",
            "name it in the parents of a level below, or leave it out",
        ],
    ),
    "parents a list": (
        lambda: actions(parents=["effect"]),
        TypeError,
        ["level 'action': parents is a list", "a dict from a parent level's name to its weights"],
    ),
}

REWARDS = {
    "a class": (
        lambda: rewarded(Bernoulli),
        TypeError,
        ["Hierarchy reward is the class Bernoulli; write Bernoulli()"],
    ),
    "a NumPyro distribution": (
        lambda: rewarded(dist.Normal()),
        TypeError,
        ["Hierarchy reward is <numpyro", "Gaussian(1.0), Bernoulli() or Poisson()"],
    ),
    "a NumPyro class": (
        lambda: rewarded(dist.Poisson),
        TypeError,
        ["Hierarchy reward is <class", "one of mixts's reward families"],
    ),
    "a word": (lambda: rewarded("gaussian"), TypeError, ["Hierarchy reward is 'gaussian'"]),
    "noise zero": (
        lambda: Gaussian(0.0),
        ValueError,
        ["Gaussian noise is 0", "a positive standard deviation"],
    ),
    "noise negative": (lambda: Gaussian(-1.0), ValueError, ["Gaussian noise is -1"]),
    "noise NaN": (lambda: Gaussian(np.nan), ValueError, ["Gaussian noise: holds nan"]),
    "noise infinite": (lambda: Gaussian(np.inf), ValueError, ["Gaussian noise: holds inf"]),
    "noise per action": (
        lambda: Gaussian(np.ones(K)),
        ValueError,
        ["Gaussian noise has shape (4,)", "expected one number", "rescale contexts and rewards"],
    ),
    "noise can be negative": (
        lambda: Gaussian(dist.Normal()),
        ValueError,
        ["Gaussian noise ~ Normal can be negative", "such as HalfNormal"],
    ),
    "noise law NaN": (
        lambda: Gaussian(unchecked(dist.HalfNormal, np.nan)),
        ValueError,
        ["Gaussian noise ~ HalfNormal has scale=nan; expected finite numbers"],
    ),
    "noise law negative": (
        lambda: Gaussian(unchecked(dist.HalfNormal, -1.0)),
        ValueError,
        ["Gaussian noise ~ HalfNormal has scale=-1.0; expected finite numbers"],
    ),
    "noise law of another shape": (
        lambda: Gaussian(dist.HalfNormal(np.ones(2))),
        ValueError,
        ["Gaussian noise: the distribution has shape (2,); expected ()"],
    ),
}

BY_NAME = {
    "linear, weights a row": (
        lambda: linear(np.ones(L), D),
        ValueError,
        ["weights have shape (3,)", "expected (K, L): a row for each action"],
    ),
    "glm, a law without a shape": (
        lambda: glm(dist.Normal(), D),
        ValueError,
        ["weights have shape ()", "expected (K, L)"],
    ),
    "linear, weights a word": (lambda: linear("ones", D), TypeError, ["weights: got 'ones'"]),
    "linear, maps of another dim": (
        lambda: linear(np.ones((K, L, 5, 5)), D),
        ValueError,
        ["level 'action': weights for parent 'effect' have shape (4, 3, 5, 5)"],
    ),
    "finer, not square": (
        lambda: finer(np.ones((K, L, 2, 3))),
        ValueError,
        ["finer: maps have shape (4, 3, 2, 3); expected (K, L, d, d)"],
    ),
    "finer, scalars": (
        lambda: finer(ONES),
        ValueError,
        ["finer: maps have shape (4, 3); expected (K, L, d, d)"],
    ),
    "finer, Sparse": (
        lambda: finer(Sparse(np.zeros((K, 1), int), np.ones((K, 1)))),
        ValueError,
        ["finer: maps have shape (4, 1); expected (K, L, d, d)"],
    ),
    "mab, mean of another length": (
        lambda: mab(ONES, effect_mean=np.ones(5)),
        ValueError,
        ["level 'effect': mean has shape (5, 1); expected () or (1,) or (3, 1)"],
    ),
    "mab, mean NaN": (
        lambda: mab(ONES, effect_mean=[0.0, np.nan, 0.0]),
        ValueError,
        ["mab effect_mean: holds nan at position (1,)"],
    ),
    "mab, one variance negative": (
        lambda: mab(ONES, action_cov=[1.0, 1.0, -1.0, 1.0]),
        ValueError,
        ["level 'action': cov is not positive definite", "smallest eigenvalue -1"],
    ),
    "mab, variance a law": (
        lambda: mab(ONES, action_cov=dist.HalfNormal()),
        TypeError,
        ["level 'action': cov is a distribution"],
    ),
    "three levels that do not fit": (
        lambda: three_level(np.ones((5, L)), np.ones((K, 6)), D),
        ValueError,
        ["level 'action': weights for parent 'item' have shape (4, 6); expected (4, 5)"],
    ),
}


@cases(name=NAMES, shape=SHAPES_OF_THINGS, arrow=ARROWS, reward=REWARDS, model=BY_NAME)
def test_fails_when_declared(declare, error, parts):
    check_refused(declare, error, parts)


def test_a_level_that_is_not_there():
    with pytest.raises(KeyError, match="no level 'genre'; this hierarchy has 'effect', 'action'"):
        effects()["genre"]
