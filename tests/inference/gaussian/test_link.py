"""Laplace with a link on the actions: effects at their mode, actions integrated out exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from mistakes import as_a_user
from mixts.inference import ClosedForm, Laplace, Trouble
from mixts.models import Bernoulli, Data, Gaussian, Hierarchy, Level, nonlinear

K, L, D, N, NOISE, ACTION_COV = 6, 2, 2, 60, 0.4, 0.3


@pytest.fixture
def problem(x64):
    rng = np.random.default_rng(0)
    weights = rng.uniform(-1, 1, (K, L))
    hierarchy = nonlinear(
        weights, D, effect_cov=1.5, effect_mean=0.3, action_cov=ACTION_COV, noise=NOISE
    )
    contexts = rng.uniform(-1, 1, (N, D))
    actions = rng.integers(0, K - 1, N)  # the last action is never taken
    theta = np.asarray(hierarchy.sample_prior(jax.random.key(1))["action"])
    rewards = np.sum(contexts * theta[actions], axis=1) + NOISE * rng.normal(size=N)
    return hierarchy, weights, Data(contexts, actions, rewards)


def log_density_of_effects(weights, data, psi) -> float:
    """Prior times the rewards' density with the actions integrated out, written independently."""
    contexts, actions, rewards = (np.asarray(part) for part in data)
    value = multivariate_normal(np.full(L * D, 0.3), 1.5 * np.eye(L * D)).logpdf(psi.ravel())
    centres = 1 / (1 + np.exp(-weights @ psi))
    for action in range(K):
        x, y = contexts[actions == action], rewards[actions == action]
        if len(y):
            cov = ACTION_COV * x @ x.T + NOISE**2 * np.eye(len(y))
            value += multivariate_normal(x @ centres[action], cov).logpdf(y)
    return value


def gradient_and_hessian(function, at, step=1e-3):
    """Central differences, at O(step^2)."""
    n = at.size
    moves = step * np.eye(n).reshape(n, *at.shape)
    gradient = np.array([function(at + m) - function(at - m) for m in moves]) / (2 * step)
    hessian = np.array(
        [
            [
                function(at + a + b)
                - function(at + a - b)
                - function(at - a + b)
                + function(at - a - b)
                for a in moves
            ]
            for b in moves
        ]
    ) / (4 * step**2)
    return gradient, hessian


def test_effects_are_at_the_mode_with_its_curvature(problem):
    hierarchy, weights, data = problem
    backend = Laplace(hierarchy)
    state = backend.condition(backend.init(), *data)
    posterior = backend.posterior(state)
    mode = np.asarray(posterior.mean["effect"])
    gradient, hessian = gradient_and_hessian(
        lambda psi: log_density_of_effects(weights, data, psi), mode
    )
    # Differences are exact to about 1e-6 of the third derivatives, which are of order one here.
    np.testing.assert_allclose(gradient, 0.0, atol=1e-5)
    blocks = np.einsum("ldle->lde", np.linalg.inv(-hessian).reshape(L, D, L, D))
    np.testing.assert_allclose(posterior.cov["effect"], blocks, rtol=1e-4, atol=1e-6)
    assert int(state.info.unconverged) == int(state.info.indefinite) == 0


def test_one_by_one_equals_all_at_once(problem):
    hierarchy, _, data = problem
    backend = Laplace(hierarchy)
    state = backend.init()
    step = jax.jit(lambda s, seen: (backend.update(s, *seen), None))
    one_by_one, _ = jax.lax.scan(step, state, tuple(data))
    at_once = backend.condition(state, *data)
    for level in ("effect", "action"):
        one, all_ = (backend.posterior(s) for s in (one_by_one, at_once))
        np.testing.assert_allclose(one.mean[level], all_.mean[level], atol=1e-6)
        np.testing.assert_allclose(one.cov[level], all_.cov[level], atol=1e-6)


def test_draws_of_actions_follow_the_link(problem):
    """Given effects, actions have the paper's closed form; an unseen one is `N(g(.), cov)`."""
    hierarchy, weights, data = problem
    backend = Laplace(hierarchy)
    draws = backend.posterior(backend.condition(backend.init(), *data)).draw(
        jax.random.key(0), 20_000
    )
    centre = jax.nn.sigmoid(jnp.einsum("l,nld->nd", weights[-1], draws["effect"]))
    residual = np.asarray(draws["action"][:, -1] - centre)
    # Independent N(0, ACTION_COV): five standard errors of a mean and of a variance.
    assert np.abs(residual.mean(0)).max() < 5 * np.sqrt(ACTION_COV / 20_000)
    assert np.abs(residual.var(0) / ACTION_COV - 1).max() < 5 * np.sqrt(2 / 20_000)


def test_an_identity_link_is_exact(x64):
    rng = np.random.default_rng(2)
    weights = rng.uniform(-1, 1, (K, L))
    linked = nonlinear(weights, D, link=lambda u: u)
    plain = nonlinear(weights, D).levels[0], Level("action", K, parents={"effect": weights})
    exact = Hierarchy(list(plain), Gaussian(1.0), D)
    data = rng.normal(size=(N, D)), rng.integers(0, K, N), rng.normal(size=N)
    approximate, closed = Laplace(linked), ClosedForm(exact)
    one = approximate.posterior(approximate.condition(approximate.init(), *data))
    other = closed.posterior(closed.condition(closed.init(), *data))
    for level in ("effect", "action"):
        np.testing.assert_allclose(one.mean[level], other.mean[level], atol=1e-8)
        np.testing.assert_allclose(one.cov[level], other.cov[level], atol=1e-8)


def flat_at_the_start(link):
    """Effects of mean zero under a link that is flat there, and rewards that call for a move."""
    rng = np.random.default_rng(3)
    weights = rng.uniform(-1, 1, (K, L))
    hierarchy = nonlinear(weights, D, link=link, action_cov=0.1, noise=0.3)
    psi = np.array([[-1.36, 0.94], [-0.42, 3.05]])
    theta = np.maximum(weights @ psi, 0) + np.sqrt(0.1) * rng.normal(size=(K, D))
    contexts, actions = rng.normal(size=(200, D)), rng.integers(0, K, 200)
    rewards = np.sum(contexts * theta[actions], axis=1) + 0.3 * rng.normal(size=200)
    return Laplace(hierarchy), Data(contexts, actions, rewards)


def test_a_link_that_is_flat_at_the_start(x64):
    """`relu` has no slope at zero; what a search from the rewards' own effects finds is found."""
    backend, data = flat_at_the_start(jax.nn.relu)
    posterior = backend.posterior(backend.condition(backend.init(), *data))
    assert str(posterior.status) == "ok"
    # The highest of 200 modes found from random starts; all of them are this one.
    found = np.asarray(posterior.mean["effect"]).ravel()
    np.testing.assert_allclose(found, [-1.2790, 1.2907, -0.6257, 0.1291], atol=1e-3)
    assert np.asarray(posterior.cov["effect"]).max() < 0.5, "the prior's are one"


def test_a_fit_that_cannot_move_is_a_status():
    """A link that is flat everywhere leaves the prior, and says so wherever a posterior is shown."""
    backend, data = flat_at_the_start(jnp.zeros_like)
    state = jax.jit(backend.condition)(backend.init(), *data)
    assert Trouble.UNMOVED in backend.status(state)
    assert "1 fits stayed where they started" in repr(backend.posterior(state))


def test_what_laplace_cannot_take():
    weights = np.ones((3, 2))
    effect = Level("effect", 2)
    with (
        as_a_user(),
        pytest.raises(ValueError, match=r"link and rewards are Bernoulli.*Nuts or Svi"),
    ):
        Laplace(
            Hierarchy(
                [effect, Level("a", 3, parents={"effect": weights}, link=jnp.tanh)], Bernoulli(), 1
            )
        )
    middle = Level("item", 3, parents={"effect": weights}, link=jnp.tanh)
    last = Level("a", 4, parents={"item": np.ones((4, 3))})
    with as_a_user(), pytest.raises(ValueError, match=r"'item' has a link; use Nuts or Svi"):
        Laplace(Hierarchy([effect, middle, last], Gaussian(), 1))
