"""Thompson sampling has the same regret whatever backend gives it the same posterior."""

import numpy as np
import pytest

from mixts.bandit import SyntheticProblem, ThompsonSampling, simulate
from mixts.inference import ClosedForm, Laplace, Nuts, Svi

pytestmark = pytest.mark.slow

HORIZON, RUNS = 500, 20
BACKENDS = {
    "exact": ClosedForm,
    "Laplace": lambda h: Laplace(h, capacity=1),
    "NUTS": lambda h: Nuts(h, chains=1, steps=2, warmup=100, capacity=1, max_depth=5),
    "SVI": lambda h: Svi(h, capacity=1),
}


def test_four_backends_on_a_linear_problem():
    policies = {
        name: lambda h, make=make: ThompsonSampling(make(h)) for name, make in BACKENDS.items()
    }
    result = simulate(SyntheticProblem(20, 3, 2), policies, HORIZON, RUNS, 0, progress=False)
    print("\n", result.summary().to_string(), sep="")
    exact = result.regret["exact"].sum(1, dtype=float)
    for name in ("Laplace", "NUTS", "SVI"):
        difference = result.regret[name].sum(1, dtype=float) - exact
        error = difference.std(ddof=1) / np.sqrt(RUNS)
        assert abs(difference.mean()) < 3 * error, name
