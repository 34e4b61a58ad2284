"""Baselines against dense NumPy: the hierarchies they derive, and what they then know."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from dense_posterior import dense_posterior
from gaussian_models import crossed_effects, three_levels
from hierarchies import Group, Model, Rows
from mistakes import cases, check_refused
from mixts.bandit.policies.baselines import (
    GLMTS,
    HierTS,
    KnownEffects,
    LinTS,
    NoActionNoise,
    prior_moments,
)
from mixts.inference import ClosedForm, Laplace
from mixts.models import (
    Bernoulli,
    Gaussian,
    Hierarchy,
    Level,
    LKJCovariance,
    Sparse,
    finer,
    glm,
    linear,
    nonlinear,
    three_level,
)
from tolerance import tolerance

NOTHING = Rows(np.zeros((0, 2)), np.zeros(0, int), np.zeros(0))
MODELS = {
    "three levels": three_levels(),
    "crossed": crossed_effects(joint=False),
    "crossed, correlated": crossed_effects(),
    "joint actions": Model([Group("arm", 3, cov=np.eye(6) + 0.4, mean=0.3)], 2),
}
WEIGHTS = np.random.default_rng(0).uniform(-1, 1, (4, 3))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.usefixtures("x64")
def test_prior_moments_are_the_diagonal_blocks_of_the_dense_prior(name):
    model = MODELS[name]
    moments, dense = prior_moments(model.hierarchy()), dense_posterior(model, NOTHING)
    for level, mean in dense.means().items():
        np.testing.assert_allclose(moments.mean[level], mean, **tolerance())
        np.testing.assert_allclose(moments.cov[level], dense.covs()[level], **tolerance())


@pytest.mark.usefixtures("x64")
def test_prior_moments_of_a_link_are_those_of_prior_draws():
    """Far from zero, where a mean that is not taken out would show in the covariance."""
    hierarchy = nonlinear(WEIGHTS, 2, link=lambda u: u + jnp.tanh(u), effect_mean=50.0)
    moments = prior_moments(hierarchy)
    draws = jax.vmap(hierarchy.sample_prior)(jax.random.split(jax.random.key(0), 4096))
    for level in ("effect", "action"):
        values = np.asarray(draws[level])
        np.testing.assert_allclose(moments.mean[level], values.mean(0), rtol=1e-9)
        cov = [np.cov(values[:, i].T) for i in range(values.shape[1])]
        np.testing.assert_allclose(moments.cov[level], cov, rtol=1e-9, atol=1e-10)


@pytest.mark.usefixtures("x64")
def test_many_sparse_effects_need_no_joint_covariance():
    """100,000 effects of dimension 2: their joint covariance would take 300 GiB."""
    size = 100_000
    rng = np.random.default_rng(1)
    values = rng.normal(size=(3, 2))
    weights = Sparse(np.array([[0, size - 1], [5, 7], [9, 8]]), values)
    policy = LinTS(linear(weights, 2, effect_mean=2.0, effect_cov=3.0))
    own = policy.backend.hierarchy.actions
    expected = (1 + 3 * (values**2).sum(1))[:, None, None] * np.eye(2)
    np.testing.assert_allclose(own.cov, expected, rtol=1e-12)
    np.testing.assert_allclose(own.mean, 2 * values.sum(1)[:, None] * np.ones(2), rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_lints_knows_of_each_action_what_its_own_rewards_say():
    """`N(m_i, C_i)` given the action's own rewards, by the textbook, other actions ignored."""
    model = crossed_effects()
    rng = np.random.default_rng(2)
    x, a, y = rng.normal(size=(40, 2)), rng.integers(0, 4, 40), rng.normal(size=40)
    policy = LinTS(model.hierarchy())
    state = policy.backend.condition(policy.init(jax.random.key(0)), x, a, y)
    known, prior = policy.backend.posterior(state), dense_posterior(model, NOTHING)
    for i in range(5):
        mean, cov = prior.means()["item"][i], prior.covs()["item"][i]
        X, Y = x[a == i], y[a == i]
        after = np.linalg.inv(np.linalg.inv(cov) + X.T @ X / model.noise**2)
        expected = after @ (np.linalg.solve(cov, mean) + X.T @ Y / model.noise**2)
        np.testing.assert_allclose(known.mean["item"][i], expected, **tolerance())
        np.testing.assert_allclose(known.cov["item"][i], after, **tolerance())


@pytest.mark.usefixtures("x64")
def test_glmts_keeps_the_rewards_and_lints_does_not():
    hierarchy = glm(WEIGHTS, 2, effect_cov=3.0)
    exact, approximate = LinTS(hierarchy), GLMTS(hierarchy)
    assert isinstance(exact.backend, ClosedForm)
    assert float(exact.backend.hierarchy.reward.noise) == 1.0
    assert float(LinTS(hierarchy, noise=0.5).backend.hierarchy.reward.noise) == 0.5
    assert isinstance(approximate.backend, Laplace)
    assert isinstance(approximate.backend.hierarchy.reward, Bernoulli)
    for policy in (exact, approximate):
        cov = policy.backend.hierarchy.actions.cov
        expected = (1 + 3 * (WEIGHTS**2).sum(1))[:, None, None] * np.eye(2)
        np.testing.assert_allclose(cov, expected, rtol=1e-12)
    assert isinstance(GLMTS(linear(WEIGHTS, 2, noise=0.3)).backend, ClosedForm)
    assert float(LinTS(linear(WEIGHTS, 2, noise=0.3)).backend.hierarchy.reward.noise) == 0.3


@pytest.mark.usefixtures("x64")
def test_hierts_has_one_effect_with_the_papers_prior():
    """`N(0, 3 I)` in Section 5.1; the actions' covariance and rewards stay."""
    hierarchy = glm(WEIGHTS, 2, effect_cov=3.0, action_cov=[0.5, 2.0])
    derived = HierTS(hierarchy).backend.hierarchy
    effect, actions = derived.levels
    assert effect.size == 1
    np.testing.assert_allclose(effect.mean, np.zeros(2), atol=1e-12)
    np.testing.assert_allclose(effect.cov, 3 * np.eye(2), rtol=1e-12)
    np.testing.assert_array_equal(actions.parents[effect.name], np.ones((4, 1)))
    np.testing.assert_array_equal(actions.cov, [0.5, 2.0])
    assert isinstance(derived.reward, Bernoulli)
    assert isinstance(HierTS(hierarchy).backend, Laplace)
    assert isinstance(HierTS(linear(WEIGHTS, 2)).backend, ClosedForm)


@pytest.mark.usefixtures("x64")
def test_hierts_averages_over_the_vectors_of_all_parents():
    model = three_levels()
    dense = dense_posterior(model, NOTHING)
    effect = HierTS(model.hierarchy()).backend.hierarchy.levels[0]
    means, covs = dense.means(), dense.covs()
    mean = np.concatenate([means["zone"], means["brand"]]).mean(0)
    cov = np.concatenate([covs["zone"], covs["brand"]]).mean(0)
    np.testing.assert_allclose(effect.mean, mean, **tolerance())
    np.testing.assert_allclose(effect.cov, cov, **tolerance())


@pytest.mark.usefixtures("x64")
def test_known_effects_are_the_limit_of_certain_ones():
    """The policy's prior is the dense prior of the actions given their parents, nearly."""
    model = three_levels()
    z = np.random.default_rng(3).normal(size=(5, 2))
    truth = SimpleNamespace(levels={"zone": z[:2], "brand": z[2:]})
    own = KnownEffects(model.hierarchy(), truth).backend.hierarchy
    sure = Model(
        [
            Group("zone", 2, mean=z[:2], cov=1e-12),
            Group("brand", 3, mean=z[2:], cov=1e-12),
            model.groups[-1],
        ],
        2,
        noise=model.noise,
    )
    dense = dense_posterior(sure, NOTHING)
    assert len(own.levels) == 1
    np.testing.assert_allclose(own.actions.mean, dense.means()["item"], atol=1e-10)
    expected = np.broadcast_to(own.actions.cov, (4, 2, 2))
    np.testing.assert_allclose(expected, dense.covs()["item"], atol=1e-10)
    assert float(own.reward.noise) == pytest.approx(0.7)


@pytest.mark.usefixtures("x64")
def test_known_effects_go_through_the_link():
    truth = SimpleNamespace(levels={"effect": np.arange(6.0).reshape(3, 2)})
    policy = KnownEffects(nonlinear(WEIGHTS, 2, link=jnp.tanh), truth)
    mean = policy.backend.hierarchy.actions.mean
    np.testing.assert_allclose(mean, np.tanh(WEIGHTS @ truth.levels["effect"]), rtol=1e-12)
    assert policy.backend.hierarchy.actions.link is None


def test_only_known_effects_see_the_truth():
    constructors = [LinTS, GLMTS, HierTS, KnownEffects, NoActionNoise]
    assert [getattr(c, "sees_truth", False) for c in constructors] == [0, 0, 0, 1, 0]


def _effects_without_action_noise(features, rewards, L, d, cov, noise):
    """Posterior of the effects if `y = phi' Psi + noise`: Bayesian linear regression."""
    precision = np.eye(L * d) / cov + features.T @ features / noise**2
    after = np.linalg.inv(precision)
    return after @ features.T @ rewards / noise**2, after


@pytest.mark.parametrize("form", ["scalars", "maps of rank one"])
@pytest.mark.usefixtures("precision")
def test_no_action_noise_is_regression_on_the_effects(form):
    """3,000 rounds, one after the other: effects as by regression on `Gamma_i' x`.

    An action is seen 750 times, so a millionth of the action variance takes 750 / 10^6 of what is
    known of it: that is the error allowed, plus float32's rounding.
    """
    rng = np.random.default_rng(4)
    K, L, d, n = 4, 3, 2, 3000
    maps = WEIGHTS[:, :, None, None] * (np.eye(2) if form == "scalars" else np.diag([1.0, 0.0]))
    hierarchy = finer(maps, effect_cov=3.0, action_cov=1.0, noise=1.0)
    gamma = np.moveaxis(maps, 1, 2).reshape(K, d, L * d)
    x, a = rng.uniform(-1, 1, (n, d)), rng.integers(0, K, n)
    features = np.einsum("nd,ndm->nm", x, gamma[a])
    y = features @ rng.normal(size=L * d) + rng.normal(size=n)
    policy = NoActionNoise(hierarchy)

    def play(state, row):
        return policy.update(state, *row), None

    rows = jnp.asarray(x, float), jnp.asarray(a, jnp.int32), jnp.asarray(y, float)
    state, _ = jax.jit(lambda state: jax.lax.scan(play, state, rows))(
        policy.init(jax.random.key(0))
    )
    known = policy.backend.posterior(state)
    mean, cov = _effects_without_action_noise(features, y, L, d, 3.0, 1.0)
    blocks = np.array([cov[i : i + d, i : i + d] for i in range(0, L * d, d)])
    spread = np.sqrt(np.diagonal(blocks, axis1=1, axis2=2))
    error = np.abs(np.asarray(known.mean["effect"]) - mean.reshape(L, d)) / spread
    assert error.max() < 0.02
    np.testing.assert_allclose(known.cov["effect"], blocks, rtol=2e-3, atol=1e-4)
    assert np.isfinite(known.cov["action"]).all()


def test_no_action_noise_of_clicks_stays_finite_in_float32():
    """The second coordinate of every action is nearly certain: the worst conditioning there is."""
    maps = WEIGHTS[:, :, None, None] * np.diag([1.0, 0.0])
    policy = NoActionNoise(Hierarchy(finer(maps, effect_cov=3.0).levels, Bernoulli(), 2))
    rng = np.random.default_rng(5)
    x, a, y = rng.normal(size=(200, 2)), rng.integers(0, 4, 200), rng.integers(0, 2, 200)
    state = policy.init(jax.random.key(0), room=200)
    state = jax.lax.scan(
        lambda state, row: (policy.update(state, *row), None),
        state,
        (jnp.asarray(x, float), jnp.asarray(a, jnp.int32), jnp.asarray(y, float)),
    )[0]
    known = policy.backend.posterior(state)
    assert np.isfinite(known.mean["action"]).all()
    assert (np.abs(known.mean["action"][:, 1]) < 0.05).all()
    assert (np.abs(known.mean["action"][:, 0]) > 1e-3).all()
    assert policy.status(state).ok


CONSTRUCTORS = {
    "LinTS": LinTS,
    "HierTS": HierTS,
    "NoActionNoise": NoActionNoise,
    "KnownEffects": lambda h: KnownEffects(h, SimpleNamespace(levels={"effect": jnp.ones((3, 2))})),
}


@pytest.mark.parametrize("name", CONSTRUCTORS)
@pytest.mark.usefixtures("x64")
def test_a_traced_hierarchy_gives_the_same_policy(name):
    """Built inside `jit` and `vmap`, one hierarchy for each of two instances."""
    weights = jnp.stack([jnp.asarray(WEIGHTS), 2 * jnp.asarray(WEIGHTS[::-1])])

    def scores(weights):
        hierarchy = linear(weights, 2, effect_cov=3.0, action_cov=0.5)
        policy = CONSTRUCTORS[name](hierarchy)
        state = policy.update(policy.init(jax.random.key(0)), jnp.ones(2), 1, 3.0)
        return policy.backend.sample_scores(jax.random.key(1), state, jnp.ones(2))

    together = jax.jit(jax.vmap(scores))(weights)
    np.testing.assert_allclose(together[1], scores(weights[1]), **tolerance())


HIERARCHY = {
    "not a hierarchy": (lambda: LinTS(np.ones((2, 2))), TypeError, ["LinTS", "Hierarchy"]),
    "noise of zero": (
        lambda: LinTS(linear(WEIGHTS, 2), noise=0.0),
        ValueError,
        ["noise", "positive"],
    ),
    "learned noise": (
        lambda: LinTS(linear(WEIGHTS, 2, noise=dist.HalfNormal(1.0))),
        ValueError,
        ["LinTS", "learned", "noise="],
    ),
    "learned noise, GLMTS": (
        lambda: GLMTS(linear(WEIGHTS, 2, noise=dist.HalfNormal(1.0))),
        ValueError,
        ["GLMTS", "learned", "Gaussian(<number>)"],
    ),
    "no parents": (
        lambda: HierTS(Hierarchy([Level("arm", 3)], Gaussian(), 2)),
        ValueError,
        ["HierTS", "'arm'", "no parents", "LinTS"],
    ),
    "no parents to trust": (
        lambda: NoActionNoise(Hierarchy([Level("arm", 3)], Gaussian(), 2)),
        ValueError,
        ["NoActionNoise", "'arm'", "no parents"],
    ),
    "learned scale": (
        lambda: NoActionNoise(_learning(scale=dist.HalfNormal(1.0))),
        ValueError,
        ["NoActionNoise", "'arm'", "learns its scale", "cov"],
    ),
    "learned weights": (
        lambda: KnownEffects(
            _learning(weights=dist.Normal(0.0, 1.0)),
            SimpleNamespace(levels={"zone": np.ones((2, 2))}),
        ),
        ValueError,
        ["KnownEffects", "'arm'", "learns its weights", "known weights"],
    ),
    "learned mean": (
        lambda: KnownEffects(
            _learning(mean=dist.Normal(0.0, 1.0)),
            SimpleNamespace(levels={"zone": np.ones((2, 2))}),
        ),
        ValueError,
        ["KnownEffects", "'arm'", "learns its mean", "a known mean"],
    ),
    "learned covariance": (
        lambda: NoActionNoise(_learning(cov=LKJCovariance(2))),
        ValueError,
        ["NoActionNoise", "'arm'", "learns its covariance", "cov"],
    ),
}
ENVIRONMENT = {
    "no levels": (
        lambda: KnownEffects(linear(WEIGHTS, 2), object()),
        ValueError,
        ["KnownEffects", "object", "'effect'"],
    ),
    "a level missing": (
        lambda: KnownEffects(linear(WEIGHTS, 2), SimpleNamespace(levels={"zone": np.ones((3, 2))})),
        ValueError,
        ["['zone']", "'effect'"],
    ),
    "a wrong shape": (
        lambda: KnownEffects(
            linear(WEIGHTS, 2), SimpleNamespace(levels={"effect": np.ones((2, 2))})
        ),
        ValueError,
        ["(2, 2)", "(3, 2)"],
    ),
    "the items, not the effects": (
        lambda: KnownEffects(
            three_level(WEIGHTS, np.ones((5, 4)), 2),
            SimpleNamespace(levels={"effect": np.ones((3, 2))}),
        ),
        ValueError,
        ["'item'"],
    ),
}


def _learning(weights=None, **learned) -> Hierarchy:
    parents = {"zone": np.ones((3, 2)) if weights is None else weights}
    return Hierarchy([Level("zone", 2), Level("arm", 3, parents=parents, **learned)], Gaussian(), 2)


@cases(hierarchy=HIERARCHY, environment=ENVIRONMENT)
def test_bad_input_is_refused(declare, error, parts):
    check_refused(declare, error, parts)
