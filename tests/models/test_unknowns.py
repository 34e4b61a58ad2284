"""What is unknown besides vectors: laws by site, and the hierarchy given values of them."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer.util import log_density

from mixts.models import Bernoulli, Gaussian, Hierarchy, Level, Sparse

DIM = 2
SCALES = {"one": (), "by coordinate": (DIM,), "by vector": (3, 1), "each": (3, DIM)}
DATA = np.ones((4, DIM)), np.array([0, 1, 2, 1]), np.array([0.3, -1.0, 2.0, 0.5])


def hierarchy(shape: tuple[int, ...] = ()) -> Hierarchy:
    """Scales, weights of two forms, and noise, all unknown."""
    sparse = Sparse([[0], [1], [0]], dist.Normal(0.0, 1.0), num_parents=2)
    levels = [
        Level("zone", 2, scale=dist.HalfNormal(2.0)),
        Level("brand", 2, parents={"zone": dist.Normal(1.0, 0.5)}),
        Level(
            "item",
            3,
            parents={"zone": sparse, "brand": np.ones((3, 2))},
            scale=dist.HalfNormal(np.ones(shape)),
        ),
    ]
    return Hierarchy(levels, Gaussian(dist.HalfNormal(1.0)), DIM)


def draw(model: Hierarchy) -> dict[str, np.ndarray]:
    """A value of every latent site of the program, from the prior."""
    sites = handlers.trace(handlers.seed(model.program, jax.random.key(0))).get_trace(*DATA)
    found = {name: site for name, site in sites.items() if site["type"] == "sample"}
    return {name: site["value"] for name, site in found.items() if not site["is_observed"]}


def test_laws_are_those_of_the_program(x64):
    model = hierarchy((3, 1))
    laws = model.unknowns.laws
    sites = ["zone_scale", "brand_weights_zone", "item_weights_zone", "item_scale", "reward_noise"]
    assert list(laws) == sites
    values = draw(model)
    assert [laws[site].shape() for site in sites] == [values[site].shape for site in sites]


@pytest.mark.parametrize("shape", SCALES.values(), ids=SCALES)
def test_density_is_that_of_the_unknowns_times_that_given_them(shape, x64):
    model = hierarchy(shape).remade()
    levels = [level.remade(centered=True) for level in model.levels]
    model = model.remade(levels=levels)
    values = draw(model)
    laws = model.unknowns.laws
    known = model.unknowns.given({site: values[site] for site in laws})
    assert not known.unknowns.laws
    assert known.why_not_exact is None
    joint, _ = log_density(model.program, DATA, {}, values)
    vectors = {name: value for name, value in values.items() if name not in laws}
    given, _ = log_density(known.program, DATA, {}, vectors)
    prior = sum(law.log_prob(values[site]) for site, law in laws.items())
    np.testing.assert_allclose(joint, given + prior, rtol=1e-12)


def test_many_hierarchies_at_once(x64):
    model = hierarchy()
    values = draw(model)
    many = {site: np.stack([values[site]] * 3) for site in model.unknowns.laws}
    noise = jax.vmap(lambda one: model.unknowns.given(one).reward.noise)(many)
    np.testing.assert_array_equal(noise, many["reward_noise"])


def test_nothing_unknown():
    model = Hierarchy([Level("item", 3)], Bernoulli(), DIM)
    assert model.unknowns.laws == {}
    assert model.unknowns.given({}).reward is model.reward


def test_wrong_values():
    with pytest.raises(ValueError, match="got values of 'noise'; expected one of each unknown"):
        hierarchy().unknowns.given({"noise": 1.0})
    values = draw(hierarchy()) | {"reward_noise": -1.0}
    known = {site: values[site] for site in hierarchy().unknowns.laws}
    with pytest.raises(ValueError, match="noise is -1; expected a positive"):
        hierarchy().unknowns.given(known)
