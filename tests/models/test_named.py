"""The paper's models by name: their densities are those of the paper's equations."""

import jax.numpy as jnp
import numpy as np
import pytest

from check_density import check_density
from hierarchies import Few, Group, Model, covariance, dirichlet
from mixts.models import (
    Bernoulli,
    Poisson,
    Sparse,
    finer,
    glm,
    linear,
    mab,
    nonlinear,
    three_level,
)

K, J, L, D = 4, 3, 2, 3


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def two_levels(rng, dim=D, **changes):
    """What the paper's two-level models share: effects with a joint prior, mixed by weights."""
    effect = Group(
        "effect", L, mean=rng.normal(size=(L, dim)), cov=covariance("joint", L, dim, rng)
    )
    cov = covariance("matrices", K, dim, rng)
    weights = changes.pop("weights", rng.normal(size=(K, L)))
    action = Group(
        "action", K, parents={"effect": weights}, cov=cov, link=changes.pop("link", None)
    )
    return Model([effect, action], dim, **changes)


def shared(model):
    """The arguments that all declarations by name take."""
    effect, action = model.groups[0], model.groups[-1]
    return {"effect_mean": effect.mean, "effect_cov": effect.cov, "action_cov": action.cov}


def test_linear(precision, rng):
    model = two_levels(rng, noise=0.7)
    weights = model.groups[1].parents["effect"]
    check_density(model, hierarchy=linear(weights, D, **shared(model), noise=0.7))


def test_mab_in_the_papers_shapes(precision, rng):
    """Means (L,), a joint covariance (L, L) and variances (K,): scalars have no trailing axis."""
    model = two_levels(rng, dim=1, noise=0.7)
    given = shared(model)
    given["effect_mean"] = given["effect_mean"][:, 0]
    given["action_cov"] = given["action_cov"][:, 0, 0]
    weights = model.groups[1].parents["effect"]
    check_density(model, hierarchy=mab(weights, **given, noise=0.7))
    lists = {name: value.tolist() for name, value in given.items()}
    check_density(model, hierarchy=mab(weights.tolist(), **lists, noise=0.7))


def test_mab_in_the_shapes_of_the_others(precision, rng):
    model = two_levels(rng, dim=1)
    weights = model.groups[1].parents["effect"]
    check_density(model, hierarchy=mab(weights, **shared(model)))
    plain = Model([Group("effect", L), Group("action", K, parents={"effect": weights})], 1)
    check_density(plain, hierarchy=mab(weights))


@pytest.mark.parametrize(
    ("family", "given"),
    [
        ("bernoulli", {}),
        ("bernoulli", {"reward": Bernoulli()}),
        ("poisson", {"reward": Poisson()}),
    ],
    ids=["default", "Bernoulli", "Poisson"],
)
def test_glm(precision, rng, family, given):
    model = two_levels(rng, reward=family)
    weights = model.groups[1].parents["effect"]
    check_density(model, hierarchy=glm(weights, D, **shared(model), **given))


def test_finer(precision, rng):
    model = two_levels(rng, weights=rng.normal(size=(K, L, D, D)), noise=0.7)
    maps = model.groups[1].parents["effect"]
    check_density(model, hierarchy=finer(maps, **shared(model), noise=0.7))


def test_finer_with_multiples_of_the_identity_is_linear(precision, rng):
    """Appendix E.2: `C_il = b_il I` is the linear model."""
    model = two_levels(rng)
    weights = model.groups[1].parents["effect"]
    maps = weights[:, :, None, None] * np.eye(D)
    check_density(model, hierarchy=finer(maps, **shared(model)))


@pytest.mark.parametrize(
    ("link", "given"), [("sigmoid", {}), ("tanh", {"link": jnp.tanh})], ids=["default", "tanh"]
)
def test_nonlinear(precision, rng, link, given):
    model = two_levels(rng, link=link, noise=0.7)
    weights = model.groups[1].parents["effect"]
    check_density(model, hierarchy=nonlinear(weights, D, **shared(model), noise=0.7, **given))


def test_three_level(precision, rng):
    outer = two_levels(rng, noise=0.7)
    item = Group(
        "item",
        J,
        parents={"effect": rng.normal(size=(J, L))},
        cov=covariance("matrices", J, D, rng),
    )
    action = Group("action", K, parents={"item": rng.normal(size=(K, J))}, cov=outer.groups[1].cov)
    model = Model([outer.groups[0], item, action], D, noise=0.7)
    hierarchy = three_level(
        item.parents["effect"],
        action.parents["item"],
        D,
        **shared(model),
        item_cov=item.cov,
        noise=0.7,
    )
    check_density(model, hierarchy=hierarchy)


def test_sparse_weights(precision, rng):
    """There are as many effects as `Sparse` says, or else its largest index plus one."""
    indices, values = np.array([[0], [1], [0], [1]]), rng.normal(size=(K, 1))
    model = two_levels(rng, weights=Few(indices, values))
    check_density(model, hierarchy=linear(Sparse(indices, values), D, **shared(model)))
    assert linear(Sparse(indices, values, num_parents=9), D)["effect"].size == 9


def test_learned_weights(precision, rng):
    law = dirichlet((K,), (K, L), rng)
    model = two_levels(rng, weights=law)
    check_density(model, hierarchy=linear(law.prior(), D, **shared(model)))
