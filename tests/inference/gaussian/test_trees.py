"""Levels kept in blocks are exact: the same posterior as by dense conditioning, and as kept jointly."""

import itertools

import equinox as eqx
import jax
import numpy as np
import pytest

from backends import updated
from dense_posterior import dense_posterior, largest_error
from gaussian_models import mixing, rows
from hierarchies import Few, Group, Model, covariance
from mistakes import as_a_user
from mixts.inference import ClosedForm, Laplace, log_evidence
from mixts.inference.gaussian.block_levels import BlockLevels, in_blocks
from mixts.inference.gaussian.joint_levels import joint_levels
from mixts.inference.gaussian.new_vectors import newcomers
from mixts.models import Data, Gaussian, Hierarchy, Level, Poisson, Sparse
from mixts.models import tree as declared_tree
from tolerance import tolerance

NAMES = ["root", "branch", "twig", "leaf"]
COVARIANCES = ["variance", "matrices", "matrix", "diagonal"]


def one_parent(form: str, size: int, num_parents: int, dim: int, rng) -> np.ndarray | Few:
    """Weights of one parent each; the first vector has none, and some parents have no children."""
    parents, values = rng.integers(0, num_parents, size), rng.normal(size=size) / 2 + 1
    values[0] = 0.0
    if form == "sparse":
        return Few(parents[:, None], values[:, None])
    numbers = np.zeros((size, num_parents))
    numbers[np.arange(size), parents] = values
    matrices = rng.normal(size=(size, 1, dim, dim)) / np.sqrt(dim)
    return numbers if form == "numbers" else numbers[..., None, None] * matrices


def tree(
    sizes: list[int], forms: list[str], dim: int, crossed: bool = False, seed: int = 0
) -> Model:
    """Levels below one another; `crossed` puts two correlated levels above, which cross."""
    rng = np.random.default_rng(seed)
    names = NAMES[-len(sizes) :]
    groups = []
    for i, (name, size) in enumerate(zip(names, sizes, strict=True)):
        parents = {}
        if i:
            parents = {names[i - 1]: one_parent(forms[i - 1], size, sizes[i - 1], dim, rng)}
        elif crossed:
            parents = {
                "zone": mixing("matrices", size, 2, dim, rng),
                "maker": mixing("scalars", size, 3, dim, rng),
            }
            groups = [
                Group("zone", 2, cov=covariance("joint", 2, dim, rng)),
                Group("maker", 3, mean=rng.normal(size=dim)),
            ]
        cov, mean = covariance(COVARIANCES[i], size, dim, rng), rng.normal(size=(size, dim))
        groups.append(Group(name, size, parents=parents, mean=mean, cov=cov))
    return Model(groups, dim, noise=0.6)


TREES = {
    "clusters": tree([3, 6], ["numbers"], 1),
    "catalogue": tree([2, 3, 4, 7], ["sparse", "matrices", "numbers"], 2),
    "crossed top": tree([3, 7], ["sparse"], 3, crossed=True),
}


@jax.jit
def exact(hierarchy, seen):
    """The posterior from all rows at once, and from one after the other."""
    backend = ClosedForm(hierarchy)
    states = backend.condition(backend.init(), *seen), updated(backend, backend.init(), *seen)
    posteriors = map(backend.posterior, states)
    return [(found.mean, found.cov, found.log_evidence) for found in posteriors]


@pytest.mark.parametrize("n", [5, 60])
@pytest.mark.parametrize("name", TREES)
def test_exact(name, n, precision):
    model = TREES[name]
    hierarchy = model.hierarchy()
    assert isinstance(ClosedForm(hierarchy).levels, BlockLevels)
    for seed in range(2):
        seen = rows(model, n, np.random.default_rng(seed), taken=5)
        dense = dense_posterior(model, seen)
        for found in exact(hierarchy, seen):
            assert largest_error(*found, dense) < tolerance()["rtol"]


def jointly(backend):
    """The same backend with all levels above the actions in one vector."""
    levels = joint_levels(backend.hierarchy)
    return eqx.tree_at(lambda backend: backend.levels, backend, levels)


def same(one, other, rtol: float = 1e-9) -> None:
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


def test_draws_have_the_joint_covariance(x64):
    """Across levels too: within 5 standard errors, of products of 40,000 draws."""
    model, n = TREES["catalogue"], 40_000
    seen = rows(model, 30, np.random.default_rng(1))
    backend = ClosedForm(model.hierarchy())
    state = backend.condition(backend.init(), *seen)
    draws = backend.posterior(state).draw(jax.random.key(0), n)
    dense = dense_posterior(model, seen)
    stacked = np.concatenate([np.asarray(draws[g.name]).reshape(n, -1) for g in model.groups], 1)
    away = stacked - dense.mean
    for i in range(away.shape[1]):
        products = away[:, i : i + 1] * away
        error = products.mean(0) - dense.cov[i]
        assert (np.abs(error) < 5 * products.std(0) / np.sqrt(n) + 1e-12).all()


def test_forgetting_and_the_slope_of_the_evidence(x64):
    model = TREES["catalogue"]
    seen = rows(model, 30, np.random.default_rng(2))
    backend = ClosedForm(model.hierarchy())
    joint = jointly(backend)
    moments = [
        (posterior.mean, posterior.cov)
        for each in (backend, joint)
        for posterior in [each.posterior(each.forget(each.condition(each.init(), *seen), 0.6))]
    ]
    same(*moments)

    def evidence(backend):
        return backend.condition(backend.init(), *seen).log_evidence

    def slopes(make):
        return eqx.filter_grad(lambda h: evidence(make(h)))(model.hierarchy())

    def of_arrows(slopes):
        """Missing arrows are structure: blocks do not know what one more would change."""
        values = eqx.filter(model.hierarchy(), eqx.is_inexact_array)
        return jax.tree.map(lambda slope, value: slope * (value != 0), slopes, values)

    makers = ClosedForm, lambda h: jointly(ClosedForm(h))
    same(*(of_arrows(slopes(make)) for make in makers), rtol=1e-8)
    same(log_evidence(model.hierarchy(), Data(*seen)), evidence(backend))


@pytest.mark.slow
def test_counts_on_a_tree(x64):
    """Laplace refits one action after a reward, and exchanges what its path to the root was told."""
    model = TREES["catalogue"]
    hierarchy = model.hierarchy().remade(reward=Poisson())
    contexts, actions, _ = rows(model, 12, np.random.default_rng(3))
    counts = np.random.default_rng(4).poisson(2.0, 12).astype(float)
    backend = Laplace(hierarchy, capacity=16)
    joint = jointly(backend)
    found = [updated(each, each.init(), contexts, actions, counts) for each in (backend, joint)]
    same(
        *((p.mean, p.cov) for p in map(lambda b, s: b.posterior(s), (backend, joint), found)), 1e-8
    )
    found = [each.condition(each.init(), contexts, actions, counts) for each in (backend, joint)]
    same(
        *((p.mean, p.cov) for p in map(lambda b, s: b.posterior(s), (backend, joint), found)), 1e-6
    )


def test_an_update_copies_no_level():
    """With donated buffers, what many updates need beside the state is a few numbers."""
    parents = [np.arange(2_000) % 20, np.arange(20_000) % 2_000]
    backend = ClosedForm(declared_tree(parents, 3))
    seen = np.ones((4, 3)), np.arange(4), np.ones(4)
    donating = jax.jit(updated.__wrapped__, donate_argnums=1)
    needs = donating.lower(backend, backend.init(), *seen).compile().memory_analysis()
    assert needs is not None
    assert needs.temp_size_in_bytes < 20_000


def test_which_levels_are_kept_in_blocks():
    def count(weights, **top):
        levels = [Level("top", 2, **top), Level("item", 3, parents={"top": weights})]
        return in_blocks(Hierarchy(levels, Gaussian(1.0), 1))

    assert count([[1, 0], [0, 0], [0, 2]]) == 1
    assert count([[1, 0], [0.5, 0.5], [0, 1]]) == 0
    assert count(Sparse([[0], [1], [1]], [[1.0], [2.0], [0.0]])) == 1
    assert count(Sparse([[0, 1], [1, 0], [1, 0]], [[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]])) == 1
    assert count([[1, 0], [0, 0], [0, 2]], cov=[[1.0, 0.5], [0.5, 1.0]]) == 0


def test_a_tree_may_be_kept_jointly():
    level = Level("item", 2, parents={"top": np.eye(2)}, branching=False)
    assert not level.remade(cov=0.5).branching
    assert not level.remade(branching=None, parents={"top": np.ones((2, 2))}).branching
    assert Level("item", 2, parents={"top": np.eye(2)}).remade(cov=0.5).branching
    with pytest.raises(ValueError, match="branching is True, but some vectors have more than one"):
        Level("item", 2, parents={"top": np.ones((2, 2))}, branching=True)
    with as_a_user(), pytest.raises(TypeError, match="branching is 'yes'; expected True or False"):
        Level("item", 2, branching="yes")


def test_new_actions_of_a_tree_have_one_parent():
    hierarchy = TREES["clusters"].hierarchy()
    newcomers(hierarchy, None, [[0.0, 1.0, 0.0]], mean=[[0.0]], cov=[[[1.0]]])
    with pytest.raises(ValueError, match="some of the new ones have more"):
        newcomers(hierarchy, None, [[0.5, 0.5, 0.0]], mean=[[0.0]], cov=[[[1.0]]])


def test_a_tree_too_large_for_a_joint_covariance():
    """Twenty thousand subcategories: a joint covariance of them would take gigabytes."""
    rng, sizes = np.random.default_rng(5), [50, 1_000, 20_000, 30_000]
    levels = [Level("l0", sizes[0])]
    for i, (above, size) in enumerate(itertools.pairwise(sizes)):
        parents = Sparse(rng.integers(0, above, (size, 1)), np.ones((size, 1)), num_parents=above)
        levels.append(Level(f"l{i + 1}", size, parents={f"l{i}": parents}, cov=0.3))
    backend = ClosedForm(Hierarchy(levels, Gaussian(0.5), 2))
    state = backend.update(backend.init(), [1.0, 0.5], 7, 3.0)
    scores = backend.sample_scores(jax.random.key(0), state, [1.0, 0.5])
    assert np.isfinite(scores).all()
    assert np.isfinite(state.log_evidence)
