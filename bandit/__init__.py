"""What to do next: policies, environments, the loop, experiments and the command line."""

from .agent import Agent
from .agent_file import AgentFileError
from .agent_state import AgentSettings, AgentState
from .baselines import GLMTS, HierTS, KnownEffects, LinTS, NoActionNoise
from .bound import RegretBound, regret_bound
from .catalogues import DrugProblem, SlateProblem
from .contexts import Box, Contexts, Drawn, Sphere, Table
from .decisions import (
    ActionProbabilities,
    AgentError,
    AlreadyRewarded,
    Decision,
    Decisions,
    ExpiredDecision,
    LabelTaken,
    UnknownAction,
    UnknownDecision,
)
from .declared import HierarchyProblem
from .environment import Environment, Instance, Problem
from .folder_lock import FolderInUse
from .journal import JournalError
from .loop import simulate
from .movielens import MovieLensProblem
from .off_policy import (
    Estimate,
    LoggedDecisions,
    OffPolicyValue,
    PolicyChoices,
    choice_probabilities,
    off_policy_value,
)
from .policy import Policy, ThompsonSampling, UniformRandom, best_action
from .program_cache import compile_cache
from .run import instance_of_run, told_truth
from .simulation import Played, Simulation
from .synthetic import SyntheticProblem
from .ucb import GLMUCB, UCBGLM, LinUCB

__all__ = [
    "GLMTS",
    "GLMUCB",
    "UCBGLM",
    "ActionProbabilities",
    "Agent",
    "AgentError",
    "AgentFileError",
    "AgentSettings",
    "AgentState",
    "AlreadyRewarded",
    "Box",
    "Contexts",
    "Decision",
    "Decisions",
    "Drawn",
    "DrugProblem",
    "Environment",
    "Estimate",
    "ExpiredDecision",
    "FolderInUse",
    "HierTS",
    "HierarchyProblem",
    "Instance",
    "JournalError",
    "KnownEffects",
    "LabelTaken",
    "LinTS",
    "LinUCB",
    "LoggedDecisions",
    "MovieLensProblem",
    "NoActionNoise",
    "OffPolicyValue",
    "Played",
    "Policy",
    "PolicyChoices",
    "Problem",
    "RegretBound",
    "Simulation",
    "SlateProblem",
    "Sphere",
    "SyntheticProblem",
    "Table",
    "ThompsonSampling",
    "UniformRandom",
    "UnknownAction",
    "UnknownDecision",
    "best_action",
    "choice_probabilities",
    "compile_cache",
    "instance_of_run",
    "off_policy_value",
    "regret_bound",
    "simulate",
    "told_truth",
]
