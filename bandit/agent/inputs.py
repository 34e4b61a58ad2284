"""What callers give to an agent, converted and checked, quickly: every decision passes here."""

from collections.abc import Callable, Sized
from math import inf, isfinite
from typing import Any

import jax.numpy as jnp
import numpy as np

from ...inference.observation import many_observations
from ...models import Data, Gaussian, Hierarchy
from ...models.components import in_order
from ...models.labels import as_labels
from ...models.messages import short
from ..policies.policy import Policy
from .action_names import ActionNames
from .decisions import AgentError, Label

__all__ = [
    "Checks",
    "are_many",
    "as_factor",
    "as_id",
    "as_ids",
    "as_log",
    "as_size",
    "how_many_new",
    "labels_of",
]

_NO_NUMBER = str | bytes | bytearray | complex | np.complexfloating


class Checks:
    """What contexts and rewards of a problem must be like.

    Args:
        problem: a hierarchy, or the target of a program.
        dtype: the precision that an agent works in.
        policy: what learns from the rewards.
    """

    def __init__(self, problem: Any, dtype: Any, policy: Policy):
        self.dim, self.dtype, self.family = problem.dim, np.dtype(dtype), problem.reward
        self.components = problem.components
        self.largest = float(np.finfo(self.dtype).max)
        self._shared = (self.dim,)
        # A constraint of NumPyro's: called directly it takes numbers as they are, without JAX.
        self._support: Any = None
        if not isinstance(self.family, Gaussian):
            self._support = self.family.support()
        self._check_takes_exposure = policy.check_takes_exposure
        # What reads contexts that are rows of tables, if anything does.
        self.encode: Callable[[Any], Any] | None = None

    def context(self, context: Any, names: ActionNames) -> np.ndarray:
        """One context: (d,), or (K, d) with a row for each open action."""
        # The usual case, as fast as possible: numbers with a finite sum of squares are finite.
        is_usual = type(context) is np.ndarray and context.dtype is self.dtype
        if is_usual and context.shape == self._shared and isfinite(context.dot(context)):
            return context
        if self.encode is not None:
            context = self.encode(context)
            context = context[0] if np.shape(context) == (1, self.dim) else context
        x, K = self._in_order(names.in_order(context), "context"), len(names.open)
        if x.shape != self._shared and x.shape != (K, self.dim):
            raise AgentError(
                f"context has shape {x.shape}; expected ({self.dim},), shared by all actions, or "
                f"({K}, {self.dim}), a row for each"
            )
        return self._finite(x, "context")

    def contexts(self, contexts: Any, names: ActionNames) -> np.ndarray:
        """Many contexts: (n, d), or (n, K, d) with a row for each open action."""
        contexts = contexts if self.encode is None else self.encode(contexts)
        x, K = self._in_order(contexts, "contexts"), len(names.open)
        if not x.size or x.shape[1:] not in ((self.dim,), (K, self.dim)):
            raise AgentError(
                f"contexts have shape {x.shape}; expected (n, {self.dim}), or (n, {K}, {self.dim}) "
                "with a row for each action, and one of them at least"
            )
        return self._finite(x, "contexts")

    def reward(self, reward: Any, exposure: float = 1.0) -> float:
        """One reward, with an exposure."""
        if type(reward) is float and self._support is None and abs(reward) <= self.largest:
            return reward  # the usual case
        try:
            # Text that Python could read as a number is text all the same.
            if isinstance(reward, _NO_NUMBER):
                raise TypeError
            y = float(reward)
        except (TypeError, ValueError):
            raise AgentError(f"reward is {short(reward)}; expected a number") from None
        except OverflowError:
            y = inf
        inside = -self.largest <= y <= self.largest
        support = self._support if exposure == 1.0 else self._support_with(exposure)
        if not inside or not (support is None or support(y)):
            raise self._impossible(y)
        return y

    def exposure(self, exposure: Any) -> float:
        """The exposure of one reward."""
        if type(exposure) is float and exposure == 1.0:
            return exposure
        return float(self._exposures(exposure, ())[()])

    def exposures(self, exposure: Any, n: int) -> np.ndarray:
        """The exposures of many rewards; one number is that of all."""
        return self._exposures(exposure, (n,))

    def _exposures(self, exposure: Any, shape: tuple[int, ...]) -> np.ndarray:
        m = self._numbers(exposure, "exposure")
        if m.shape not in ((), shape):
            raise AgentError(f"exposure has shape {m.shape}; expected one number for each reward")
        m = np.broadcast_to(m, shape)
        if (m == 1).all():
            return m
        try:
            self._check_takes_exposure(m)
        except ValueError as error:
            raise AgentError(str(error)) from error
        is_right = np.isfinite(m) & (m > 0)
        if self.family.counts_trials:
            is_right &= m == np.round(m)
        if not is_right.all():
            kind = "positive whole numbers" if self.family.counts_trials else "positive numbers"
            raise AgentError(f"exposure is {m[~is_right].flat[0]:g}; expected {kind}")
        return m

    def _support_with(self, exposure: Any) -> Any:
        """What rewards with an exposure may be; None is any number."""
        if self._support is None:
            return None
        return self.family.support(jnp.asarray(exposure))

    def rewards(self, rewards: Any, exposure: np.ndarray | None = None) -> np.ndarray:
        """Many rewards, with their exposures if these are not one."""
        y = self._numbers(rewards, "rewards")
        if y.ndim != 1 or not len(y):
            raise AgentError(f"rewards have shape {y.shape}; expected (n,), with one at least")
        inside = np.isfinite(y)
        support = self._support
        if exposure is not None and not (exposure == 1).all():
            support = self._support_with(exposure)
        if support is not None:
            inside &= np.asarray(support(y))
        if not inside.all():
            raise self._impossible(float(y[~inside][0]))
        return y

    def decided(
        self, contexts: np.ndarray, actions: np.ndarray, probabilities: Any, is_plain: Any, K: int
    ) -> None:
        """Refuse decisions from a journal that no agent of K actions has made."""
        n = len(actions)
        is_right = (
            n > 0
            and (actions.shape, actions.dtype) == ((n,), np.int32)
            and (contexts.shape, contexts.dtype) == ((n, self.dim), self.dtype)
            and bool(((actions >= 0) & (actions < K)).all() and np.isfinite(contexts).all())
            and isinstance(is_plain, bool)
        )
        if is_right and probabilities is not None:
            is_right = probabilities.shape == (n,)
            is_right = is_right and bool(((probabilities > 0) & (probabilities <= 1)).all())
        if not is_right:
            raise AgentError("these are decisions that this agent cannot have made")

    def _impossible(self, reward: float) -> AgentError:
        return AgentError(
            f"reward is {reward:g}, which {type(self.family).__name__} rewards never are in {self.dtype}"
        )

    def _in_order(self, contexts: Any, what: str) -> np.ndarray:
        """Contexts as numbers, those with names in the order of the hierarchy's components."""
        try:
            return self._numbers(in_order(contexts, self.components, what), what)
        except AgentError:
            raise
        except ValueError as error:
            raise AgentError(str(error)) from error

    def _numbers(self, value: Any, what: str) -> np.ndarray:
        try:
            given = np.asarray(value)
            # Text, dates and complex numbers could be converted, but are none.
            is_numeric = given.dtype.kind not in "USTcmM"
            if given.dtype == object:
                is_numeric = not any(p is None or isinstance(p, _NO_NUMBER) for p in given.flat)
            if is_numeric:
                with np.errstate(over="ignore"):
                    return given.astype(self.dtype, copy=False)
        except OverflowError:
            raise AgentError(
                f"{what}: holds a whole number too large for any float; every entry must be a finite "
                f"{self.dtype}"
            ) from None
        except (TypeError, ValueError):
            pass
        raise AgentError(f"{what}: got {short(value)}; expected numbers")

    def _finite(self, x: np.ndarray, what: str) -> np.ndarray:
        """Contexts that are finite and have finite squares, without which nothing could be learned."""
        with np.errstate(over="ignore"):
            squares = np.square(x).sum(-1)
        if not np.isfinite(squares).all():
            finite = np.isfinite(x)
            if not finite.all():
                wrong = x[~finite][0]
                raise AgentError(f"{what}: holds {wrong}; every entry must be a finite {x.dtype}")
            raise AgentError(
                f"{what}: holds {x.flat[np.abs(x).argmax()]:g}, the square of which is no finite "
                f"{x.dtype}; give contexts in larger units, so that entries are about one"
            )
        return x


def are_many(given: Any, what: str) -> bool:
    """Whether a caller gives several, in a list or an array, and not one."""
    try:
        return np.ndim(given) > 0
    except ValueError:
        raise AgentError(f"{what} are {short(given)}; expected (n,) numbers") from None


def _is_whole(number: Any) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def as_size(size: Any, most: int) -> int:
    """How many actions a slate is to have."""
    if not _is_whole(size) or not 1 <= size <= most:
        raise AgentError(
            f"a slate of {short(size)} is asked for; expected a whole number from 1 to {most}, as many "
            "actions as are eligible"
        )
    return int(size)


def as_id(decision: Any) -> int:
    """The id of one decision."""
    if _is_whole(decision):
        return int(decision)
    raise AgentError(
        f"got {short(decision)} for the id of a decision; expected the number that `act` returned as `.id`"
    )


def as_ids(decisions: Any) -> np.ndarray:
    """The ids of many decisions."""
    ids = np.asarray(decisions)
    if ids.dtype.kind not in "iu" or ids.ndim != 1 or not len(ids):
        raise AgentError(
            f"ids have shape {ids.shape} and type {ids.dtype}; expected (n,) whole numbers, one at least"
        )
    ids = np.minimum(ids, np.iinfo(np.int64).max)  # an id beyond is unknown all the same
    return ids.astype(np.int64)


def labels_of(labels: Any, problem: Any) -> tuple[Label, ...] | None:
    """A name for each action of a problem; by default those that a hierarchy declares."""
    if labels is None:
        declared = problem.actions.labels if isinstance(problem, Hierarchy) else None
        return None if declared is None else tuple(declared)
    return as_labels(labels, problem.num_actions, "Agent", "action")


def as_log(data: Any, policy: Policy) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Contexts, numbers of actions, rewards and exposures of observations to start from, checked."""
    if not isinstance(data, Data):
        raise TypeError(
            f"Agent data: got {type(data).__name__}; expected Data(contexts, actions, rewards)"
        )
    policy.check_takes_exposure(data.exposure)
    seen = many_observations(policy.problem, *data)
    contexts, actions, rewards = map(np.asarray, seen[:3])
    exposure = np.ones_like(rewards) if seen.exposure is None else np.asarray(seen.exposure)
    return contexts, actions, rewards, exposure


def as_factor(forget: Any) -> float | None:
    """What evidence is multiplied by, or None."""
    if forget is None:
        return None
    if isinstance(forget, bool) or not isinstance(forget, float | int) or not 0 < forget <= 1:
        raise ValueError(
            f"Agent forget is {short(forget)}; expected a number in (0, 1], such as 0.999"
        )
    return float(forget)


def how_many_new(labels: Any, mean: Any) -> int | None:
    """How many new actions labels or means are of, if they say so."""
    if isinstance(labels, Sized) and not isinstance(labels, str):
        return len(labels)
    return len(mean) if np.ndim(mean) == 2 else None
