"""`leave_one_out`: the same as conditioning on all rewards but one, for each of them."""

import numpy as np
import pytest
import scipy.stats

from mixts.inference import ClosedForm, leave_one_out
from mixts.models import Bernoulli, Data, Gaussian, Hierarchy, Level
from sampling import unoptimised


@pytest.fixture(autouse=True)
def compile_quickly():
    with unoptimised():
        yield


@pytest.mark.parametrize("exposed", [False, True])
def test_it_is_conditioning_on_all_others(exposed, x64):
    rng = np.random.default_rng(0)
    n, noise = 12, 0.7
    levels = [
        Level("kind", 2),
        Level("item", 3, parents={"kind": [[1, 0], [0.5, 0.5], [0, 1]]}, cov=0.3),
    ]
    hierarchy = Hierarchy(levels, Gaussian(noise), 2)
    x, a, y = rng.normal(size=(n, 2)), rng.integers(0, 3, n), rng.normal(size=n)
    m = rng.integers(1, 5, n).astype(float) if exposed else np.ones(n)
    found = leave_one_out(hierarchy, Data(x, a, y, m if exposed else None))
    backend = ClosedForm(hierarchy)
    for i in range(n):
        kept = np.arange(n) != i
        state = backend.condition(backend.init(), x[kept], a[kept], y[kept], m[kept])
        posterior = backend.posterior(state)
        mean = x[i] @ np.asarray(posterior.mean["item"])[a[i]]
        variance = x[i] @ np.asarray(posterior.cov["item"])[a[i]] @ x[i] + noise**2 / m[i]
        assert found.mean[i] == pytest.approx(mean, abs=1e-9)
        assert found.sd[i] == pytest.approx(variance**0.5, abs=1e-9)
        density = scipy.stats.norm.logpdf(y[i], mean, variance**0.5)
        assert found.log_density[i] == pytest.approx(density, abs=1e-9)
    assert found.elpd == pytest.approx(found.log_density.sum())


def test_what_is_refused():
    hierarchy = Hierarchy([Level("item", 2)], Bernoulli(), 1)
    with pytest.raises(ValueError, match="leave_one_out"):
        leave_one_out(hierarchy, Data([[1.0]], [0], [1.0]))
