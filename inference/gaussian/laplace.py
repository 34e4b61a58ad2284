"""`Laplace`: one non-linearity, in the rewards or in the effects, approximated at a mode."""

import equinox as eqx

from ...models import Gaussian, Hierarchy
from ...models.arrays import as_count
from ...models.exactness import Obstacle
from ...models.messages import short
from .backend import GaussianBackend
from .block_levels import in_blocks, tree_levels
from .closed_form import check_hierarchy, check_joint_fits
from .drift import check_no_drift
from .joint_levels import joint_levels
from .levels import Levels
from .link_levels import LinkLevels
from .messages import ExactMessages, RewardMessages
from .mode_messages import ModeMessages

__all__ = ["Laplace", "check_gaussian_levels"]

_PAPER_RIDGE = 1e-3


class Laplace(GaussianBackend):
    """Generalised linear rewards, or non-linear effects (Aouali et al. 2023).

    **Rewards that are not Gaussian** (Section 3.3). Each action's likelihood is expanded to
    second order and handed to the exact algebra, at any depth. Two choices of where to expand:

    - `sites="tilted"`: at the mode of the likelihood times the messages of all other actions.
      The mode exists for separable and for scarce rewards, and an action without rewards sends no message.
      When all actions are refitted until none moves, as `condition` does, the posterior is the Laplace
      approximation at the mode of the joint density. `update` refits the chosen action only.
    - `sites="mle"`, the paper's scheme: at the maximum of the likelihood, with `1e-3 I` added to the
      curvature of every action. The ridge stands in for a prior that knows nothing of the hierarchy:
      separable rewards give estimates as large as the ridge allows, and K actions without any rewards
      already add about `1e-3 K` to the precision of the effects.

    A fit that does not converge is counted, and what was known of its action before stays.
    All observations are kept. `capacity` is the room for them at first; it doubles outside `jit`.
    Gaussian rewards are refitted in the same way, and one refit is exact.

    **A link on the actions** (Appendix E.3), with Gaussian rewards. Actions are
    integrated out exactly, the levels above are Gaussian at the mode of what is left, and actions given
    those have the paper's closed form. Where a link is flat and the data call for a move, as `relu` at
    zero, the mode is searched from draws of the prior too; if none is better, that is a status. Means
    and covariances of actions in `posterior` are to first order in the levels above; `sample` and
    `sample_scores` are not.

    Example:
        >>> from mixts.inference import Laplace
        >>> from mixts.models import glm
        >>> backend = Laplace(glm([[1.0], [1.0]], dim=1))
        >>> state = backend.update(backend.init(), [1.0], action=0, reward=1.0)
        >>> print(backend.status(state))
        ok
    """

    hierarchy: Hierarchy
    messages: RewardMessages
    levels: Levels
    sites: str = eqx.field(static=True)
    capacity: int = eqx.field(static=True)

    def __init__(self, hierarchy: Hierarchy, sites: str = "tilted", capacity: int = 1024):
        check_gaussian_levels(hierarchy, "Laplace", link_on_actions=True)
        check_no_drift(hierarchy, "Laplace")
        check_joint_fits(hierarchy, "Laplace", in_blocks(hierarchy))
        if sites not in ("tilted", "mle"):
            raise ValueError(f"Laplace sites is {short(sites)}; expected 'tilted' or 'mle'")
        self.hierarchy = hierarchy
        self.sites, self.capacity = sites, as_count(capacity, "Laplace capacity")
        if hierarchy.actions.link is None:
            ridge = _PAPER_RIDGE if sites == "mle" else 0.0
            self.levels = tree_levels(hierarchy)
            self.messages = ModeMessages(hierarchy.reward, ridge, self.capacity)
        else:
            levels = joint_levels(hierarchy)
            self.levels, self.messages = LinkLevels(levels.model, levels.prior), ExactMessages()

    def __repr__(self) -> str:
        return f"Laplace({self.hierarchy!r}, sites={self.sites!r})"


def check_gaussian_levels(
    hierarchy: Hierarchy, backend: str, *, link_on_actions: bool = False
) -> None:
    """Refuse a hierarchy whose levels are not linear and Gaussian, whatever its rewards.

    With `link_on_actions`, the actions may have a link where rewards are Gaussian.
    """
    check_hierarchy(hierarchy, backend)
    for level in hierarchy.levels:
        obstacle, why = level.obstacle, level.why_not_linear_gaussian
        if obstacle is None:
            continue
        if link_on_actions and obstacle is Obstacle.LINK and level is hierarchy.actions:
            if isinstance(hierarchy.reward, Gaussian):
                continue
            why = (
                f"has a link and rewards are {type(hierarchy.reward).__name__}: one of them at most"
            )
        raise ValueError(
            f"{backend} needs linear-Gaussian levels: level '{level.name}' {why}; use Nuts or Svi"
        )
    if hierarchy.reward.is_learned:
        what = "noise" if isinstance(hierarchy.reward, Gaussian) else f"{short(hierarchy.reward)}"
        raise ValueError(
            f"{backend} needs known noise and cut points: the reward's {what} is learned; use Nuts or Svi"
        )
