"""Posteriors of a few unknown numbers by quadrature, from a log density alone."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

__all__ = ["Quadrature", "dense_log_density", "integrated"]


class Quadrature(NamedTuple):
    """Means and standard deviations of some functions of a position, and the log of the integral."""

    mean: dict[str, np.ndarray]
    sd: dict[str, np.ndarray]
    log_integral: float


def integrated(
    log_density: Callable[[Any], Any],
    functions: Callable[[Any], dict[str, Any]],
    p: int,
    order: int,
) -> Quadrature:
    """Moments under a density of `p` numbers, by Gauss-Hermite nodes around its mode.

    A density whose logarithm is a polynomial of degree `2 order` around a Gaussian one is exact. Needs
    float64.
    """
    value = jax.jit(jax.value_and_grad(lambda z: -log_density(z)))
    start = minimize(lambda z: tuple(map(np.asarray, value(z))), np.zeros(p), jac=True).x
    hessian = jax.jit(jax.hessian(lambda z: -log_density(z)))(jnp.asarray(start))
    # Tails of logarithms of scales are heavier than Gaussian ones: nodes reach somewhat further.
    root = 1.25 * np.linalg.inv(np.linalg.cholesky(np.asarray(hessian))).T
    nodes, weights = np.polynomial.hermite_e.hermegauss(order)
    grid = np.array(list(itertools.product(nodes, repeat=p)))
    log_weights = np.log(np.array(list(itertools.product(weights, repeat=p)))).sum(1)
    places = jnp.asarray(start + grid @ root.T)
    densities = np.asarray(jax.lax.map(log_density, places, batch_size=256))
    log_weights = log_weights + 0.5 * np.sum(grid**2, axis=1) + densities
    top = log_weights.max()
    weight = np.exp(log_weights - top)
    total = weight.sum()
    found = jax.lax.map(functions, places, batch_size=256)
    mean = {k: np.tensordot(weight / total, np.asarray(v), 1) for k, v in found.items()}
    square = {k: np.tensordot(weight / total, np.asarray(v) ** 2, 1) for k, v in found.items()}
    sd = {k: np.sqrt(square[k] - mean[k] ** 2) for k in mean}
    log_integral = float(top + np.log(total) + np.linalg.slogdet(root)[1])
    return Quadrature(mean, sd, log_integral)


def dense_log_density(
    design: np.ndarray, rewards: np.ndarray, spread: Any, noise: Any, mean: Any = 0.0
) -> Any:
    """The log density of rewards `design eps + noise`, `eps ~ N(0, diag(spread^2))`, written out."""
    scaled = jnp.asarray(design) * spread
    cov = scaled @ scaled.T + noise**2 * jnp.eye(len(rewards))
    means = jnp.full(len(rewards), mean)
    return jax.scipy.stats.multivariate_normal.logpdf(jnp.asarray(rewards), means, cov)
