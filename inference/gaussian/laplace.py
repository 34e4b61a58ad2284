"""`Laplace`: one non-linearity, in the rewards or in the effects, approximated at a mode."""

from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
from jax import Array

from ...models import Gaussian, Hierarchy
from ...models.arrays import as_count
from ...models.pytrees import register_declaration
from ..gaussian import link_levels as link_effects
from .action_blocks import ActionState, Innovation, Messages
from .closed_form import check_joint_fits
from .joint_backend import JointBackend
from .linear_model import ActionModel, GaussianVector

__all__ = ["Laplace", "check_gaussian_levels"]

_PAPER_RIDGE = 1e-3


@dataclass(frozen=True, eq=False, repr=False)
class Laplace(JointBackend):
    """Generalised linear rewards, or non-linear effects (Aouali et al. 2023).

    **Rewards that are not Gaussian** (Section 3.3). Each action's likelihood is expanded to
    second order and handed to the exact algebra, at any depth. Two choices of where to expand:

    - `sites="tilted"`: at the mode of the likelihood times what all other actions say of the action.
      The mode exists for separable and for scarce rewards, and an action without rewards says nothing.
      When all actions are refitted until none moves, as `condition` does, the posterior is the Laplace
      approximation at the mode of the joint density. `update` refits the action taken only.
    - `sites="mle"`, the paper's scheme: at the maximum of the likelihood, with `1e-3 I` added to the
      curvature of every action. The ridge stands in for a prior that knows nothing of the hierarchy:
      separable rewards give estimates as large as the ridge allows, and K actions without any rewards
      already add about `1e-3 K` to the precision of the effects.

    All observations are kept. `capacity` is the room for them at first; it doubles outside `jit`.

    **A link on the actions** (Appendix E.3), with Gaussian rewards. Actions are
    integrated out exactly, the levels above are Gaussian at the mode of what is left, and actions given
    those have the paper's closed form. Means and covariances of actions in `posterior` are to first
    order in the levels above; `sample` and `sample_scores` are not.
    """

    hierarchy: Hierarchy
    sites: str = "tilted"
    capacity: int = 1024
    model: ActionModel = field(init=False)
    prior: GaussianVector = field(init=False)

    def __post_init__(self):
        check_gaussian_levels(self.hierarchy, "Laplace", link_on_actions=True)
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
        """Unless there is a link: also for Gaussian rewards, where one refit is exact."""
        return self.model.link is None

    def _prior(self) -> Any:
        return super()._prior() if self.refits else link_effects.before_data(self.prior)

    def _absorb(
        self, effects: Any, innovation: Innovation, actions: ActionState
    ) -> tuple[Any, Array]:
        fitted = link_effects.fit_effects(self.model, self.prior, effects, actions)
        return fitted, jnp.zeros_like(innovation.variance)

    def _condition(
        self, effects: Any, messages: Messages, actions: ActionState
    ) -> tuple[Any, Array]:
        fitted = link_effects.fit_effects(self.model, self.prior, effects, actions)
        return fitted, jnp.zeros((), self.model.root.dtype)

    def _given_actions(self, effects: Any, actions: ActionState) -> Any:
        return link_effects.fit_effects(self.model, self.prior, effects, actions)

    def __repr__(self) -> str:
        return f"Laplace({self.hierarchy!r}, sites={self.sites!r})"


register_declaration(Laplace, arrays=("hierarchy", "model", "prior"), static=("sites", "capacity"))


def check_gaussian_levels(
    hierarchy: Hierarchy, backend: str, *, link_on_actions: bool = False
) -> None:
    """Refuse a hierarchy whose levels are not linear and Gaussian, whatever its rewards.

    With `link_on_actions`, the actions may have a link where rewards are Gaussian.
    """
    if not isinstance(hierarchy, Hierarchy):
        raise TypeError(f"{backend}: got {hierarchy!r}; expected a Hierarchy")
    for level in hierarchy.levels:
        why = level.why_not_linear_gaussian
        if not why:
            continue
        if link_on_actions and why == "has a link" and level is hierarchy.actions:
            if isinstance(hierarchy.reward, Gaussian):
                continue
            why = (
                f"has a link and rewards are {type(hierarchy.reward).__name__}: one of them at most"
            )
        raise ValueError(
            f"{backend} needs linear-Gaussian levels: level '{level.name}' {why}; use Nuts or Svi"
        )
    if getattr(hierarchy.reward, "is_learned", False):
        raise ValueError(
            f"{backend} needs known noise: the reward's noise is learned; use Nuts or Svi"
        )
