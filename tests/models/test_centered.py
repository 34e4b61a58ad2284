"""Centred and non-centred programs are the same model: their densities differ by a Jacobian."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpyro import handlers
from numpyro.infer.util import log_density

from hierarchies import models, rows
from mixts.models import Gaussian, Hierarchy, Level
from scipy_density import is_joint, spread, unknowns
from tolerance import tolerance


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
