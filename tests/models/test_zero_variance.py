"""A variance of zero: vectors are exactly what their parents say, in every exact backend."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from mixts.inference import ClosedForm, ExpectationPropagation, log_evidence
from mixts.models import Data, Gaussian, Hierarchy, Level
from sampling import unoptimised

D, N, NOISE = 2, 40, 0.8
A, B = np.tile(np.eye(3), (2, 1)), np.repeat(np.eye(2), 3, axis=0)
COV_A, COV_B = np.array([0.7, 0.3]), np.array([0.5, 0.0])  # b has no effect on the second number


@pytest.fixture(autouse=True)
def compile_quickly():
    with unoptimised():
        yield


def declared(own: list[float]) -> Hierarchy:
    levels = [
        Level("a", 3, mean=0.3, cov=COV_A),
        Level("b", 2, cov=COV_B),
        Level("item", 6, parents={"a": A, "b": B}, cov=np.array(own)),
    ]
    return Hierarchy(levels, Gaussian(NOISE), D)


def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(N, D)), rng.integers(0, 6, N), rng.normal(size=N)


def dense(own: list[float]) -> tuple[np.ndarray, np.ndarray, float]:
    """Means and covariances of the items, and the log evidence, by conditioning all numbers jointly."""
    contexts, actions, rewards = rows()
    prior = np.diag(np.concatenate([np.tile(COV_A, 3), np.tile(COV_B, 2), np.tile(own, 6)]))
    mean = np.concatenate([np.full(6, 0.3), np.zeros(16)])
    items = np.hstack([np.kron(A, np.eye(D)), np.kron(B, np.eye(D)), np.eye(12)])
    H = np.stack([x @ items[a * D : a * D + D] for x, a in zip(contexts, actions, strict=True)])
    S = H @ prior @ H.T + NOISE**2 * np.eye(N)
    gain, residual = np.linalg.solve(S, H @ prior).T, rewards - H @ mean
    cov = items @ (prior - gain @ H @ prior) @ items.T
    blocks = np.array([cov[D * k : D * k + D, D * k : D * k + D] for k in range(6)])
    quadratic = residual @ np.linalg.solve(S, residual) + np.linalg.slogdet(S)[1]
    evidence = -0.5 * (quadratic + N * np.log(2 * np.pi))
    return (items @ (mean + gain @ residual)).reshape(6, D), blocks, evidence


@pytest.mark.parametrize("own", [[0.0, 0.0], [0.2, 0.0]], ids=["none", "intercept alone"])
@pytest.mark.parametrize("backend", [ClosedForm, ExpectationPropagation])
def test_it_is_dense_conditioning(own, backend, x64):
    contexts, actions, rewards = rows()
    mean, cov, evidence = dense(own)
    exact = backend(declared(own))
    state = exact.init()
    for x, a, y in zip(contexts, actions, rewards, strict=True):
        state = exact.update(state, x, int(a), float(y))
    for after in (state, exact.condition(exact.init(), contexts, actions, rewards)):
        posterior = exact.posterior(after)
        np.testing.assert_allclose(posterior.mean["item"], mean, atol=1e-9)
        np.testing.assert_allclose(posterior.cov["item"], cov, atol=1e-9)
        assert float(posterior.log_evidence) == pytest.approx(evidence, abs=1e-9)
    draw = exact.sample(jax.random.key(0), state)
    apart = draw["item"] - A @ draw["a"] - B @ draw["b"]
    assert np.abs(np.asarray(apart)[:, np.array(own) == 0]).max() < 1e-12
    data = Data(contexts, actions, rewards)
    assert float(log_evidence(declared(own), data)) == pytest.approx(evidence, abs=1e-9)


def test_in_float32_too():
    mean, cov, _ = dense([0.0, 0.0])
    exact = ClosedForm(declared([0.0, 0.0]))
    posterior = exact.posterior(exact.condition(exact.init(), *rows()))
    np.testing.assert_allclose(posterior.mean["item"], mean, atol=1e-5)
    np.testing.assert_allclose(posterior.cov["item"], cov, atol=1e-5)


def test_the_program_draws_sums_of_parents():
    hierarchy = declared([0.0, 0.0])
    assert not hierarchy["item"].centered
    draw = hierarchy.sample_prior(jax.random.key(1))
    np.testing.assert_allclose(draw["item"], A @ draw["a"] + B @ draw["b"], atol=1e-6)
    with pytest.raises(ValueError, match="has no density"):
        Level("item", 3, cov=0.0, centered=True)
    with pytest.raises(ValueError, match="holds the variance -1"):
        Hierarchy([Level("item", 3, cov=-1.0)], Gaussian(), 1)


def test_some_coordinates_of_a_learned_scale_may_be_zero():
    """As of effects that do not vary along some numbers of a context."""
    level = Level("item", 3, scale=[dist.HalfNormal(1.0), 0.0])
    hierarchy = Hierarchy([level], Gaussian(), 2)
    draw = hierarchy.sample_prior(jax.random.key(0))["item"]
    assert (np.asarray(draw)[:, 0] != 0).all()
    np.testing.assert_array_equal(draw[:, 1], 0.0)
    (name,) = hierarchy.unknowns.laws
    known = hierarchy.unknowns.given({name: jnp.asarray(2.0)})
    np.testing.assert_allclose(known["item"].cov, [4.0, 0.0])
