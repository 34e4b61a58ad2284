"""The Gaussian backends on a model that each of them takes, and comparisons of their posteriors."""

import jax
import numpy as np

from gaussian_models import crossed_effects, three_levels
from hierarchies import Model
from mixts.inference import ClosedForm, Factored
from tolerance import tolerance

__all__ = ["BACKENDS", "assert_same_posterior", "make", "updated"]

BACKENDS = ["closed form", "decoupled", "joint"]


def make(name: str) -> tuple[Model, ClosedForm | Factored]:
    """A model and a backend for it: `ClosedForm`, or `Factored` with the means of that name."""
    if name == "closed form":
        model = three_levels()
        return model, ClosedForm(model.hierarchy())
    model = crossed_effects()
    return model, Factored(model.hierarchy(), means=name)


@jax.jit
def updated(backend, state, contexts, actions, rewards):
    """One `update` for each row, in a scan."""

    def step(state, row):
        return backend.update(state, *row), None

    return jax.lax.scan(step, state, (contexts, actions, rewards))[0]


def assert_same_posterior(backend, found, expected, loosen: float = 1.0) -> None:
    """Means, covariances and evidence of two states agree, and so do their counts."""
    a, b = backend.posterior(found), backend.posterior(expected)
    for name in b.mean:
        np.testing.assert_allclose(a.mean[name], b.mean[name], **tolerance(loosen))
        np.testing.assert_allclose(a.cov[name], b.cov[name], **tolerance(loosen))
    np.testing.assert_allclose(found.log_evidence, expected.log_evidence, **tolerance(loosen))
    assert int(found.info.observed) == int(expected.info.observed)
    assert int(found.info.rejected) == int(expected.info.rejected)
