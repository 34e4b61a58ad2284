"""A hierarchy as a whole: its levels, and whether its posterior has a closed form."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings

from hierarchies import models
from mixts.models import (
    Bernoulli,
    Gaussian,
    Hierarchy,
    Level,
    Poisson,
    Sparse,
    glm,
    linear,
    nonlinear,
    three_level,
)

ONES = np.ones((3, 2))


def test_levels_by_name_and_place():
    hierarchy = three_level(ONES, np.ones((4, 3)), 2)
    assert [level.name for level in hierarchy.levels] == ["effect", "item", "action"]
    assert hierarchy["item"] is hierarchy.levels[1]
    assert "item" in hierarchy
    assert "movie" not in hierarchy
    assert hierarchy.actions is hierarchy.levels[-1]
    assert (hierarchy.num_actions, hierarchy.dim) == (4, 2)


@settings(max_examples=25)
@given(model=models(linear_gaussian=True))
def test_any_linear_gaussian_hierarchy_is_exact(model):
    assert model.hierarchy().why_not_exact is None


def declare(effect=None, action=None, reward=Gaussian(1.0)):
    levels = [
        Level("effect", 2, **(effect or {})),
        Level("action", 3, **({"parents": {"effect": ONES}} | (action or {}))),
    ]
    return Hierarchy(levels, reward, 2)


def student_t(loc, tril):
    return dist.MultivariateStudentT(4.0, loc, tril)


WHY_NOT = {
    "Bernoulli": (
        lambda: glm(ONES, 2),
        "the reward is Bernoulli, not Gaussian: no closed form; use ExpectationPropagation, Laplace, "
        "Nuts or Svi",
    ),
    "Poisson": (
        lambda: glm(ONES, 2, reward=Poisson()),
        "the reward is Poisson, not Gaussian: no closed form; use ExpectationPropagation, Laplace, "
        "Nuts or Svi",
    ),
    "link": (
        lambda: nonlinear(ONES, 2),
        "level 'action' has a link: no closed form; use Laplace, Nuts or Svi",
    ),
    "link and Bernoulli": (
        lambda: declare(action={"link": jnp.tanh}, reward=Bernoulli()),
        "level 'action' has a link: no closed form; use Nuts or Svi",
    ),
    "link and learned noise": (
        lambda: declare(action={"link": jnp.tanh}, reward=Gaussian(dist.HalfNormal())),
        "level 'action' has a link: no closed form; use Nuts or Svi",
    ),
    "family": (
        lambda: declare(effect={"family": student_t}),
        "level 'effect' has a family of its own: no closed form; use Nuts or Svi",
    ),
    "learned scale": (
        lambda: declare(effect={"scale": dist.HalfNormal()}),
        "level 'effect' learns its scale: no closed form; use Collapsed, Nuts or Svi",
    ),
    "learned scale below a link": (
        lambda: declare(action={"scale": dist.HalfNormal(), "link": jnp.tanh}),
        "level 'action' learns its scale: no closed form; use Nuts or Svi",
    ),
    "learned weights": (
        lambda: declare(action={"parents": {"effect": dist.Normal()}}),
        "level 'action' learns its weights for 'effect': no closed form; use Collapsed, Nuts or Svi",
    ),
    "learned Sparse weights": (
        lambda: declare(action={"parents": {"effect": Sparse([[0]] * 3, dist.Normal())}}),
        "level 'action' learns its weights for 'effect': no closed form; use Collapsed, Nuts or Svi",
    ),
    "learned noise": (
        lambda: linear(ONES, 2, noise=dist.HalfNormal()),
        "the reward's noise is learned: no closed form; use Collapsed, Nuts or Svi",
    ),
}


@pytest.mark.parametrize(("build", "sentence"), WHY_NOT.values(), ids=WHY_NOT)
def test_why_not_exact(build, sentence):
    assert build().why_not_exact == sentence


def test_a_non_centred_program_is_as_exact_as_a_centred_one():
    assert declare(effect={"centered": False}, action={"centered": False}).why_not_exact is None
