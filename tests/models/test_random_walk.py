"""Steps of levels that drift."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.handlers import seed

from dense_drift import declared, step_covariance
from dense_posterior import observation_rows
from glm_models import two_levels
from mistakes import as_a_user
from mixts.models import Gaussian, Hierarchy, Level
from scipy_density import moments


@pytest.mark.parametrize("rounds", [1.0, 3.0])
def test_steps_have_the_covariance_that_was_declared(rounds):
    model = two_levels(0)
    drifts = {"zone": np.array([0.5, 0.1]), "item": 0.2 * np.eye(2) + 0.1}
    hierarchy = declared(model, drifts)
    now = hierarchy.sample_prior(jax.random.key(0))
    n = 20_000
    step = jax.jit(jax.vmap(lambda key: hierarchy.sample_step(key, now, rounds)))
    later = step(jax.random.split(jax.random.key(1), n))
    moved = jnp.concatenate([(later[k] - now[k]).reshape(n, -1) for k in ("zone", "item")], 1)
    cov = rounds * step_covariance(model, drifts)
    sd = np.sqrt(np.diagonal(cov))
    assert np.max(np.abs(moved.mean(0) / sd)) < 4.5 / np.sqrt(n)
    off = (np.cov(moved.T) - cov) / np.outer(sd, sd)
    assert np.max(np.abs(off)) < 5 * np.sqrt(2 / n)


def test_levels_that_do_not_drift_follow_their_parents():
    weights = [[1.0], [2.0]]
    levels = [Level("effect", 1, drift=1.0), Level("action", 2, parents={"effect": weights})]
    hierarchy = Hierarchy(levels, Gaussian(), dim=1)
    now = hierarchy.sample_prior(jax.random.key(0))
    later = hierarchy.sample_step(jax.random.key(1), now)
    by = later["effect"] - now["effect"]
    assert float(jnp.abs(by).min()) > 0
    np.testing.assert_allclose(later["action"] - now["action"], np.array(weights) @ by, rtol=1e-5)
    still = hierarchy.without_drift().sample_step(jax.random.key(1), now)
    assert jnp.array_equal(still["action"], now["action"])


def test_what_is_declared_is_shown_and_made_again():
    level = Level("movie", 3, drift=0.25)
    hierarchy = Hierarchy([level], Gaussian(), dim=1)
    assert "movie   3 x  Normal(0; cov 1, drift 0.25)" in repr(hierarchy)
    assert float(level.remade(cov=2.0).drift) == 0.25
    assert level.remade(drift=None).drift is None


def test_a_link_cannot_drift():
    levels = [
        Level("effect", 1),
        Level("action", 2, parents={"effect": [[1.0], [1.0]]}, link=jnp.tanh),
    ]
    levels[0] = levels[0].remade(drift=0.1)
    hierarchy = Hierarchy(levels, Gaussian(), dim=1)
    now = hierarchy.sample_prior(jax.random.key(0))
    with pytest.raises(ValueError, match="level 'action' has a link, and what drifts needs"):
        hierarchy.sample_step(jax.random.key(1), now)


def test_the_program_draws_rewards_of_different_rounds():
    """Their covariance is that of the dense Gaussian of all rounds."""
    model = two_levels(0)
    drifts = {"zone": np.array([0.5, 0.1]), "item": 0.2 * np.eye(2) + 0.1}
    hierarchy = declared(model, drifts)
    rng, n = np.random.default_rng(1), 20_000
    contexts, actions, rounds = rng.normal(size=(5, 2)), np.array([0, 1, 1, 3, 0]), [0, 0, 2, 3, 3]

    def draw(key):
        return seed(hierarchy.program, key)(contexts, actions, rounds=rounds)

    drawn = jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), n))
    H = observation_rows(model, contexts, actions)
    mean, prior = moments(model)
    shared = np.minimum.outer(rounds, rounds)
    cov = H @ prior @ H.T + shared * (H @ step_covariance(model, drifts) @ H.T)
    cov += model.noise**2 * np.eye(5)
    sd = np.sqrt(np.diagonal(cov))
    assert np.max(np.abs(drawn.mean(0) - H @ mean) / sd) < 4.5 / np.sqrt(n)
    assert np.max(np.abs(np.cov(drawn.T) - cov) / np.outer(sd, sd)) < 5 * np.sqrt(2 / n)


@pytest.mark.parametrize(
    ("rounds", "said"),
    [
        ([0], r"rounds have shape \(1,\); expected \(2,\)"),
        ([0, -1], "expected whole numbers from 0"),
        ([0, 0.5], "expected whole numbers from 0"),
    ],
)
def test_rounds_that_are_refused(rounds, said):
    hierarchy = Hierarchy([Level("action", 2, drift=0.1)], Gaussian(), dim=1)
    with as_a_user(), pytest.raises(ValueError, match=said):
        seed(hierarchy.program, 0)([[1.0], [1.0]], [0, 1], rounds=rounds)
