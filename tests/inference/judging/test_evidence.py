"""`log_evidence` is the log density of the rewards, and differentiable in all that was declared."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dense_posterior import dense_posterior
from gaussian_models import crossed_effects, mixing, rows, three_levels
from glm_models import simulate
from hierarchies import Group, Model, Rows, covariance
from mixts.inference import log_evidence
from mixts.models import Data
from sampling import unoptimised
from tolerance import tolerance

N = 40


@pytest.fixture(autouse=True)
def compile_quickly():
    with unoptimised():
        yield


def plain(above: str, actions: str, seed: int = 0) -> Model:
    """Effects and actions with covariances in the given forms."""
    rng = np.random.default_rng(seed)
    zone = Group("zone", 2, mean=rng.normal(size=2), cov=covariance(above, 2, 2, rng))
    weights = mixing("scalars", 3, 2, 2, rng)
    item = Group("item", 3, parents={"zone": weights}, cov=covariance(actions, 3, 2, rng))
    return Model([zone, item], 2, noise=0.6)


def correlated_actions() -> Model:
    rng = np.random.default_rng(3)
    return Model([Group("item", 3, mean=0.5, cov=covariance("joint", 3, 2, rng))], 2, noise=0.8)


# Between them every form of covariance above and at the actions, every form of mean and of weights.
MODELS = {
    "three levels": three_levels,
    "crossed effects": crossed_effects,
    "variance over diagonal": lambda: plain("variance", "diagonal"),
    "diagonal over variance": lambda: plain("diagonal", "variance"),
    "correlated actions": correlated_actions,
}


@jax.jit
def evidence(hierarchy, seen):
    return log_evidence(hierarchy, Data(*seen))


@pytest.mark.parametrize("name", ["three levels", "crossed effects", "correlated actions"])
def test_is_the_normal_density_of_the_rewards(name, precision):
    model = MODELS[name]()
    seen = rows(model, N, np.random.default_rng(0))
    found = evidence(model.hierarchy(), seen)
    assert found.dtype == precision
    expected = dense_posterior(model, seen).log_evidence
    np.testing.assert_allclose(found, expected, rtol=tolerance()["rtol"])


def test_a_large_signal_in_little_noise(precision):
    """Rewards of about 10 in noise of 0.1: differences of squares would lose all digits in float32."""
    weights = np.array([[1.0, 0.5], [0.3, -1.0], [1.0, 1.0]])
    effects, actions = Group("zone", 2, cov=100.0), Group("item", 3, {"zone": weights})
    model, seen = simulate(Model([effects, actions], 2, noise=0.1), N, np.random.default_rng(1))
    assert np.std(seen.rewards) > 50 * model.noise
    expected = dense_posterior(model, seen).log_evidence
    found = evidence(model.hierarchy(), seen)
    np.testing.assert_allclose(found, expected, rtol=tolerance()["rtol"])


def test_no_rewards_have_no_evidence():
    model = plain("variance", "variance")
    nothing = Rows(np.zeros((0, 2)), np.zeros(0, int), np.zeros(0))
    assert float(evidence(model.hierarchy(), nothing)) == 0.0


def split(hierarchy):
    """The numbers of a hierarchy by their place in it, and the way back to the hierarchy."""
    places, structure = jax.tree_util.tree_flatten_with_path(hierarchy)
    leaves = {jax.tree_util.keystr(path): leaf for path, leaf in places}
    numbers = {k: v for k, v in leaves.items() if jnp.issubdtype(v.dtype, jnp.floating)}

    def join(numbers):
        return jax.tree.unflatten(structure, list((leaves | numbers).values()))

    return numbers, join


@pytest.mark.parametrize("name", MODELS)
def test_gradient_by_every_number(name, x64):
    """Against central differences, whose error is about 1e-9: h^2 = 1e-10 and 1e-16 |f| / h."""
    model, step = MODELS[name](), 1e-5
    seen = rows(model, N, np.random.default_rng(2))
    numbers, join = split(model.hierarchy())
    value = jax.jit(lambda numbers: evidence(join(numbers), seen))
    gradient = jax.jit(jax.grad(value))(numbers)
    assert len(numbers) == 2 * len(model.groups) + sum(len(g.parents) for g in model.groups) + 1
    for place, leaf in numbers.items():
        expected = np.zeros(leaf.shape)
        for index in np.ndindex(leaf.shape):
            sides = [np.array(leaf), np.array(leaf)]
            for side, sign in zip(sides, (1, -1), strict=True):
                side[index] += sign * step
            above, below = (float(value(numbers | {place: side})) for side in sides)
            expected[index] = (above - below) / (2 * step)
        np.testing.assert_allclose(
            gradient[place], expected, rtol=1e-6, atol=1e-6, err_msg=f"{name}{place}"
        )
