"""Sufficient statistics hold all that rewards say, and the evidence from them is their density."""

import jax
import numpy as np

from dense_posterior import observation_rows
from hierarchies import Group, Model, Rows
from mixts.inference import log_evidence
from mixts.inference.gaussian.sufficient_statistics import add_reward, no_rewards, reward_statistics
from mixts.models import Data
from scipy_density import moments


def some_rows(n: int = 30, dim: int = 3, num_actions: int = 4):
    rng = np.random.default_rng(0)
    contexts = rng.normal(size=(n, dim))
    contexts[:, 2] = contexts[:, 0] + contexts[:, 1]
    return contexts, rng.integers(0, num_actions - 1, n), rng.normal(size=n)


def test_factors_are_square_roots_of_the_sums(precision):
    contexts, actions, rewards = some_rows()
    found = reward_statistics(contexts.astype(precision), actions, rewards.astype(precision), 4)
    rows = np.column_stack([contexts, rewards])
    for i, factor in enumerate(np.asarray(found.factors, float)):
        own = rows[actions == i]
        np.testing.assert_allclose(
            factor.T @ factor, own.T @ own, atol=100 * np.finfo(precision).eps
        )
        np.testing.assert_array_equal(factor, np.triu(factor))
        residual = own[:, -1] - own[:, :-1] @ np.linalg.lstsq(own[:, :-1], own[:, -1])[0]
        # The third column repeats the others: what is left of it is rounding, and so is what it takes
        # from the residuals.
        unexplained = np.linalg.norm(factor[2:, -1])
        np.testing.assert_allclose(
            unexplained, np.linalg.norm(residual), atol=100 * np.finfo(precision).eps
        )
    assert found.num_rewards == 30
    assert not np.asarray(found.factors[3]).any()


def test_one_by_one_and_rows_that_are_not_counted(x64):
    contexts, actions, rewards = some_rows(6)
    every = reward_statistics(contexts, actions, rewards, 4)
    step, one_by_one = jax.jit(add_reward), no_rewards(4, 3)
    for row in zip(contexts, actions, rewards, strict=True):
        one_by_one = step(one_by_one, *row)
        for wrong in (-1, 4):
            one_by_one = step(one_by_one, row[0], wrong, row[2])
    np.testing.assert_allclose(one_by_one.factors, every.factors, atol=1e-14)
    assert one_by_one.num_rewards == 6


def wide_and_collinear() -> Model:
    """An intercept and three treatments, all wide: only three of four effects are known apart."""
    weights = np.array([[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0]])
    effect, action = Group("effect", 4, cov=1e6), Group("action", 3, {"effect": weights}, cov=0.01)
    return Model([effect, action], 1, noise=0.1)


def test_wide_priors_of_collinear_effects(precision):
    """`V` has a condition number of 6e10, which leaves the dense reference six digits."""
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 3, 300)
    rewards = np.array([1.0, 2.0, 3.0])[actions] + 0.1 * rng.normal(size=300)
    model, seen = wide_and_collinear(), Rows(np.ones((300, 1)), actions, rewards)
    H, (_, cov) = observation_rows(model, seen.contexts, actions), moments(model)
    V = H @ cov @ H.T + 0.1**2 * np.eye(300)
    log_determinant = np.linalg.slogdet(2 * np.pi * V)[1]
    expected = -0.5 * (log_determinant + rewards @ np.linalg.solve(V, rewards))
    found = log_evidence(model.hierarchy(), Data(*seen))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_memory_does_not_grow_with_rows():
    """What the gradient of the evidence keeps, for 20 and for 2,000 rows of 50 actions under 40 effects."""

    def needed(n: int) -> int:
        rng = np.random.default_rng(0)
        weights = rng.normal(size=(50, 40))
        model = Model([Group("effect", 40), Group("action", 50, {"effect": weights})], 1)
        rows = np.ones((n, 1)), rng.integers(0, 50, n), rng.normal(size=n)

        def evidence(hierarchy, contexts, actions, rewards):
            return log_evidence(hierarchy, Data(contexts, actions, rewards))

        compiled = (
            jax.jit(jax.grad(evidence, allow_int=True)).lower(model.hierarchy(), *rows).compile()
        )
        used = compiled.memory_analysis()
        assert used is not None
        return used.temp_size_in_bytes

    few, many = needed(20), needed(2000)
    # A row may keep its own numbers; a matrix of 40 x 40 for each would take 12.8 MB more.
    assert many - few < 2000 * 8 * 20
