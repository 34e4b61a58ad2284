"""One comparison, used by several tests: the density of a program in mixts and in SciPy."""

import jax
import numpy as np
from numpyro.infer.util import log_density

from hierarchies import Model, rows
from mixts.models import Hierarchy
from scipy_density import log_density as scipy_log_density
from scipy_density import unknowns
from tolerance import tolerance

__all__ = ["check_density"]


def check_density(model: Model, seed: int = 0, n: int = 5, hierarchy: Hierarchy | None = None):
    """Compare one density, and see that the program has the unknowns it should and no others."""
    rng = np.random.default_rng(seed)
    values, observed = unknowns(model, rng), rows(model, n, rng)
    hierarchy = hierarchy or model.hierarchy()
    kinds, shapes = {}, {}

    @jax.jit
    def density(values):
        total, trace = log_density(hierarchy.program, observed, {}, values)
        kinds.update({name: site["type"] for name, site in trace.items()})
        shapes.update({name: trace[name]["fn"].shape() for name in values})
        return total, {group.name: trace[group.name]["value"] for group in model.groups}

    found, drawn = density(values)
    expected, vectors = scipy_log_density(model, values, *observed)
    np.testing.assert_allclose(found, expected, **tolerance())
    assert {name for name, kind in kinds.items() if kind == "sample"} == {*values, "reward"}
    assert shapes == {name: np.shape(value) for name, value in values.items()}
    for group in model.groups:
        assert kinds[group.name] == ("sample" if group.is_centered else "deterministic")
        # Loosened: rounding adds up from level to level.
        np.testing.assert_allclose(drawn[group.name], vectors[group.name], **tolerance(loosen=10))
