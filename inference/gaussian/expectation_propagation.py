"""`ExpectationPropagation`: rewards of any law, matched by moments, on levels that are exact."""

import equinox as eqx

from ...models import Hierarchy
from ...models.messages import short
from .backend import GaussianBackend
from .block_levels import in_blocks, tree_levels
from .closed_form import check_joint_fits
from .factored import check_two_levels
from .factored_levels import factored_levels
from .laplace import check_gaussian_levels
from .levels import Levels
from .messages import RewardMessages
from .moment_messages import MomentMessages

__all__ = ["ExpectationPropagation"]


class ExpectationPropagation(GaussianBackend):
    """Clicks, counts, ratings: a Gaussian posterior with matched moments, for rewards of any law.

    A reward depends on the vectors through its predictor `x' theta_a` alone. What it says of that number is
    replaced by the Gaussian that gives the predictor the same mean and variance (see `moment_matching`),
    and the exact algebra of `ClosedForm` takes it: levels in blocks where they are a tree, jointly
    elsewhere, at any depth.

    - `update` matches one reward under all that was known before, a rank-one step. Nothing is kept but the
      posterior, so that memory and time stay the same for ever.
    - `condition` goes over its rows again and again until their messages agree, which is expectation
      propagation proper: the order of rows does not matter.

    The log evidence is that of the approximation. With Gaussian rewards all of this is exact.

    Args:
        hierarchy: linear and Gaussian in its levels; its reward may be any `Reward`.
        factored: whether effects are kept independent of one another, as `Factored` has them: for two
            levels with very many effects. Rows are then matched one after the other.
        sweep: whether `condition` goes over its rows until they agree; else it is one `update` for each.

    Example:
        >>> from mixts.inference import ExpectationPropagation
        >>> from mixts.models import glm
        >>> backend = ExpectationPropagation(glm([[1.0], [1.0]], dim=1))
        >>> state = backend.update(backend.init(), [1.0], action=0, reward=1.0)
        >>> round(float(state.log_evidence), 4)  # a click has probability 1/2 before any is seen
        -0.6931
    """

    hierarchy: Hierarchy
    messages: RewardMessages
    levels: Levels
    factored: bool = eqx.field(static=True)
    sweep: bool = eqx.field(static=True)

    def __init__(self, hierarchy: Hierarchy, factored: bool = False, sweep: bool = True):
        check_gaussian_levels(hierarchy, "ExpectationPropagation")
        for name, given in (("factored", factored), ("sweep", sweep)):
            if not isinstance(given, bool):
                raise TypeError(
                    f"ExpectationPropagation {name} is {short(given)}; expected True or False"
                )
        self.hierarchy, self.factored, self.sweep = hierarchy, factored, sweep
        if factored:
            check_two_levels(hierarchy, "ExpectationPropagation(factored=True)")
            self.levels = factored_levels(hierarchy, joint_means=False)
        else:
            check_joint_fits(hierarchy, "ExpectationPropagation", in_blocks(hierarchy))
            self.levels = tree_levels(hierarchy)
        reward = hierarchy.reward
        self.messages = MomentMessages(reward, reward.is_log_concave, sweep)

    def __repr__(self) -> str:
        options = ", factored=True" if self.factored else ""
        options += "" if self.sweep else ", sweep=False"
        return f"ExpectationPropagation({self.hierarchy!r}{options})"
