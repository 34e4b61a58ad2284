"""`Laplace`: generalised linear rewards, each action's likelihood as a Gaussian."""

from dataclasses import dataclass, field

from ..models import Hierarchy
from ..models.arrays import as_count
from ..models.pytrees import register_declaration
from .closed_form import check_joint_fits
from .joint_backend import JointBackend
from .linear_model import ActionModel, GaussianVector

__all__ = ["Laplace", "check_gaussian_levels"]

_PAPER_RIDGE = 1e-3


@dataclass(frozen=True, eq=False, repr=False)
class Laplace(JointBackend):
    """Mixed-effect generalised linear bandits (Aouali et al. 2023, `sec:glb bandit posterior`).

    Each action's likelihood is expanded to second order and handed to the exact algebra, at any depth.
    Two choices of where to expand:

    - `sites="tilted"`: at the mode of the likelihood times what all other actions say of the action.
      The mode exists for separable and for scarce rewards, and an action without rewards says nothing.
      When all actions are refitted until none moves, as `condition` does, the posterior is the Laplace
      approximation at the mode of the joint density. `update` refits the action taken only.
    - `sites="mle"`, the paper's scheme: at the maximum of the likelihood, with `1e-3 I` added to the
      curvature of every action. The ridge stands in for a prior that knows nothing of the hierarchy:
      separable rewards give estimates as large as the ridge allows, and K actions without any rewards
      already add `1e-3 K` to the precision of the effects.

    All observations are kept. `capacity` is the room for them at first; it doubles outside `jit`.
    """

    hierarchy: Hierarchy
    sites: str = "tilted"
    capacity: int = 1024
    model: ActionModel = field(init=False)
    prior: GaussianVector = field(init=False)

    def __post_init__(self):
        check_gaussian_levels(self.hierarchy, "Laplace")
        check_joint_fits(self.hierarchy, "Laplace")
        if self.sites not in ("tilted", "mle"):
            raise ValueError(f"Laplace sites is {self.sites!r}; expected 'tilted' or 'mle'")
        object.__setattr__(self, "capacity", as_count(self.capacity, "Laplace capacity"))
        self._prepare(self.hierarchy)

    @property
    def ridge(self) -> float:
        """What is added to the curvature of every likelihood: nothing, or the paper's `1e-3`."""
        return _PAPER_RIDGE if self.sites == "mle" else 0.0

    @property
    def refits(self) -> bool:
        """Always, also for Gaussian rewards, where one refit is exact."""
        return True

    def __repr__(self) -> str:
        return f"Laplace({self.hierarchy!r}, sites={self.sites!r})"


register_declaration(Laplace, arrays=("hierarchy", "model", "prior"), static=("sites", "capacity"))


def check_gaussian_levels(hierarchy: Hierarchy, backend: str) -> None:
    """Refuse a hierarchy whose levels are not linear and Gaussian, whatever its rewards."""
    if not isinstance(hierarchy, Hierarchy):
        raise TypeError(f"{backend}: got {hierarchy!r}; expected a Hierarchy")
    for level in hierarchy.levels:
        if level.why_not_linear_gaussian:
            raise ValueError(
                f"{backend} needs linear-Gaussian levels: level '{level.name}' "
                f"{level.why_not_linear_gaussian}"
            )
    if getattr(hierarchy.reward, "is_learned", False):
        raise ValueError(f"{backend} needs known noise: the reward's noise is learned")
