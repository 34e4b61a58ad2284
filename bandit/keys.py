"""Random keys that give the same numbers as JAX's own, in code that XLA can merge with its neighbours.

JAX's generator, Threefry-2x32 with 20 rounds (Salmon et al. 2011), is a loop on a CPU: quick to
compile, but a loop cannot be merged with what uses its numbers, and in a round of a bandit it takes
longer than everything else together. Here the rounds are written out. Keys made with `fused_key` go
wherever JAX's keys go, and every draw from them is the one that `jax.random.key` would give.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.random import define_prng_impl

from ..models.arrays import as_integers

__all__ = ["fused_key", "plain_key"]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def _threefry(key: Array, high: Array, low: Array) -> tuple[Array, Array]:
    """The two words that a key (2,) makes of a counter's two words."""
    words = (key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(0x1BD11BDA))
    x, y = high + words[0], low + words[1]
    for i in range(5):
        for turn in _ROTATIONS[i % 2]:
            x = x + y
            y = x ^ ((y << jnp.uint32(turn)) | (y >> jnp.uint32(32 - turn)))
        x = x + words[(i + 1) % 3]
        y = y + words[(i + 2) % 3] + jnp.uint32(i + 1)
    return x, y


def _counted(key: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Two words for each place of an array."""
    low = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    return _threefry(key, jnp.zeros_like(low), low)


def _bits(key: Array, width: int, shape: tuple[int, ...]) -> Array:
    x, y = _counted(key, shape)
    if width == 64:
        return (x.astype(jnp.uint64) << 32) | y.astype(jnp.uint64)
    return (x ^ y).astype(f"uint{width}")


def _split(key: Array, shape: tuple[int, ...]) -> Array:
    return jnp.stack(_counted(key, shape), axis=-1)


def _fold_in(key: Array, data: Any) -> Array:
    return jnp.stack(_threefry(key, jnp.uint32(0), jnp.asarray(data).astype(jnp.uint32)))


def _seed(seed: Array) -> Array:
    return jax.random.key_data(jax.random.key(seed, impl="threefry2x32"))


_FUSED = define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_bits,
    fold_in=_fold_in,
    name="mixts_threefry2x32_written_out",
    tag="mix",
)


def fused_key(key: Any) -> Array:
    """The key that draws as `key` does: a seed, or a key of `jax.random.key` or `PRNGKey`."""
    if isinstance(key, Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        words = jax.random.key_data(key)
    elif isinstance(key, Array) and key.dtype == jnp.uint32 and key.shape == (2,):
        words = key
    else:
        if np.ndim(key):
            raise ValueError(f"key is {key!r}; expected one seed, or jax.random.key(seed)")
        seed = as_integers(key, "key")
        words = jax.random.key_data(jax.random.key(seed, impl="threefry2x32"))
    if words.shape != (2,):
        raise ValueError(
            f"key holds words of shape {words.shape}; expected one key of JAX's Threefry generator: "
            "write jax.random.key(seed)"
        )
    return jax.random.wrap_key_data(words, impl=_FUSED)


def plain_key(key: Array) -> Array:
    """The same key as JAX's own, which some draws of JAX insist on (`jax.random.poisson`)."""
    return jax.random.wrap_key_data(jax.random.key_data(key), impl="threefry2x32")
