"""Learning what the paper assumes known: covariances, noise, means and weights by maximum evidence."""

from collections.abc import Callable, Collection
from dataclasses import replace
from enum import Enum
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from jaxtyping import Float
from scipy.optimize import minimize

from ...models import Data, Gaussian, Hierarchy, Level, Sparse
from ...models.covariance import is_diagonal
from ..gaussian.backend import GaussianState
from ..gaussian.closed_form import ClosedForm, check_linear_gaussian

__all__ = ["EmpiricalBayes", "EmpiricalBayesStatus", "empirical_bayes", "log_evidence"]

_LEARNABLE = ("cov", "noise", "mean", "weights")
# A variance that can be made this many times larger or smaller ...
_FACTOR = 1000.0
# ... without losing this much log evidence is not determined by the data.
_FLAT = 0.1
# Stands for a log evidence that could not be computed, so that the line search turns back.
_HOPELESS = 1e30


class EmpiricalBayesStatus(Enum):
    """How a fit ended; the value says it in words."""

    CONVERGED = "converged"
    UNDETERMINED = (
        "converged, but the data leave a variance free: it could as well be zero or infinite"
    )
    STEP_LIMIT = "stopped at max_steps before the evidence settled: raise max_steps"
    FAILED = "the optimiser could not improve the evidence: check the data and the starting values"


class EmpiricalBayes(NamedTuple):
    """A hierarchy fitted to data.

    Attributes:
        hierarchy: the declaration given, with what was fitted replaced.
        log_evidence: its log evidence.
        status: how the fit ended.
        steps: how many steps the optimiser took.
    """

    hierarchy: Hierarchy
    log_evidence: float
    status: EmpiricalBayesStatus
    steps: int


def log_evidence(hierarchy: Hierarchy, data: Data) -> Float[Array, ""]:
    """Log density of the rewards, all vectors integrated out.

    Differentiable in every leaf of the hierarchy: covariances, noise, means and weights.
    """
    backend = ClosedForm(hierarchy)
    state: GaussianState = backend.condition(backend.init(), *data)
    return state.log_evidence


def empirical_bayes(
    hierarchy: Hierarchy,
    data: Data,
    *,
    learn: Collection[str] = ("cov", "noise"),
    levels: Collection[str] | None = None,
    max_steps: int = 500,
) -> EmpiricalBayes:
    """Maximise the log evidence from the declared values on, by L-BFGS in float64.

    Variances and the noise move on the log scale and matrices by their Cholesky factor, so that every
    step is a valid hierarchy; each keeps the form it was declared in (a variance stays one number).

    Args:
        hierarchy: linear-Gaussian; its values are where the search starts.
        data: what was seen.
        learn: what to learn, of "cov", "noise", "mean" and "weights". Zero weights stay zero:
            missing arrows are structure.
        levels: the levels to learn about; all by default.
        max_steps: how many steps the optimiser may take.
    """
    check_linear_gaussian(hierarchy, "empirical_bayes")
    _check_choice(hierarchy, learn, levels)
    if not isinstance(data, Data):
        raise TypeError(
            f"data is a {type(data).__name__}; expected Data(contexts, actions, rewards)"
        )
    # Inside jit, where the evidence is computed, values are not checked: a wrong action would not count.
    hierarchy.observations(*data)
    dtype = jnp.result_type(float)
    with jax.enable_x64(True):
        start, rebuild = _free_numbers(_cast(hierarchy, jnp.float64), learn, levels)
        vector, unravel = ravel_pytree(start)
        if not vector.size:
            raise ValueError(f"nothing to learn: levels {levels!r} have no {' or '.join(learn)}")
        seen = Data(*(np.asarray(part) for part in data))
        loss = jax.jit(jax.value_and_grad(lambda v, seen: -log_evidence(rebuild(unravel(v)), seen)))

        def evaluate(v: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = loss(v, seen)
            if not np.isfinite(value):
                return _HOPELESS, np.zeros_like(v)
            return float(value), np.asarray(slope)

        origin = np.asarray(vector)
        found = minimize(
            evaluate,
            origin,
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": max_steps, "maxfun": 20 * max_steps, "ftol": 1e-12, "gtol": 1e-6},
        )
        fitted = rebuild(unravel(jnp.asarray(found.x)))
        status = _status(found)
        if status is EmpiricalBayesStatus.CONVERGED:
            logarithms = np.asarray(ravel_pytree(_is_logarithm(start, hierarchy))[0])
            if _some_is_free(evaluate, found.x, np.flatnonzero(logarithms)):
                status = EmpiricalBayesStatus.UNDETERMINED
    return EmpiricalBayes(_cast(fitted, dtype), -float(found.fun), status, int(found.nit))


def _status(found: Any) -> EmpiricalBayesStatus:
    if found.fun >= _HOPELESS:
        return EmpiricalBayesStatus.FAILED
    if found.status == 1:
        return EmpiricalBayesStatus.STEP_LIMIT
    # A line search that finds no better point beside a tiny gradient has arrived.
    settled = found.success or np.abs(found.jac).max() < 1e-4 * max(1.0, abs(found.fun))
    return EmpiricalBayesStatus.CONVERGED if settled else EmpiricalBayesStatus.FAILED


def _is_logarithm(start: dict[str, Any], hierarchy: Hierarchy) -> dict[str, Any]:
    """Which of the free numbers are logarithms of variances or of the noise, as 0 and 1."""
    diagonal = {f"{lv.name} cov" for lv in hierarchy.levels if is_diagonal(lv.cov)} | {"noise"}
    return {name: jnp.full_like(value, float(name in diagonal)) for name, value in start.items()}


def _some_is_free(
    evaluate: Callable[[np.ndarray], tuple[float, np.ndarray]], x: np.ndarray, positions: np.ndarray
) -> bool:
    """Whether some variance can be made a thousand times larger or smaller at no loss."""
    best, _ = evaluate(x)
    for position in positions:
        for step in (-np.log(_FACTOR), np.log(_FACTOR)):
            moved = x.copy()
            moved[position] += step
            if evaluate(moved)[0] < best + _FLAT:
                return True
    return False


def _check_choice(hierarchy: Hierarchy, learn: Any, levels: Any) -> None:
    if isinstance(learn, str) or not learn or not set(learn) <= set(_LEARNABLE):
        raise ValueError(f"learn is {learn!r}; expected a tuple of some of {', '.join(_LEARNABLE)}")
    names = [level.name for level in hierarchy.levels]
    if levels is not None and (isinstance(levels, str) or not set(levels) <= set(names)):
        raise ValueError(f"levels is {levels!r}; expected a tuple of some of {', '.join(names)}")


def _cast(hierarchy: Hierarchy, dtype: Any) -> Hierarchy:
    """The same hierarchy with its numbers in another precision."""
    return jax.tree.map(
        lambda leaf: leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf,
        hierarchy,
    )


def _free_numbers(
    hierarchy: Hierarchy, learn: Collection[str], levels: Collection[str] | None
) -> tuple[dict[str, Any], Callable[[dict[str, Any]], Hierarchy]]:
    """Unconstrained numbers for what is to be learned, and the hierarchy they stand for."""
    start: dict[str, Any] = {}
    for level in hierarchy.levels:
        if levels is not None and level.name not in levels:
            continue
        if "cov" in learn:
            start[f"{level.name} cov"] = _free_covariance(level.cov)
        if "mean" in learn:
            start[f"{level.name} mean"] = level.mean
        if "weights" in learn:
            for parent, weights in (level.parents or {}).items():
                start[f"{level.name} weights {parent}"] = _values(weights)
    if "noise" in learn:
        assert isinstance(hierarchy.reward, Gaussian), (
            "hierarchies with an evidence have Gaussian rewards"
        )
        start["noise"] = jnp.log(hierarchy.reward.noise)

    def rebuild(free: dict[str, Any]) -> Hierarchy:
        rebuilt = [_rebuild_level(level, free) for level in hierarchy.levels]
        reward = Gaussian(jnp.exp(free["noise"])) if "noise" in free else hierarchy.reward
        return Hierarchy(rebuilt, reward, hierarchy.dim)

    return start, rebuild


def _rebuild_level(level: Level, free: dict[str, Any]) -> Level:
    changed: dict[str, Any] = {}
    if f"{level.name} cov" in free:
        changed["cov"] = _covariance(free[f"{level.name} cov"], level.cov)
    if f"{level.name} mean" in free:
        changed["mean"] = free[f"{level.name} mean"]
    if any(name.startswith(f"{level.name} weights ") for name in free):
        changed["parents"] = {
            parent: _with_values(weights, free[f"{level.name} weights {parent}"])
            for parent, weights in (level.parents or {}).items()
        }
    return replace(level, **changed)


def _free_covariance(cov: Array) -> Array:
    """A variance or diagonal as logarithms; a matrix as its Cholesky factor with a log diagonal."""
    if is_diagonal(cov):
        return jnp.log(cov)
    tril = jnp.linalg.cholesky(cov)
    diagonal = jnp.diagonal(tril, axis1=-2, axis2=-1)
    return jnp.tril(tril, -1) + _diagonal(jnp.log(diagonal))


def _covariance(free: Array, form: Array) -> Array:
    if is_diagonal(form):
        return jnp.exp(free)
    diagonal = jnp.diagonal(free, axis1=-2, axis2=-1)
    tril = jnp.tril(free, -1) + _diagonal(jnp.exp(diagonal))
    return tril @ jnp.swapaxes(tril, -1, -2)


def _diagonal(values: Float[Array, "*batch n"]) -> Float[Array, "*batch n n"]:
    return values[..., None] * jnp.eye(values.shape[-1], dtype=values.dtype)


def _values(weights: Array | Sparse) -> Array:
    return weights.values if isinstance(weights, Sparse) else weights


def _with_values(weights: Array | Sparse, values: Array) -> Array | Sparse:
    """The weights with other values where they are not zero."""
    kept = jnp.where(_values(weights) != 0, values, 0.0)
    if isinstance(weights, Sparse):
        return Sparse(weights.indices, kept, weights.num_parents)
    return kept
