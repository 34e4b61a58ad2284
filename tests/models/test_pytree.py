"""A hierarchy is a pytree: numbers are leaves and may be traced, names and sizes are structure."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density

from mixts.models import Data, Gaussian, Hierarchy, Level, Sparse, linear
from tolerance import tolerance

KEY = 7


def assert_same_draws(found, expected):
    """Equal but for the rounding of operations that a compiler fuses."""
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance()), found, expected)


def draw(hierarchy):
    return hierarchy.sample_prior(jax.random.key(KEY))


def crossed(scale: float = 1.0) -> Hierarchy:
    """Everything that may be a leaf, and parents that are not named in alphabetical order."""
    rng = np.random.default_rng(0)
    return Hierarchy(
        [
            Level("zone", 2, scale=dist.HalfNormal(scale)),
            Level(
                "brand",
                3,
                parents={"zone": scale * rng.normal(size=(3, 2))},
                mean=rng.normal(size=(3, 2)),
                cov=scale,
                centered=False,
            ),
            Level(
                "item",
                4,
                parents={
                    "zone": dist.Normal(jnp.zeros((4, 2)), scale),
                    "brand": Sparse(
                        [[0, 1], [1, 2], [2, 0], [0, 2]], scale * rng.normal(size=(4, 2))
                    ),
                },
                cov=scale * np.eye(2),
                link=jnp.tanh,
                labels=["a", "b", "c", "d"],
            ),
        ],
        Gaussian(scale),
        2,
    )


def test_parents_in_another_order_are_the_same_hierarchy():
    rng = np.random.default_rng(0)
    zone, brand = dist.Normal(0.0, 1.0), dist.Normal(rng.normal(size=(3, 2)), 1.0)

    def declare(parents):
        levels = [Level("zone", 1), Level("brand", 2), Level("item", 3, parents=parents)]
        return Hierarchy(levels, Gaussian(), 2)

    first = declare({"zone": zone, "brand": brand})
    second = declare({"brand": brand, "zone": zone})
    assert jax.tree.structure(first) == jax.tree.structure(second)
    jax.tree.map(np.testing.assert_array_equal, draw(first), draw(second))
    assert_same_draws(jax.jit(draw)(first), draw(second))


def test_draws_are_the_same_inside_and_outside_jit(precision):
    """As an argument, where a dict's keys come back sorted, and closed over."""
    hierarchy = crossed()
    expected = draw(hierarchy)
    assert_same_draws(jax.jit(draw)(hierarchy), expected)
    assert_same_draws(jax.jit(lambda: draw(hierarchy))(), expected)


def test_declared_inside_jit(precision):
    """A hierarchy may be declared from traced numbers, with whatever else is known beside them."""
    assert_same_draws(jax.jit(lambda scale: draw(crossed(scale)))(1.5), draw(crossed(1.5)))


def test_tree_map_of_nothing(precision):
    hierarchy = crossed()
    same = jax.tree.map(lambda leaf: leaf, hierarchy)
    assert jax.tree.structure(same) == jax.tree.structure(hierarchy)
    assert same["item"].labels == ("a", "b", "c", "d")
    assert repr(same) == repr(hierarchy)
    assert_same_draws(draw(same), draw(hierarchy))


def test_leaves_are_the_numbers_and_nothing_else():
    paths, _ = jax.tree.flatten_with_path(crossed())
    found = {jax.tree_util.keystr(path) for path, _ in paths}
    assert {".reward.noise", ".levels[2].cov", ".levels[2].parents['brand'].values"} <= found
    assert not any("link" in path or "name" in path or "size" in path for path in found)


def test_to_a_file_and_back(precision, tmp_path):
    hierarchy = crossed()
    leaves, structure = jax.tree.flatten(hierarchy)
    np.savez(tmp_path / "leaves.npz", *leaves)
    with np.load(tmp_path / "leaves.npz") as stored:
        loaded = [jnp.asarray(stored[f"arr_{i}"]) for i in range(len(leaves))]
    again = jax.tree.unflatten(structure, loaded)
    jax.tree.map(np.testing.assert_array_equal, draw(again), draw(hierarchy))
    assert repr(again) == repr(hierarchy)


def test_vmap_over_stacked_hierarchies(precision):
    """One program for a batch of instances that differ in weights, covariances and priors."""
    hierarchies = [crossed(scale) for scale in (0.5, 1.0, 2.0)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack([*map(jnp.asarray, leaves)]), *hierarchies)
    together = jax.jit(jax.vmap(draw))(stacked)
    for i, hierarchy in enumerate(hierarchies):
        one = {name: value[i] for name, value in together.items()}
        assert_same_draws(one, draw(hierarchy))


def test_vmap_over_weights_alone(precision):
    weights = np.random.default_rng(0).normal(size=(3, 4, 2))
    together = jax.vmap(lambda w: draw(linear(w, 2)))(weights)
    for i in range(3):
        one = {name: value[i] for name, value in together.items()}
        assert_same_draws(one, draw(linear(weights[i], 2)))


def test_vmap_over_covariances_and_data(precision):
    """Densities of a batch of hierarchies on a batch of data sets."""
    rng = np.random.default_rng(0)
    weights, variances = rng.normal(size=(4, 2)), np.array([0.5, 1.0, 2.0])
    data = [
        Data(rng.normal(size=(5, 2)), rng.integers(0, 4, 5), rng.normal(size=5)) for _ in range(3)
    ]
    values = draw(linear(weights, 2))

    def density(variance, data):
        return log_density(
            linear(weights, 2, action_cov=variance).program, tuple(data), {}, values
        )[0]

    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *data)
    together = jax.jit(jax.vmap(density))(variances, stacked)
    alone = jax.jit(density)
    expected = [alone(variance, rows) for variance, rows in zip(variances, data, strict=True)]
    np.testing.assert_allclose(together, expected, **tolerance())


def test_gradient_in_every_number(x64):
    """The density's slope in each leaf, against a finite difference in one entry of each."""
    rng = np.random.default_rng(0)
    hierarchy = linear(rng.normal(size=(3, 2)), 2, action_cov=[0.5, 2.0], noise=0.7)
    values = draw(hierarchy)
    data = Data(rng.normal(size=(4, 2)), [0, 1, 2, 0], rng.normal(size=4))

    @jax.jit
    def density(hierarchy):
        return log_density(hierarchy.program, tuple(data), {}, values)[0]

    leaves, structure = jax.tree.flatten(hierarchy)
    slopes = jax.tree.leaves(jax.jit(jax.grad(density))(hierarchy))
    for i, (leaf, slope) in enumerate(zip(leaves, slopes, strict=True)):
        first = (0,) * leaf.ndim

        def moved(step, i=i, leaf=leaf, first=first):
            changed = [*leaves[:i], leaf.at[first].add(step), *leaves[i + 1 :]]
            return density(jax.tree.unflatten(structure, changed))

        difference = (moved(1e-5) - moved(-1e-5)) / 2e-5
        # A central difference errs by step^2 and by rounding / step, both about 1e-10 here.
        np.testing.assert_allclose(slope[first], difference, rtol=1e-6, atol=1e-6)


def test_a_level_can_be_replaced():
    """`dataclasses.replace` declares anew, so its checks run again."""
    level = Level("action", 3, scale=dist.HalfNormal(1.0), mean=1.0)
    assert float(replace(level, mean=2.0).mean) == 2.0
    with pytest.raises(ValueError, match="level 'action': size: got 0"):
        replace(level, size=0)
    hierarchy = linear(np.ones((3, 2)), 2)
    with pytest.raises(ValueError, match=r"mean has shape \(3,\)"):
        replace(
            hierarchy, levels=[replace(hierarchy["effect"], mean=np.ones(3)), hierarchy.actions]
        )


def test_repr_of_what_only_stands_for_numbers():
    """Inside `jit`, stacked for `vmap`, or shapes without numbers, as a debugger may meet it."""
    hierarchy = crossed()
    stacked = jax.tree.map(lambda leaf: jnp.stack([jnp.asarray(leaf)] * 2), hierarchy)
    abstract = jax.eval_shape(lambda: hierarchy)
    seen = []
    jax.jit(lambda h: seen.append(repr(h)))(hierarchy)
    for text in (repr(stacked), repr(abstract), *seen):
        assert text.startswith("Hierarchy of 3 levels, dim 2\n  zone")
