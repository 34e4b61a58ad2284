"""`best_backend` picks the cheapest correct backend and says why."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from mistakes import as_a_user
from mixts.inference import ClosedForm, Factored, Laplace, Nuts, Svi, best_backend
from mixts.models import Bernoulli, Gaussian, Hierarchy, Level, Sparse, glm, linear, nonlinear

WEIGHTS = np.ones((4, 2))


def slates(levels: int) -> Hierarchy:
    """Far more effects than a joint covariance can hold."""
    one = Sparse(np.arange(60_000)[:, None], np.ones((60_000, 1)))
    middle = [
        Level(f"item{i}", 60_000, parents={f"item{i - 1}": one}) for i in range(1, levels - 1)
    ]
    last = Level("action", 60_000, parents={f"item{levels - 2}": one})
    return Hierarchy([Level("item0", 60_000), *middle, last], Gaussian(), 1)


@pytest.mark.parametrize(
    ("hierarchy", "kind", "reason"),
    [
        (linear(WEIGHTS, 2), ClosedForm, "exact"),
        (glm(WEIGHTS, 2), Laplace, "Bernoulli"),
        (nonlinear(WEIGHTS, 2), Laplace, "link"),
        (slates(2), Factored, "GiB"),
        (slates(3), Svi, "GiB"),
        (
            Hierarchy([Level("a", 4, scale=dist.HalfNormal(1.0))], Gaussian(), 1),
            Nuts,
            "learns its scale",
        ),
        (
            Hierarchy(
                [Level("e", 2), Level("a", 4, parents={"e": WEIGHTS}, link=jnp.tanh)],
                Bernoulli(),
                1,
            ),
            Nuts,
            "link",
        ),
    ],
    ids=["linear", "clicks", "link", "many", "many and deep", "learned scale", "link and clicks"],
)
def test_the_cheapest_correct_one(hierarchy, kind, reason):
    choice = best_backend(hierarchy)
    assert type(choice.backend) is kind
    assert reason in choice.why


def test_only_hierarchies():
    with as_a_user(), pytest.raises(TypeError, match="expected a Hierarchy"):
        best_backend(3)
