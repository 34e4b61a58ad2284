"""`best_backend` picks the cheapest correct backend and says why."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from known_posteriors import known
from mistakes import as_a_user
from mixts.inference import (
    ClosedForm,
    Collapsed,
    ExpectationPropagation,
    Factored,
    Laplace,
    Nuts,
    Svi,
    best_backend,
)
from mixts.inference.cost import round_cost
from mixts.models import Bernoulli, Gaussian, Hierarchy, Level, Sparse, glm, linear, nonlinear

WEIGHTS = np.ones((4, 2))


def slates(levels: int, width: int = 2) -> Hierarchy:
    """Far more effects than a joint covariance can hold, and `width` of them for each vector below."""
    indices = (np.arange(60_000)[:, None] + np.arange(width)) % 60_000
    some = Sparse(indices, np.ones(indices.shape))
    middle = [
        Level(f"item{i}", 60_000, parents={f"item{i - 1}": some}) for i in range(1, levels - 1)
    ]
    last = Level("action", 60_000, parents={f"item{levels - 2}": some})
    return Hierarchy([Level("item0", 60_000), *middle, last], Gaussian(), 1)


@pytest.mark.parametrize(
    ("hierarchy", "kind", "reason"),
    [
        (linear(WEIGHTS, 2), ClosedForm, "exact"),
        (glm(WEIGHTS, 2), ExpectationPropagation, "Bernoulli"),
        (nonlinear(WEIGHTS, 2), Laplace, "link"),
        (slates(2), Factored, "GiB"),
        (slates(3), Svi, "GiB"),
        (slates(3, width=1), ClosedForm, "exact"),
        (
            Hierarchy([Level("a", 4, scale=dist.HalfNormal(1.0))], Gaussian(), 1),
            Collapsed,
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
    ids=[
        "linear",
        "clicks",
        "link",
        "many",
        "many and deep",
        "tree",
        "learned scale",
        "link and clicks",
    ],
)
def test_the_cheapest_correct_one(hierarchy, kind, reason):
    choice = best_backend(hierarchy)
    assert type(choice.backend) is kind
    assert reason in choice.why


def test_the_reason_is_about_the_backend_that_was_chosen():
    """It does not advise to use three of them."""
    assert best_backend(glm(WEIGHTS, 2)).why.endswith("propagation matches the moments")
    assert best_backend(nonlinear(WEIGHTS, 2)).why.endswith("Laplace fits a Gaussian at the mode")
    scale = Hierarchy([Level("a", 4, scale=dist.HalfNormal(1.0))], Gaussian(), 1)
    assert best_backend(scale).why.endswith("over which particles mix")


def size(state) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


@pytest.mark.parametrize("K", [4, 300])
@pytest.mark.parametrize(
    "make",
    [
        lambda h: ClosedForm(linear(h, 3)),
        lambda h: Factored(linear(h, 3)),
        lambda h: Svi(linear(h, 3), capacity=100, guide="mean_field"),
        lambda h: Svi(linear(h, 3), capacity=100, guide="low_rank"),
        lambda h: Svi(linear(h, 3), capacity=100),
    ],
    ids=["exact", "factored", "mean field", "low rank", "full rank"],
)
def test_memory_is_that_of_a_state(make, K):
    backend = make(np.ones((K, 2)))
    told = round_cost(backend, 1000)
    measured = size(jax.eval_shape(partial(backend.init, room=1000)))
    # Svi's room doubles from its capacity on: 1600 rows, of which eval_shape makes the 1000 asked for.
    rows = 600 * (3 + 3) * 4 if isinstance(backend, Svi) else 0
    assert abs(told.bytes - rows - measured) < 0.05 * measured + 100


@pytest.mark.slow
def test_memory_of_chains_is_that_of_their_posterior():
    backend = Nuts(linear(np.ones((4, 2)), 3), capacity=1000, samples=50)
    state = jax.eval_shape(lambda: backend.posterior(backend.init()).state)
    assert abs(round_cost(backend, 1000).bytes / size(state) - 1) < 0.1


def test_operations_are_those_that_xla_counts():
    """About: XLA counts what it takes to draw normals too."""
    backend = ClosedForm(linear(np.ones((500, 3)), 4))

    def play(key, state, context):
        return backend.sample_scores(key, state, context), backend.update(state, context, 0, 1.0)

    lowered = jax.jit(play).lower(jax.random.key(0), backend.init(), jnp.ones(4))
    told = round_cost(backend, 1000).operations
    assert told is not None
    assert 0.4 < told / lowered.cost_analysis()["flops"] < 1.5


def test_only_kept_rewards_make_a_round_dearer():
    exact, clicks = (round_cost(make(WEIGHTS, 2), 10**6) for make in (_exact, _clicks))
    assert exact[:2] == round_cost(_exact(WEIGHTS, 2), 10)[:2]
    assert clicks.bytes > 10**6 * (2 + 2) * 4
    assert "state of" in str(clicks)
    assert "after 1,000,000 rewards" in str(clicks)
    assert str(best_backend(linear(WEIGHTS, 2))).startswith("ClosedForm: the hierarchy is linear")


def _exact(weights, dim):
    return ClosedForm(linear(weights, dim))


def _clicks(weights, dim):
    return Laplace(glm(weights, dim))


def test_a_backend_of_one_s_own_has_a_state_too():
    backend = known(linear(WEIGHTS, 2))
    assert round_cost(backend, 10) == (0, None, 10)
    assert str(round_cost(backend, 10)) == "a state of 0 bytes after 10 rewards"


def test_only_hierarchies():
    with as_a_user(), pytest.raises(TypeError, match="expected a Hierarchy"):
        best_backend(3)
