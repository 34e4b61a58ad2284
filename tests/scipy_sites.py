"""An action's likelihood as a Gaussian, by SciPy's optimiser: nothing shared with mixts."""

from typing import NamedTuple

import numpy as np
import scipy.optimize
import scipy.special

__all__ = ["Site", "site"]

# A(u), its derivative f and that one's derivative, by family (Section 2.5).
_FAMILIES = {
    "bernoulli": (
        lambda u: np.logaddexp(0, u),
        scipy.special.expit,
        lambda u: scipy.special.expit(u) * scipy.special.expit(-u),
    ),
    "poisson": (np.exp, np.exp, np.exp),
}


class Site(NamedTuple):
    """The point of expansion, `G = sum f'(x' p) x x'` and `B = G p + sum (y - f(x' p)) x`."""

    mode: np.ndarray
    precision: np.ndarray
    information: np.ndarray


def site(family: str, x, y, mean, precision) -> Site:
    """Expand one action's log-likelihood at its mode under the prior `N(mean, precision^-1)`."""
    A, f, df = _FAMILIES[family]

    def loss(theta):
        away, u = theta - mean, x @ theta
        return np.sum(A(u) - y * u) + away @ precision @ away / 2

    def slope(theta):
        return x.T @ (f(x @ theta) - y) + precision @ (theta - mean)

    def curvature(theta):
        return x.T @ (df(x @ theta)[:, None] * x) + precision

    found = scipy.optimize.minimize(loss, mean, method="trust-exact", jac=slope, hess=curvature)
    # It stops where values stop changing, at half the digits; Newton's last steps need no values.
    theta = found.x
    for _ in range(3):
        theta = theta - np.linalg.solve(curvature(theta), slope(theta))
    assert np.abs(slope(theta)).max() < 1e-9 * max(1.0, np.sum(np.abs(y)))
    G = curvature(theta) - precision
    return Site(theta, G, G @ theta + x.T @ (y - f(x @ theta)))
