"""`learn_structure`: effects for actions of which only offline estimates are known.

A Gaussian mixture on the estimates stands in for a structure that nobody knows (Aouali et al. 2023,
Section 2.6): its clusters are the effects, and how likely an action is to belong to
each is how strongly it depends on it.
"""

import warnings
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .arrays import as_count
from .hierarchy import Hierarchy
from .level import Level
from .messages import short
from .rewards import Gaussian, Reward

__all__ = ["Mixture", "fit_mixture", "learn_structure"]

_MOST_EFFECTS = 10  # tried where the number is to be chosen


class Mixture(NamedTuple):
    """A Gaussian mixture fitted to `K` estimates.

    Attributes:
        means: centres of the clusters.
        covs: their covariances.
        weights: posterior probability that estimate `i` belongs to cluster `l`; rows sum to one.
        bic: Bayesian information criterion: the lower, the better.
        converged: whether the fit came to rest within its iterations.
    """

    means: Float[np.ndarray, "L d"]
    covs: Float[np.ndarray, "L d d"]
    weights: Float[np.ndarray, "K L"]
    bic: float
    converged: bool


def learn_structure(
    estimates: Any,
    num_effects: int | Sequence[int] | None = None,
    *,
    reward: Reward | None = None,
    covariances: str = "marginal",
    effect_share: float = 0.75,
    cluster_shape: str = "full",
    labels: Sequence[Hashable] | None = None,
    seed: int = 0,
    restarts: int = 5,
    max_iter: int = 1000,
) -> Hierarchy:
    """A hierarchy of effects and actions from offline estimates (Section 2.6).

    The prior mean of effect `l` is the centre of cluster `l` of a Gaussian mixture, and the weight
    `b_il` the posterior probability that estimate `i` belongs to it. With `v` the variance of the
    estimates along each dimension, `C_l` the covariance of cluster `l` and `s` the `effect_share`:

    | `covariances` | effect `Sigma_psi_l` | action `Sigma_{0,i}` |
    | --- | --- | --- |
    | `"marginal"` (Section 5.2) | `s diag(v)` | `(1 - s) diag(v)` |
    | `"mixture"` (Section 2.6) | `C_l` | `(1 - s) / s  sum_l b_il C_l` |

    The first makes the marginal variance of an action that belongs to one cluster `v`, that of all
    estimates together. The paper does not say what `Sigma_{0,i}` goes with the second; here effects
    are as much more uncertain than actions as in the first.

    Args:
        estimates: (K, d), a vector for each action.
        num_effects: `L`; or several numbers, of which the one with the lowest Bayesian information
            criterion is chosen; None tries 1 to 10.
        reward: the reward family of the hierarchy; None is `Gaussian(1.0)`.
        covariances: `"marginal"` or `"mixture"`, see above.
        effect_share: `s`, above 0 and below 1.
        cluster_shape: `"full"` or `"diag"`: covariances that the clusters may have.
        labels: names of the actions.
        seed: of the starting points of the fit.
        restarts: fits from different starting points, of which the likeliest is kept.
        max_iter: iterations of expectation-maximisation. A fit that needs more is an error.

    Returns:
        A hierarchy with the levels "effect" and "action". An iteration of the fit costs O(K L d^2).

    Example:
        >>> estimates = np.random.default_rng(0).normal(size=(6, 2)) + [[9.0, 0.0], [0.0, 9.0]] * 3
        >>> hierarchy = learn_structure(estimates, num_effects=2)
        >>> hierarchy["effect"].size, hierarchy.num_actions, hierarchy.dim
        (2, 6, 2)
    """
    rows = _as_estimates(estimates)
    candidates = _as_candidates(num_effects, rows)
    _check_choice(covariances, ("marginal", "mixture"), "covariances")
    if not 0.0 < effect_share < 1.0:
        raise ValueError(
            f"learn_structure effect_share is {effect_share}; expected a number above 0 and below 1"
        )
    fit = {"cluster_shape": cluster_shape, "seed": seed, "restarts": restarts, "max_iter": max_iter}
    mixtures = [fit_mixture(rows, count, **fit) for count in candidates]
    for count, mixture in zip(candidates, mixtures, strict=True):
        if not mixture.converged:
            raise RuntimeError(
                f"learn_structure: a mixture of {count} clusters did not converge in {max_iter} "
                "iterations; raise max_iter, ask for fewer effects, or try another seed"
            )
    best = min(mixtures, key=lambda mixture: mixture.bic)
    effect_cov, action_cov = _covariances(rows, best, covariances, effect_share)
    effect = Level("effect", len(best.means), mean=best.means, cov=effect_cov)
    parents = {"effect": best.weights}
    action = Level("action", len(rows), parents=parents, cov=action_cov, labels=labels)
    return Hierarchy([effect, action], Gaussian() if reward is None else reward, rows.shape[1])


def fit_mixture(
    estimates: Float[np.ndarray, "K d"],
    num_clusters: int,
    *,
    cluster_shape: str = "full",
    seed: int = 0,
    restarts: int = 5,
    max_iter: int = 1000,
) -> Mixture:
    """A Gaussian mixture by expectation-maximisation, with scikit-learn.

    Estimates are brought to unit variance along each dimension for the fit and back afterwards, so
    that its regularisation means the same in every unit; `bic` is that of the estimates as given. One
    thread, so that a seed gives the same mixture however many cores there are.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture
    from threadpoolctl import threadpool_limits

    _check_choice(cluster_shape, ("full", "diag"), "cluster_shape")
    mean, scale = estimates.mean(0), estimates.std(0)
    rows = (estimates - mean) / scale
    model = GaussianMixture(
        num_clusters,
        covariance_type="diag" if cluster_shape == "diag" else "full",
        n_init=as_count(restarts, "learn_structure restarts"),
        max_iter=as_count(max_iter, "learn_structure max_iter"),
        random_state=seed,
    )
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", ConvergenceWarning)  # it is `converged`, below
        weights = model.fit(rows).predict_proba(rows)
        bic = float(model.bic(rows) + 2 * len(rows) * np.log(scale).sum())
    covs: Any = model.covariances_
    if cluster_shape == "diag":
        covs = covs[:, :, None] * np.eye(rows.shape[1])
    return Mixture(
        np.asarray(mean + scale * model.means_),
        np.asarray(covs * scale[:, None] * scale),
        weights,
        bic,
        bool(model.converged_),
    )


def _covariances(
    rows: Float[np.ndarray, "K d"], mixture: Mixture, covariances: str, share: float
) -> tuple[np.ndarray, np.ndarray]:
    """Those of the effects and of the actions, as a `Level` takes them."""
    if covariances == "marginal":
        variance = rows.var(0)
        return share * variance, (1 - share) * variance
    own = np.einsum("kl,lde->kde", mixture.weights, mixture.covs)
    return mixture.covs, (1 - share) / share * own


def _as_estimates(estimates: Any) -> Float[np.ndarray, "K d"]:
    what = "learn_structure estimates"
    try:
        rows = np.asarray(estimates, np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            f"{what}: got {short(estimates)}; expected numbers of shape (K, d)"
        ) from None
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(
            f"{what} have shape {rows.shape}; expected (K, d), a vector for each action"
        )
    wrong = np.argwhere(~np.isfinite(rows))
    if len(wrong):
        i, j = (int(n) for n in wrong[0])
        raise ValueError(
            f"{what}: hold {rows[i, j]} at position ({i}, {j}), and {len(wrong)} entries that are not "
            "finite in all; leave such actions out, or estimate them"
        )
    still = np.flatnonzero(np.ptp(rows, axis=0) == 0)
    if len(still):
        raise ValueError(
            f"{what}: all {len(rows)} are {rows[0, still[0]]:g} along dimension {still[0]}, so there is "
            "no variance to learn; expected actions that differ: leave the dimension out"
        )
    return rows


def _as_candidates(num_effects: Any, rows: Float[np.ndarray, "K d"]) -> list[int]:
    """Numbers of effects to try, none of them above the number of different estimates."""
    different = len(np.unique(rows, axis=0))
    if num_effects is None:
        return list(range(1, min(_MOST_EFFECTS, different) + 1))
    several = isinstance(num_effects, Iterable) and not isinstance(num_effects, str)
    counts: list[Any] = list(num_effects) if several else [num_effects]
    if not counts:
        raise ValueError("learn_structure num_effects is empty; expected one number at least")
    counts = [as_count(count, "learn_structure num_effects") for count in counts]
    if max(counts) > different:
        raise ValueError(
            f"learn_structure: {max(counts)} effects from {len(rows)} estimates, {different} of them "
            "different; expected at least as many different estimates as effects: ask for fewer effects"
        )
    return counts


def _check_choice(given: Any, choices: tuple[str, ...], name: str) -> None:
    if given not in choices:
        known = " or ".join(f"'{choice}'" for choice in choices)
        raise ValueError(f"learn_structure {name} is {short(given)}; expected {known}")
