"""What went wrong: one status for every backend, which works inside `jit`."""

from enum import StrEnum
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool

__all__ = ["Status", "Trouble"]


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
    RISING = "rising"
    NOISY = "noisy"
    NOT_FINITE = "not_finite"
    UNDETERMINED = "undetermined"
    STEP_LIMIT = "step_limit"
    FAILED = "failed"

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
    Trouble.RISING: "the evidence lower bound is still rising: more steps would help",
    Trouble.NOISY: "the evidence lower bound is too noisy to tell: lower learning_rate, or use more "
    "particles",
    Trouble.NOT_FINITE: "means, covariances or the evidence are not finite: check the model and the data",
    Trouble.UNDETERMINED: "the data leave a variance free: it could as well be zero or infinite",
    Trouble.STEP_LIMIT: "stopped at max_steps before the evidence had converged: raise max_steps",
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
