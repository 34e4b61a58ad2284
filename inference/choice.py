"""Which backend to use: the cheapest whose approximations are known to be sound."""

from typing import Any, NamedTuple

from ..models import Hierarchy
from ..models.arrays import as_count
from ..models.exactness import Obstacle
from ..models.messages import short
from .backend import Backend
from .cost import Cost, round_cost
from .gaussian.closed_form import ClosedForm
from .gaussian.expectation_propagation import ExpectationPropagation
from .gaussian.factored import Factored
from .gaussian.laplace import Laplace
from .mixture.collapsed import Collapsed
from .mixture.limits import why_not_collapsed
from .programs.by_hand import Program
from .programs.nuts import Nuts
from .programs.svi import Svi

__all__ = ["Choice", "best_backend"]


class Choice(NamedTuple):
    """A backend, why it was chosen, and what a round costs with it.

    Example:
        >>> from mixts.inference import best_backend
        >>> from mixts.models import glm
        >>> choice = best_backend(glm([[1.0], [1.0]], dim=1))
        >>> choice.why
        'the reward is Bernoulli, not Gaussian: no closed form; expectation propagation matches the moments'
    """

    backend: Backend[Any]
    why: str
    cost: Cost

    def __str__(self) -> str:
        return f"{type(self.backend).__name__}: {self.why}\n{self.cost}"


def best_backend(hierarchy: Hierarchy | Program, observations: int = 1000) -> Choice:
    """The cheapest correct backend for a hierarchy or a program, why, and what a round costs.

    Exact where that is possible; expectation propagation where rewards are not Gaussian; these mixed over
    scales, noise and other numbers that are unknown, if they are few; Laplace where actions have a link;
    NUTS elsewhere. Where the levels above the actions are too many for a joint
    covariance and not a tree, their posterior is factored or, if it cannot be, mean-field.

    Example:
        >>> from mixts.inference import best_backend
        >>> from mixts.models import linear
        >>> best_backend(linear([[1.0], [1.0]], dim=1)).why
        'the hierarchy is linear and Gaussian: exact'

    Args:
        hierarchy: what is declared.
        observations: after how many rewards the cost is told: some backends keep them all.
    """
    if not isinstance(hierarchy, Hierarchy | Program):
        raise TypeError(
            f"best_backend: got {short(hierarchy)}; expected a Hierarchy, or a "
            "Program(function, dim=...)"
        )
    observations = as_count(observations, "best_backend observations")
    backend, why = _choose(hierarchy)
    return Choice(backend, why, round_cost(backend, observations))


def _choose(hierarchy: Hierarchy | Program) -> tuple[Backend[Any], str]:
    if isinstance(hierarchy, Program):
        return Nuts(hierarchy), "the program is written by hand: only its density is known"
    why_not = hierarchy.why_not_exact
    if why_not is None:
        kind, why = ClosedForm, "the hierarchy is linear and Gaussian: exact"
    elif why_not.fits_laplace and why_not.obstacle is Obstacle.REWARD:
        kind = ExpectationPropagation
        why = f"{why_not.cause}: no closed form; expectation propagation matches the moments"
    elif why_not.fits_laplace:
        kind, why = Laplace, f"{why_not.cause}: no closed form; Laplace fits a Gaussian at the mode"
    elif not why_not_collapsed(hierarchy):
        try:
            collapsed = Collapsed(hierarchy)
        except ValueError as too_large:
            return Svi(hierarchy, guide="mean_field"), f"{why_not.cause}; but {too_large}"
        why = f"{why_not.cause}: exact given the numbers to learn, over which particles mix"
        return collapsed, why
    else:
        why = f"{why_not.cause}: no closed form, and nothing that Laplace fits; NUTS draws from it"
        return Nuts(hierarchy), why
    try:
        return kind(hierarchy), why
    except ValueError as too_many:
        why = f"{why}; but {too_many}"
        if hierarchy.actions.link is None and not any(lv.parents for lv in hierarchy.levels[:-1]):
            if kind is ExpectationPropagation:
                return ExpectationPropagation(hierarchy, factored=True), why
            return Factored(hierarchy), why
        return Svi(hierarchy, guide="mean_field"), why
