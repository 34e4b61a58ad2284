"""`Laplace` is exact where rewards are Gaussian, and elsewhere stands at the mode of the joint density."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

from backends import updated
from glm_models import STRUCTURES, errors_at_the_mode, simulate, two_levels
from mistakes import as_a_user
from mixts.inference import ClosedForm, Laplace
from mixts.models import Bernoulli, Gaussian, Hierarchy, Level
from sampling import unoptimised

N = 48


@pytest.fixture(autouse=True)
def compile_quickly():
    with unoptimised():
        yield


def moments(backend, state):
    posterior = backend.posterior(state)
    return posterior.mean, posterior.cov


@jax.jit
def at_once(hierarchy, seen):
    backend = Laplace(hierarchy, capacity=N)
    state = backend.condition(backend.init(), *seen)
    return *moments(backend, state), state.info.unconverged


@jax.jit
def one_by_one(hierarchy, seen):
    backend = Laplace(hierarchy, capacity=N)
    state = updated(backend, backend.init(), *seen)
    return *moments(backend, state), state.info.unconverged


@jax.jit
def exact(hierarchy, seen):
    backend = ClosedForm(hierarchy)
    return moments(backend, backend.condition(backend.init(), *seen))


@pytest.mark.parametrize("structure", STRUCTURES)
def test_gaussian_rewards_are_exact(structure, x64):
    """An expansion of a quadratic is the quadratic, wherever it is made."""
    model, seen = simulate(STRUCTURES[structure](), N, np.random.default_rng(0))
    expected = exact(model.hierarchy(), seen)
    for learn in (at_once, one_by_one):
        *found, unconverged = learn(model.hierarchy(), seen)
        assert int(unconverged) == 0
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("reward", ["bernoulli", "poisson"])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_condition_ends_at_the_mode(structure, reward, x64):
    """Sweeps over all actions settle at the mode, with the inverse of the joint Hessian around it."""
    model, seen = simulate(STRUCTURES[structure](), N, np.random.default_rng(1), reward)
    mean, cov, unconverged = at_once(model.hierarchy(), seen)
    assert int(unconverged) == 0
    assert max(errors_at_the_mode(model.hierarchy(), seen, mean, cov)) < 1e-8


def test_condition_in_float32():
    model, seen = simulate(two_levels(), N, np.random.default_rng(1), "bernoulli")
    mean, cov, unconverged = at_once(model.hierarchy(), seen)
    assert int(unconverged) == 0
    assert max(errors_at_the_mode(model.hierarchy(), seen, mean, cov)) < 1e-4


@pytest.mark.parametrize(
    ("structure", "reward"),
    [("two levels", "bernoulli"), ("three levels", "bernoulli"), ("crossed parents", "poisson")],
)
def test_updates_end_near_the_mode_in_any_order(structure, reward, x64):
    """An update expands its own action's likelihood; others keep expansions made when less was known.

    Measured here, over five orders each: means within 0.005 standard deviations of the mode,
    covariances within 5.6 per cent.
    """
    rng = np.random.default_rng(1)
    model, seen = simulate(STRUCTURES[structure](), N, rng, reward)
    hierarchy = model.hierarchy()
    for order in [np.arange(N), *(rng.permutation(N) for _ in range(4))]:
        ordered = type(seen)(*(column[order] for column in seen))
        mean, cov, unconverged = one_by_one(hierarchy, ordered)
        assert int(unconverged) == 0
        off, wrong = errors_at_the_mode(hierarchy, ordered, mean, cov)
        assert off < 0.01
        assert wrong < 0.08


# What it refuses ---------------------------------------------------------------------------------

ONES = np.ones((3, 2))


def declare(effect=None, action=None, reward=Bernoulli()):
    action = {"parents": {"zone": ONES}} | (action or {})
    return Hierarchy([Level("zone", 2, **(effect or {})), Level("item", 3, **action)], reward, 2)


@pytest.mark.parametrize(
    ("hierarchy", "message"),
    [
        (
            lambda: declare(action={"link": jax.nn.sigmoid}),
            "level 'item' has a link and rewards are Bernoulli: one of them at most",
        ),
        (
            lambda: declare(effect={"scale": dist.HalfNormal(1.0)}),
            "level 'zone' learns its scale; use Nuts or Svi",
        ),
        (
            lambda: declare(action={"parents": {"zone": dist.Normal(np.zeros((3, 2)), 1.0)}}),
            "level 'item' learns its weights for 'zone'; use Nuts or Svi",
        ),
        (
            lambda: declare(effect={"family": lambda m, T: dist.MultivariateStudentT(4.0, m, T)}),
            "level 'zone' has a family of its own; use Nuts or Svi",
        ),
        (
            lambda: declare(reward=Gaussian(dist.HalfNormal(1.0))),
            "the reward's noise is learned; use Nuts or Svi",
        ),
    ],
)
def test_hierarchies_it_does_not_take(hierarchy, message):
    with pytest.raises(ValueError, match=f"Laplace needs .*: {message}"):
        Laplace(hierarchy())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sites": "map"}, "Laplace sites is 'map'; expected 'tilted' or 'mle'"),
        ({"sites": None}, "Laplace sites is None"),
        ({"capacity": 0}, "Laplace capacity: got 0; expected a whole number of at least 1"),
        ({"capacity": 2.5}, "Laplace capacity: got 2.5; expected a whole number"),
    ],
)
def test_options_that_make_no_sense(options, message):
    with as_a_user(), pytest.raises(ValueError, match=message):
        Laplace(declare(), **options)


def test_not_a_hierarchy():
    with as_a_user(), pytest.raises(TypeError, match="Laplace: got 3; expected a Hierarchy"):
        Laplace(3)


def test_rewards_a_family_never_gives():
    backend = Laplace(declare(), capacity=4)
    state = backend.init()
    with pytest.raises(
        ValueError, match=r"rewards hold 0\.5, which Bernoulli\(\) rewards never are"
    ):
        backend.update(state, np.ones(2), 0, 0.5)
