"""Problems: what they tell an agent, what they hide, and what they refuse."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from mistakes import cases, check_refused
from mixts.bandit import (
    Box,
    DrugProblem,
    Environment,
    Instance,
    SlateProblem,
    SyntheticProblem,
    Table,
)
from mixts.bandit.problems.environment import Problem
from mixts.models import Bernoulli, Gaussian, Level, Poisson, Sparse, linear
from tolerance import tolerance

N = 4000
WEIGHTS = np.random.default_rng(0).uniform(-1, 1, (5, 2))
EFFECT_MEAN = np.array([[1.0, 0.0, -1.0], [0.5, 2.0, 0.0]])
ROOT = np.random.default_rng(1).normal(size=(6, 6))
JOINT = ROOT @ ROOT.T / 6 + np.eye(6)  # of both effects together
SIZES = {"num_actions": 5, "num_effects": 2, "dim": 3}

PROBLEMS = {
    "linear": lambda: SyntheticProblem(**SIZES),
    "logistic": lambda: SyntheticProblem(**SIZES, reward=Bernoulli()),
    "Poisson": lambda: SyntheticProblem(**SIZES, reward=Poisson(), effect_cov=0.3),
    "link": lambda: SyntheticProblem(**SIZES, link=jax.nn.sigmoid),
    "three levels": lambda: SyntheticProblem(**SIZES, num_items=4, item_cov=0.5),
    "misspecified": lambda: SyntheticProblem(**SIZES, effect_mean=1.0, misspecified=True),
    "own contexts": lambda: SyntheticProblem(**SIZES, contexts=Box(3, rows=5)),
    "slates": lambda: SlateProblem(6, 5, 2, 3),
    "drugs": lambda: DrugProblem(5, 4, 3),
}


@cache
def instances(name: str) -> Instance:
    """Three instances, drawn inside `jit` and `vmap`; leaves have a first axis over them."""
    draw = jax.jit(jax.vmap(PROBLEMS[name]().sample))
    return draw(jax.random.split(jax.random.key(0), 3))


def picked(tree, i: int):
    return jax.tree.map(lambda leaf: leaf[i], tree)


@pytest.mark.parametrize("name", PROBLEMS)
def test_instances_differ_and_repeat(name):
    """Drawn side by side or alone, a key gives one instance, and another key another."""
    problem, drawn = PROBLEMS[name](), instances(name)
    alone = problem.sample(jax.random.split(jax.random.key(0), 3)[1])
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, **tolerance()), picked(drawn, 1), alone
    )
    theta = np.asarray([picked(drawn, i).environment.theta for i in range(3)])
    assert theta.shape == (3, 5, 3)
    assert len(np.unique(theta)) == theta.size
    told, true = alone.hierarchy, alone.environment.hierarchy
    assert [level.name for level in told.levels] == [level.name for level in true.levels]
    assert set(alone.environment.levels) == {level.name for level in true.levels}


@pytest.mark.parametrize("name", PROBLEMS)
def test_mean_rewards_are_the_mean_function_of_a_product(name):
    mean = {"logistic": lambda u: 1 / (1 + np.exp(-u)), "Poisson": np.exp}
    mean["slates"] = mean["logistic"]
    environment = picked(instances(name), 1).environment
    theta = np.asarray(environment.theta, float)
    rng = np.random.default_rng(2)
    for context in (rng.normal(size=3), rng.normal(size=(5, 3))):
        expected = mean.get(name, lambda u: u)(np.sum(theta * context, axis=1))
        found = environment.mean_rewards(jnp.asarray(context, jnp.float32))
        np.testing.assert_allclose(found, expected, **tolerance())


@pytest.mark.parametrize("name", ["linear", "logistic", "Poisson"])
def test_rewards_have_their_mean(name):
    """Within five standard errors, for a context of all actions and for one of each."""
    environment = picked(instances(name), 1).environment
    keys = jax.random.split(jax.random.key(5), N)
    rows = jax.random.uniform(jax.random.key(6), (5, 3), minval=-1.0)

    @jax.jit
    def draws(context, action):
        return jax.vmap(lambda key: environment.reward(key, context, action))(keys)

    for context in (rows[0], rows):
        expected = environment.mean_rewards(context)
        for action in (0, 3):
            found = np.asarray(draws(context, jnp.asarray(action)), float)
            error = found.std() / np.sqrt(N)
            assert abs(found.mean() - float(expected[action])) < 5 * error
            if name == "linear":
                # A variance of n normals has the standard error sqrt(2 / n) of itself.
                assert abs(found.var() - 1.0) < 5 * np.sqrt(2 / N)


@pytest.mark.parametrize("name", ["own contexts", "linear"])
def test_contexts_come_from_their_law(name):
    context = picked(instances(name), 0).environment.context(jax.random.key(1))
    assert context.shape == ((5, 3) if name == "own contexts" else (3,))
    assert np.all(np.abs(context) <= 1.0)


def actions(problem: Problem) -> np.ndarray:
    """(n, K d) draws of all actions' numbers."""
    draw = jax.jit(jax.vmap(lambda key: problem.sample(key).environment.theta))
    return np.asarray(draw(jax.random.split(jax.random.key(3), N)), float).reshape(N, -1)


def assert_prior(problem: Problem, mean: np.ndarray, cov: np.ndarray) -> None:
    """Means and covariances of all actions' numbers within five standard errors.

    The product of two centred Gaussian numbers has the variance `c_ii c_jj + c_ij^2`.
    """
    theta = actions(problem)
    diagonal = np.diag(cov)
    assert np.all(np.abs(theta.mean(0) - mean) < 5 * np.sqrt(diagonal / N))
    away = theta - mean
    error = np.sqrt((np.outer(diagonal, diagonal) + cov**2) / N)
    assert np.all(np.abs(away.T @ away / N - cov) < 5 * error)


def test_actions_have_the_prior_of_the_paper():
    """`N(Gamma mu_Psi, Sigma_0 + Gamma Sigma_Psi Gamma')`, jointly over all actions."""
    own = np.array([0.5, 1.0, 2.0])
    problem = SyntheticProblem(
        **SIZES, weights=WEIGHTS, effect_mean=EFFECT_MEAN, effect_cov=JOINT, action_cov=own
    )
    gamma = np.kron(WEIGHTS, np.eye(3))
    cov = gamma @ JOINT @ gamma.T + np.kron(np.eye(5), np.diag(own))
    assert_prior(problem, gamma @ EFFECT_MEAN.ravel(), cov)


def test_drawn_weights_are_uniform():
    """Of variance 1/3, and so an action's number has variance `1 + 3 L / 3`, on the average."""
    problem = SyntheticProblem(**SIZES)
    draw = jax.jit(jax.vmap(lambda key: problem.sample(key).hierarchy.actions.parents["effect"]))
    weights = np.asarray(draw(jax.random.split(jax.random.key(3), N)), float)
    assert np.all(np.abs(weights) <= 1)
    assert np.all(np.abs(weights.mean(0)) < 5 * np.sqrt(1 / 3 / N))
    assert np.all(np.abs((weights**2).mean(0) - 1 / 3) < 5 * np.sqrt((1 / 5 - 1 / 9) / N))
    theta = actions(problem)
    error = (theta**2).std(0) / np.sqrt(N)
    assert np.all(np.abs((theta**2).mean(0) - (1 + 2)) < 5 * error)


def test_drawn_weights_may_be_matrices():
    problem = SyntheticProblem(40, 2, 3, matrix_weights=True)
    maps = np.asarray(problem.sample(jax.random.key(0)).hierarchy.actions.parents["effect"])
    assert maps.shape == (40, 2, 3, 3)
    # Uniform in [-1, 1]: 720 numbers have a mean with standard error 0.0215.
    assert np.abs(maps).max() <= 1
    assert abs(maps.mean()) < 4 * 0.0215


def test_links_and_items_stand_between_effects_and_actions():
    """Actions without noise of their own are the link of the weighted items."""
    problem = SyntheticProblem(
        **SIZES, num_items=4, item_cov=1e-8, action_cov=1e-8, link=jax.nn.sigmoid, effect_cov=2.0
    )
    hierarchy, environment = problem.sample(jax.random.key(8))
    levels = {name: np.asarray(value, float) for name, value in environment.levels.items()}
    assert levels["effect"].shape == (2, 3)
    items = np.asarray(hierarchy["item"].parents["effect"]) @ levels["effect"]
    np.testing.assert_allclose(levels["item"], items, atol=1e-3)
    sums = np.asarray(hierarchy.actions.parents["item"]) @ levels["item"]
    np.testing.assert_allclose(levels["action"], 1 / (1 + np.exp(-sums)), atol=1e-3)
    given = np.arange(20.0).reshape(5, 4)
    fixed = SyntheticProblem(**SIZES, num_items=4, weights=given).sample(jax.random.key(0))
    np.testing.assert_array_equal(fixed.hierarchy.actions.parents["item"], given)


def test_misspecified_hyperparameters_are_multiples():
    """Each is the true one times a number of its own in (0, 2); what is true stays as it was."""
    problem = SyntheticProblem(**SIZES, effect_mean=1.0, misspecified=True)
    draw = jax.jit(jax.vmap(problem.sample))
    told, environment = draw(jax.random.split(jax.random.key(3), N))
    true = environment.hierarchy
    np.testing.assert_array_equal(true["effect"].mean, np.ones(N))
    np.testing.assert_array_equal(true["effect"].cov, np.full(N, 3.0))
    ratios = np.asarray(told.actions.parents["effect"] / true.actions.parents["effect"])
    np.testing.assert_allclose(ratios, np.broadcast_to(ratios[:, :1, :1], ratios.shape), rtol=1e-5)
    factors = np.stack(
        [told["effect"].mean, told["effect"].cov / 3.0, told.actions.cov, ratios[:, 0, 0]]
    ).astype(float)
    assert np.all((factors > 0) & (factors < 2))
    assert np.all(factors.min(1) < 0.05)
    assert np.all(factors.max(1) > 1.95)
    assert np.all(np.abs(factors.mean(1) - 1.0) < 5 * np.sqrt(4 / 12 / N))
    # Correlations of independent numbers are about N(0, 1 / n).
    assert np.all(np.abs(np.corrcoef(factors) - np.eye(4)) < 5 / np.sqrt(N))
    assert_actions_follow(true, environment)


def assert_actions_follow(hierarchy, environment: Environment) -> None:
    """Actions less their weighted effects are standard normal: drawn with the true weights."""
    weights, effects = hierarchy.actions.parents["effect"], environment.levels["effect"]
    actions = environment.levels["action"]
    own = np.asarray(actions - jnp.einsum("nkl,nld->nkd", weights, effects), float)
    assert abs(own.mean()) < 5 / np.sqrt(own.size)
    assert abs(own.var() - 1) < 5 * np.sqrt(2 / own.size)


def test_what_is_told_is_the_truth_unless_misspecified():
    told, environment = SyntheticProblem(**SIZES).sample(jax.random.key(0))
    assert told is environment.hierarchy


# Catalogues --------------------------------------------------------------------------------------


def test_slates_hold_different_items_seen_by_position():
    problem = SlateProblem(6, 40, 3, 2)
    assert problem.slates.shape == (40, 3)
    assert all(len(set(slate)) == 3 for slate in problem.slates.tolist())
    assert set(problem.slates.ravel().tolist()) == set(range(6))
    weights = problem.hierarchy.actions.parents["item"]
    assert isinstance(weights, Sparse)
    np.testing.assert_array_equal(weights.indices, problem.slates)
    bias = 1 / np.log2([2.0, 3.0, 4.0])
    np.testing.assert_allclose(weights.values, np.tile(bias, (40, 1)), rtol=1e-6)
    np.testing.assert_array_equal(problem.slates, SlateProblem(6, 40, 3, 2).slates)
    assert np.any(problem.slates != SlateProblem(6, 40, 3, 2, seed=1).slates)


def test_slates_have_the_prior_of_their_items():
    """Slates that share items are correlated, as strongly as their positions are looked at."""
    slates, bias = np.array([[0, 1], [1, 2], [3, 0]]), np.array([1.0, 0.25])
    problem = SlateProblem(
        4, 3, 2, 2, slates=slates, position_bias=bias, item_cov=2.0, slate_cov=0.3, item_mean=0.5
    )
    dense = np.zeros((3, 4))
    dense[np.arange(3)[:, None], slates] = bias
    gamma = np.kron(dense, np.eye(2))
    assert_prior(problem, gamma @ np.full(8, 0.5), 2.0 * gamma @ gamma.T + 0.3 * np.eye(6))


def test_drugs_have_the_prior_of_their_components():
    dosages = np.array([[0.0, 1.0], [0.5, 0.5], [2.0, 0.0]])
    problem = DrugProblem(3, 2, 2, dosages=dosages, component_cov=1.5, drug_cov=0.2, noise=0.7)
    gamma = np.kron(dosages, np.eye(2))
    assert_prior(problem, np.zeros(6), 1.5 * gamma @ gamma.T + 0.2 * np.eye(6))
    assert float(problem.hierarchy.reward.noise) == pytest.approx(0.7)


def test_every_drug_has_a_component():
    problem = DrugProblem(500, 6, 2, density=0.05)
    assert np.all((problem.dosages > 0).any(1))
    assert problem.dosages.max() <= 1
    full = DrugProblem(200, 6, 2, density=1.0)
    assert np.all(full.dosages > 0)
    # One component is certain; each of the other five is in with probability 0.4.
    taken = (DrugProblem(2000, 6, 2).dosages > 0).sum(1)
    assert abs(taken.mean() - (1 + 5 * 0.4)) < 5 * np.sqrt(5 * 0.24 / 2000)


def _synthetic(**changes):
    return lambda: SyntheticProblem(**{**SIZES, **changes})


def _slate(*sizes, **changes):
    return lambda: SlateProblem(*(sizes or (4, 3, 2, 2)), **changes)


def _drug(**changes):
    return lambda: DrugProblem(3, 2, 2, **changes)


LEARNED = Gaussian(dist.HalfNormal(1.0))
SYNTHETIC = {
    "no actions": (_synthetic(num_actions=0), ValueError, ["num_actions", "at least 1"]),
    "half an effect": (_synthetic(num_effects=1.5), ValueError, ["num_effects"]),
    "no dimension": (_synthetic(dim=0), ValueError, ["SyntheticProblem dim"]),
    "no items": (_synthetic(num_items=0), ValueError, ["num_items"]),
    "weights of others": (_synthetic(weights=WEIGHTS.T), ValueError, ["(2, 5)", "(5, 2)"]),
    "words as weights": (_synthetic(weights="equal"), TypeError, ["SyntheticProblem weights"]),
    "weights of effects, not items": (
        _synthetic(weights=WEIGHTS, num_items=4),
        ValueError,
        ["(5, 2)", "(5, 4)"],
    ),
    "weights drawn and given": (
        _synthetic(weights=WEIGHTS, matrix_weights=True),
        ValueError,
        ["matrix_weights=True", "one of the two"],
    ),
    "a negative variance": (_synthetic(action_cov=-1.0), ValueError, ["'action'", "positive"]),
    "a mean too long": (_synthetic(effect_mean=np.zeros(4)), ValueError, ["'effect'", "(4,)"]),
    "a class as a reward": (_synthetic(reward=Bernoulli), TypeError, ["Bernoulli()"]),
    "a noise to learn": (_synthetic(reward=LEARNED), ValueError, ["must be known", "HalfNormal"]),
    "no link": (_synthetic(link=3), TypeError, ["link is 3"]),
    "contexts too wide": (
        _synthetic(contexts=np.ones((3, 4))),
        ValueError,
        ["SyntheticProblem contexts have shape (4,)"],
    ),
    "contexts of other actions": (
        _synthetic(contexts=Table(np.ones((2, 4, 3)))),
        ValueError,
        ["(4, 3)", "(5, 3)"],
    ),
}
SLATES = {
    "more positions than items": (_slate(2, 4, 3), ValueError, ["3 positions and 2 items"]),
    "an unknown item": (_slate(slates=[[0, 4]] * 3), ValueError, ["slates", "from 0 to 3"]),
    "an item twice": (_slate(slates=[[0, 0]] * 3), ValueError, ["0"]),
    "slates too short": (_slate(slates=[[0], [1], [2]]), ValueError, ["(3, 1)", "(3, 2)"]),
    "biases of others": (_slate(position_bias=[1.0]), ValueError, ["(1,)", "(2,)"]),
    "no slates": (_slate(4, 0, 2, 2), ValueError, ["num_slates"]),
    "a negative variance": (_slate(slate_cov=-1.0), ValueError, ["'slate'", "positive"]),
    "a noise to learn": (_slate(reward=LEARNED), ValueError, ["must be known"]),
}
DRUGS = {
    "a negative dosage": (_drug(dosages=[[0, 1], [1, 1], [-1, 0]]), ValueError, ["-1", "from 0"]),
    "dosages of others": (_drug(dosages=np.ones((2, 2))), ValueError, ["(2, 2)", "(3, 2)"]),
    "no density": (_drug(density=0.0), ValueError, ["density is 0.0"]),
    "too dense": (_drug(density=1.5), ValueError, ["at most 1"]),
    "no noise": (_drug(noise=0.0), ValueError, ["noise", "positive"]),
    "empty dosages": (_drug(dosages=np.ones((0, 2))), ValueError, ["(0, 2)", "(3, 2)"]),
}


@cases(synthetic=SYNTHETIC, slates=SLATES, drugs=DRUGS)
def test_wrong_problems_are_refused(declare, error, parts):
    check_refused(declare, error, parts)


def test_a_problem_may_be_written_by_hand():
    """Any class with a `sample`: here, an instance that is always the same."""

    class Fixed(Problem):
        def sample(self, key):
            hierarchy = linear(WEIGHTS, 3)
            levels = {"effect": jnp.ones((2, 3)), "action": jnp.asarray(WEIGHTS @ np.ones((2, 3)))}
            return Instance(hierarchy, Environment(hierarchy, levels, Box(3)))

    drawn = jax.jit(jax.vmap(Fixed().sample))(jax.random.split(jax.random.key(0), 2))
    assert isinstance(drawn.hierarchy.actions, Level)
    theta = drawn.environment.levels["action"]
    np.testing.assert_array_equal(theta[0], theta[1])
