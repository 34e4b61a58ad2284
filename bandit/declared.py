"""`HierarchyProblem`: any hierarchy as a problem, its instances drawn from its own prior."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

from jax import Array

from ..models import Hierarchy
from .contexts import as_contexts
from .environment import Instance, Problem, check_rewards_known, draw_instance

__all__ = ["HierarchyProblem"]


@dataclass(frozen=True, eq=False)
class HierarchyProblem(Problem):
    """Hidden vectors from the prior of a hierarchy, which the agent is told.

    Args:
        hierarchy: the declaration; the noise of its rewards must be known.
        contexts: None, a table, a function of a key, or a law of `mixts.bandit.contexts`.
    """

    hierarchy: Hierarchy
    _: KW_ONLY
    contexts: Any = None

    def __post_init__(self):
        if not isinstance(self.hierarchy, Hierarchy):
            raise TypeError(f"HierarchyProblem: got {self.hierarchy!r}; expected a Hierarchy")
        check_rewards_known(self.hierarchy.reward, "HierarchyProblem")
        dim, actions = self.hierarchy.dim, self.hierarchy.num_actions
        contexts = as_contexts(self.contexts, dim, actions, "HierarchyProblem")
        object.__setattr__(self, "contexts", contexts)

    def sample(self, key: Array) -> Instance:
        """Vectors of every level."""
        return draw_instance(key, self.hierarchy, self.contexts)
