"""Covariances, noise, means and weights, which the paper assumes known, by maximum evidence."""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from jaxtyping import Float

from ...models import Data, Gaussian, Hierarchy
from ..gaussian.closed_form import ClosedForm, check_linear_gaussian
from ..gaussian.messages import GaussianState
from ..status import Status, Trouble

__all__ = ["EmpiricalBayes", "empirical_bayes", "log_evidence"]

_LEARNABLE = ("cov", "noise", "mean", "weights")
# A variance that can be made this many times larger or smaller ...
_FACTOR = 1000.0
# ... without losing this much log evidence is not determined by the data.
_FLAT = 0.1
# In place of a log evidence that could not be computed, so that the line search turns back.
_HOPELESS = 1e30


class EmpiricalBayes(NamedTuple):
    """A hierarchy fitted to data.

    Attributes:
        hierarchy: the declaration given, with what was fitted replaced.
        log_evidence: its log evidence.
        status: how the fit ended.
        steps: the number of steps of the optimiser.

    Example:
        >>> from mixts.inference import empirical_bayes
        >>> from mixts.models import Data, linear
        >>> data = Data([[1.0], [1.0], [1.0]], [0, 0, 1], [3.0, 2.0, 1.0])
        >>> fit = empirical_bayes(linear([[1.0], [1.0]], dim=1), data, learn=("mean",))
        >>> bool(fit.status.ok), fit.steps > 0
        (True, True)
    """

    hierarchy: Hierarchy
    log_evidence: float
    status: Status
    steps: int


def log_evidence(hierarchy: Hierarchy, data: Data) -> Float[Array, ""]:
    """Log density of the rewards, all vectors integrated out.

    Differentiable in every leaf of the hierarchy: covariances, noise, means and weights.

    Example:
        >>> from mixts.inference import log_evidence
        >>> from mixts.models import Data, linear
        >>> data = Data([[1.0]], [0], [0.0])
        >>> round(float(log_evidence(linear([[1.0], [1.0]], dim=1), data)), 4)  # N(0; 0, 1 + 1 + 1)
        -1.4682
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

    Example:
        >>> from mixts.inference import empirical_bayes
        >>> from mixts.models import Data, linear
        >>> data = Data([[1.0], [1.0], [1.0]], [0, 0, 1], [3.0, 3.0, 3.0])
        >>> fit = empirical_bayes(linear([[1.0], [1.0]], dim=1), data, learn=("mean",), levels=("effect",))
        >>> round(float(fit.hierarchy["effect"].mean), 3)
        3.0

    Args:
        hierarchy: linear-Gaussian; the search starts from its values.
        data: the observations.
        learn: what to learn, of "cov", "noise", "mean" and "weights". Zero weights stay zero:
            missing arrows are structure.
        levels: the levels whose numbers are learned; all by default.
        max_steps: the largest number of steps of the optimiser.
    """
    from scipy.optimize import minimize

    check_linear_gaussian(hierarchy, "empirical_bayes")
    _check_choice(hierarchy, learn, levels)
    if not isinstance(data, Data):
        raise TypeError(
            f"data is a {type(data).__name__}; expected Data(contexts, actions, rewards)"
        )
    # Values are not checked inside jit, where the evidence is computed: a wrong action would be ignored.
    hierarchy.observations(*data)
    dtype = jnp.result_type(float)
    with jax.enable_x64(True):
        declared = _cast(hierarchy, jnp.float64)
        start = _free_numbers(declared, learn, levels)
        vector, unravel = ravel_pytree(start)
        if not vector.size:
            raise ValueError(f"nothing to learn: levels {levels!r} have no {' or '.join(learn)}")
        seen = Data(*(np.asarray(part) for part in data))

        def rebuild(v: Array) -> Hierarchy:
            return _with_numbers(declared, unravel(v))

        loss = jax.jit(jax.value_and_grad(lambda v, seen: -log_evidence(rebuild(v), seen)))

        def evaluate(v: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = loss(v, seen)
            if not np.isfinite(value):
                return _HOPELESS, np.zeros_like(v)
            return float(value), np.asarray(slope)

        options = {"maxiter": max_steps, "maxfun": 20 * max_steps, "ftol": 1e-12, "gtol": 1e-6}
        found: Any = minimize(
            evaluate, np.asarray(vector), jac=True, method="L-BFGS-B", options=options
        )
        fitted = rebuild(jnp.asarray(found.x))
        status = _status(found)
        if status.ok:
            free = _some_is_free(evaluate, found.x, _logarithms(declared, start))
            status = Status({Trouble.UNDETERMINED: free})
    return EmpiricalBayes(_cast(fitted, dtype), -float(found.fun), status, int(found.nit))


def _status(found: Any) -> Status:
    if found.fun >= _HOPELESS:
        return Status({Trouble.FAILED: True})
    if found.status == 1:
        return Status({Trouble.STEP_LIMIT: True})
    # A line search that finds no better point where the gradient is tiny has converged.
    has_converged = found.success or np.abs(found.jac).max() < 1e-4 * max(1.0, abs(found.fun))
    return Status({Trouble.FAILED: not has_converged})


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
) -> dict[str, Any]:
    """Unconstrained numbers for what is to be learned: the noise, and by level what it has."""
    free: dict[str, Any] = {"levels": {}}
    for level in hierarchy.levels:
        if levels is None or level.name in levels:
            parts = {
                "cov": level.covariance(hierarchy.dim).free(),
                "mean": level.mean,
                "weights": {parent: arrows.values for parent, arrows in level.arrows.items()},
            }
            free["levels"][level.name] = {what: parts[what] for what in parts if what in learn}
    if "noise" in learn:
        reward = hierarchy.reward
        assert isinstance(reward, Gaussian), "hierarchies with an evidence have Gaussian rewards"
        free["noise"] = jnp.log(reward.noise)
    return free


def _with_numbers(hierarchy: Hierarchy, free: dict[str, Any]) -> Hierarchy:
    """The hierarchy with other free numbers."""
    levels = []
    for level in hierarchy.levels:
        parts, changed = free["levels"].get(level.name, {}), {}
        if "cov" in parts:
            changed["cov"] = level.covariance(hierarchy.dim).from_free(parts["cov"])
        if "mean" in parts:
            changed["mean"] = parts["mean"]
        if parts.get("weights"):
            # Missing arrows stay missing.
            changed["parents"] = {
                parent: arrows.with_values(
                    jnp.where(arrows.values != 0, parts["weights"][parent], 0.0)
                )
                for parent, arrows in level.arrows.items()
            }
        levels.append(level.remade(**changed))
    reward = Gaussian(jnp.exp(free["noise"])) if "noise" in free else hierarchy.reward
    return Hierarchy(levels, reward, hierarchy.dim)


def _logarithms(hierarchy: Hierarchy, free: dict[str, Any]) -> np.ndarray:
    """The positions of logarithms of variances and of the noise among all free numbers."""

    def is_logarithm(path: tuple[Any, ...], numbers: Array) -> Array:
        keys = [part.key for part in path]
        is_cov = keys[0] == "levels" and keys[2] == "cov"
        is_diagonal = is_cov and hierarchy[keys[1]].covariance(hierarchy.dim).is_diagonal
        return jnp.full_like(numbers, float(keys[0] == "noise" or is_diagonal))

    marks, _ = ravel_pytree(jax.tree_util.tree_map_with_path(is_logarithm, free))
    return np.flatnonzero(np.asarray(marks))
