"""With known variances, posterior means are the BLUPs that statsmodels computes."""

import numpy as np
from statsmodels.regression.mixed_linear_model import MixedLM, MixedLMResults

from mixts.inference import ClosedForm
from mixts.models import linear

# A prior this wide stands for the flat one of a fixed effect: it moves means by about the variance
# of their estimates over it, 1e-9 of the estimates here.
FLAT = 1e8


def blups(rewards, contexts, groups, cov, noise):
    """MixedLM's fixed effects and predicted random effects at given variances, without a fit."""
    model = MixedLM(rewards, contexts, groups, exog_re=contexts)
    # `get_fe_params` takes covariances in units of the noise variance.
    fixed, singular = model.get_fe_params(cov / noise**2, np.empty(0))
    assert not singular
    results = MixedLMResults(model, fixed, None)
    results.fe_params, results.cov_re, results.scale = fixed, cov, noise**2
    results.vcomp, results.k_fe, results.k_re = np.empty(0), model.k_fe, model.k_re
    random = results.random_effects
    return fixed, np.array([random[group].to_numpy() for group in sorted(random)])


def check(contexts, cov, x64):
    rng = np.random.default_rng(0)
    n, d = contexts.shape
    groups, noise = rng.integers(0, 6, n), 0.7
    theta = rng.normal(size=d) + rng.multivariate_normal(np.zeros(d), cov, 6)
    rewards = np.sum(contexts * theta[groups], axis=1) + noise * rng.normal(size=n)
    fixed, random = blups(rewards, contexts, groups, cov, noise)

    hierarchy = linear(np.ones((6, 1)), d, effect_cov=FLAT, action_cov=cov, noise=noise)
    backend = ClosedForm(hierarchy)
    posterior = backend.posterior(backend.condition(backend.init(), contexts, groups, rewards))
    np.testing.assert_allclose(posterior.mean["effect"][0], fixed, rtol=1e-7)
    np.testing.assert_allclose(posterior.mean["action"], fixed + random, rtol=1e-7)
    # The groups must differ, and shrink: else any two estimates would agree.
    assert np.ptp(random, axis=0).min() > 0.1


def test_random_intercepts(x64):
    check(np.ones((60, 1)), np.array([[0.8]]), x64)


def test_random_slopes(x64):
    x = np.random.default_rng(1).normal(size=80)
    cov = np.array([[0.8, -0.3], [-0.3, 0.5]])
    check(np.column_stack([np.ones(80), x]), cov, x64)
