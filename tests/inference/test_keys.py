"""Keys written out draw bit for bit what JAX's own keys draw."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mistakes import as_a_user
from mixts.inference.random import fused_key, plain_key

SEEDS = (0, 1, 2026, 2**31 - 1)


def numbers(value) -> np.ndarray:
    """What a draw holds; of keys, their words."""
    if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    return np.asarray(value)


def assert_same_draws(draw, seed: int = 7) -> None:
    """The same function of both keys gives the same bits, of the same type."""
    ours, theirs = draw(fused_key(seed)), draw(jax.random.key(seed))
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for found, expected in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        found, expected = numbers(found), numbers(expected)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def nested(key):
    """Keys of keys of keys."""
    first, second = jax.random.split(key)
    third = jax.random.split(jax.random.fold_in(second, 3), (2, 3))[1, 2]
    return jax.random.normal(third, (4,)) + jax.random.uniform(first, (4,))


DRAWS = {
    "normal": lambda key: jax.random.normal(key, (3, 5)),
    "one normal": lambda key: jax.random.normal(key),
    "nothing": lambda key: jax.random.normal(key, (0, 3)),
    "uniform": lambda key: jax.random.uniform(key, (7,), minval=-2.0, maxval=3.0),
    "integers": lambda key: jax.random.randint(key, (50,), 0, 1000),
    "few integers": lambda key: jax.random.randint(key, (), 0, 3),
    "coins": lambda key: jax.random.bernoulli(key, 0.3, (40,)),
    "order": lambda key: jax.random.permutation(key, 20),
    "short words": lambda key: jax.random.bits(key, (9,), "uint8"),
    "half words": lambda key: jax.random.bits(key, (9,), "uint16"),
    "words": lambda key: jax.random.bits(key, (9,), "uint32"),
    "two keys": lambda key: jax.random.split(key),
    "a table of keys": lambda key: jax.random.split(key, (2, 3)),
    "another key": lambda key: jax.random.fold_in(key, 12345),
    "keys of keys": nested,
}


@pytest.mark.usefixtures("precision")
def test_draws_are_those_of_jax():
    assert_same_draws(jax.jit(lambda key: {name: draw(key) for name, draw in DRAWS.items()}))


def test_draws_are_those_of_jax_outside_jit():
    assert_same_draws(DRAWS["normal"])
    assert_same_draws(DRAWS["a table of keys"])
    assert_same_draws(DRAWS["another key"])


@pytest.mark.parametrize("name", ["normal", "integers", "keys of keys"])
def test_draws_of_many_keys_at_a_time(name):
    """Of five keys that were split off, or had a traced number folded in."""
    draw = DRAWS[name]

    def many(key):
        folded = jax.vmap(lambda n: draw(jax.random.fold_in(key, n)))(jnp.arange(5))
        return jax.vmap(draw)(jax.random.split(key, 5)), folded

    assert_same_draws(jax.jit(many))


@pytest.mark.usefixtures("x64")
def test_long_words_and_large_numbers():
    @jax.jit
    def draw(key):
        words = jax.random.bits(key, (5, 2), "uint64")
        whole = jax.random.randint(key, (9,), 0, 2**60, "int64")
        return words, whole, jax.random.fold_in(key, np.uint32(2**32 - 1))

    assert_same_draws(draw)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_and_keys_of_both_styles_are_the_same_key(seed):
    expected = np.asarray(jax.random.key_data(jax.random.key(seed)))
    kinds = (
        seed,
        np.int64(seed),
        jnp.asarray(seed),
        jax.random.key(seed),
        jax.random.PRNGKey(seed),
    )
    for given in kinds:
        key = fused_key(given)
        assert key.shape == ()
        np.testing.assert_array_equal(jax.random.key_data(key), expected)
        np.testing.assert_array_equal(jax.random.key_data(fused_key(key)), expected)


def test_a_key_may_be_traced():
    found = jax.jit(lambda key: jax.random.normal(fused_key(key), (3,)))(jax.random.key(4))
    np.testing.assert_array_equal(found, jax.random.normal(jax.random.key(4), (3,)))


def test_a_plain_key_is_jax_own():
    """`jax.random.poisson` takes no other."""
    key = plain_key(fused_key(3))
    assert key.dtype == jax.random.key(3).dtype
    np.testing.assert_array_equal(jax.random.key_data(key), jax.random.key_data(jax.random.key(3)))


def test_the_rounds_are_written_out():
    """What it is for: no loop and no call that XLA could not merge with its neighbours."""
    draw = lambda key: jax.random.bits(key, (8,), "uint32")  # noqa: E731
    compiled = jax.jit(draw).lower(fused_key(0)).compile().as_text()
    assert "while" not in compiled
    assert "while" in jax.jit(draw).lower(jax.random.key(0)).compile().as_text()


REFUSED = {
    "a fraction": (1.5, TypeError, "whole numbers"),
    "a fraction of an array": (jnp.asarray(2.0), TypeError, "whole numbers"),
    "nothing": (None, TypeError, "expected whole numbers"),
    "words": ("seed", TypeError, "whole numbers"),
    "a negative seed": (-1, ValueError, "holds -1"),
    "true": (True, TypeError, "whole numbers"),
    "a seed too large": (2**31, ValueError, "2147483647"),
    "seeds": ([1, 2, 3], ValueError, "expected one seed"),
    "keys": (jax.random.split(jax.random.key(0), 3), ValueError, "one key"),
    "old keys": (jax.random.split(jax.random.PRNGKey(0), 3), ValueError, "expected one seed"),
    "another generator": (jax.random.key(0, impl="rbg"), ValueError, "Threefry"),
    "a third": (jax.random.key(0, impl="unsafe_rbg"), ValueError, "Threefry"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_key_is_refused(name):
    given, error, message = REFUSED[name]
    with as_a_user(), pytest.raises(error, match=message):
        fused_key(given)
