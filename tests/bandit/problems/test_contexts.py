"""Laws of contexts: where their points lie, their moments, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mistakes import cases, check_refused
from mixts.bandit import Box, Contexts, Drawn, Sphere, Table
from mixts.bandit.problems.contexts import as_contexts

N = 20_000
ROWS = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.0]])


def draws(law: Contexts, n: int = N) -> np.ndarray:
    return np.asarray(jax.jit(jax.vmap(law.draw))(jax.random.split(jax.random.key(0), n)), float)


def assert_means(found: np.ndarray, mean, variance) -> None:
    """Means over draws within five of their standard errors, `sqrt(variance / n)`."""
    error = np.sqrt(np.asarray(variance) / len(found))
    assert np.all(np.abs(found.mean(0) - mean) < 5 * error + 1e-12)


def assert_uniform(found: np.ndarray, low, high) -> None:
    """All within, right up to the walls, with the moments of a uniform law."""
    low, high = np.broadcast_to(low, found.shape[1:]), np.broadcast_to(high, found.shape[1:])
    width = high - low
    assert np.all((found >= low) & (found <= high))
    # The least of n uniform numbers is above low + 20 width / n with probability exp(-20).
    assert np.all(found.min(0) < low + 20 * width / len(found))
    assert np.all(found.max(0) > high - 20 * width / len(found))
    assert_means(found, (low + high) / 2, width**2 / 12)
    # The square of a number uniform on [-1/2, 1/2] has mean 1/12 and variance 1/180.
    assert_means(((found - (low + high) / 2) / width) ** 2, 1 / 12, 1 / 180)


@pytest.mark.usefixtures("precision")
def test_a_box_is_uniform():
    assert_uniform(draws(Box(3)), -1.0, 1.0)
    assert_uniform(draws(Box(2, 0.0, 5.0, rows=3)), 0.0, 5.0)
    low, high = np.array([0.0, -3.0]), np.array([0.5, 4.0])
    assert_uniform(draws(Box(2, low, high)), low, high)


def test_points_are_of_the_precision_that_is_on(precision):
    key = jax.random.key(0)
    for law in (
        Box(2),
        Sphere(2),
        Table(ROWS),
        Drawn(lambda key: jax.random.randint(key, 2, 0, 9)),
    ):
        assert law.draw(key).dtype == precision


@pytest.mark.parametrize("rows", [None, 4])
def test_a_sphere_is_uniform(rows):
    """Of a radius each, with mean zero and covariance `radius^2 / d`, as symmetry has it."""
    found = draws(Sphere(3, 2.0, rows=rows)).reshape(N, -1, 3)
    np.testing.assert_allclose(np.linalg.norm(found, axis=-1), 2.0, rtol=1e-5)
    assert_means(found, 0.0, 4 / 3)
    # A coordinate x of the unit sphere has E x^2 = 1/3 and E x^4 = 1/5; xy has E (xy)^2 = 1/15.
    assert_means((found / 2.0) ** 2, 1 / 3, 1 / 5 - 1 / 9)
    assert_means(found[..., 0] * found[..., 1] / 4.0, 0.0, 1 / 15)


@pytest.mark.parametrize("law", [Box(2, rows=3), Sphere(2, rows=3)], ids=["box", "sphere"])
def test_rows_of_actions_are_independent(law):
    found = draws(law)
    spread = found.var(0)
    assert_means(found[:, 0] * found[:, 1], 0.0, spread[0] * spread[1])


def test_rows_of_a_table_are_drawn_equally_often():
    found = draws(Table(ROWS))
    for row in ROWS:
        assert_means((found == row).all(-1), 1 / 3, 2 / 9)
    blocks = np.arange(24.0).reshape(4, 3, 2)
    found = draws(Table(blocks), 200)
    assert {tuple(block.ravel()) for block in found} == {tuple(block.ravel()) for block in blocks}


def test_a_function_is_the_law_it_draws():
    law = as_contexts(lambda key: jnp.array([1.0, jax.random.normal(key)]), 2, 5, "Here")
    found = draws(law)
    assert np.all(found[:, 0] == 1.0)
    assert_means(found[:, 1], 0.0, 1.0)
    assert_means(found[:, 1] ** 2, 1.0, 2.0)


def test_what_a_user_may_write():
    assert isinstance(as_contexts(None, 2, 3, "Here"), Box)
    assert isinstance(as_contexts(ROWS, 2, 3, "Here"), Table)
    assert isinstance(as_contexts(ROWS.tolist(), 2, 3, "Here"), Table)
    law = Sphere(2, rows=3)
    assert as_contexts(law, 2, 3, "Here") is law
    assert as_contexts(None, 2, 3, "Here").draw(jax.random.key(0)).shape == (2,)
    assert isinstance(as_contexts(lambda key: [1.0, 2.0], 2, 3, "Here"), Drawn)


def test_laws_are_pytrees():
    """Numbers are leaves, so a law may be made inside `jit`."""
    point = jax.jit(lambda law, key: law.draw(key))
    for law in (Box(2, -2.0, 3.0), Sphere(2, 0.5), Table(ROWS)):
        np.testing.assert_allclose(point(law, jax.random.key(1)), law.draw(jax.random.key(1)))
    inside = jax.jit(lambda high: Box(1, 0.0, high).draw(jax.random.key(0)))
    np.testing.assert_allclose(inside(2.0), 2 * inside(1.0), rtol=1e-6)


LAWS = {
    "an empty box": (lambda: Box(2, 1.0, 1.0), ValueError, ["expected low below high"]),
    "a box inside out": (lambda: Box(2, [0.0, 2.0], [1.0, 1.0]), ValueError, ["low below high"]),
    "walls of another width": (
        lambda: Box(2, [0.0, 0.0, 0.0]),
        ValueError,
        ["Box low", "(3,)", "(2,)"],
    ),
    "an infinite box": (lambda: Box(2, 0.0, np.inf), ValueError, ["Box high", "inf"]),
    "no dimension": (lambda: Box(0), ValueError, ["Box dim", "at least 1"]),
    "no rows": (lambda: Box(2, rows=0), ValueError, ["Box rows", "at least 1"]),
    "no radius": (lambda: Sphere(2, 0.0), ValueError, ["radius is 0.0", "positive"]),
    "a negative radius": (lambda: Sphere(2, -1.0), ValueError, ["positive"]),
    "many radii": (lambda: Sphere(2, [1.0, 2.0]), ValueError, ["positive number"]),
    "half a dimension": (lambda: Sphere(1.5), ValueError, ["Sphere dim"]),
    "an empty table": (lambda: Table(np.zeros((0, 2))), ValueError, ["(0, 2)", "(n, d)"]),
    "a list as a table": (lambda: Table([1.0, 2.0]), ValueError, ["(2,)", "(n, d)"]),
    "words as a table": (lambda: Table("rows"), TypeError, ["Table rows", "numbers"]),
    "NaN in a table": (lambda: Table([[1.0, np.nan]]), ValueError, ["finite"]),
    "no function": (lambda: Drawn(3), TypeError, ["expected a function"]),
}
USES = {
    "a table too wide": (
        lambda: as_contexts(np.ones((4, 3)), 2, 5, "SyntheticProblem"),
        ValueError,
        ["SyntheticProblem contexts have shape (3,)", "(2,)", "(5, 2)"],
    ),
    "rows of other actions": (
        lambda: as_contexts(Box(2, rows=4), 2, 5, "Here"),
        ValueError,
        ["(4, 2)", "(5, 2)"],
    ),
    "a function of a number": (
        lambda: as_contexts(lambda key: jax.random.normal(key), 2, 5, "Here"),
        ValueError,
        ["shape ()", "(2,)"],
    ),
    "words": (lambda: as_contexts("box", 2, 5, "Here"), TypeError, ["expected a number"]),
}


@cases(law=LAWS, use=USES)
def test_wrong_laws_are_refused(declare, error, parts):
    check_refused(declare, error, parts)
