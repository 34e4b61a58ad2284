"""Rows outside the mask are padding: whatever they hold, they count for nothing."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpyro.infer.util import log_density

from hierarchies import Group, Model, half_normal, models, rows
from scipy_density import unknowns
from tolerance import tolerance

GARBAGE = {"contexts": np.nan, "actions": 10**12, "rewards": -np.inf}


def pad(observed, mask):
    """Spread the rows over the places where `mask` holds, with garbage between them."""
    padded = []
    for name, numbers in zip(GARBAGE, observed, strict=True):
        spread = np.full((mask.size, *numbers.shape[1:]), GARBAGE[name], numbers.dtype)
        spread[mask] = numbers
        padded.append(spread)
    return padded


def density_and_gradient(hierarchy, values, *observed, mask=None):
    def density(values):
        return log_density(hierarchy.program, observed, {"mask": mask}, values)[0]

    return jax.jit(jax.value_and_grad(density))(values)


@settings(max_examples=8)
@given(model=models(), mask=st.permutations([True] * 4 + [False] * 2))
def test_padding_changes_neither_density_nor_gradient(x64, model, mask):
    mask, rng = np.array(mask), np.random.default_rng(0)
    values, observed = unknowns(model, rng), rows(model, mask.sum(), rng)
    hierarchy = model.hierarchy()
    expected = density_and_gradient(hierarchy, values, *observed)
    found = density_and_gradient(hierarchy, values, *pad(observed, mask), mask=mask)
    # Equal but for the order of summation.
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13), found, expected
    )


@pytest.mark.parametrize("reward", ["gaussian", "bernoulli", "poisson"])
def test_padding_inside_jit(precision, reward):
    """The same where rows are traced, so that their values cannot be looked at."""
    rng = np.random.default_rng(1)
    model = Model([Group("action", 3)], 2, reward=reward)
    hierarchy, mask = model.hierarchy(), np.array([True, False, True, True, False])
    values, observed = unknowns(model, rng), rows(model, 3, rng)
    padded = pad(observed, mask)
    padded[1] = np.where(mask, padded[1], -7)

    @jax.jit
    def density(values, mask, *observed):
        return density_and_gradient(hierarchy, values, *observed, mask=mask)

    expected = density_and_gradient(hierarchy, values, *observed)
    found = density(values, mask, *padded)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance()), found, expected)


def test_an_empty_mask_leaves_the_prior(x64):
    rng = np.random.default_rng(2)
    model = Model([Group("action", 3, scale=half_normal((), rng))], 2)
    values, observed = unknowns(model, rng), rows(model, 3, rng)
    hierarchy, nothing = model.hierarchy(), rows(model, 0, rng)
    found = density_and_gradient(hierarchy, values, *observed, mask=np.zeros(3, bool))
    expected = density_and_gradient(hierarchy, values, *nothing)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
