"""What went wrong: one status for every backend, which works inside `jit`."""

import warnings
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool

__all__ = ["Status", "Trouble", "TroubleWarning", "warn_of_trouble"]


class TroubleWarning(UserWarning):
    """A posterior that should not be relied on; the message says why and what to do.

    Example:
        >>> import warnings
        >>> from mixts.inference import TroubleWarning
        >>> warnings.filterwarnings("ignore", category=TroubleWarning)
    """


class Trouble(StrEnum):
    """A kind of trouble; `sentence` says what it means and what to do.

    Example:
        >>> from mixts.inference import Trouble
        >>> Trouble.UNCONVERGED.sentence
        '{n} fits stopped before they had converged'
    """

    REJECTED = "rejected"
    UNCONVERGED = "unconverged"
    INDEFINITE = "indefinite"
    UNMOVED = "unmoved"
    DIVERGING = "diverging"
    STUCK = "stuck"
    UNMIXED = "unmixed"
    CORRELATED = "correlated"
    SATURATED = "saturated"
    RISING = "rising"
    NOISY = "noisy"
    NOT_FINITE = "not_finite"
    UNDETERMINED = "undetermined"
    AT_ZERO = "at_zero"
    WIDENED = "widened"
    STEP_LIMIT = "step_limit"
    FAILED = "failed"
    COLLAPSED = "collapsed"
    IMMOBILE = "immobile"
    NO_EVIDENCE = "no_evidence"

    @property
    def sentence(self) -> str:
        """What it means, with `{n}` for how often it happened."""
        return _SENTENCES[self]


_SENTENCES = {
    Trouble.REJECTED: "{n} observations were ignored: an action out of range, a number that is not "
    "finite, or no room left for them",
    Trouble.UNCONVERGED: "{n} fits stopped before they had converged",
    Trouble.INDEFINITE: "the curvature at a mode was not positive definite {n} times, and was replaced",
    Trouble.UNMOVED: "{n} fits stayed where they started though the data call for a move: the link is "
    "flat there; use another link or prior mean, or Nuts",
    Trouble.DIVERGING: "{n} transitions diverged, more than 1%: try centered=False, or a higher "
    "target_accept",
    Trouble.STUCK: "{n} chains hardly move or have no finite energy: check the program and the data",
    Trouble.UNMIXED: "the chains disagree about {n} numbers (R-hat): they have not mixed, and draws are "
    "not from the posterior. Run longer (warmup, samples), take dense_mass=True, scale the contexts, or "
    "declare levels with tiny variances centered=False",
    Trouble.CORRELATED: "the draws of {n} numbers are worth fewer than 100 independent ones: raise samples",
    Trouble.SATURATED: "{n} trajectories, more than 10%, stopped at their longest: raise max_depth, take "
    "dense_mass=True, or scale the contexts",
    Trouble.RISING: "the evidence lower bound is still rising: more steps would help",
    Trouble.NOISY: "the evidence lower bound is too noisy to tell: lower learning_rate, or use more "
    "particles",
    Trouble.NOT_FINITE: "means, covariances or the evidence are not finite: check the model and the data",
    Trouble.UNDETERMINED: "the data leave a variance or another number free: it could be anything",
    Trouble.AT_ZERO: "{n} covariances have a variance or a direction that is zero where the evidence is "
    "highest, or a number at its limit: the nearest one stands for it; a simpler model explains the data "
    "as well",
    Trouble.WIDENED: "a fitted covariance is closer to singular than this precision can hold, and was "
    "widened: rescale the contexts, or use float64",
    Trouble.STEP_LIMIT: "stopped at max_steps before the evidence had converged: raise max_steps",
    Trouble.COLLAPSED: "the weights of particles collapsed {n} times: fewer than 4 of them foresaw what "
    "came, so that these alone were left. Use more particles, or priors closer to the data",
    Trouble.IMMOBILE: "{n} times hardly any particle accepted a move: they are copies of a few. Use more "
    "moves, or particles",
    Trouble.NO_EVIDENCE: "the evidence was not finite {n} times: check the priors of the unknown numbers, "
    "scale the contexts, or use float64",
    Trouble.FAILED: "the optimiser could not improve the evidence: check the data and the starting "
    "values",
}


class Status(eqx.Module):
    """How often each kind of trouble has occurred.

    A pytree of counts, so that it can be computed inside `jit` and have a leading axis over runs.

    Attributes:
        counts: kind of trouble -> how often it occurred; True counts as one. Your own backends and
            policies may report kinds of their own.

    Example:
        >>> from mixts.inference import Status, Trouble
        >>> status = Status({Trouble.REJECTED: 2, Trouble.UNCONVERGED: 0})
        >>> Trouble.REJECTED in status, bool(status.ok)
        (True, False)
        >>> print(Status({Trouble.REJECTED: 0}))
        ok
    """

    counts: dict[str, Any]

    def __init__(self, counts: Any = None):
        self.counts = {kind: jnp.asarray(n, jnp.int32) for kind, n in dict(counts or {}).items()}

    @property
    def ok(self) -> Bool[Array, ""]:
        """Whether nothing went wrong."""
        return sum((jnp.sum(n) for n in self.counts.values()), jnp.zeros((), jnp.int32)) == 0

    def __contains__(self, kind: object) -> bool:
        return isinstance(kind, str) and bool(np.any(self.counts.get(kind, 0)))

    def __str__(self) -> str:
        """The sentences of what went wrong, or "ok"."""
        found = {kind: int(np.sum(n)) for kind, n in self.counts.items() if np.any(n)}
        return "; ".join(_sentence(kind).format(n=n) for kind, n in found.items()) or "ok"


def _sentence(kind: str) -> str:
    """The sentence of a kind, also of one that a user's own policy reports."""
    return Trouble(kind).sentence if kind in set(Trouble) else f"{kind}: {{n}}"


def warn_of_trouble(where: str, statuses: Mapping[str, Any]) -> None:
    """One warning about all that are not ok, by their names: statuses, or what they say in words."""
    said = {name: str(status) for name, status in statuses.items()}
    troubled = [f"{name}: {words}" for name, words in said.items() if words != "ok"]
    if troubled:
        warnings.warn(f"{where}: {'; '.join(troubled)}", TroubleWarning, stacklevel=3)
