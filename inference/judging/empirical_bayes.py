"""Covariances, noise, means and weights, which the paper assumes known, by maximum evidence."""

from collections.abc import Collection
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...models import Data, Hierarchy
from ..gaussian.closed_form import check_linear_gaussian
from ..progress import task
from ..status import Status, Trouble
from .free_numbers import chosen_parts, with_values
from .search import FLAT, ascend, at_zero, has_converged, on_a_ridge, start

__all__ = ["EmpiricalBayes", "empirical_bayes"]


class EmpiricalBayes(NamedTuple):
    """A hierarchy fitted to data.

    Attributes:
        hierarchy: the declaration given, with what was fitted replaced.
        log_evidence: its log evidence.
        status: how the fit ended.
        steps: the number of steps of the optimiser.
        at_zero: what is zero where the evidence is highest, such as "genre.cov": a variance, or a
            direction of a covariance. The hierarchy has the smallest number that stands for it.
        undetermined: what the data do not determine; those that make no difference at all are as
            they were declared.

    Example:
        >>> from mixts.inference import empirical_bayes
        >>> from mixts.models import Data, linear
        >>> data = Data([[1.0], [1.0], [1.0]], [0, 0, 1], [3.0, 2.0, 1.0])
        >>> fit = empirical_bayes(linear([[1.0], [1.0]], dim=1), data, learn=("effect.mean",))
        >>> bool(fit.status.ok), fit.at_zero
        (True, ())
    """

    hierarchy: Hierarchy
    log_evidence: float
    status: Status
    steps: int
    at_zero: tuple[str, ...] = ()
    undetermined: tuple[str, ...] = ()


def empirical_bayes(
    hierarchy: Hierarchy,
    data: Data,
    *,
    learn: Collection[str] = ("cov", "noise"),
    levels: Collection[str] | None = None,
    max_steps: int = 2000,
    progress: bool | None = None,
) -> EmpiricalBayes:
    """Maximise the log evidence, by L-BFGS in float64.

    Covariances, the noise and means start from estimates that do not depend on what was declared for
    them, so the answer does not either; weights start from a multiple of the declared ones. Every
    number keeps the form it was declared in (a variance stays one number). A fit is called
    converged only where the slope of the evidence is zero.

    Example:
        >>> from mixts.inference import empirical_bayes
        >>> from mixts.models import Data, linear
        >>> data = Data([[1.0], [1.0], [1.0]], [0, 0, 1], [3.0, 3.0, 3.0])
        >>> fit = empirical_bayes(linear([[1.0], [1.0]], dim=1), data, learn=("effect.mean",))
        >>> round(float(fit.hierarchy["effect"].mean), 3)
        3.0

    Args:
        hierarchy: linear-Gaussian.
        data: the observations.
        learn: what to learn: "noise", and "cov", "mean" and "weights" of all `levels` or, written
            "genre.cov", of one. Zero weights stay zero: missing arrows are structure.
        levels: the levels that "cov", "mean" and "weights" stand for; all by default.
        max_steps: the largest number of steps of the optimiser.
        progress: whether to say on stderr what is being done; by default if it takes over two seconds.
    """
    check_linear_gaussian(hierarchy, "empirical_bayes")
    parts = chosen_parts(hierarchy, learn, levels)
    if not isinstance(data, Data):
        raise TypeError(
            f"data is a {type(data).__name__}; expected Data(contexts, actions, rewards)"
        )
    # Values are not checked inside jit, where the evidence is computed: a wrong action would be ignored.
    hierarchy.observations(*data)
    # The search is for the rewards times the square roots of their exposures: see `weighed_rows`.
    scales = 0.0 if data.exposure is None else 0.5 * float(np.log(data.exposure).sum())
    precision = max(float(jnp.finfo(jnp.result_type(float)).eps), 1e-12)
    saying = task("empirical_bayes: estimates to start from", shown=progress)
    with saying as now, jax.enable_x64(True), np.errstate(over="ignore", invalid="ignore"):
        search, first, sizes = start(_in_float64(hierarchy), data, parts)
        if not np.isfinite(first.loss):
            return EmpiricalBayes(hierarchy, scales - first.loss, Status({Trouble.FAILED: True}), 0)
        now.say("empirical_bayes: maximising the evidence")
        best = ascend(search, first, sizes, max_steps)
        zero, free = [], []
        converged = has_converged(best, sizes)
        if converged:
            now.say("empirical_bayes: what the data do not determine")
            best, zero, free = at_zero(search, best)
            free += on_a_ridge(search, best, zero + free)
        final = search.at(search.widened(best.vector, precision))
        values = search.numbers.values(search.unravel(jnp.asarray(final.vector)))
    fitted = with_values(hierarchy, values)
    if fitted is None:
        return EmpiricalBayes(
            hierarchy, scales - first.loss, Status({Trouble.FAILED: True}), best.steps
        )
    ran_out = best.steps >= max_steps
    troubles = {
        Trouble.STEP_LIMIT: not converged and ran_out,
        Trouble.FAILED: not converged and not ran_out,
        Trouble.WIDENED: converged and not zero and not final.loss < best.loss + FLAT,
        Trouble.AT_ZERO: len(set(zero)),
        Trouble.UNDETERMINED: len(set(free)),
    }
    names = (tuple(dict.fromkeys(found)) for found in (zero, free))
    return EmpiricalBayes(fitted, scales - final.loss, Status(troubles), best.steps, *names)


def _in_float64(hierarchy: Hierarchy) -> Hierarchy:
    """The same hierarchy with its numbers in float64."""
    return jax.tree.map(
        lambda leaf: leaf.astype(float) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf,
        hierarchy,
    )
