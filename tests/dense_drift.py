"""Levels that drift, by the textbook, in NumPy float64.

`dense_drift` has every number at every round in one Gaussian and conditions it on all rewards at once: no
filter, nothing that goes from round to round. `dense_filter` matches one reward after the other, each
integral a sum over a fine grid, and adds the covariance of a step to a dense matrix.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import scipy.linalg
import scipy.stats

from dense_posterior import Dense, observation_rows
from dense_propagation import LOG_DENSITIES, tilted
from hierarchies import Model, Rows
from scipy_density import moments

__all__ = ["declared", "dense_drift", "dense_filter", "step_covariance"]

Drifts = Mapping[str, np.ndarray]


def declared(model: Model, drifts: Drifts):
    """The hierarchy with levels that drift."""
    hierarchy = model.hierarchy()
    levels = [level.remade(drift=drifts.get(level.name)) for level in hierarchy.levels]
    return hierarchy.remade(levels=levels)


def step_covariance(model: Model, drifts: Drifts) -> np.ndarray:
    """The covariance of what all numbers change by in a round."""
    groups = [replace(g, cov=drifts.get(g.name, 0.0), mean=0.0) for g in model.groups]
    return moments(replace(model, groups=groups))[1]


def dense_drift(
    model: Model, drifts: Drifts, seen: Rows, moments_of_rows: np.ndarray, now: float
) -> Dense:
    """What is known `now` of rewards that were seen at some moments, counted in rounds."""
    mean, cov = moments(model)
    step = step_covariance(model, drifts)
    H = observation_rows(model, seen.contexts, seen.actions)
    shared = np.minimum(moments_of_rows[:, None], moments_of_rows[None, :])
    V = H @ cov @ H.T + shared * (H @ step @ H.T) + model.noise**2 * np.eye(len(H))
    cross = H @ cov + moments_of_rows[:, None] * (H @ step)
    gain = scipy.linalg.solve(V, cross, assume_a="pos").T
    return Dense(
        model,
        mean + gain @ (seen.rewards - H @ mean),
        cov + now * step - gain @ cross,
        scipy.stats.multivariate_normal.logpdf(seen.rewards, H @ mean, V),
    )


def dense_filter(
    model: Model, drifts: Drifts, seen: Rows, moments_of_rows: np.ndarray, now: float
) -> Dense:
    """The same for rewards of any law, each matched when it came."""
    log_density, step = LOG_DENSITIES[model.reward], step_covariance(model, drifts)
    (mean, cov), evidence, before = moments(model), 0.0, 0.0
    H = observation_rows(model, seen.contexts, seen.actions)
    for h, y, moment in zip(H, seen.rewards, moments_of_rows, strict=True):
        cov, before = cov + (moment - before) * step, moment
        m, v, pull = h @ mean, h @ cov @ h, cov @ h
        log_z, m_new, v_new = tilted(log_density, y, m, v)
        mean = mean + pull * (m_new - m) / v
        cov = cov - np.outer(pull, pull) * (v - v_new) / v**2
        evidence += log_z
    return Dense(model, mean, cov + (now - before) * step, evidence)
