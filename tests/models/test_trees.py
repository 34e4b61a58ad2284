"""Trees by name: the density is that of every node around its parent, and what is no tree is refused."""

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

from check_density import check_density
from hierarchies import Few, Group, Model, covariance
from mistakes import cases, check_refused
from mixts.models import Bernoulli, Gaussian, tree

D = 2
SHOP = [["food", "toys", "food"], ["tea", "lego", "tea", "milk"]]
LABELS = [["food", "toys"], ["tea", "lego", "milk"], ["oolong", "castle", "sencha", "oat"]]


def test_density(precision):
    rng = np.random.default_rng(0)
    parents = [np.array([0, 0, 2]), np.array([1, 0, 1, 1])]
    names = ["department", "category", "product"]
    mean, cov = rng.normal(size=(3, D)), covariance("joint", 3, D, rng)
    groups = [Group(names[0], 3, mean=mean, cov=cov)]
    for name, above, own in zip(names[1:], names, parents, strict=False):
        arrows = {above: Few(own[:, None], np.ones((len(own), 1)))}
        own_cov = covariance("matrices", len(own), D, rng)
        groups.append(Group(name, len(own), parents=arrows, cov=own_cov))
    given = {"root_mean": mean, "root_cov": cov, "covs": [group.cov for group in groups[1:]]}
    declared = tree(parents, D, names=names, reward=Gaussian(0.7), **given)
    check_density(Model(groups, D, noise=0.7), hierarchy=declared)


def test_labels_stand_for_positions():
    labelled = tree(SHOP, D, labels=LABELS)
    numbered = tree([[0, 1, 0], [0, 1, 0, 2]], D)
    for one, other in zip(labelled.levels, numbered.levels, strict=True):
        assert one.name == other.name
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            np.testing.assert_array_equal(a, b)
    assert labelled.actions.labels == tuple(LABELS[2])
    assert labelled["level_0"].labels == ("food", "toys")
    pairs = [("food", "tea"), ("toys", "lego")]
    by_tuples = tree([pairs[::-1]], D, labels=[pairs, None])
    np.testing.assert_array_equal(by_tuples.actions.parents["level_0"].indices, [[1], [0]])
    column = np.array([1, 0], object)
    np.testing.assert_array_equal(tree([column], D).actions.parents["level_0"].indices, [[1], [0]])


def test_scales_and_nodes_without_children():
    law = dist.HalfNormal(1.0)
    found = tree([[0, 0], [1]], 1, scales=[law, None], covs=[None, 0.3], num_roots=4)
    assert [level.size for level in found.levels] == [4, 2, 1]
    assert [level.scale is None for level in found.levels] == [True, False, True]
    assert float(found.actions.cov) == pytest.approx(0.3)
    learned = tree([[0]], 1, root_scale=law, scales=law, reward=Bernoulli())
    assert sorted(learned.unknowns.laws) == ["action_scale", "level_0_scale"]


def test_declared_inside_jit():
    """A policy of a simulation is declared there, from arrays that are known."""

    @jax.jit
    def spread(cov):
        declared = tree([np.array([0, 0, 2])], 1, covs=cov)
        assert declared["level_0"].size == 3
        return declared.actions.cov

    assert float(spread(0.5)) == 0.5


def test_a_parent_is_one_index():
    """Nothing is as large as nodes times parents, and no weight is written out."""
    K = 100_000
    declared = tree([np.zeros(1000, int), np.arange(K) % 1000], 3)
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(declared)) < 4 * (K + 1000) + 200


AB = [["a", "b"], None]
PARENTS = {
    "no levels": (
        lambda: tree([], D),
        TypeError,
        ["is []; expected a list with the parents of each"],
    ),
    "not by level": (lambda: tree([0, 1], D), TypeError, ["parents[0] is 0", "such as [0, 0, 1]"]),
    "an array": (lambda: tree(np.zeros(3, int), D), TypeError, ["such as [[0, 0, 1]]"]),
    "an empty level": (lambda: tree([[0, 1], []], D), ValueError, ["parents[1] is empty"]),
    "negative": (lambda: tree([[0, -1]], D), ValueError, ["holds -1; every entry must be from 0"]),
    "out of range": (
        lambda: tree([[0, 1], [0, 2]], D),
        ValueError,
        ["level 'action': parents in level 'level_1': holds 2; every entry must be from 0 to 1"],
    ),
    "beyond the roots": (lambda: tree([[0, 5]], D, num_roots=5), ValueError, ["holds 5", "0 to 4"]),
    "two parents": (
        lambda: tree([[0, (0, 1)]], D),
        ValueError,
        ["level 'action': node 1 has the parents (0, 1); in a tree every node has one", "by Level"],
    ),
    "two labels": (
        lambda: tree([["a", ["a", "b"]]], D, labels=AB),
        ValueError,
        ["node 1 has the parents ['a', 'b']; in a tree every node has one"],
    ),
    "one-hot": (lambda: tree([np.eye(3)], D), ValueError, ["has shape (3, 3)", "argmax(1)"]),
    "floats": (lambda: tree([[0.0]], D), TypeError, ["type float64; expected whole numbers"]),
    "truth values": (lambda: tree([[True]], D), TypeError, ["type bool; expected whole numbers"]),
    "no labels": (
        lambda: tree([["a"]], D),
        ValueError,
        ["node 0 has the parent 'a'", "pass labels"],
    ),
    "unknown label": (
        lambda: tree([["a", "c"]], D, labels=AB),
        ValueError,
        ["node 1 has the parent 'c'", "or its label there, which has 'a', 'b'"],
    ),
    "not hashable": (
        lambda: tree([["a", {}]], D, labels=AB),
        ValueError,
        ["node 1 has the parent {}"],
    ),
}
OPTIONS = {
    "a label twice": (
        lambda: tree([[0, 1]], D, labels=[None, ["x", "x"]]),
        ValueError,
        ["level 'action': got 2 labels, 1 of them different"],
    ),
    "labels of one level": (
        lambda: tree([[0]], D, labels=["ab"]),
        ValueError,
        ["1 entries", "of 2"],
    ),
    "a name twice": (lambda: tree([[0]], D, names=["a", "a"]), ValueError, ["rename one level"]),
    "a name": (
        lambda: tree([[0]], D, names="ab"),
        ValueError,
        ["names: got 'ab'; expected a list of 2"],
    ),
    "two covs": (lambda: tree([[0]], D, covs=[1.0, 2.0]), ValueError, ["covs", "or a list of 1"]),
    "by level or entry": (lambda: tree([[0]], D, covs=np.ones(2)), ValueError, ["or a list of 1"]),
    "a known scale": (
        lambda: tree([[0]], D, scales=2.0),
        TypeError,
        ["scale is 2.0; expected a NumPyro"],
    ),
    "no roots": (lambda: tree([[0]], D, num_roots=0), ValueError, ["num_roots: got 0"]),
}


@cases(parents=PARENTS, options=OPTIONS)
def test_fails_when_declared(declare, error, parts):
    check_refused(declare, error, parts)
