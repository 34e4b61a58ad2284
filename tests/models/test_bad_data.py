"""Wrong observations fail when they are given to a program or to `Data`, and say why."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers

from mistakes import cases, check_refused
from mixts.models import Bernoulli, Data, Gaussian, Hierarchy, Level, Poisson

N, K, D = 3, 4, 2
CONTEXTS, ACTIONS, REWARDS = np.ones((N, D)), np.zeros(N, int), np.ones(N)


def run(contexts=CONTEXTS, actions=ACTIONS, rewards=REWARDS, mask=None, reward=Gaussian(1.0)):
    """Call the program of a hierarchy of K actions."""
    hierarchy = Hierarchy([Level("action", K)], reward, D)
    return handlers.seed(hierarchy.program, jax.random.key(0))(
        contexts, actions, rewards, mask=mask
    )


def with_entry(numbers, value):
    changed = np.array(numbers, float)
    changed.flat[-1] = value
    return changed


PROGRAM = {
    "contexts of another dim": (
        lambda: run(contexts=np.ones((N, 5))),
        ValueError,
        ["contexts have shape (3, 5); expected (n, 2)"],
    ),
    "one context": (
        lambda: run(contexts=np.ones(D)),
        ValueError,
        ["shapes do not fit: contexts (2,), actions (3,)", "expected contexts (n, dim)"],
    ),
    "too few actions": (
        lambda: run(actions=[0, 1]),
        ValueError,
        ["contexts (3, 2), actions (2,), rewards (3,)", "the others (n,)"],
    ),
    "too few rewards": (
        lambda: run(rewards=[1.0]),
        ValueError,
        ["contexts (3, 2), actions (3,), rewards (1,)", "the others (n,)"],
    ),
    "rewards in a column": (
        lambda: run(rewards=np.ones((N, 1))),
        ValueError,
        ["rewards (3, 1)", "the others (n,)"],
    ),
    "context NaN": (
        lambda: run(contexts=with_entry(CONTEXTS, np.nan)),
        ValueError,
        ["contexts: holds nan at position (2, 1)", "finite"],
    ),
    "context infinite": (
        lambda: run(contexts=with_entry(CONTEXTS, np.inf)),
        ValueError,
        ["contexts: holds inf at position (2, 1)"],
    ),
    "contexts a word": (
        lambda: run(contexts="x"),
        TypeError,
        ["contexts: got 'x'", "an array of numbers"],
    ),
    "contexts missing": (lambda: run(contexts=None), TypeError, ["contexts: got None"]),
    "reward NaN": (
        lambda: run(rewards=with_entry(REWARDS, np.nan)),
        ValueError,
        ["rewards: holds nan at position (2,)"],
    ),
    "reward infinite": (
        lambda: run(rewards=with_entry(REWARDS, -np.inf)),
        ValueError,
        ["rewards: holds -inf at position (2,)"],
    ),
    "action beyond the last": (
        lambda: run(actions=[0, 1, 4]),
        ValueError,
        ["actions: holds 4; every entry must be from 0 to 3"],
    ),
    "action negative": (
        lambda: run(actions=[0, 1, -1]),
        ValueError,
        ["actions: holds -1; every entry must be from 0 to 3"],
    ),
    "action beyond 32 bits": (
        lambda: run(actions=[0, 1, 2**32]),
        ValueError,
        ["actions: holds 4294967296; every entry must be from 0 to 3"],
    ),
    "actions are floats": (
        lambda: run(actions=[0.0, 1.0, 2.0]),
        TypeError,
        ["actions: got numbers of type float64; expected whole numbers"],
    ),
    "actions are bools": (
        lambda: run(actions=[True, False, True]),
        TypeError,
        ["actions: got numbers of type bool; expected whole numbers"],
    ),
    "actions ragged": (
        lambda: run(actions=[[0], [0, 1]]),
        TypeError,
        ["actions: got [[0], [0, 1]]"],
    ),
    "half a click": (
        lambda: run(rewards=[0.0, 1.0, 0.5], reward=Bernoulli()),
        ValueError,
        ["rewards hold 0.5, which Bernoulli() rewards never are", "declare another reward family"],
    ),
    "two clicks": (
        lambda: run(rewards=[0.0, 1.0, 2.0], reward=Bernoulli()),
        ValueError,
        ["rewards hold 2, which Bernoulli() rewards never are"],
    ),
    "negative count": (
        lambda: run(rewards=[0.0, 1.0, -1.0], reward=Poisson()),
        ValueError,
        ["rewards hold -1, which Poisson() rewards never are"],
    ),
    "half a count": (
        lambda: run(rewards=[0.0, 1.0, 1.5], reward=Poisson()),
        ValueError,
        ["rewards hold 1.5, which Poisson() rewards never are"],
    ),
}

MASK = {
    "of numbers": (
        lambda: run(mask=np.ones(N)),
        TypeError,
        ["mask has shape (3,) and type float", "expected (n,) of True and False"],
    ),
    "too short": (
        lambda: run(mask=np.ones(2, bool)),
        ValueError,
        ["mask has shape (2,); expected (3,), one per row"],
    ),
    "a column": (
        lambda: run(mask=np.ones((N, 1), bool)),
        TypeError,
        ["mask has shape (3, 1) and type bool", "expected (n,)"],
    ),
    "hides nothing of a bad row": (
        lambda: run(actions=[0, 1, 9], mask=[False, True, True]),
        ValueError,
        ["actions: holds 9"],
    ),
    "hides no action beyond 32 bits": (
        lambda: run(actions=[0, 1, 2**32], mask=[False, True, True]),
        ValueError,
        ["actions: holds 4294967296"],
    ),
    "hides no NaN": (
        lambda: run(contexts=with_entry(CONTEXTS, np.nan), mask=[False, True, True]),
        ValueError,
        ["contexts: holds nan at position (2, 1)"],
    ),
    "beside actions that are floats": (
        lambda: run(actions=[0.0, 1.0, np.nan], mask=[True, True, False]),
        TypeError,
        ["actions: got numbers of type float"],
    ),
}

DATA = {
    "lengths": (
        lambda: Data(CONTEXTS, [0], REWARDS),
        ValueError,
        ["shapes do not fit: contexts (3, 2), actions (1,), rewards (3,)"],
    ),
    "one context": (
        lambda: Data([1.0, 2.0], [0], [1.0]),
        ValueError,
        ["contexts (2,)", "expected contexts (n, dim)"],
    ),
    "context NaN": (
        lambda: Data(with_entry(CONTEXTS, np.nan), ACTIONS, REWARDS),
        ValueError,
        ["Data contexts: holds nan at position (2, 1)"],
    ),
    "reward infinite": (
        lambda: Data(CONTEXTS, ACTIONS, with_entry(REWARDS, np.inf)),
        ValueError,
        ["Data rewards: holds inf at position (2,)"],
    ),
    "actions are floats": (
        lambda: Data(CONTEXTS, [0.0, 1.0, 2.0], REWARDS),
        TypeError,
        ["Data actions: got numbers of type float64"],
    ),
    "action negative": (lambda: Data(CONTEXTS, [0, -1, 0], REWARDS), ValueError, ["holds -1"]),
    "action beyond 32 bits": (
        lambda: Data(CONTEXTS, [0, 1, 2**32], REWARDS),
        ValueError,
        ["Data actions: holds 4294967296"],
    ),
}


@cases(program=PROGRAM, mask=MASK, data=DATA)
def test_fails_when_given(declare, error, parts):
    check_refused(declare, error, parts)


def test_traced_observations_are_not_looked_at():
    """A wrong value that arrives inside `jit` is no error; a wrong shape or type is."""
    hierarchy = Hierarchy([Level("action", K)], Bernoulli(), D)

    @jax.jit
    def program(contexts, actions, rewards):
        return handlers.seed(hierarchy.program, jax.random.key(0))(contexts, actions, rewards)

    program(with_entry(CONTEXTS, np.nan), ACTIONS + 9, 0.5 * REWARDS)
    with pytest.raises(ValueError, match=r"contexts have shape \(3, 5\)"):
        program(np.ones((N, 5)), ACTIONS, REWARDS)
    with pytest.raises(TypeError, match="got numbers of type float32; expected whole numbers"):
        program(CONTEXTS, ACTIONS.astype("float32"), REWARDS)


def test_known_rewards_are_looked_at_inside_jit():
    with pytest.raises(ValueError, match=r"rewards hold 0\.5"):
        jax.jit(lambda contexts: run(contexts, rewards=0.5 * REWARDS, reward=Bernoulli()))(CONTEXTS)


@pytest.mark.parametrize("noise", [1.0, dist.HalfNormal(1.0)], ids=["known", "learned"])
def test_any_finite_reward_is_gaussian(noise):
    run(rewards=[-1e6, 0.5, 3.0], reward=Gaussian(noise))


def test_clicks_may_be_bools_and_counts_integers():
    run(rewards=[True, False, True], reward=Bernoulli())
    run(rewards=[0, 3, 12], reward=Poisson())
