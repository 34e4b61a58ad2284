"""Regret bounds against the paper's theorems, written out once more in plain Python floats."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mistakes import cases, check_refused
from mixts.bandit.bound import regret_bound
from mixts.models import (
    Gaussian,
    Hierarchy,
    Level,
    Sparse,
    finer,
    glm,
    linear,
    nonlinear,
    three_level,
)

pytestmark = pytest.mark.usefixtures("x64")

# The paper's setting: contexts from [-1, 1]^2, so that their squared norm is at most 2.
K, L, D, N, KAPPA_X = 100, 3, 2, 5000, 2.0
WEIGHTS = np.random.default_rng(0).uniform(-1, 1, (K, L))


def theorem(K, L, d, n, kappa_x, kappa_b, sigma, sigma_0, sigma_psi, delta):
    """Theorem 1, as it stands in the paper."""
    a = kappa_x * sigma_0**2
    c_a = a / math.log(1 + a / sigma**2)
    actions = d * K * c_a * math.log(1 + n * a / (d * sigma**2))
    e = kappa_x * kappa_b * sigma_psi**2
    c_e = e * (1 + a / sigma**2) / math.log(1 + e / sigma**2)
    inside = K * kappa_b * sigma_psi**2 / (sigma_0**2 + sigma**2 / (n * kappa_x))
    effects = d * L * c_e * math.log(1 + inside)
    c = math.sqrt(2 / math.pi * kappa_x * (sigma_0**2 + kappa_b * sigma_psi**2)) * K
    return with_total(n, actions, effects, c, delta)


def general(K, L, d, n, kappa_x, kappa_b, sigma, high, low, psi, delta):
    """The general version, as it stands in the paper's appendix."""
    c_a = kappa_x * high / math.log(1 + kappa_x * high / sigma**2)
    actions = d * K * c_a * math.log(1 + n * kappa_x * high / (sigma**2 * d))
    e = kappa_x * kappa_b * high**2 * psi
    c_e = e * (1 + kappa_x * high / sigma**2) / (low**2 * math.log(1 + e / (sigma**2 * low**2)))
    inside = 1 / low - 1 / (high**2 * (kappa_x * n / sigma**2 + 1 / low))
    effects = d * L * c_e * math.log(1 + K * kappa_b * psi * inside)
    c = math.sqrt(2 / math.pi * kappa_x * (high + high**2 * psi * kappa_b / low**2)) * K
    return with_total(n, actions, effects, c, delta)


def with_total(n, actions, effects, c, delta):
    """The bound, its two terms, and what failing confidence intervals add."""
    rest = c * n * delta
    total = math.sqrt(2 * n * (actions + effects) * math.log(1 / delta)) + rest
    return total, actions, effects, rest


def parts(bound):
    return [float(part) for part in bound[:4]]


def paper(weights=WEIGHTS, dim=D, sigma_0=1.0, sigma_psi=math.sqrt(3.0), noise=1.0):
    return linear(weights, dim, effect_cov=sigma_psi**2, action_cov=sigma_0**2, noise=noise)


def bound(horizon=N, kappa_x=KAPPA_X, agent="mets", **changes):
    return float(regret_bound(paper(**changes), horizon, kappa_x, agent=agent).total)


@pytest.mark.parametrize("delta", [None, 0.05])
def test_isotropic_covariances_give_the_theorem(delta):
    hierarchy = paper(sigma_0=0.7, sigma_psi=1.9, noise=1.3)
    ours = regret_bound(hierarchy, N, KAPPA_X, delta)
    kappa_b = max(float(b @ b) for b in WEIGHTS)
    theirs = theorem(K, L, D, N, KAPPA_X, kappa_b, 1.3, 0.7, 1.9, delta or 1 / N)
    np.testing.assert_allclose(parts(ours), theirs, rtol=1e-12)
    assert float(ours.kappa_b) == pytest.approx(kappa_b, rel=1e-12)
    assert float(ours.delta) == pytest.approx(delta or 1 / N)


def test_a_bound_by_hand():
    """One action, one effect, all constants one, `delta = 1/e`: logarithms of 2 and of 1.5."""
    ours = regret_bound(linear([[1.0]], 1), 1, 1.0, math.exp(-1))
    log2 = math.log(2)
    effects = 2 / log2 * math.log(1.5)
    rest = math.sqrt(4 / math.pi) * math.exp(-1)
    np.testing.assert_allclose(
        parts(ours), [math.sqrt(2 * (1 + effects)) + rest, 1.0, effects, rest], rtol=1e-12
    )


def covariances(size, dim, rng):
    root = rng.normal(size=(size, dim, dim))
    return root @ np.swapaxes(root, -1, -2) / dim + 0.2 * np.eye(dim)


@pytest.mark.parametrize("form", ["scalars", "matrices", "sparse"])
def test_any_covariances_and_weights_give_the_general_version(form):
    """Correlated effects and a covariance for each action; eigenvalues by NumPy, `Gamma_i` dense."""
    rng = np.random.default_rng(1)
    size, effects, dim, noise = 6, 3, 2, 0.8
    own, psi = covariances(size, dim, rng), covariances(1, effects * dim, rng)[0]
    gamma = np.zeros((size, dim, effects, dim))
    if form == "matrices":
        weights = rng.normal(size=(size, effects, dim, dim))
        gamma = np.moveaxis(weights, 1, 2)
    else:
        dense = rng.normal(size=(size, effects))
        dense[:, 1] = 0.0
        kept = [0, 2, 1]  # the last is padding
        weights = Sparse(np.tile(kept, (size, 1)), dense[:, kept]) if form == "sparse" else dense
        gamma = np.einsum("kl,de->kdle", dense, np.eye(dim))
    gamma = gamma.reshape(size, dim, effects * dim)
    hierarchy = Hierarchy(
        [
            Level("effect", effects, cov=psi),
            Level("action", size, parents={"effect": weights}, cov=own, mean=3.0),
        ],
        Gaussian(noise),
        dim,
    )
    kappa = max(np.linalg.eigvalsh(g.T @ g)[-1] for g in gamma)
    values = np.linalg.eigvalsh(own)
    high, low, top = values.max(), values.min(), np.linalg.eigvalsh(psi)[-1]
    ours = regret_bound(hierarchy, 300, 1.7, 0.01)
    theirs = general(size, effects, dim, 300, 1.7, kappa, noise, high, low, top, 0.01)
    np.testing.assert_allclose(parts(ours), theirs, rtol=1e-10)


def test_matrix_weights_that_scale_are_scalar_weights():
    maps = WEIGHTS[:, :, None, None] * np.eye(D)
    scalars = regret_bound(paper(), N, KAPPA_X)
    matrices = regret_bound(finer(maps, effect_cov=3.0, action_cov=1.0), N, KAPPA_X)
    np.testing.assert_allclose(parts(matrices), parts(scalars), rtol=1e-12)


def test_crossed_effects_are_one_vector_of_effects():
    """Two levels of effects, with scalar and with matrix weights, as one level of three."""
    rng = np.random.default_rng(2)
    zone, brand = rng.normal(size=(4, 1)), rng.normal(size=(4, 2, D, D))

    def crossed(zone_cov, brand_cov):
        parents = {"zone": zone, "brand": brand}
        levels = [Level("zone", 1, cov=zone_cov), Level("brand", 2, cov=brand_cov)]
        return Hierarchy([*levels, Level("arm", 4, parents=parents)], Gaussian(), D)

    together = np.concatenate([zone[:, :, None, None] * np.eye(D), brand], axis=1)
    expected = parts(regret_bound(finer(together, effect_cov=2.0), 100, 1.0))
    np.testing.assert_allclose(
        parts(regret_bound(crossed(2.0, 2.0), 100, 1.0)), expected, rtol=1e-12
    )
    np.testing.assert_allclose(
        parts(regret_bound(crossed([0.5, 0.1], 2.0), 100, 1.0)), expected, rtol=1e-12
    )


def test_a_parent_named_twice_counts_with_the_sum_of_its_weights():
    """Only inside `jit` can that happen: elsewhere it is refused."""

    @jax.jit
    def kappa(values):
        weights = Sparse(jnp.array([[0, 1, 0], [1, 0, 1]]), values, num_parents=2)
        return regret_bound(linear(weights, 1), 10, 1.0).kappa_b

    values = jnp.array([[1.0, 2.0, 3.0], [1.0, 1.0, 1.0]])
    assert float(kappa(values)) == pytest.approx((1 + 3) ** 2 + 2**2)


def test_known_effects_leave_the_actions_only():
    ours = regret_bound(paper(sigma_0=0.7), N, KAPPA_X, agent="known_effects")
    nearly = theorem(K, L, D, N, KAPPA_X, 1.0, 1.0, 0.7, 1e-5, 1 / N)
    assert float(ours.effect_term) == 0.0
    np.testing.assert_allclose(parts(ours), nearly, rtol=1e-6, atol=1e-6)


def test_no_action_noise_leaves_the_effects_only():
    kappa_b = max(float(b @ b) for b in WEIGHTS)
    ours = regret_bound(paper(sigma_0=0.7), N, KAPPA_X, agent="no_action_noise")
    nearly = theorem(K, L, D, N, KAPPA_X, kappa_b, 1.0, 1e-7, math.sqrt(3), 1 / N)
    assert float(ours.action_term) == 0.0
    np.testing.assert_allclose(parts(ours), nearly, rtol=1e-6, atol=1e-6)
    shaped = linear(WEIGHTS, D, effect_cov=3.0, action_cov=[0.1, 4.0])
    other = regret_bound(shaped, N, KAPPA_X, agent="no_action_noise")
    np.testing.assert_allclose(parts(other), parts(ours), rtol=1e-12)


def test_an_unstructured_agent_learns_actions_with_the_marginal_prior():
    kappa_b = max(float(b @ b) for b in WEIGHTS)
    ours = regret_bound(paper(sigma_0=0.7), N, KAPPA_X, agent="unstructured")
    marginal = math.sqrt(0.7**2 + 3 * kappa_b)
    expected = theorem(K, L, D, N, KAPPA_X, 1.0, 1.0, marginal, 1e-5, 1 / N)
    assert float(ours.effect_term) == 0.0
    np.testing.assert_allclose(parts(ours), expected, rtol=1e-6, atol=1e-6)


def test_structure_pays_as_the_paper_says():
    """Oracles are below meTS and meTS below the unstructured agent, in the paper's setting."""
    mets = bound()
    assert bound(agent="known_effects") < mets
    assert bound(agent="no_action_noise") < mets
    assert mets < bound(agent="unstructured")
    # About sqrt(K / L) where effects are far more uncertain than actions.
    ratio = [bound(agent=agent, sigma_0=1e-2, sigma_psi=3.0) for agent in ("unstructured", "mets")]
    assert ratio[0] / ratio[1] > 0.5 * math.sqrt(K / L)


GROWING = {
    "K": [{"weights": WEIGHTS[np.arange(size) % K]} for size in (100, 200, 400)],
    "L": [
        {"weights": np.pad(WEIGHTS, ((0, 0), (0, more))), "sigma_psi": 1.0} for more in (0, 2, 7)
    ],
    "d": [{"dim": dim} for dim in (1, 2, 5, 20)],
    "sigma_0": [{"sigma_0": s} for s in (1e-3, 0.01, 0.1, 0.5, 1.0, 3.0)],
    "sigma_psi": [{"sigma_psi": s} for s in (1e-3, 0.01, 0.1, 1.0, 10.0)],
    "n": [{"horizon": n} for n in (1, 2, 10, 1000, 100_000)],
    "kappa_x": [{"kappa_x": k} for k in (1e-3, 0.1, 1.0, 10.0)],
}


@pytest.mark.parametrize("name", GROWING)
def test_the_bound_grows(name):
    totals = [bound(**changes) for changes in GROWING[name]]
    assert all(low < high for low, high in itertools.pairwise(totals)), totals


def test_few_actions_may_cost_less_with_more_noise():
    """The exception that the docstring names: `K sigma^2 < d L c_E`."""
    few = {"weights": WEIGHTS[:2]}
    assert bound(sigma_0=1e-3, **few) > bound(sigma_0=2e-2, **few)


def test_hierarchies_are_bounded_inside_jit_and_vmap():
    weights = jnp.stack([jnp.asarray(WEIGHTS), 2 * jnp.asarray(WEIGHTS)])

    def totals(weights, noise):
        hierarchy = linear(weights, D, effect_cov=3.0, noise=noise)
        agents = ("mets", "unstructured", "known_effects", "no_action_noise")
        return [regret_bound(hierarchy, N, KAPPA_X, agent=agent).total for agent in agents]

    together = jax.jit(jax.vmap(totals))(weights, jnp.array([1.0, 0.5]))
    alone = totals(weights[1], 0.5)
    np.testing.assert_allclose([total[1] for total in together], alone, rtol=1e-10)


def test_float32_is_close():
    expected = parts(regret_bound(paper(sigma_0=0.01), N, KAPPA_X))
    with jax.enable_x64(False):
        ours = parts(regret_bound(paper(sigma_0=0.01), N, KAPPA_X))
    np.testing.assert_allclose(ours, expected, rtol=1e-5)


REFUSED = {
    "not a hierarchy": (lambda: regret_bound(WEIGHTS, N, 1.0), TypeError, ["Hierarchy"]),
    "three levels": (
        lambda: regret_bound(three_level(np.ones((4, 3)), np.ones((5, 4)), 2), N, 1.0),
        ValueError,
        ["'effect'", "'item'", "has parents", "two levels"],
    ),
    "one level": (
        lambda: regret_bound(Hierarchy([Level("arm", 3)], Gaussian(), 2), N, 1.0),
        ValueError,
        ["'arm'", "no parents", "two levels"],
    ),
    "clicks": (lambda: regret_bound(glm(WEIGHTS, 2), N, 1.0), ValueError, ["Bernoulli", "linear("]),
    "a link": (
        lambda: regret_bound(nonlinear(WEIGHTS, 2), N, 1.0),
        ValueError,
        ["link", "linear("],
    ),
    "horizon of zero": (lambda: regret_bound(paper(), 0, 1.0), ValueError, ["horizon", "0"]),
    "half a round": (lambda: regret_bound(paper(), 1.5, 1.0), ValueError, ["horizon", "1.5"]),
    "negative kappa_x": (lambda: regret_bound(paper(), N, -1.0), ValueError, ["kappa_x", "-1"]),
    "kappa_x for each": (
        lambda: regret_bound(paper(), N, np.ones(3)),
        ValueError,
        ["kappa_x", "(3,)"],
    ),
    "delta of one": (lambda: regret_bound(paper(), N, 1.0, 1.0), ValueError, ["delta", "below 1"]),
    "delta of zero": (
        lambda: regret_bound(paper(), N, 1.0, 0.0),
        ValueError,
        ["delta", "positive"],
    ),
    "another agent": (
        lambda: regret_bound(paper(), N, 1.0, agent="oracle"),
        ValueError,
        ["'oracle'", "'known_effects'"],
    ),
}


@cases(bound=REFUSED)
def test_bad_input_is_refused(declare, error, parts):
    check_refused(declare, error, parts)
