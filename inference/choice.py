"""Which backend to use: the cheapest whose approximations are known to be sound."""

from typing import Any, NamedTuple

from ..models import Hierarchy
from .backend import Backend
from .gaussian.closed_form import ClosedForm
from .gaussian.factored import Factored
from .gaussian.laplace import Laplace
from .programs.by_hand import Program
from .programs.nuts import Nuts
from .programs.svi import Svi

__all__ = ["Choice", "best_backend"]


class Choice(NamedTuple):
    """A backend, and why it was chosen.

    Example:
        >>> from mixts.inference import best_backend
        >>> from mixts.models import glm
        >>> backend, why = best_backend(glm([[1.0], [1.0]], dim=1))
        >>> why
        'the reward is Bernoulli, not Gaussian: no closed form; use Laplace, Nuts or Svi'
    """

    backend: Backend[Any]
    why: str


def best_backend(hierarchy: Hierarchy | Program) -> Choice:
    """The cheapest correct backend for a hierarchy or a program, and the reason in words.

    Exact where that is possible; Laplace where there is one non-linearity; NUTS elsewhere. Where the
    levels above the actions are too many for a joint covariance, their posterior is factored or, if it
    cannot be, mean-field.

    Example:
        >>> from mixts.inference import best_backend
        >>> from mixts.models import linear
        >>> best_backend(linear([[1.0], [1.0]], dim=1)).why
        'the hierarchy is linear and Gaussian: exact'
    """
    if isinstance(hierarchy, Program):
        return Choice(Nuts(hierarchy), "the program is written by hand: only its density is known")
    if not isinstance(hierarchy, Hierarchy):
        raise TypeError(
            f"best_backend: got {hierarchy!r}; expected a Hierarchy, or a Program(function, dim=...)"
        )
    why_not = hierarchy.why_not_exact
    if why_not is not None and not why_not.fits_laplace:
        return Choice(Nuts(hierarchy), why_not)
    kind = ClosedForm if why_not is None else Laplace
    reason = "the hierarchy is linear and Gaussian: exact" if why_not is None else str(why_not)
    try:
        return Choice(kind(hierarchy), reason)
    except ValueError as too_many:
        reason = f"{reason}; but {too_many}"
        if hierarchy.actions.link is None and not any(lv.parents for lv in hierarchy.levels[:-1]):
            return Choice(Factored(hierarchy), reason)
        return Choice(Svi(hierarchy, guide="mean_field"), reason)
