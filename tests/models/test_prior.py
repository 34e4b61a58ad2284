"""Draws from the prior have the moments that the declaration implies.

The mean and covariance of all vectors of all levels, stacked, are computed in NumPy. A draw's mean
and products are averages of n = 200,000 independent numbers, so each is compared within 5 standard
errors, estimated from the draws themselves. With about 20 numbers in a hierarchy there are some 230
comparisons: by Bonferroni a correct program fails with probability below 230 * 6e-7 = 1.4e-4, over
the choice of the key, which is fixed.
"""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

from hierarchies import Few, Group, Model, covariance
from mixts.models import Gaussian, Hierarchy, Level, glm
from scipy_density import moments

NUM_DRAWS, CHUNK = 200_000, 50_000
STANDARD_ERRORS = 5.0


def draw(hierarchy: Hierarchy, seed: int = 0) -> np.ndarray:
    """Prior draws of all levels, stacked from top to bottom: (draws, numbers)."""
    sample = jax.jit(jax.vmap(lambda key: hierarchy.sample_prior(key)))
    chunks = []
    for key in jax.random.split(jax.random.key(seed), NUM_DRAWS // CHUNK):
        drawn = sample(jax.random.split(key, CHUNK))
        levels = [np.asarray(drawn[level.name], np.float64) for level in hierarchy.levels]
        chunks.append(np.concatenate([level.reshape(CHUNK, -1) for level in levels], axis=1))
    return np.concatenate(chunks)


def check_moments(draws: np.ndarray, mean: np.ndarray, cov: np.ndarray) -> None:
    def errors(numbers, expected):
        standard_error = numbers.std(axis=0) / np.sqrt(len(numbers))
        return np.abs(numbers.mean(axis=0) - expected) / standard_error

    assert errors(draws, mean).max() < STANDARD_ERRORS
    centred = draws - mean
    for i in range(len(mean)):
        products = centred[:, i : i + 1] * centred[:, i:]
        assert errors(products, cov[i, i:]).max() < STANDARD_ERRORS


def crossed(rng, df=None) -> Model:
    """Studios above directors, genres beside them, films below all by weights of each form."""
    return Model(
        [
            Group(
                "studio", 2, mean=rng.normal(size=(2, 2)), cov=covariance("joint", 2, 2, rng), df=df
            ),
            Group("genre", 2, mean=0.5, cov=covariance("matrices", 2, 2, rng), df=df),
            Group(
                "director",
                2,
                parents={"studio": rng.normal(size=(2, 2))},
                mean=rng.normal(size=2),
                cov=covariance("diagonal", 2, 2, rng),
                df=df,
            ),
            Group(
                "film",
                4,
                parents={
                    "director": Few(np.array([[1], [0], [1], [0]]), rng.normal(size=(4, 1))),
                    "genre": rng.normal(size=(4, 2, 2, 2)),
                    "studio": rng.normal(size=(4, 2)),
                },
                cov=covariance("matrix", 4, 2, rng),
                df=df,
            ),
        ],
        2,
    )


@pytest.mark.parametrize("centered", [True, False], ids=["centred", "non-centred"])
@pytest.mark.parametrize(
    "df",
    [
        pytest.param(None, id="Gaussian"),
        pytest.param(9.0, id="Student-t", marks=pytest.mark.slow),
    ],
)
def test_moments_of_a_crossed_hierarchy(df, centered):
    """A Student t of nu degrees of freedom has nu / (nu - 2) times its scale matrix as covariance.

    With nu = 9 its eighth moments are finite, so that the standard errors of products are reliable.
    """
    model = crossed(np.random.default_rng(0), df)
    check_moments(draw(model.with_centered(centered).hierarchy()), *moments(model))


@pytest.mark.parametrize("centered", [True, False], ids=["centred", "non-centred"])
def test_moments_with_learned_scale_and_weights(centered):
    """One effect of variance 1 around 2, weight w ~ N(1, 1/4), scale s ~ HalfNormal(1.5).

    E[theta] = E[w] E[psi] = 2; Var theta = E[w^2] E[psi^2] - 4 + E[s^2] = 1.25 * 5 - 4 + 1.5^2;
    Cov(psi, theta) = E[w] Var psi = 1. The two actions share psi only:
    Cov(theta_1, theta_2) = E[w]^2 Var psi = 1, by independent weights, for a scale of either.
    """
    hierarchy = Hierarchy(
        [
            Level("effect", 1, mean=2.0),
            Level(
                "action",
                2,
                parents={"effect": dist.Normal(1.0, 0.5)},
                scale=dist.HalfNormal(1.5),
                centered=centered,
            ),
        ],
        Gaussian(),
        1,
    )
    variance = 1.25 * 5.0 - 4.0 + 1.5**2
    cov = np.array([[1.0, 1.0, 1.0], [1.0, variance, 1.0], [1.0, 1.0, variance]])
    check_moments(draw(hierarchy), np.full(3, 2.0), cov)


def test_the_check_can_fail():
    """It sees a variance that is off by 3%, and a mean that is off by 0.02 standard deviations."""
    draws = np.random.default_rng(0).normal(size=(NUM_DRAWS, 2))
    check_moments(draws, np.zeros(2), np.eye(2))
    with pytest.raises(AssertionError):
        check_moments(draws, np.zeros(2), np.diag([1.0, 1.03]))
    with pytest.raises(AssertionError):
        check_moments(draws, np.full(2, 0.02), np.eye(2))


def test_a_draw_is_a_dict_of_levels(precision):
    hierarchy = glm(np.ones((4, 3)), 2)
    drawn = hierarchy.sample_prior(jax.random.key(0))
    assert {name: value.shape for name, value in drawn.items()} == {
        "effect": (3, 2),
        "action": (4, 2),
    }
    assert {value.dtype for value in drawn.values()} == {precision}
