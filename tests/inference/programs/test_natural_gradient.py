"""Natural gradients: the same steps in any coordinates, and none where the law is right."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mixts.inference.programs.natural_gradient import RADIUS, RootNormal, climb, lower_bound
from tolerance import tolerance

SIZE, DRAWS = 5, 8
RNG = np.random.default_rng(0)
ROOT = np.tril(RNG.normal(size=(SIZE, SIZE))) + 3.0 * np.eye(SIZE)
LOC = RNG.normal(size=SIZE)
NOISE = RNG.normal(size=(DRAWS, SIZE))


def slopes_of(loc, root, draws):
    """Of `-log N(loc, root root')`."""
    return np.linalg.solve(root @ root.T, (draws - loc).T).T


def started(loc=0.0, scale=1.0):
    return RootNormal(jnp.full(SIZE, loc), scale * jnp.eye(SIZE))


def stepped(law, noise, slopes, rate):
    return climb(law, jnp.asarray(noise), jnp.asarray(slopes), rate)


def draws_of(law, noise=NOISE):
    return np.asarray(law.loc + noise @ law.root.T)


def test_the_right_law_stays(x64):
    """For every handful of draws, not only on average."""
    right = RootNormal(jnp.asarray(LOC), jnp.asarray(ROOT))
    moved = stepped(right, NOISE, slopes_of(LOC, ROOT, draws_of(right)), 1.0)
    np.testing.assert_allclose(moved.loc, LOC, **tolerance())
    np.testing.assert_allclose(moved.root, ROOT, **tolerance())


def test_is_the_same_in_any_coordinates(x64):
    """A step, then `v -> shift + turn v`, is the step of the law and the density so transformed."""
    law = started(0.3, 0.5)
    turn = np.tril(RNG.normal(size=(SIZE, SIZE)), -1) + np.diag(RNG.uniform(0.1, 10.0, SIZE))
    shift = RNG.normal(size=SIZE)
    slopes = slopes_of(LOC, ROOT, draws_of(law))
    moved = stepped(law, NOISE, slopes, 0.5)
    other = RootNormal(jnp.asarray(shift + turn @ law.loc), jnp.asarray(turn @ law.root))
    found = stepped(other, NOISE, np.linalg.solve(turn.T, slopes.T).T, 0.5)
    np.testing.assert_allclose(found.loc, shift + turn @ moved.loc, **tolerance())
    np.testing.assert_allclose(found.root, turn @ moved.root, **tolerance())


def test_direction_is_the_natural_gradient(x64):
    """Small steps on average change the log root's diagonal by half and the rest by all of `I - A`.

    `A` is the precision of the density in the coordinates of the law. With 100,000 draws the errors
    of the average are below 0.03, where the entries are of order one.
    """
    law, rate, draws = started(), 1e-4, 100_000
    noise = np.random.default_rng(1).normal(size=(draws, SIZE))
    moved = stepped(law, noise, slopes_of(LOC, ROOT, draws_of(law, noise)), rate)
    step = rate * draws / (draws + SIZE + 1)
    found = np.asarray(moved.root - law.root) / step
    lacking = np.eye(SIZE) - np.linalg.inv(ROOT @ ROOT.T)
    expected = np.tril(lacking, -1) + 0.5 * np.diag(np.diag(lacking))
    np.testing.assert_allclose(found, expected, atol=0.03)


@pytest.mark.parametrize("size", [1, 5, 60])
@pytest.mark.parametrize("draws", [1, 8])
def test_finds_a_gaussian(size, draws, x64):
    """At half the stable step, however many unknowns there are to a draw.

    So much in a row that the error falls by `exp(-25)` if each step takes its share off it.
    """
    rng = np.random.default_rng(size)
    root = np.tril(rng.normal(size=(size, size)) / np.sqrt(size), -1)
    root += np.diag(rng.uniform(0.5, 2.0, size))
    loc = 3.0 * rng.normal(size=size)
    precision = np.linalg.inv(root @ root.T)

    @jax.jit
    def fitted(keys):
        def step(law, key):
            noise = jax.random.normal(key, (draws, size))
            slopes = (law.loc + noise @ law.root.T - loc) @ precision
            return climb(law, noise, slopes, 0.5), None

        start = RootNormal(jnp.zeros(size), 0.3 * jnp.eye(size))
        return jax.lax.scan(step, start, keys)[0]

    law = fitted(jax.random.split(jax.random.key(2), 500 + 50 * (draws + size + 1) // draws))
    np.testing.assert_allclose(law.loc, loc, atol=1e-2)
    np.testing.assert_allclose(law.root @ law.root.T, root @ root.T, rtol=1e-2, atol=1e-2)


def test_a_step_is_bounded(x64):
    """Slopes a million times too steep move the mean by no more than half a deviation."""
    law = started()
    moved = stepped(law, NOISE, 1e6 * slopes_of(LOC, ROOT, draws_of(law)), 1.0)
    assert np.linalg.norm(moved.loc - law.loc) == pytest.approx(RADIUS)
    assert np.all(np.diagonal(moved.root) > 0)
    below = np.tril(moved.root, -1)
    along = np.log(np.diagonal(moved.root))
    assert np.sqrt(np.sum(below**2) + 2 * np.sum(along**2)) == pytest.approx(RADIUS)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e300])
def test_a_draw_that_is_not_finite_changes_nothing(bad, x64):
    """Nor does one so steep that the length of a step is not finite."""
    law = started()
    slopes = slopes_of(LOC, ROOT, draws_of(law))
    slopes[2, 1] = bad
    moved = stepped(law, NOISE, slopes, 1.0)
    np.testing.assert_array_equal(moved.loc, law.loc)
    np.testing.assert_array_equal(moved.root, law.root)


def test_bound_is_the_evidence_where_the_law_is_right(x64):
    """For every handful of draws: `-U - log q` is constant there."""
    right, evidence = RootNormal(jnp.asarray(LOC), jnp.asarray(ROOT)), -7.25
    log_density = (
        -0.5 * np.sum(NOISE**2, axis=1)
        - 0.5 * SIZE * np.log(2 * np.pi)
        - np.linalg.slogdet(ROOT)[1]
    )
    bound = lower_bound(right, jnp.asarray(NOISE), jnp.asarray(-evidence - log_density))
    np.testing.assert_allclose(bound, evidence, **tolerance())
