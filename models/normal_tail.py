"""The logarithm of the normal distribution function, with derivatives that keep their digits in the tail.

With `h = phi / Phi`, the slope of `log Phi`, and `g = h + x`,

    (log Phi)' = h,  h' = -h g,  g' = 1 - h g.

Far to the left `h` is close to `-x`, and `g`, close to `-1 / x`, would be all rounding error if it were
computed as their sum: in float32 it has no right digit from `x = -1000` down. There it is a continued
fraction (Abramowitz & Stegun 1964, 26.2.14), `g = 1 / (t + 2 / (t + 3 / (t + ...)))` with `t = -x`.
"""

import jax
import jax.numpy as jnp
from jax import Array
from jax.scipy.special import log_ndtr as plain_log_ndtr
from jaxtyping import Float

__all__ = ["log_difference", "log_ndtr"]

_FAR = -5.0
_TERMS = 20  # of the continued fraction: 1e-13 off at most from there on
_LOG_ROOT = 0.9189385332046727  # log(2 pi) / 2


@jax.custom_jvp
def log_ndtr(x: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """`log Phi(x)`."""
    far = -0.5 * jnp.square(x) - _LOG_ROOT - jnp.log(_hazard(x))
    return jnp.where(x < _FAR, far, plain_log_ndtr(jnp.maximum(x, _FAR)))


@jax.custom_jvp
def _hazard(x: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """`h(x) = phi(x) / Phi(x)`."""
    near = jnp.maximum(x, _FAR)
    close = jnp.exp(-0.5 * jnp.square(near) - _LOG_ROOT - plain_log_ndtr(near))
    return jnp.where(x < _FAR, _fraction(x) - x, close)


@jax.custom_jvp
def _gap(x: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """`g(x) = h(x) + x`."""
    return jnp.where(x < _FAR, _fraction(x), _hazard(x) + x)


def _fraction(x: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """`g(x)` far to the left."""
    t = -jnp.minimum(x, _FAR)
    tail = t
    for k in range(_TERMS, 1, -1):
        tail = t + k / tail
    return 1.0 / tail


log_ndtr.defjvps(lambda tangent, _, x: tangent * _hazard(x))
_hazard.defjvps(lambda tangent, h, x: -tangent * h * _gap(x))
_gap.defjvps(lambda tangent, g, x: tangent * (1.0 - _hazard(x) * g))


def log_difference(a: Float[Array, "*n"], b: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """`log(Phi(a) - Phi(b))` for `a > b`."""
    # From the left, where neither is close to one.
    mirrored = a + b > 0
    a, b = jnp.where(mirrored, -b, a), jnp.where(mirrored, -a, b)
    upper = log_ndtr(a)
    return upper + jnp.log(-jnp.expm1(log_ndtr(b) - upper))
