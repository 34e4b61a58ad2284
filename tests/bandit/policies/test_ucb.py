"""Upper confidence bounds against NumPy, formula by formula, with an inversion for every action."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.special

from mistakes import cases, check_refused
from mixts.bandit.policies.glm_ucb import GLMUCB, UCBGLM
from mixts.bandit.policies.lin_ucb import LinUCB
from mixts.models import Bernoulli, Gaussian, Hierarchy, Poisson, linear

K, D = 4, 2
WEIGHTS = np.random.default_rng(0).uniform(-1, 1, (K, 3))
EFFECT_COV, ACTION_COV = 3.0, 0.5
REWARDS = {"gaussian": Gaussian(0.8), "clicks": Bernoulli(), "counts": Poisson()}
MEANS = {"gaussian": lambda u: u, "clicks": scipy.special.expit, "counts": np.exp}
SLOPES = {
    "gaussian": np.ones_like,
    "clicks": lambda u: scipy.special.expit(u) * scipy.special.expit(-u),
    "counts": np.exp,
}


def hierarchy(family="gaussian"):
    reward = REWARDS[family]
    levels = linear(WEIGHTS, D, effect_cov=EFFECT_COV, action_cov=ACTION_COV).levels
    return Hierarchy(levels, Gaussian(0.8) if family == "gaussian" else reward, D)


def typical_norm():
    marginal = ACTION_COV + EFFECT_COV * (WEIGHTS**2).sum(1)
    return np.sqrt(np.mean(D * marginal))


def maximum(x, y, family, ridge, dispersion):
    """Newton's method on `log L(theta) - ridge |theta|^2 / 2`, halving steps that overshoot."""
    theta = np.zeros(D)

    def score(theta):
        return x.T @ (y - MEANS[family](x @ theta)) / dispersion - ridge * theta

    for _ in range(200):
        curved = (x.T * SLOPES[family](x @ theta)) @ x / dispersion + ridge * np.eye(D)
        step = np.linalg.solve(curved, score(theta))
        while np.linalg.norm(score(theta + step)) > np.linalg.norm(score(theta)) + 1e-12:
            step = step / 2
        theta = theta + step
    assert np.linalg.norm(score(theta)) < 1e-10
    return theta


class Reference:
    """Keeps all observations; `indices` starts from them every time."""

    def __init__(self, policy, family, ridge=1.0, horizon=None, delta=None):
        self.policy, self.family, self.ridge = policy, family, ridge
        self.horizon, self.delta = horizon, delta
        self.seen = [([], []) for _ in range(K)]
        self.t = 1

    def update(self, x, a, y):
        self.seen[a][0].append(x)
        self.seen[a][1].append(y)
        self.t += 1

    def indices(self, context):
        rows = np.broadcast_to(context, (K, D))
        return np.array([self.index(i, rows[i]) for i in range(K)])

    def index(self, i, x):
        X, y = np.array(self.seen[i][0]).reshape(-1, D), np.array(self.seen[i][1])
        V = self.ridge * np.eye(D) + X.T @ X
        norm = np.sqrt(x @ np.linalg.inv(V) @ x)
        n = self.t if self.horizon is None else self.horizon
        delta = 1 / n if self.delta is None else self.delta
        S, family = typical_norm(), self.family
        reach = np.linspace(-S, S, 10_001)
        if self.policy is LinUCB:
            sigma = {"gaussian": 0.8, "clicks": 0.5, "counts": np.exp(S / 2)}[family]
            theta = np.linalg.inv(V) @ X.T @ y
            ratio = np.linalg.det(V) ** 0.5 * np.linalg.det(self.ridge * np.eye(D)) ** -0.5
            beta = sigma * np.sqrt(2 * np.log(ratio / delta)) + np.sqrt(self.ridge) * S
            return x @ theta + beta * norm
        theta = maximum(X, y, family, self.ridge, 0.8**2 if family == "gaussian" else 1.0)
        kappa = SLOPES[family](reach).min()
        if self.policy is UCBGLM:
            sigma = {"gaussian": 0.8, "clicks": 0.5, "counts": np.exp(S / 2)}[family]
            alpha = sigma / kappa * np.sqrt(D / 2 * np.log(1 + 2 * n / D) + np.log(1 / delta))
            return x @ theta + alpha * norm
        largest = {"gaussian": S + 2.4, "clicks": 1.0, "counts": np.exp(S) + 3 * np.exp(S / 2)}
        constant = np.sqrt(3 + 2 * np.log(1 + 2 / self.ridge))
        rho = 2 * SLOPES[family](reach).max() * constant * largest[family] / kappa
        rho *= np.sqrt(2 * D * np.log(self.t) * np.log(2 * D * n / delta))
        return MEANS[family](x @ theta) + rho * norm


def draw(family, u, rng):
    if family == "gaussian":
        return u + 0.8 * rng.normal()
    return float(
        rng.random() < scipy.special.expit(u) if family == "clicks" else rng.poisson(np.exp(u))
    )


SETTINGS = [
    pytest.param(LinUCB, "gaussian", {}, (D,), id="LinUCB"),
    pytest.param(
        LinUCB,
        "gaussian",
        {"horizon": 500, "delta": 0.1, "regularisation": 0.3},
        (K, D),
        id="LinUCB, options",
    ),
    pytest.param(LinUCB, "clicks", {}, (D,), id="LinUCB, clicks"),
    pytest.param(LinUCB, "counts", {}, (D,), id="LinUCB, counts"),
    pytest.param(UCBGLM, "clicks", {}, (D,), id="UCBGLM, clicks"),
    pytest.param(UCBGLM, "counts", {"horizon": 500}, (K, D), id="UCBGLM, counts"),
    pytest.param(GLMUCB, "clicks", {}, (K, D), id="GLMUCB, clicks"),
    pytest.param(
        GLMUCB,
        "counts",
        {"delta": 0.1, "regularisation": 2.0},
        (D,),
        id="GLMUCB, counts",
        marks=pytest.mark.slow,
    ),
    pytest.param(
        GLMUCB, "gaussian", {"horizon": 500}, (D,), id="GLMUCB, gaussian", marks=pytest.mark.slow
    ),
]


@pytest.mark.parametrize(("policy", "family", "options", "shape"), SETTINGS)
@pytest.mark.usefixtures("x64")
def test_indices_and_choices_are_those_of_the_formulas(policy, family, options, shape):
    rng = np.random.default_rng(1)
    ours = policy(hierarchy(family), **options)
    named = {("ridge" if name == "regularisation" else name): v for name, v in options.items()}
    theirs = Reference(policy, family, **named)
    theta = rng.normal(size=(K, D))
    state = ours.init(jax.random.key(0), room=40)
    for _ in range(40):
        x = rng.uniform(-1, 1, shape)
        expected = theirs.indices(x)
        np.testing.assert_allclose(ours.indices(state, x), expected, rtol=1e-9, atol=1e-9)
        action = int(ours.act(jax.random.key(2), state, jnp.asarray(x)))
        assert action == np.argmax(expected >= expected.max() - 1e-9)
        own = np.broadcast_to(x, (K, D))[action]
        reward = draw(family, own @ theta[action], rng)
        state = ours.update(state, x, action, reward)
        theirs.update(own, action, reward)
    assert ours.status(state).ok


def play(policy, theta, contexts, noise):
    """Actions of a run in one scan, with rewards that depend on the chosen action alone."""

    def step(state, row):
        context, eps = row
        action = policy.act(jax.random.key(0), state, context)
        x = context if context.ndim == 1 else context[action]
        return policy.update(state, context, action, jnp.exp(x @ theta[action]) + eps), action

    state = policy.init(jax.random.key(0), room=len(noise))
    return jax.lax.scan(step, state, (contexts, noise))


PLAYERS = {
    "LinUCB": lambda h: LinUCB(h),
    "UCBGLM": lambda h: UCBGLM(h, horizon=30, slope=0.5),
}


@pytest.mark.parametrize("name", PLAYERS)
@pytest.mark.usefixtures("x64")
def test_permuted_actions_are_chosen_in_their_new_places_inside_jit_scan_and_vmap(name):
    """Two runs at once: the second with actions, contexts and hierarchy in another order."""
    rng = np.random.default_rng(2)
    n, order = 30, np.array([2, 0, 3, 1])
    theta, contexts = rng.normal(size=(K, D)), rng.uniform(-1, 1, (n, K, D))
    noise = np.zeros(n)

    def run(weights, theta, contexts):
        policy = PLAYERS[name](linear(weights, D, effect_cov=3.0))
        return play(policy, theta, contexts, noise)

    pairs = [
        jnp.stack([jnp.asarray(own), jnp.asarray(moved)])
        for own, moved in [
            (WEIGHTS, WEIGHTS[order]),
            (theta, theta[order]),
            (contexts, contexts[:, order]),
        ]
    ]
    _, actions = jax.jit(jax.vmap(run))(*pairs)
    np.testing.assert_array_equal(order[actions[1]], actions[0])
    assert len(set(np.asarray(actions[0]).tolist())) > 1
    policy = PLAYERS[name](linear(WEIGHTS, D, effect_cov=3.0))
    state = policy.init(jax.random.key(0), room=n)
    for x, taken in zip(contexts[:5], np.asarray(actions[0]), strict=False):
        assert int(policy.act(jax.random.key(0), state, jnp.asarray(x))) == taken
        state = policy.update(state, x, int(taken), np.exp(x[taken] @ theta[taken]))


def test_separable_clicks_have_finite_bounds():
    """Rewards without a maximum of the likelihood, in float32: one action always, one never."""
    ours = UCBGLM(hierarchy("clicks"))
    n = 300
    x = np.random.default_rng(3).uniform(0.1, 1.0, (n, D))
    taken = np.arange(n) % 2
    rows = jnp.asarray(x, float), jnp.asarray(taken, jnp.int32), jnp.asarray(1.0 - taken)
    state, _ = jax.lax.scan(
        lambda state, row: (ours.update(state, *row), None),
        ours.init(jax.random.key(0), room=n),
        rows,
    )
    indices = np.asarray(ours.indices(state, np.ones(D)))
    assert np.isfinite(indices).all()
    assert indices[0] < indices[2], "what was never taken is the least certain"
    estimate = np.asarray(state.estimates.actions.center)
    assert (estimate[:, 0] > 0).all()
    assert np.abs(estimate).max() < 20
    assert ours.status(state).ok


@pytest.mark.usefixtures("x64")
def test_options_enter_where_the_formulas_say():
    """Before any data `V = lambda I`: the bound is the radius times `|x| / sqrt(lambda)`."""
    x = np.array([0.6, 0.8])

    def first(policy):
        return float(policy.indices(policy.init(jax.random.key(0)), x)[0])

    told = hierarchy("clicks")
    lin = LinUCB(told, delta=0.1, regularisation=4.0, norm=3.0, noise=2.0, width=0.5)
    expected = 0.5 * (2.0 * np.sqrt(2 * np.log(10)) + 2.0 * 3.0) / 2.0
    assert first(lin) == pytest.approx(expected, rel=1e-12)
    glm_ = UCBGLM(told, horizon=50, slope=0.25, noise=0.3, width=2.0)
    expected = 2.0 * (0.3 / 0.25) * np.sqrt(1.0 * np.log(1 + 50) + np.log(50))
    assert first(glm_) == pytest.approx(expected, rel=1e-12)
    assert first(UCBGLM(told, norm=2.0, horizon=7)) == pytest.approx(
        first(UCBGLM(told, slope=SLOPES["clicks"](2.0), horizon=7)), rel=1e-12
    )
    # At t = 1 the logarithm of t is zero: all that is left is f(0).
    assert first(GLMUCB(told, horizon=50)) == pytest.approx(0.5, rel=1e-12)


@pytest.mark.parametrize("policy", [LinUCB, UCBGLM])
@pytest.mark.usefixtures("x64")
def test_what_cannot_be_used_is_counted_and_changes_nothing(policy):
    ours = policy(hierarchy())
    state = ours.update(ours.init(jax.random.key(0)), np.ones(D), 1, 2.0)
    before = ours.indices(state, np.ones(D))
    update = jax.jit(ours.update)
    state = update(state, jnp.ones(D), jnp.int32(K), 1.0)
    state = update(state, jnp.ones(D), jnp.int32(0), jnp.nan)
    state = update(state, jnp.full(D, jnp.inf), jnp.int32(0), 1.0)
    np.testing.assert_array_equal(ours.indices(state, np.ones(D)), before)
    assert int(ours.status(state).counts["rejected"]) == 3


@pytest.mark.slow
def test_float32_keeps_up_over_many_rounds():
    """20,000 rounds: the ridge estimate, `V^{-1}` and its determinant as by sums in float64."""
    rng = np.random.default_rng(4)
    n = 20_000
    x, a, y = rng.uniform(-1, 1, (n, D)), rng.integers(0, K, n), rng.normal(size=n)
    ours = LinUCB(hierarchy())
    rows = jnp.asarray(x, float), jnp.asarray(a, jnp.int32), jnp.asarray(y, float)
    state, _ = jax.lax.scan(
        lambda state, row: (ours.update(state, *row), None), ours.init(jax.random.key(0)), rows
    )
    for i in range(K):
        V = np.eye(D) + x[a == i].T @ x[a == i]
        assert float(state.log_det[i]) == pytest.approx(np.linalg.slogdet(V)[1], rel=1e-3)
        root = np.asarray(state.actions.root)[:, :, i]
        np.testing.assert_allclose(root @ root.T @ V, np.eye(D), atol=1e-2)
        theta = np.linalg.solve(V, x[a == i].T @ y[a == i])
        np.testing.assert_allclose(state.actions.center[:, i], theta, atol=1e-4)


def _learned() -> Hierarchy:
    return linear(WEIGHTS, D, noise=dist.HalfNormal(1.0))


REFUSED = {
    "not a hierarchy": (lambda: LinUCB(3), TypeError, ["LinUCB", "3", "Hierarchy"]),
    "learned noise": (lambda: LinUCB(_learned()), ValueError, ["LinUCB", "learned", "Gaussian("]),
    "horizon of zero": (
        lambda: UCBGLM(hierarchy(), horizon=0),
        ValueError,
        ["UCBGLM horizon", "0", "at least 1"],
    ),
    "delta of one": (
        lambda: LinUCB(hierarchy(), delta=1.0),
        ValueError,
        ["LinUCB delta", "below 1"],
    ),
    "delta of zero": (
        lambda: GLMUCB(hierarchy(), delta=0.0),
        ValueError,
        ["GLMUCB delta", "0", "positive"],
    ),
    "no regularisation": (
        lambda: UCBGLM(hierarchy(), regularisation=0.0),
        ValueError,
        ["regularisation", "positive"],
    ),
    "negative width": (lambda: LinUCB(hierarchy(), width=-1.0), ValueError, ["width", "-1"]),
    "several norms": (lambda: LinUCB(hierarchy(), norm=np.ones(4)), ValueError, ["norm", "(4,)"]),
    "flat slope": (
        lambda: UCBGLM(hierarchy(), slope=0.0),
        ValueError,
        ["UCBGLM slope", "positive"],
    ),
    "noise": (lambda: UCBGLM(hierarchy(), noise=-0.5), ValueError, ["UCBGLM noise", "-0.5"]),
    "steepest": (lambda: GLMUCB(hierarchy(), steepest=0.0), ValueError, ["GLMUCB steepest"]),
    "largest": (lambda: GLMUCB(hierarchy(), largest="one"), TypeError, ["GLMUCB largest", "'one'"]),
    "a context too long": (
        lambda: LinUCB(hierarchy()).indices(
            LinUCB(hierarchy()).init(jax.random.key(0)), np.ones(3)
        ),
        ValueError,
        ["context", "(3,)", "(2,)", "(4, 2)"],
    ),
}


@cases(ucb=REFUSED)
def test_bad_input_is_refused(declare, error, parts):
    check_refused(declare, error, parts)
