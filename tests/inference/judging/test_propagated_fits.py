"""`empirical_bayes` for clicks, counts and ratings: it climbs the evidence of expectation propagation."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from mistakes import as_a_user
from mixts.inference import empirical_bayes, log_evidence
from mixts.models import Bernoulli, Data, Hierarchy, Level, Ordinal, Poisson, Reward, StudentT
from sampling import unoptimised

K = 30
# Any cut points that increase, where the law does not count.
CUTS = dist.TransformedDistribution(
    dist.Normal(0.0, 2.0).expand([3]).to_event(1), dist.transforms.OrderedTransform()
)


@pytest.fixture(autouse=True)
def compile_quickly():
    with unoptimised():
        yield


def hierarchy(reward: Reward, cov: float) -> Hierarchy:
    action = Level("action", K, parents={"effect": np.ones((K, 1))}, cov=cov)
    return Hierarchy([Level("effect", 1), action], reward, dim=1)


def drawn(truth: Hierarchy, n: int = 1500) -> Data:
    rng = np.random.default_rng(0)
    theta = truth.sample_prior(jax.random.key(1))["action"][:, 0]
    actions = rng.integers(0, K, n)
    rewards = truth.reward.law(theta[actions]).sample(jax.random.key(2))
    return Data(np.ones((n, 1)), actions, np.asarray(rewards, float))


FITS = {
    "clicks": (Bernoulli(), Bernoulli(), ("action.cov",)),
    "counts": (Poisson(), Poisson(), ("action.cov", "effect.mean")),
    "stars": (Ordinal([-1.5, -0.3, 1.5]), Ordinal(CUTS), ("action.cov",)),
}


@pytest.mark.parametrize("name", FITS)
def test_no_slope_is_left_and_the_truth_explains_no_more(name):
    true, declared, learn = FITS[name]
    truth = hierarchy(true, 0.5)
    data = drawn(truth)
    fit = empirical_bayes(hierarchy(declared, 3.0), data, learn=learn, prior=False, progress=False)
    assert fit.status.ok
    with jax.enable_x64(True):
        fitted = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), float), fit.hierarchy)
        own = float(log_evidence(fitted, data))
        assert abs(own - fit.log_evidence) < 1e-3

        def moved(cov, cutpoints):
            levels = [fitted["effect"], fitted["action"].remade(cov=cov)]
            reward = fitted.reward if cutpoints is None else Ordinal(cutpoints)
            return log_evidence(Hierarchy(levels, reward, 1), data)

        known = fitted["action"].cov, getattr(fitted.reward, "cutpoints", None)
        slope = jax.grad(lambda log_cov: moved(jnp.exp(log_cov), known[1]))(jnp.log(known[0]))
        assert abs(float(slope)) < 0.01
        if known[1] is not None:
            assert np.abs(jax.grad(moved, 1)(*known)).max() < 0.05
            np.testing.assert_allclose(known[1], true.cutpoints, atol=0.4)
        true = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), float), truth)
        assert own > float(log_evidence(true, data))
    # The variance of 30 numbers has a standard error of a quarter of itself.
    assert 0.2 < float(fit.hierarchy["action"].cov) < 1.0


@pytest.mark.parametrize(
    ("reward", "learn", "said"),
    [
        (StudentT(4.0), None, "is not log-concave"),
        (Bernoulli(), ("noise",), r"learn is \('noise',\); expected a tuple of some of cov, mean"),
        (StudentT(4.0), ("cov",), "climb log_evidence"),
    ],
)
def test_what_is_refused(reward, learn, said):
    data = Data([[1.0]], [0], [1.0])
    with as_a_user(), pytest.raises(ValueError, match=said):
        empirical_bayes(hierarchy(reward, 1.0), data, learn=learn)
