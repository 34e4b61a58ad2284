"""Hierarchies compared by their evidence, and mixed."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from mistakes import as_a_user
from mixts.bandit import ThompsonSampling, simulate
from mixts.bandit.problems.environment import HierarchyProblem
from mixts.inference import ClosedForm, Mixture, compare_hierarchies, log_evidence
from mixts.models import Data, Gaussian, Hierarchy, Level, linear
from sampling import unoptimised

ROWS = [[1.0], [1.0], [0.5]], [0, 1, 1], [2.0, 2.0, 1.5]


def alike() -> Hierarchy:
    return linear([[1.0], [1.0]], 1)


def apart() -> Hierarchy:
    return linear([[1.0, 0.0], [0.0, 1.0]], 1)


def both() -> dict[str, Hierarchy]:
    return {"alike": alike(), "apart": apart()}


@pytest.fixture(scope="module", autouse=True)
def compiled_fast():
    with unoptimised():
        yield


def expected(prior: tuple[float, float]) -> np.ndarray:
    evidences = np.array([float(log_evidence(each, Data(*ROWS))) for each in both().values()])
    score = np.log(prior) + evidences
    return np.exp(score - np.logaddexp.reduce(score))


@pytest.mark.parametrize("prior", [None, (3.0, 1.0)])
def test_probabilities_are_those_of_the_evidence(prior, x64):
    found = compare_hierarchies(both(), Data(*ROWS), probabilities=prior)
    right = expected((0.5, 0.5) if prior is None else (0.75, 0.25))
    np.testing.assert_allclose(found.table["probability"], right, rtol=1e-9)
    assert (found.table["error"] == 0).all()
    assert all(status.ok for status in found.status.values())
    backend = Mixture(both(), prior)
    state = backend.init()
    for row in zip(*ROWS, strict=True):
        state = backend.update(state, *row)
    online = np.array(list(backend.probabilities_of(state).values()))
    np.testing.assert_allclose(online, right, rtol=1e-9)


def test_unknown_numbers_are_integrated_out(x64):
    """Of one action whose scale is unknown, against the sum over a grid of scales."""
    unknown = Hierarchy([Level("action", 2, scale=dist.HalfNormal(2.0))], Gaussian(1.0), 1)
    found = compare_hierarchies({"unknown": unknown, "known": _of(1.0)}, Data(*ROWS), particles=512)
    scales = (np.arange(2000) + 0.5) / 2000 * 10.0
    logs = [float(_evidence(scale)) for scale in scales]
    log_prior = 0.5 * np.log(2 / np.pi) - np.log(2.0) - scales**2 / 8.0
    truth = np.logaddexp.reduce(np.array(logs) + log_prior) + np.log(10.0 / 2000)
    row = found.table.loc["unknown"]
    # Five standard errors of four populations, and what an error is itself off by.
    assert abs(row["log_evidence"] - truth) < 5 * row["error"] + 0.02


def _of(scale) -> Hierarchy:
    return Hierarchy([Level("action", 2, cov=scale**2)], Gaussian(1.0), 1)


@jax.jit
def _evidence(scale):
    return log_evidence(_of(scale), Data(*ROWS))


def test_moments_are_those_of_the_mixture(x64):
    backend = Mixture(both())
    state = backend.condition(backend.init(), *ROWS)
    weights = expected((0.5, 0.5))
    parts = []
    for each in both().values():
        exact = ClosedForm(each)
        parts.append(exact.posterior(exact.condition(exact.init(), *ROWS)))
    mean = sum(w * part.mean["action"] for w, part in zip(weights, parts, strict=True))
    posterior = backend.posterior(state)
    np.testing.assert_allclose(posterior.mean["action"], mean, rtol=1e-9)
    assert set(posterior.mean) == {"action"}  # effects are one, or two
    drawn = posterior.draw(jax.random.key(0), 4000)["action"]
    sd = np.sqrt(posterior.cov["action"][:, 0, 0])
    assert np.abs((drawn.mean(0)[:, 0] - mean[:, 0]) / sd).max() < 4 / np.sqrt(4000)
    assert np.abs(drawn.std(0)[:, 0] / sd - 1).max() < 6 / np.sqrt(2 * 4000)


def test_hierarchies_keep_their_probabilities_in_any_order(x64):
    """A dict comes out of `jit` in the order of its names."""
    turned = {"apart": apart(), "alike": alike()}
    backend = Mixture(turned, (0.25, 0.75))
    state = backend.condition(backend.init(), *ROWS)
    found = jax.jit(lambda backend, state: backend.probabilities_of(state))(backend, state)
    np.testing.assert_allclose([found["alike"], found["apart"]], expected((0.75, 0.25)), rtol=1e-9)


def test_an_agent_plays_under_a_mixture():
    problem = HierarchyProblem(apart())
    policies = {"mixture": lambda _: ThompsonSampling(Mixture(both()))}
    played = simulate(problem, policies, 20, 3, 0, progress=False)
    assert played.regret["mixture"].shape == (3, 20)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Mixture({"one": alike()}), TypeError, "two hierarchies or more"),
        (lambda: Mixture({"one": alike(), "two": 3}), TypeError, "expected a name and a Hierarchy"),
        (
            lambda: Mixture({"one": alike(), "two": linear(jnp.ones((3, 1)), 1)}),
            ValueError,
            "differ",
        ),
        (lambda: Mixture(both(), [1.0]), ValueError, "2 positive numbers"),
        (lambda: Mixture(both(), [1.0, -1.0]), ValueError, "2 positive numbers"),
        (lambda: compare_hierarchies(both(), 3), TypeError, "expected Data"),
    ],
)
def test_refuses(make, error, message):
    with as_a_user(), pytest.raises(error, match=message):
        make()
