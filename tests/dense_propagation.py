"""Expectation propagation by the textbook, in NumPy float64.

One covariance matrix of every number of every level, one message after the other, and each integral as a
sum over a fine grid: slow, plain, and nothing shared with mixts.
"""

from collections.abc import Callable

import numpy as np
import scipy.special
import scipy.stats

from dense_posterior import Dense, observation_rows
from hierarchies import Model, Rows
from scipy_density import moments

__all__ = ["LOG_DENSITIES", "dense_propagation", "tilted"]

LogDensity = Callable[[np.ndarray, float], np.ndarray]

LOG_DENSITIES: dict[str, LogDensity] = {
    "bernoulli": lambda u, y: -np.logaddexp(0.0, np.where(y == 1, -u, u)),
    "poisson": lambda u, y: y * u - np.exp(u) - scipy.special.gammaln(y + 1),
    "student": lambda u, y: scipy.stats.t.logpdf(y, 4.0, u, 0.5),
}


def tilted(log_density: LogDensity, y: float, mean: float, variance: float):
    """The log normaliser, the mean and the variance of a density times `N(mean, variance)`."""
    sd = np.sqrt(variance)
    u = mean + sd * np.linspace(-12, 12, 40_001)
    terms = log_density(u, y) + scipy.stats.norm.logpdf(u, mean, sd)
    total = scipy.special.logsumexp(terms)
    p = np.exp(terms - total)
    center = p @ u
    return total + np.log(u[1] - u[0]), center, p @ (u - center) ** 2


def dense_propagation(model: Model, seen: Rows, sweeps: int = 60, damping: float = 1.0) -> Dense:
    """The joint posterior with messages that agree, and the log evidence as they give it."""
    log_density = LOG_DENSITIES[model.reward]
    mean, cov = moments(model)
    H = observation_rows(model, seen.contexts, seen.actions)
    n = len(H)
    tau, nu, share = np.zeros(n), np.zeros(n), np.zeros(n)
    prior = mean, cov
    for _ in range(sweeps):
        before = tau.copy(), nu.copy()
        for i, h in enumerate(H):
            m, v = h @ mean, h @ cov @ h
            v_rest = 1 / (1 / v - tau[i])
            m_rest = v_rest * (m / v - nu[i])
            log_z, m_new, v_new = tilted(log_density, seen.rewards[i], m_rest, v_rest)
            tau[i] += damping * (1 / v_new - 1 / v_rest - tau[i])
            nu[i] += damping * (m_new / v_new - m_rest / v_rest - nu[i])
            spread = 1 + tau[i] * v_rest
            inside = nu[i] * m_rest + nu[i] ** 2 * v_rest / 2 - tau[i] * m_rest**2 / 2
            share[i] = log_z - inside / spread + np.log(spread) / 2
            mean, cov = _conditioned(*prior, H, tau, nu)
        if max(np.abs(tau - before[0]).max(), np.abs(nu - before[1]).max()) < 1e-12:
            break
    # The integral of the prior times all messages.
    H_cov = H @ prior[1] @ H.T
    inner = np.eye(n) + tau[:, None] * H_cov
    u = H @ prior[0]
    tilt = nu - tau * u
    quadratic = tilt @ H_cov @ np.linalg.solve(inner, tilt) / 2
    constant = nu @ u - tau @ u**2 / 2
    gaussian = constant + quadratic - np.linalg.slogdet(inner)[1] / 2
    return Dense(model, mean, cov, gaussian + share.sum())


def _conditioned(mean, cov, H, tau, nu):
    """A Gaussian times messages about `H z`."""
    S = H @ cov
    inner = np.linalg.inv(np.eye(len(H)) + tau[:, None] * (S @ H.T))
    return (
        mean + S.T @ (inner @ (nu - tau * (H @ mean))),
        cov - S.T @ (inner @ (tau[:, None] * S)),
    )
