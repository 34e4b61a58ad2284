"""`Factored`: effect posteriors that factorise, for very many effects."""

import equinox as eqx

from ...models import Gaussian, Hierarchy
from ...models.arrays import as_count
from ...models.messages import short
from .backend import GaussianBackend
from .closed_form import check_joint_fits
from .drift import check_no_drift, check_only_actions_drift
from .factored_levels import factored_levels
from .laplace import check_gaussian_levels
from .levels import Levels
from .messages import ExactMessages, RewardMessages
from .mode_messages import ModeMessages

__all__ = ["Factored", "check_two_levels"]


class Factored(GaussianBackend):
    """The paper's factored effect posteriors (Aouali et al. 2023, Appendix E.1).

    Effects are independent of one another in the posterior; actions stay exact given the effects. The
    covariance of effect `l` is the inverse of the `l`-th diagonal block of the joint precision, which
    understates its marginal variance wherever actions mix effects. Two choices of means:

    - `means="decoupled"`, the displayed formulas: each effect is fitted as if the other parents of its
      actions were at their prior means, which the display has at zero. An update costs O(m d^2) for m
      parents whatever K and L are, and no joint covariance exists. The means differ from the joint
      posterior's as soon as an action has two parents: what others explain is credited to each.
    - `means="joint"`, the proof: the means of the exact joint posterior, at `ClosedForm`'s cost.

    Only for two levels: effects without parents, and actions. Rewards that are not Gaussian enter as
    in `Laplace`, each action's likelihood expanded at its mode under the action's marginal prior
    `N(mu_i + Gamma_i mu_Psi, Sigma_{0,i} + Gamma_i Sigma_Psi Gamma_i')`; they are all kept, with room for
    `capacity` of them at first.

    Example:
        >>> from mixts.inference import Factored
        >>> from mixts.models import Sparse, linear
        >>> pairs = Sparse([[0, 1], [1, 2]], [[1.0, 1.0], [1.0, 1.0]])
        >>> backend = Factored(linear(pairs, dim=1))
        >>> state = backend.update(backend.init(), [1.0], action=0, reward=1.0)
        >>> backend.posterior(state).mean["effect"].shape
        (3, 1)
    """

    hierarchy: Hierarchy
    messages: RewardMessages
    levels: Levels
    means: str = eqx.field(static=True)
    capacity: int = eqx.field(static=True)

    def __init__(self, hierarchy: Hierarchy, means: str = "decoupled", capacity: int = 1024):
        check_gaussian_levels(hierarchy, "Factored")
        if means not in ("decoupled", "joint"):
            raise ValueError(f"Factored means is {short(means)}; expected 'decoupled' or 'joint'")
        check_two_levels(hierarchy, "Factored")
        if means == "joint":
            check_joint_fits(hierarchy, "Factored(means='joint')")
        self.hierarchy = hierarchy
        self.means, self.capacity = means, as_count(capacity, "Factored capacity")
        self.levels = factored_levels(hierarchy, joint_means=means == "joint")
        gaussian = isinstance(hierarchy.reward, Gaussian)
        if not gaussian:
            check_no_drift(hierarchy, "Factored with rewards that are not Gaussian")
        refits = ModeMessages(hierarchy.reward, capacity=self.capacity)
        self.messages = ExactMessages() if gaussian else refits

    def __repr__(self) -> str:
        return f"Factored({self.hierarchy!r}, means={self.means!r})"


def check_two_levels(hierarchy: Hierarchy, backend: str) -> None:
    """Refuse what is not effects without parents above actions that are independent given these."""
    for level in hierarchy.levels[:-1]:
        if level.parents:
            raise ValueError(
                f"{backend} takes two levels, effects without parents and actions; level "
                f"'{level.name}' has parents {sorted(level.parents)}: use ClosedForm"
            )
    action = hierarchy.actions
    if not action.parents and action.covariance(hierarchy.dim).is_joint:
        raise ValueError(
            f"{backend} takes actions that are independent given their effects; level '{action.name}' "
            "has a joint covariance of all its vectors: use ClosedForm, or Laplace where rewards are "
            "not Gaussian"
        )
    check_only_actions_drift(hierarchy, backend)
