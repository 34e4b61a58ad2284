"""`ClosedForm` says why it does not take a hierarchy, and what does."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from mistakes import as_a_user
from mixts.inference import ClosedForm
from mixts.models import Gaussian, Hierarchy, Level, Sparse, glm, nonlinear

ONES = np.ones((3, 2))


def two_levels(effect=None, action=None, noise=1.0):
    action = {"parents": {"genre": ONES}} | (action or {})
    levels = [Level("genre", 2, **(effect or {})), Level("movie", 3, **action)]
    return Hierarchy(levels, Gaussian(noise), 2)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (
            lambda: glm(ONES, 2),
            "reward is Bernoulli, not Gaussian.*use ExpectationPropagation, Laplace, Nuts",
        ),
        (lambda: nonlinear(ONES, 2), "level 'action' has a link.*use Laplace, Nuts or Svi"),
        (
            lambda: two_levels(effect={"scale": dist.HalfNormal(1.0)}),
            "level 'genre' learns its scale.*use Collapsed, Nuts or Svi",
        ),
        (
            lambda: two_levels(action={"parents": {"genre": dist.Normal(jnp.zeros((3, 2)), 1.0)}}),
            "level 'movie' learns its weights for 'genre'.*use Collapsed, Nuts or Svi",
        ),
        (
            lambda: two_levels(
                effect={"family": lambda m, T: dist.MultivariateStudentT(4.0, m, T)}
            ),
            "level 'genre' has a family of its own.*use Nuts or Svi",
        ),
        (
            lambda: two_levels(noise=dist.HalfNormal(1.0)),
            "noise is learned.*use Collapsed, Nuts or Svi",
        ),
    ],
)
def test_no_closed_form(declare, message):
    with pytest.raises(
        ValueError, match=f"ClosedForm needs a linear-Gaussian hierarchy: .*{message}"
    ):
        ClosedForm(declare())


@pytest.mark.parametrize("given", [None, "linear", 3, [Level("action", 3)]])
def test_not_a_hierarchy(given):
    with as_a_user(), pytest.raises(TypeError, match=r"ClosedForm: got .*; expected a Hierarchy"):
        ClosedForm(given)


def many_effects(count: int, dim: int) -> Hierarchy:
    parents = {"effect": Sparse([[0], [count - 1]], [[1.0], [1.0]])}
    action = Level("action", 2, parents=parents, branching=False)
    return Hierarchy([Level("effect", count), action], Gaussian(1.0), dim)


@pytest.mark.parametrize(("x64", "memory"), [(False, r"596\.0 GiB"), (True, r"1,192\.1 GiB")])
def test_too_many_effects(x64, memory):
    """The message has the memory it would take in the current precision, and what to use instead."""
    with jax.enable_x64(x64):
        hierarchy = many_effects(100_000, 4)
        with pytest.raises(
            ValueError, match=rf"400,000 numbers.*{memory}.*at most 2 GiB.*use Factored"
        ):
            ClosedForm(hierarchy)


def test_too_many_vectors_in_deeper_levels():
    """`Factored` takes two levels only, so another backend is named."""
    one = Sparse(np.zeros((100_000, 1), int), np.ones((100_000, 1)))
    item = Level("item", 100_000, parents={"effect": one})
    two = Sparse([[0, 1], [99_999, 1]], np.ones((2, 2)))
    action = Level("action", 2, parents={"item": two})
    hierarchy = Hierarchy([Level("effect", 1), item, action], Gaussian(1.0), 2)
    with pytest.raises(ValueError, match=r"100,001 vectors x 2.*use Svi"):
        ClosedForm(hierarchy)


def test_only_what_is_kept_jointly_counts():
    """A tree stands below two levels that cross: its 10,050 vectors are no part of what does not fit."""
    two = Sparse(np.arange(100).reshape(50, 2), num_parents=30_000)
    kind = Level("kind", 50, parents={"brand": two, "style": two})
    item = Level("item", 10_000, parents={"kind": Sparse(np.arange(10_000)[:, None] % 50)})
    tops = [Level("brand", 30_000), Level("style", 30_000)]
    with pytest.raises(ValueError, match=r"of 'brand', 'style', 60,000 vectors x 1"):
        ClosedForm(Hierarchy([*tops, kind, item], Gaussian(1.0), 1))


def test_as_many_effects_as_fit():
    """Just below the limit nothing is refused: 2,000 effects of two numbers take 64 MB."""
    backend = ClosedForm(many_effects(2000, 2))
    state = backend.update(backend.init(), [1.0, 0.0], 1, 1.0)
    # N(0, 1 + 1) prior, noise 1: the posterior mean is 2 / 3, of which the effect has half.
    posterior = backend.posterior(state)
    np.testing.assert_allclose(posterior.mean["action"][1], [2 / 3, 0.0], atol=1e-6)
    np.testing.assert_allclose(posterior.mean["effect"][-1], [1 / 3, 0.0], atol=1e-6)
    assert not np.any(posterior.mean["effect"][:-1])
