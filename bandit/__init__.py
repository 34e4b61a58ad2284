"""What to do next: policies, environments, the loop, experiments and the command line."""

from ..inference.program_cache import compile_cache
from .agent.action_names import Position
from .agent.agent import Agent
from .agent.decisions import (
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
from .agent.health import AgentWarning
from .agent.node_names import NewNodes
from .agent.state import AgentSettings, AgentState
from .agent.storage.file import AgentFileError
from .agent.storage.journal import JournalError
from .agent.storage.lock import FolderInUse
from .bound import RegretBound, regret_bound
from .off_policy import (
    Estimate,
    LoggedDecisions,
    OffPolicyValue,
    PolicyChoices,
    choice_probabilities,
    off_policy_value,
)
from .policies.baselines import GLMTS, HierTS, KnownEffects, LinTS, NoActionNoise
from .policies.cost_aware import CostAware
from .policies.glm_ucb import GLMUCB, UCBGLM
from .policies.greedy import BayesUCB, EpsilonGreedy, Greedy
from .policies.information_directed import InformationDirected
from .policies.lin_ucb import LinUCB
from .policies.policy import (
    Policy,
    PosteriorPolicy,
    ThompsonSampling,
    UniformRandom,
    best_action,
)
from .policies.top_two import TopTwo
from .posterior_value import PosteriorValue, posterior_value
from .problems.by_hand import ProgramProblem
from .problems.catalogues import DrugProblem, SlateProblem
from .problems.contexts import Box, Contexts, Drawn, Sphere, Table
from .problems.environment import Environment, HierarchyProblem, Instance, Problem
from .problems.movielens import MovieLensProblem
from .problems.ratings import movielens_tables
from .problems.synthetic import SyntheticProblem
from .simulation.loop import simulate
from .simulation.results import Played, Simulation
from .simulation.run import instance_of_run, told_truth
from .tables.fit import Fit, compare_fits, fit

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
    "AgentWarning",
    "AlreadyRewarded",
    "BayesUCB",
    "Box",
    "Contexts",
    "CostAware",
    "Decision",
    "Decisions",
    "Drawn",
    "DrugProblem",
    "Environment",
    "EpsilonGreedy",
    "Estimate",
    "ExpiredDecision",
    "Fit",
    "FolderInUse",
    "Greedy",
    "HierTS",
    "HierarchyProblem",
    "InformationDirected",
    "Instance",
    "JournalError",
    "KnownEffects",
    "LabelTaken",
    "LinTS",
    "LinUCB",
    "LoggedDecisions",
    "MovieLensProblem",
    "NewNodes",
    "NoActionNoise",
    "OffPolicyValue",
    "Played",
    "Policy",
    "PolicyChoices",
    "Position",
    "PosteriorPolicy",
    "PosteriorValue",
    "Problem",
    "ProgramProblem",
    "RegretBound",
    "Simulation",
    "SlateProblem",
    "Sphere",
    "SyntheticProblem",
    "Table",
    "ThompsonSampling",
    "TopTwo",
    "UniformRandom",
    "UnknownAction",
    "UnknownDecision",
    "best_action",
    "choice_probabilities",
    "compare_fits",
    "compile_cache",
    "fit",
    "instance_of_run",
    "movielens_tables",
    "off_policy_value",
    "posterior_value",
    "regret_bound",
    "simulate",
    "told_truth",
]
