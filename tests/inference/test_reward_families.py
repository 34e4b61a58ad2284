"""Every family of rewards with every backend that is not for Gaussian rewards alone."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.distributions.transforms import OrderedTransform

from glm_models import errors_at_the_mode
from mixts.bandit import Agent, HierarchyProblem, LinUCB, ThompsonSampling, simulate
from mixts.inference import (
    ExpectationPropagation,
    Factored,
    Laplace,
    Nuts,
    Svi,
    best_backend,
    compare,
)
from mixts.models import (
    Binomial,
    Data,
    Hierarchy,
    Level,
    NegativeBinomial,
    Ordinal,
    Probit,
    StudentT,
)

K, DIM, ROWS = 4, 2, 60
FAMILIES = {
    "binomial": Binomial,
    "negative binomial": NegativeBinomial,
    "probit": Probit,
    "student": StudentT,
    "stars": Ordinal,
    "probit stars": Ordinal,
}
ARGUMENTS = {
    "binomial": (5,),
    "negative binomial": (2.0,),
    "probit": (),
    "student": (4.0, 0.5),
    "stars": ([-1.5, -0.2, 0.4, 2.0],),
    "probit stars": ([-1.0, -0.2, 0.4, 1.2], "probit"),
}


def some_are_slow(*quick):
    """All families; those that are not among the quick ones take the same way, and are slow tests."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name not in quick)) for name in FAMILIES]


def family(name):
    return FAMILIES[name](*ARGUMENTS[name])


def crossed(reward):
    weights = np.random.default_rng(3).dirichlet(np.ones(2), K)
    action = Level("action", K, parents={"effect": weights}, cov=0.5)
    return Hierarchy([Level("effect", 2, cov=0.8), action], reward, DIM)


def rows(reward, n=ROWS, exposure=None):
    rng = np.random.default_rng(0)
    theta, contexts = rng.normal(size=(K, DIM)), rng.uniform(-1, 1, (n, DIM))
    actions = rng.integers(0, K, n)
    predictor = jnp.asarray(np.sum(contexts * theta[actions], axis=1))
    drawn = reward.law_of(predictor, exposure).sample(jax.random.key(1))
    return Data(contexts, actions, jnp.asarray(drawn, float), exposure)


@pytest.mark.parametrize("name", some_are_slow("stars", "student"))
def test_laplace_is_at_the_mode_of_the_joint_density(x64, name):
    """Against Newton's step and the Hessian of NumPyro's density of all levels."""
    hierarchy = crossed(family(name))
    for exposure in (None, jnp.arange(1.0, ROWS + 1) % 7 + 1):
        if exposure is not None and not hierarchy.takes_exposure:
            continue
        data, backend = rows(hierarchy.reward, exposure=exposure), Laplace(hierarchy)
        found = backend.posterior(backend.condition(backend.init(), *data))
        assert found.status.ok or name == "student"
        off, wrong = errors_at_the_mode(hierarchy, tuple(data), found.mean, found.cov)
        if name != "student":  # whose curvature is not all there: what bends upwards is left out
            assert max(off, wrong) < 1e-5


@pytest.mark.parametrize("name", some_are_slow("student"))
def test_other_backends_take_them(name):
    hierarchy = crossed(family(name))
    data = rows(hierarchy.reward, 20)
    for backend in (
        Factored(hierarchy),
        Nuts(hierarchy, warmup=20, samples=20, window=20),
        Svi(hierarchy, fit_steps=50),
    ):
        state = backend.condition(backend.init(jax.random.key(0)), *data)
        scores = backend.sample_scores(jax.random.key(1), state, jnp.ones(DIM))
        assert np.isfinite(scores).all()
    assert type(best_backend(hierarchy).backend) is ExpectationPropagation


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_laplace_is_near_nuts(name):
    """Root-mean-square errors of means of at most 0.3 sd: Laplace is off by up to 0.2 itself."""
    hierarchy = crossed(family(name))
    data = rows(hierarchy.reward, 200)
    nuts = Nuts(hierarchy, samples=2000)
    expected = nuts.posterior(nuts.condition(nuts.init(jax.random.key(0)), *data))
    backend = Laplace(hierarchy)
    found = backend.posterior(backend.condition(backend.init(), *data))
    sd = np.sqrt(np.einsum("kdd->kd", expected.cov["action"]))
    gap = (found.mean["action"] - expected.mean["action"]) / sd
    assert np.sqrt(np.mean(np.square(gap))) < 0.3


@pytest.mark.slow
def test_cut_points_are_learned():
    """NUTS finds those that 600 ratings were drawn with, within four of its standard deviations."""
    cuts = jnp.array([-1.5, -0.2, 0.4, 2.0])
    spread = dist.Normal(0.0, 2.0).expand([4]).to_event(1)
    learned = Ordinal(dist.TransformedDistribution(spread, OrderedTransform()))
    data = rows(Ordinal(cuts), 600)
    backend = Nuts(crossed(learned), samples=1000)
    state = backend.condition(backend.init(jax.random.key(0)), *data)
    found = backend.posterior(state)
    draws = np.asarray(backend.draws(found.state)["reward_cutpoints"]).reshape(-1, 4)
    assert (np.abs(draws.mean(0) - cuts) < 4 * draws.std(0)).all()
    assert draws.std(0).max() < 0.5
    with pytest.raises(ValueError, match=r"Laplace needs known noise and cut points.*Nuts or Svi"):
        Laplace(crossed(learned))
    with pytest.raises(ValueError, match=r"HierarchyProblem draws rewards, .* must be known"):
        HierarchyProblem(crossed(learned))


def test_they_are_compared_and_played(tmp_path):
    stars = crossed(family("stars"))
    found = compare(
        stars,
        rows(stars.reward, 20),
        {"Laplace": Laplace, "again": Laplace},
        reference="again",
        draws=50,
    )
    assert "Laplace" in str(found)
    problem = HierarchyProblem(stars)
    made = {"laplace": lambda h: ThompsonSampling(Laplace(h)), "ucb": LinUCB}
    regret = simulate(problem, made, 20, runs=2, key=0, progress=False).regret
    assert all(np.isfinite(part).all() for part in regret.values())


@pytest.mark.parametrize("name", FAMILIES)
def test_agents_are_written_and_read(name, tmp_path):
    reward = family(name)
    agent = Agent(ThompsonSampling(ExpectationPropagation(crossed(reward))))
    if name == "probit stars":  # all others are declared and written by the same lines
        agent.reward(agent.act([1.0, 0.5]).id, float(rows(reward, 1).rewards[0]))
    agent.save(tmp_path / "agent")
    again = Agent.load(tmp_path / "agent")
    assert repr(again.policy.problem.reward) == repr(reward)
    jax.tree.map(np.testing.assert_array_equal, again.state().posterior, agent.state().posterior)
