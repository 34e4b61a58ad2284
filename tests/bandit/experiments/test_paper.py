"""The panels of the paper's figures have the paper's numbers, and agents that leave something out do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mixts.bandit import MovieLensProblem, SyntheticProblem
from mixts.bandit.experiments import all_figures, beyond
from mixts.models import Bernoulli, Gaussian

FIGURES = all_figures()
GRID = [(K, d) for d in (2, 5) for K in (20, 50, 100)]


def synthetic(name: str) -> list[SyntheticProblem]:
    return [panel.problem() for panel in FIGURES[name].panels]


def test_two_panels_in_the_body():
    linear, logistic = synthetic("synthetic")
    assert isinstance(linear.reward, Gaussian)
    assert float(linear.reward.noise) == 1
    assert isinstance(logistic.reward, Bernoulli)
    for problem in (linear, logistic):
        assert (problem.num_actions, problem.num_effects, problem.dim) == (100, 3, 2)
        assert (problem.effect_cov, problem.action_cov) == (3, 1)
        assert not problem.misspecified


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_twelve_panels_in_the_appendix(kind):
    problems = synthetic(f"synthetic-{kind}")
    assert [(p.num_actions, p.dim) for p in problems] == GRID
    assert {p.num_effects for p in problems} == {3}


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_twelve_panels_of_movielens(kind):
    made = [panel.problem for panel in FIGURES[f"movielens-{kind}"].panels]
    assert all(given.func is MovieLensProblem for given in made)
    assert [(g.keywords["num_actions"], g.keywords["dim"]) for g in made] == GRID
    expected = Bernoulli if kind == "logistic" else Gaussian
    assert all(isinstance(given.keywords["reward"], expected) for given in made)


def test_what_is_misspecified_and_what_is_uncertain():
    assert all(problem.misspecified for problem in synthetic("misspecified"))
    uncertain = synthetic("uncertain-actions")
    assert [(p.effect_cov, p.action_cov) for p in uncertain] == [(1, 3)] * 3
    for problems in (synthetic("misspecified"), uncertain):
        assert [p.num_actions for p in problems] == [20, 50, 100]
        assert {(p.num_effects, p.dim) for p in problems} == {(3, 2)}


def test_two_levels_of_three():
    """Items keep their marginal prior and lose what they have in common."""
    given = SyntheticProblem(6, 2, 2, num_items=4).sample(jax.random.key(0)).hierarchy
    found = beyond.two_levels(given).backend.hierarchy
    assert [level.name for level in found.levels] == ["item", "action"]
    mixing = given["item"].parents["effect"]
    variance = 1.0 + 3.0 * np.sum(np.asarray(mixing) ** 2, 1)
    expected = variance[:, None, None] * np.eye(2)
    np.testing.assert_allclose(found["item"].cov, expected, rtol=1e-5)
    assert found.actions is given.actions


def test_numbers_instead_of_matrices():
    given = SyntheticProblem(6, 2, 3, matrix_weights=True).sample(jax.random.key(0)).hierarchy
    found = beyond.coarse(given).backend.hierarchy
    maps = np.asarray(given.actions.parents["effect"])
    assert maps.shape == (6, 2, 3, 3)
    expected = (maps[..., 0, 0] + maps[..., 1, 1] + maps[..., 2, 2]) / 3
    np.testing.assert_allclose(found.actions.parents["effect"], expected, rtol=1e-6)
    np.testing.assert_array_equal(found.actions.cov, given.actions.cov)


def test_effects_without_their_link():
    given = SyntheticProblem(6, 2, 2, link=jnp.tanh).sample(jax.random.key(0)).hierarchy
    found = beyond.without_link(given).backend.hierarchy
    assert found.actions.link is None
    assert found.why_not_exact is None
    np.testing.assert_array_equal(found.actions.parents["effect"], given.actions.parents["effect"])
