"""Covariances, noise, means and weights, which the paper assumes known, by maximum evidence."""

from collections.abc import Collection
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...models import Data, Gaussian, Hierarchy
from ...models.messages import short
from ..gaussian.closed_form import check_linear_gaussian
from ..gaussian.laplace import check_gaussian_levels
from ..progress import task
from ..status import Status, Trouble
from .declared_unknowns import DeclaredUnknowns, start_values, unknown_parts
from .free_numbers import with_values
from .parts import all_parts, chosen_parts
from .propagated_search import start_propagated
from .search import FLAT, ascend, has_converged, start
from .undetermined import at_limits, at_zero, on_a_ridge

__all__ = ["EmpiricalBayes", "empirical_bayes"]


class EmpiricalBayes(NamedTuple):
    """A hierarchy fitted to data.

    Attributes:
        hierarchy: the declaration given, with what was fitted replaced.
        log_evidence: its log evidence.
        status: how the fit ended.
        steps: the number of steps of the optimiser.
        at_zero: what is zero where the evidence is highest, such as "genre.cov" or, where it is declared
            as unknown, "genre_scale": a variance, or a direction of a covariance; or at another limit
            of what it may be, such as a correlation at one. The hierarchy has the nearest number that
            stands for it.
        undetermined: what the data do not determine; those that make no difference at all are as
            they were declared.
        log_prior: the log density of what was declared as unknown, by its laws; zero where they do not
            count.

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
    log_prior: float = 0.0


def empirical_bayes(
    hierarchy: Hierarchy,
    data: Data,
    *,
    learn: Collection[str] | None = None,
    levels: Collection[str] | None = None,
    prior: bool = True,
    max_steps: int = 2000,
    progress: bool | None = None,
) -> EmpiricalBayes:
    """Maximise the log evidence, and the prior of what is declared as unknown, by L-BFGS in float64.

    A hierarchy that declares its unknowns as NumPyro distributions (scales, covariances, kernels, means,
    weights, noise) needs nothing more: all of them are learned, and the log density of each, as it was
    declared, is added to the log evidence. That is the posterior mode of these numbers, the vectors
    integrated out; the mode depends on what is declared, a standard deviation or a variance. With flat
    laws, or `prior=False`, it is maximum likelihood, as it always is for what is declared as known.

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
        hierarchy: linear-Gaussian, given what it declares as unknown; or with rewards of another law that
            is log-concave, where the evidence is that of expectation propagation.
        data: the observations.
        learn: what to learn: "noise", and "cov", "mean" and "weights" of all `levels` or, written
            "genre.cov", of one. Zero weights stay zero: missing arrows are structure. What is declared as
            unknown is learned anyway: it is all that is by default or, where there is nothing, the
            covariances and the noise.
        levels: the levels that "cov", "mean" and "weights" stand for; all by default.
        prior: whether the laws of what is declared as unknown count; they always limit it.
        max_steps: the largest number of steps of the optimiser.
        progress: whether to say on stderr what is being done; by default if it takes over two seconds.
    """
    _check_arguments(hierarchy, prior)
    unknown = unknown_parts(hierarchy)
    is_gaussian = isinstance(hierarchy.reward, Gaussian)
    if learn is None:
        learn = () if unknown else ("cov", "noise") if is_gaussian else ("cov",)
    chosen = chosen_parts(hierarchy, learn, levels) if learn or not unknown else ()
    parts = all_parts(hierarchy, unknown, chosen)
    if not isinstance(data, Data):
        raise TypeError(
            f"data is a {type(data).__name__}; expected Data(contexts, actions, rewards)"
        )
    # Values are not checked inside jit, where the evidence is computed: a wrong action would be ignored.
    hierarchy.observations(*data)
    # The search is for the rewards times the square roots of their exposures: see `weighed_rows`.
    exposure = data.exposure if is_gaussian else None
    scales = 0.0 if exposure is None else 0.5 * float(np.log(exposure).sum())
    precision = max(float(jnp.finfo(jnp.result_type(float)).eps), 1e-12)
    saying = task("empirical_bayes: estimates to start from", shown=progress)
    with saying as now, jax.enable_x64(True), np.errstate(over="ignore", invalid="ignore"):
        wide = _in_float64(hierarchy)
        unknowns = DeclaredUnknowns(wide, start_values(wide), prior)
        began = start if is_gaussian else start_propagated
        search, first, sizes = began(unknowns, data, parts)
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
            ends, anywhere = at_limits(search, best)
            zero, free = zero + ends, free + anywhere
        final = search.at(search.widened(best.vector, precision))
        numbers = search.unravel(jnp.asarray(final.vector))
        log_prior = float(search.numbers.log_prior(numbers))
        values = search.numbers.known(numbers)
        sites = jax.tree.map(np.asarray, search.numbers.sites(numbers))
    fitted = with_values(hierarchy, sites, values)
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
    zeros, loose = (tuple(dict.fromkeys(found)) for found in (zero, free))
    evidence = scales - final.loss - log_prior
    status = Status(troubles)
    return EmpiricalBayes(fitted, evidence, status, best.steps, zeros, loose, log_prior)


def _check_arguments(hierarchy: Hierarchy, prior: bool) -> None:
    if not isinstance(hierarchy, Hierarchy):
        check_linear_gaussian(hierarchy, "empirical_bayes")
    if not isinstance(prior, bool):
        raise TypeError(f"empirical_bayes prior is {short(prior)}; expected True or False")
    known = hierarchy
    if hierarchy.unknowns.laws:
        known = hierarchy.unknowns.given(start_values(hierarchy))
    if isinstance(hierarchy.reward, Gaussian):
        return check_linear_gaussian(known, "empirical_bayes")
    check_gaussian_levels(known, "empirical_bayes")
    if not known.reward.is_log_concave:
        raise ValueError(
            f"empirical_bayes: the law of {short(hierarchy.reward)} is not log-concave, so its messages "
            "need not depend smoothly on what is learned; climb log_evidence, which is differentiable, "
            "or learn with Nuts"
        )


def _in_float64(hierarchy: Hierarchy) -> Hierarchy:
    """The same hierarchy with its numbers in float64."""
    return jax.tree.map(
        lambda leaf: (
            jnp.asarray(leaf, float)
            if jnp.issubdtype(jnp.result_type(leaf), jnp.floating)
            else leaf
        ),
        hierarchy,
    )
