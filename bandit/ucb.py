"""Optimism: take the action with the highest upper confidence bound, each learned on its own.

As the paper's baselines do (Aouali et al. 2023, `sec:synthetic experiments`), the three policies ignore
the effects. The hierarchy says how many actions there are, what rewards are like, and how large the
parameters may be expected to be.
"""

from .glm_ucb import GLMUCB, UCBGLM, GlmUcbState
from .lin_ucb import LinUCB, LinUcbState

__all__ = ["GLMUCB", "UCBGLM", "GlmUcbState", "LinUCB", "LinUcbState"]
