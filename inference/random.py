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
from ..models.messages import short

__all__ = ["fused_key", "plain_key", "standard_normal"]

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
            raise ValueError(f"key is {short(key)}; expected one seed, or jax.random.key(seed)")
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


# Giles (2010), "Approximating the erfinv function", single precision: the centre, and the tails.
_CENTRE = (
    *(2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087),
    *(-0.00125372503, -0.00417768164, 0.246640727, 1.50140941),
)
_TAILS = (
    *(-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773),
    *(-0.0076224613, 0.00943887047, 1.00167406, 2.83297682),
)


def standard_normal(key: Array, shape: tuple[int, ...], dtype: jnp.dtype) -> Array:
    """Independent standard normal numbers.

    In float32 they are `sqrt(2) erfinv(u)` as in `jax.random.normal`, with the logarithm of
    `(1 - u) (1 + u)` in place of `log1p(-u^2)`: as exact for the 2^23 values that `u` takes, and half the
    time. In float64 they are `jax.random.normal`'s.
    """
    if dtype != jnp.float32:
        return jax.random.normal(key, shape, dtype)
    bits = jax.random.bits(key, shape, jnp.uint32)
    # 23 random bits behind the exponent of [2, 4); then the middles of 2^23 equal parts of (-1, 1).
    mantissa = (bits >> jnp.uint32(9)) | jnp.uint32(0x40000000)
    u = jax.lax.bitcast_convert_type(mantissa, jnp.float32) - 3.0 + jnp.float32(2.0**-23)
    return math.sqrt(2.0) * _inverse_erf(u)


def _inverse_erf(u: Array) -> Array:
    """`erfinv(u)` for float32 `u` strictly between -1 and 1."""
    w = -jnp.log((1.0 - u) * (1.0 + u))
    central = w < 5.0
    v = jnp.where(central, w - 2.5, jnp.sqrt(w) - 3.0)
    value = jnp.where(central, _CENTRE[0], _TAILS[0])
    for centre, tails in zip(_CENTRE[1:], _TAILS[1:], strict=True):
        value = jnp.where(central, centre, tails) + value * v
    return value * u
