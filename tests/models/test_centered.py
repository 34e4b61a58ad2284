"""Centred and non-centred programs are the same model: their densities differ by a Jacobian."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpyro import handlers
from numpyro.infer.util import log_density

from hierarchies import models, rows
from mistakes import effects
from mixts.models import Gaussian, Hierarchy, Level
from scipy_density import is_joint, spread, unknowns
from tolerance import tolerance


@pytest.mark.slow
@settings(max_examples=12)
@given(model=models(), seed=st.integers(0, 1000))
def test_non_centred_is_centred_plus_the_jacobian(x64, model, seed):
    """`vectors = loc + T base`, so `log p(base) = log p(vectors) + sum log |det T|`."""
    rng = np.random.default_rng(seed)
    moved, plain = model.with_centered(False), model.with_centered(True)
    values, observed = unknowns(moved, rng), rows(model, 4, rng)

    @jax.jit
    def densities(values):
        non_centred, trace = log_density(moved.hierarchy().program, observed, {}, values)
        vectors = {group.name: trace[group.name]["value"] for group in model.groups}
        centred, _ = log_density(plain.hierarchy().program, observed, {}, values | vectors)
        return non_centred, centred

    log_jacobian = 0.0
    for group in model.groups:
        cov = spread(group, values, model.dim)
        blocks = [cov] if is_joint(group, model.dim) else cov
        log_jacobian += sum(np.linalg.slogdet(block).logabsdet / 2 for block in blocks)
    non_centred, centred = densities(values)
    # Loosened: the vectors themselves are rounded before their density is taken.
    np.testing.assert_allclose(non_centred, centred + log_jacobian, **tolerance(loosen=10))


def test_only_the_named_level_moves(x64):
    """`centered` is a choice per level; the vectors keep the level's name either way."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(3, 2))
    hierarchy = Hierarchy(
        [
            Level("effect", 2, centered=False),
            Level("action", 3, parents={"effect": weights}),
        ],
        Gaussian(),
        2,
    )
    base = jnp.asarray(rng.normal(size=(2, 2)))
    program = handlers.substitute(hierarchy.program, {"effect_base": base})
    trace = handlers.trace(handlers.seed(program, 0)).get_trace(np.ones((1, 2)), [0])
    kinds = {name: site["type"] for name, site in trace.items() if site["type"] != "plate"}
    assert kinds == {
        "effect_base": "sample",
        "effect": "deterministic",
        "action": "sample",
        "reward": "sample",
    }
    np.testing.assert_array_equal(trace["effect"]["value"], base)


def student_t(loc, tril):
    return dist.MultivariateStudentT(4.0, loc, tril)


def laplace(loc, tril):
    return dist.Laplace(loc, jnp.diag(tril)).to_event(1)


def log_normal(loc, tril):
    return dist.LogNormal(loc, jnp.diag(tril)).to_event(1)


def fixed_dimension(loc, tril):
    return dist.Laplace(loc, jnp.diag(tril) * jnp.ones(5)).to_event(1)


SCALE = dist.HalfNormal(1.0)
DEFAULTS = {
    "known cov": ({"cov": 2.0}, True),
    "known cov, family": ({"family": student_t}, True),
    "learned scale": ({"scale": SCALE}, False),
    "learned scales": ({"scale": dist.HalfNormal(np.ones((3, 2)))}, False),
    "learned scale, location-scale family": ({"scale": SCALE, "family": student_t}, False),
    "learned scale, numbers of a location-scale family": (
        {"scale": SCALE, "family": laplace},
        False,
    ),
    "learned scale, another family": ({"scale": SCALE, "family": log_normal}, True),
}


@pytest.mark.parametrize(("declared", "centered"), DEFAULTS.values(), ids=DEFAULTS)
def test_a_learned_scale_is_non_centred_unless_said_otherwise(declared, centered):
    """By default; the attribute, the sites, the text and the program all follow."""
    hierarchy = effects(**declared)
    level = hierarchy["effect"]
    assert level.centered is centered
    assert ("effect_base" in level.site_names()) is not centered
    assert ("non-centred" in repr(hierarchy)) is not centered
    trace = handlers.trace(handlers.seed(hierarchy.program, 0)).get_trace(np.ones((1, 2)), [0])
    assert ("effect_base" in trace) is not centered
    assert trace["effect"]["type"] == ("sample" if centered else "deterministic")
    for wish in (True, False) if declared.get("family") is not log_normal else (True,):
        assert effects(**declared, centered=wish)["effect"].centered is wish


def test_a_family_that_cannot_be_tried_without_its_dimension_is_centred():
    level = Level("arm", 3, scale=SCALE, family=fixed_dimension)
    assert level.centered is True
    Hierarchy([level], Gaussian(), 5)


def test_a_family_of_traced_numbers_is_centred():
    """Whether it is a location-scale family cannot be seen."""

    @jax.jit
    def declare(degrees):
        def family(loc, tril):
            return dist.MultivariateStudentT(degrees, loc, tril)

        found.append(effects(scale=SCALE, family=family)["effect"].centered)
        return degrees

    found = []
    declare(4.0)
    assert found == [True]


def test_a_level_made_again_keeps_its_form():
    level = Level("arm", 3, scale=SCALE)
    assert level.remade(size=4).centered is False
    assert level.remade(centered=None, scale=None, cov=2.0).centered is True


def test_a_level_made_again_with_a_learned_scale_takes_its_default():
    """What nobody said of centring is decided anew; what was said stays."""
    scale = dist.HalfNormal(1.0)
    assert not Level("movie", 2).remade(scale=scale, cov=1.0).centered
    assert Level("movie", 2, scale=scale, centered=True).remade(size=3).centered
    assert not Level("movie", 2, centered=False).remade(size=3).centered
