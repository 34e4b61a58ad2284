"""Weights: sparse ones are the dense ones, only smaller."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpyro.infer.util import log_density

from mixts.models import Gaussian, Hierarchy, Level, Sparse
from mixts.models.weights import in_form
from tolerance import tolerance


def dense(indices, values, parent_size):
    """The matrix that a `Sparse` stands for, entry by entry."""
    matrix = np.zeros((len(indices), parent_size))
    for i, (row, weights) in enumerate(zip(indices, values, strict=True)):
        for j, weight in zip(row, weights, strict=True):
            matrix[i, j] += weight
    return matrix


@st.composite
def patterns(draw):
    """Four vectors with up to three of five parents each: shorter rows are padded with zeros."""
    rows = draw(
        st.lists(st.lists(st.integers(0, 4), max_size=3, unique=True), min_size=4, max_size=4)
    )
    filler = draw(st.integers(0, 4), label="padding")
    indices = np.full((4, 3), filler)
    values = np.zeros((4, 3))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    for i, row in enumerate(rows):
        indices[i, : len(row)] = row
        values[i, : len(row)] = rng.uniform(0.5, 2.0, len(row))
    return indices, values


def test_one_number_for_all_is_not_written_out(x64):
    """A parent for each vector is one index for each: no array of ones."""
    owners = Sparse([[0], [3], [3]], num_parents=5)
    assert sum(leaf.size for leaf in jax.tree.leaves(owners)) == 4
    parents = jnp.asarray(np.random.default_rng(0).normal(size=(5, 2)))
    pairs = Sparse([[0, 1], [3, 2], [3, 4]], 0.5, num_parents=5)
    for found in (owners, pairs):
        out = found.with_values(np.full(found.shape, float(found.values)))
        np.testing.assert_allclose(found.mix(parents), out.mix(parents), **tolerance())
        for i in map(jnp.asarray, range(3)):
            roots = jnp.ones((found.shape[1], 2, 2))
            np.testing.assert_array_equal(found.mix_one(i, parents), out.mix_one(i, parents))
            np.testing.assert_array_equal(found.pull(i, parents[0]), out.pull(i, parents[0]))
            np.testing.assert_array_equal(found.push(i, roots), out.push(i, roots))
        np.testing.assert_array_equal(found.strengths(3, 5)[1], out.values)
    assert Level("item", 3, parents={"top": owners}).branching
    assert not Level("item", 3, parents={"top": pairs}).branching


def test_newcomers_share_the_number_of_the_others():
    """As long as theirs is the same; else all are written out."""
    owners = Sparse([[0], [3], [3]], num_parents=5)
    new = in_form(Sparse([[4]], [[1.0]]), owners, 2, "weights")
    assert new.values.ndim == 0
    joined = owners.join(new, 3, 5)
    assert joined.values.ndim == 0
    np.testing.assert_array_equal(joined.indices[:, 0], [0, 3, 3, 4, 0])
    other = in_form(Sparse([[4]], [[2.0]]), owners, 2, "weights")
    np.testing.assert_array_equal(owners.join(other, 3, 5).values[:, 0], [1, 1, 1, 2, 0])
    wide = in_form(Sparse([[4, 1]]), owners, 2, "weights")
    np.testing.assert_array_equal(owners.join(wide, 3, 4).values, [[1, 0]] * 3 + [[1, 1]])
    assert in_form(Sparse([[4]]), joined.with_values(np.ones((5, 1))), 2, "weights").values.ndim


@given(pattern=patterns())
def test_a_sparse_sum_is_the_dense_one(x64, pattern):
    indices, values = pattern
    parents = jnp.asarray(np.random.default_rng(0).normal(size=(5, 2)))
    found = Sparse(indices, values).mix(parents)
    np.testing.assert_allclose(found, dense(indices, values, 5) @ parents, **tolerance())


def test_sparse_and_dense_declarations_are_the_same_model(precision):
    """The same densities, gradients and draws, for three levels and two sparse parents."""
    rng = np.random.default_rng(1)
    top = np.array([[0, 4], [1, 2], [3, 0]]), rng.normal(size=(3, 2))
    below = np.array([[0], [2], [1], [0]]), rng.normal(size=(4, 1))
    skipped = np.array([[4, 3], [0, 1], [2, 2], [0, 2]]), rng.normal(size=(4, 2))
    skipped[1][2, 1] = 0.0  # padding, which may repeat an index

    def declare(weights):
        parents = {"item": weights(*below, 3), "effect": weights(*skipped, 5)}
        levels = [
            Level("effect", 5),
            Level("item", 3, parents={"effect": weights(*top, 5)}),
            Level("action", 4, parents=parents),
        ]
        return Hierarchy(levels, Gaussian(), 2)

    observed = rng.normal(size=(3, 2)), np.array([0, 3, 1]), rng.normal(size=3)

    @jax.jit
    def everything(hierarchy):
        drawn = hierarchy.sample_prior(jax.random.key(0))
        density = jax.value_and_grad(
            lambda values: log_density(hierarchy.program, observed, {}, values)[0]
        )
        return drawn, density({name: jnp.ones_like(value) for name, value in drawn.items()})

    found, expected = everything(declare(Sparse)), everything(declare(dense))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance()), found, expected)


def test_learned_sparse_weights_are_those_of_the_pattern(x64):
    """Given the weights, the vectors are centred on the same sums as with known ones."""
    indices = np.array([[0, 2], [1, 0]])
    drawn = np.array([[0.5, -1.0], [2.0, 0.3]])
    observed = np.ones((1, 2)), np.array([0]), np.ones(1)
    values = {"effect": jnp.ones((3, 2)), "action": jnp.zeros((2, 2))}

    def density(weights, **learned):
        levels = [Level("effect", 3), Level("action", 2, parents={"effect": weights})]
        program = Hierarchy(levels, Gaussian(), 2).program
        return jax.jit(lambda values: log_density(program, observed, {}, values)[0])(
            values | learned
        )

    learned = density(
        Sparse(indices, dist.Normal(0.0, 2.0)), action_weights_effect=jnp.asarray(drawn)
    )
    prior = dist.Normal(0.0, 2.0).log_prob(drawn).sum()
    np.testing.assert_allclose(learned - prior, density(Sparse(indices, drawn)), **tolerance())


def test_padding_may_repeat_an_index():
    Sparse([[0, 0, 0], [2, 2, 1]], [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])


def test_num_parents_is_the_largest_index_plus_one_unless_given():
    assert Sparse([[0, 3]], [[1.0, 1.0]]).num_parents == 4
    assert Sparse([[0, 3]], [[1.0, 1.0]], num_parents=9).num_parents == 9
    assert Sparse(np.zeros((2, 0), int), np.zeros((2, 0))).num_parents == 1


MILLION = """
import time
import jax, numpy as np
from mixts.benchmarks.timing import peak_memory
from mixts.models import Gaussian, Hierarchy, Level, Sparse
from mixts.models.weights import in_form

size, parents, m, dim = 1_000_000, 100_000, 10, 4
rng = np.random.default_rng(0)
start = time.perf_counter()
# Ten different parents for each action: a random one and those at fixed distances from it.
indices = (rng.integers(0, parents, (size, 1)) + 7919 * np.arange(m)) % parents
weights = Sparse(indices, rng.normal(size=(size, m)).astype(np.float32), num_parents=parents)
levels = [Level("effect", parents), Level("action", size, parents={"effect": weights})]
hierarchy = Hierarchy(levels, Gaussian(), dim)
declared = time.perf_counter()
drawn = jax.block_until_ready(hierarchy.sample_prior(jax.random.key(0)))
done = time.perf_counter()
action, effect = np.asarray(drawn["action"]), np.asarray(drawn["effect"])
assert action.shape == (size, dim) and effect.shape == (parents, dim)
# Given its parents an action has variance one; the standard error of 4e6 squares is 7e-4.
deviation = action - np.einsum("km,kmd->kd", np.asarray(weights.values), effect[indices])
assert abs(deviation.var() - 1.0) < 5 * np.sqrt(2 / deviation.size)
peak = peak_memory() / 2**30
print(f"{peak:.2f} {declared - start:.1f} {done - declared:.1f}")
"""


@pytest.mark.slow
def test_a_million_actions_fit_in_memory():
    """K = 1,000,000 actions on 10 of L = 100,000 effects each, d = 4: below 4 GiB, drawn once.

    Dense, the weights alone would take 400 GB.
    """
    run = subprocess.run(
        [sys.executable, "-c", MILLION], capture_output=True, check=False, text=True
    )
    assert run.returncode == 0, run.stderr
    peak, declaring, drawing = map(float, run.stdout.split())
    print(f"peak {peak:.2f} GiB, declared in {declaring:.1f} s, drawn in {drawing:.1f} s")
    assert peak < 4.0
