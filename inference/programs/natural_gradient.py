"""A Gaussian fitted to a density by natural gradients, which are the same in any coordinates."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

__all__ = ["RootNormal", "climb", "lower_bound"]

MEAN_SHARE = 0.6  # of the step of the mean
RADIUS = 0.5  # of a step, in the metric below


class RootNormal(NamedTuple):
    """`N(loc, root root')` with a lower triangular root."""

    loc: Float[Array, " N"]
    root: Float[Array, "N N"]


def climb(
    law: RootNormal, noise: Float[Array, "P N"], slopes: Float[Array, "P N"], rate: float | Array
) -> RootNormal:
    """One step towards `exp(-U)`, given the slopes of `U` at `loc + root noise`.

    Around the law itself write `loc + root (delta + (I + D) noise)` with `D` lower triangular. In
    `delta`, `D` the Fisher information is one, and two on the diagonal of `D`; so the natural gradient
    of the divergence from `exp(-U)` is `E w` and `E w noise'`, halved on the diagonal, where
    `w = root' slope - noise` (Glasmachers et al. 2010, Sec. 4; Lin et al. 2021, Sec. 3). Because `w` is
    the gradient along the path only (Roeder et al. 2017), it is zero for every draw, not on average
    alone, where the law is right.

    Where `U` is quadratic, `P` draws take `D` to zero in mean square if its step is below about
    `P / (P + N + 1)`: the draws see `P` of `N` directions. `rate` is the share of that. A step is at
    most `RADIUS` long, so that slopes far from the mode cannot turn the root over, and is left out
    where it is not finite. Costs `O(N^3 + P N^2)`.
    """
    draws, size = noise.shape
    off = slopes @ law.root - noise
    delta = -rate * MEAN_SHARE * off.mean(0)
    change = -rate / (draws + size + 1) * jnp.tril(off.T @ noise)
    along = 0.5 * jnp.diagonal(change)
    below = jnp.tril(change, -1)
    delta = _shortened(delta, jnp.sum(delta**2))
    square = jnp.sum(below**2) + 2.0 * jnp.sum(along**2)
    turn = _shortened(below, square) + jnp.diag(jnp.exp(_shortened(along, square)))
    return RootNormal(law.loc + law.root @ delta, law.root @ turn)


def _shortened(part: Array, square: Float[Array, ""]) -> Array:
    """A part of a step of that squared length, to be no longer; none if it is not finite."""
    share = jnp.minimum(1.0, RADIUS / jnp.sqrt(square + 1e-30))
    return jnp.where(jnp.isfinite(square), share * part, 0.0)


def lower_bound(
    law: RootNormal, noise: Float[Array, "P N"], energies: Float[Array, " P"]
) -> Float[Array, ""]:
    """The evidence lower bound `E[-U - log q]`, from the energies `U` of the draws `loc + root noise`."""
    size = noise.shape[-1]
    log_det = jnp.sum(jnp.log(jnp.diagonal(law.root)))
    log_q = -0.5 * jnp.sum(noise**2, axis=-1) - 0.5 * size * jnp.log(2.0 * jnp.pi) - log_det
    return -jnp.mean(energies + log_q)
