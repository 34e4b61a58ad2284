"""The program of any hierarchy has the density that its declaration says, computed by SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpyro import handlers

from check_density import check_density
from hierarchies import (
    COVARIANCES,
    KNOWN_WEIGHTS,
    LEARNED_WEIGHTS,
    Group,
    Model,
    covariance,
    gamma_event,
    half_normal,
    models,
    scale_shapes,
    weights,
)


@settings(max_examples=50)
@given(model=models(), seed=st.integers(0, 1000))
def test_any_hierarchy(x64, model, seed):
    check_density(model, seed)


def two_levels(rng, **action) -> Model:
    """Three effects and four actions of dimension two; `action` says how the actions differ."""
    given = {"parents": {"effect": rng.normal(size=(4, 3))}, **action}
    return Model([Group("effect", 3), Group("action", 4, **given)], 2)


@pytest.mark.parametrize("centered", [True, False], ids=["centred", "non-centred"])
@pytest.mark.parametrize("df", [None, 5.0], ids=["Gaussian", "Student-t"])
@pytest.mark.parametrize("form", COVARIANCES)
def test_every_form_of_covariance(x64, form, df, centered):
    rng = np.random.default_rng(1)
    top = Group("effect", 3, cov=covariance(form, 3, 2, rng), df=df, centered=centered)
    form = "matrix" if form == "joint" else form
    bottom = Group("action", 4, cov=covariance(form, 4, 2, rng), df=df, centered=centered)
    parents = {"effect": rng.normal(size=(4, 3))}
    check_density(Model([top, Group(**{**vars(bottom), "parents": parents})], 2))


@pytest.mark.parametrize("form", KNOWN_WEIGHTS + LEARNED_WEIGHTS)
def test_every_form_of_weights(x64, form):
    rng = np.random.default_rng(2)
    check_density(two_levels(rng, parents={"effect": weights(form, 4, 3, 2, rng)}))


@pytest.mark.parametrize("centered", [True, False], ids=["centred", "non-centred"])
@pytest.mark.parametrize("df", [None, 5.0], ids=["Gaussian", "Student-t"])
@pytest.mark.parametrize("shape", scale_shapes(4, 2), ids=str)
@pytest.mark.parametrize("law", [half_normal, gamma_event])
def test_every_shape_of_learned_scale(x64, shape, law, df, centered):
    rng = np.random.default_rng(3)
    check_density(two_levels(rng, scale=law(shape, rng), df=df, centered=centered))


@pytest.mark.parametrize("shape", [(), (2,), (4, 2)], ids=str)
@pytest.mark.parametrize("link", [None, "sigmoid", "tanh"])
def test_every_form_of_mean_with_and_without_a_link(x64, shape, link):
    """The intercept is added before the link."""
    rng = np.random.default_rng(4)
    check_density(two_levels(rng, mean=rng.normal(size=shape), link=link))


@pytest.mark.parametrize("reward", ["gaussian", "bernoulli", "poisson"])
def test_every_reward_family(precision, reward):
    check_density(Model([Group("action", 3)], 2, reward=reward, noise=0.7))


def test_learned_noise(precision):
    rng = np.random.default_rng(5)
    check_density(Model([Group("action", 3)], 2, noise=half_normal((), rng)))


def test_skipped_and_crossed_parents(precision):
    """The actions depend on genre and director, and on the studio above both directors and them."""
    rng = np.random.default_rng(6)
    model = Model(
        [
            Group("studio", 2),
            Group("genre", 3, mean=1.0),
            Group("director", 2, parents={"studio": rng.normal(size=(2, 2))}),
            Group(
                "action",
                4,
                parents={
                    "studio": rng.normal(size=(4, 2)),
                    "genre": rng.normal(size=(4, 3)),
                    "director": rng.normal(size=(4, 2)),
                },
            ),
        ],
        2,
    )
    check_density(model)


def test_no_observations_leave_the_prior(x64):
    check_density(Model([Group("action", 3)], 2), n=0)


def test_rewards_are_drawn_where_none_are_given(precision):
    """Draws have the law of the family: their mean is `f(x' theta)`, within 5 standard errors."""
    n = 20_000
    contexts, actions = np.ones((n, 1)), np.zeros(n, int)
    theta = jnp.full((1, 1), 0.4)
    # Mean and variance of a reward with predictor 0.4.
    expected = {
        "gaussian": (0.4, 0.25),
        "bernoulli": (1 / (1 + np.exp(-0.4)), np.exp(-0.4) / (1 + np.exp(-0.4)) ** 2),
        "poisson": (np.exp(0.4), np.exp(0.4)),
    }
    for reward, (mean, variance) in expected.items():
        model = Model([Group("action", 1)], 1, reward=reward, noise=0.5)
        program = handlers.substitute(model.hierarchy().program, {"action": theta})
        rewards = handlers.seed(program, jax.random.key(0))(contexts, actions)
        assert rewards.shape == (n,)
        error = abs(np.asarray(rewards, np.float64).mean() - mean)
        assert error < 5 * np.sqrt(variance / n), reward
