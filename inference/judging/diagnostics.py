"""Whether chains have mixed: R-hat and effective sample size of ranks (Vehtari et al. 2021)."""

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from numpyro.diagnostics import effective_sample_size, gelman_rubin

__all__ = ["bulk_ess", "r_hat"]


def r_hat(draws: np.ndarray) -> np.ndarray:
    """R-hat of (chains, draws, ...) draws, each chain cut in two: the larger of Eqs. 4 and 5's.

    It is one, up to about `1 / draws`, where all halves tell the same of where the numbers lie and of
    how they spread, and infinite where no half moves but they disagree.
    """
    draws = np.asarray(draws, np.float64)
    folded = np.abs(draws - np.median(draws, axis=(0, 1)))
    with np.errstate(divide="ignore", invalid="ignore"):
        both = [gelman_rubin(_halves(_normal_scores(part))) for part in (draws, folded)]
    return np.asarray(np.fmax(*both))


def bulk_ess(draws: np.ndarray) -> np.ndarray:
    """How many independent draws the normal scores of (chains, draws, ...) draws are worth (Sec. 4.1)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        size = effective_sample_size(_halves(_normal_scores(np.asarray(draws, np.float64))))
    return np.asarray(size)


def _halves(draws: np.ndarray) -> np.ndarray:
    """Each chain as two; the middle draw of an odd number is left out."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _normal_scores(draws: np.ndarray) -> np.ndarray:
    """Normal quantiles of the ranks among all chains, so that heavy tails do no harm (Eqs. 14 f.)."""
    flat = draws.reshape(draws.shape[0] * draws.shape[1], -1)
    ordered = np.sort(flat, axis=0)
    ranks = np.empty_like(flat)
    for j in range(flat.shape[1]):
        first = np.searchsorted(ordered[:, j], flat[:, j], "left")
        last = np.searchsorted(ordered[:, j], flat[:, j], "right")
        ranks[:, j] = 0.5 * (first + last + 1)  # equal draws share their ranks
    scores = np.asarray(ndtri(jnp.asarray((ranks - 0.375) / (len(flat) + 0.25))), np.float64)
    return scores.reshape(draws.shape)
