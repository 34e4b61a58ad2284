"""The posterior of a linear-Gaussian hierarchy by the textbook, in NumPy float64.

One covariance matrix of every number of every level, a row for each observation, and the formula for
conditioning a Gaussian: slow, plain, and nothing shared with mixts.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.stats

from hierarchies import Few, Model, Rows
from scipy_density import moments, offsets

__all__ = [
    "Dense",
    "dense_posterior",
    "largest_error",
    "level_slices",
    "posterior_by_sums",
    "slope_of_evidence",
]


class Dense(NamedTuple):
    """The joint posterior of all levels, stacked from top to bottom."""

    model: Model
    mean: np.ndarray
    cov: np.ndarray
    log_evidence: float

    def means(self) -> dict[str, np.ndarray]:
        """(size, d) for each level."""
        return {
            name: self.mean[part].reshape(-1, self.model.dim)
            for name, part in level_slices(self.model).items()
        }

    def covs(self) -> dict[str, np.ndarray]:
        """(size, d, d) for each level."""
        d = self.model.dim
        starts = {name: range(s.start, s.stop, d) for name, s in level_slices(self.model).items()}
        return {
            name: np.array([self.cov[i : i + d, i : i + d] for i in places])
            for name, places in starts.items()
        }


def level_slices(model: Model) -> dict[str, slice]:
    """Where the numbers of each level stand."""
    start = offsets(model)
    return {g.name: slice(start[g.name], start[g.name] + g.size * model.dim) for g in model.groups}


def observation_rows(model: Model, contexts: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """The matrix H with `E[y] = H z` for the numbers `z` of all levels."""
    first = level_slices(model)[model.groups[-1].name]
    H = np.zeros((len(actions), first.stop))
    for row, context, action in zip(H, contexts, actions, strict=True):
        start = first.start + action * model.dim
        row[start : start + model.dim] = context
    return H


def dense_posterior(model: Model, seen: Rows) -> Dense:
    """Condition the joint prior on the rewards, and their log density before they were seen."""
    mean, cov = moments(model)
    if not len(seen.rewards):
        return Dense(model, mean, cov, 0.0)
    H = observation_rows(model, seen.contexts, seen.actions)
    noise = model.noise**2 * np.eye(len(H))
    V = H @ cov @ H.T + noise
    gain = scipy.linalg.solve(V, H @ cov, assume_a="pos").T
    # Joseph's form of `cov - gain H cov`, whose digits do not cancel.
    left = np.eye(len(mean)) - gain @ H
    return Dense(
        model,
        mean + gain @ (seen.rewards - H @ mean),
        left @ cov @ left.T + gain @ noise @ gain.T,
        scipy.stats.multivariate_normal.logpdf(seen.rewards, H @ mean, V),
    )


def slope_of_evidence(model: Model, towards: Model, seen: Rows) -> float:
    """The derivative of the log evidence of `model + t (towards - model)` at `t = 0`.

    By a complex step: the imaginary part at `t = 1e-30 i`, in which nothing cancels.
    """
    step = 1e-30j

    def between(one: Any, other: Any) -> Any:
        if isinstance(one, Few):
            return Few(one.indices, between(one.values, other.values))
        return np.asarray(one) + step * (np.asarray(other) - np.asarray(one))

    groups = [
        replace(
            a,
            mean=between(a.mean, b.mean),
            cov=between(a.cov, b.cov),
            parents={name: between(own, b.parents[name]) for name, own in a.parents.items()},
        )
        for a, b in zip(model.groups, towards.groups, strict=True)
    ]
    mean, cov = moments(replace(model, groups=groups), complex)
    H = observation_rows(model, seen.contexts, seen.actions)
    noise = model.noise + step * (towards.noise - model.noise)
    V, away = H @ cov @ H.T + noise**2 * np.eye(len(H)), seen.rewards - H @ mean
    sign, log_size = np.linalg.slogdet(V)
    distance = away @ np.linalg.solve(V, away)
    return float((-0.5 * (np.log(sign) + log_size + distance)).imag / step.imag)


def posterior_by_sums(model: Model, seen: Rows) -> Dense:
    """The same by precisions, for observations too many for a matrix with a row for each.

    The log evidence is `log p(y | z) + log p(z) - log p(z | y)` at the posterior mean `z`.
    """
    mean, cov = moments(model)
    first, d = level_slices(model)[model.groups[-1].name].start, model.dim
    precision = np.linalg.inv(cov)
    information = precision @ mean
    log_density = 0.0
    taken = [np.flatnonzero(seen.actions == i) for i in range(model.groups[-1].size)]
    for i, own in enumerate(taken):
        x, y = seen.contexts[own].astype(float), seen.rewards[own].astype(float)
        part = slice(first + i * d, first + (i + 1) * d)
        precision[part, part] += x.T @ x / model.noise**2
        information[part] += x.T @ y / model.noise**2
    after = np.linalg.inv(precision)
    z = after @ information
    for i, own in enumerate(taken):
        x, y = seen.contexts[own].astype(float), seen.rewards[own].astype(float)
        theta = z[first + i * d : first + (i + 1) * d]
        log_density += scipy.stats.norm.logpdf(y, x @ theta, model.noise).sum()
    log_density += scipy.stats.multivariate_normal.logpdf(z, mean, cov)
    log_density += 0.5 * (np.linalg.slogdet(after)[1] + len(z) * np.log(2 * np.pi))
    return Dense(model, z, after, log_density)


def largest_error(mean, cov, log_evidence, dense: Dense) -> float:
    """The largest relative error of a posterior over all levels, in means, covariances and evidence.

    For the covariances of a level it is the norm of the difference over that of the reference, all
    vectors stacked; for means it is over the root mean square of a posterior draw, `|m|^2 + tr C`,
    since a mean may be zero; for the log evidence it is relative to its size, or to one if smaller.
    """
    errors = [abs(float(log_evidence) - dense.log_evidence) / max(1.0, abs(dense.log_evidence))]
    means, covs = dense.means(), dense.covs()
    for name in means:
        spread = np.trace(covs[name], axis1=1, axis2=2).sum()
        size = np.sqrt(np.sum(means[name] ** 2) + spread)
        errors.append(np.linalg.norm(np.asarray(mean[name]) - means[name]) / size)
        errors.append(
            np.linalg.norm(np.asarray(cov[name]) - covs[name]) / np.linalg.norm(covs[name])
        )
    # A NaN must not get lost in a maximum.
    return float(np.max(np.nan_to_num(errors, nan=np.inf)))
