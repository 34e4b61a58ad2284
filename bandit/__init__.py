"""What to do next: policies, environments, the loop, experiments and the command line."""

from .baselines import GLMTS, HierTS, KnownEffects, LinTS, NoActionNoise
from .catalogues import DrugProblem, SlateProblem
from .compile_cache import compile_cache
from .contexts import Box, Contexts, Drawn, Sphere, Table
from .declared import HierarchyProblem
from .environment import Environment, Instance, Problem
from .movielens import MovieLensProblem
from .policy import Policy, ThompsonSampling, UniformRandom, best_action
from .regret_bound import RegretBound, regret_bound
from .simulate import simulate, told_truth
from .simulation import Played, Simulation
from .synthetic import SyntheticProblem
from .ucb import GLMUCB, UCBGLM, LinUCB

__all__ = [
    "GLMTS",
    "GLMUCB",
    "UCBGLM",
    "Box",
    "Contexts",
    "Drawn",
    "DrugProblem",
    "Environment",
    "HierTS",
    "HierarchyProblem",
    "Instance",
    "KnownEffects",
    "LinTS",
    "LinUCB",
    "MovieLensProblem",
    "NoActionNoise",
    "Played",
    "Policy",
    "Problem",
    "RegretBound",
    "Simulation",
    "SlateProblem",
    "Sphere",
    "SyntheticProblem",
    "Table",
    "ThompsonSampling",
    "UniformRandom",
    "best_action",
    "compile_cache",
    "regret_bound",
    "simulate",
    "told_truth",
]
