"""What the world may look like: hierarchies declared by a user, as NumPyro programs."""

from .data import Data
from .hierarchy import Hierarchy
from .level import Level
from .paper_models import finer, glm, linear, mab, nonlinear, three_level
from .reward_families import Binomial, NegativeBinomial, Ordinal, Probit, StudentT
from .rewards import Bernoulli, Gaussian, Poisson, Reward
from .structure import learn_structure
from .trees import tree
from .unknowns import Unknowns
from .weights import Sparse

__all__ = [
    "Bernoulli",
    "Binomial",
    "Data",
    "Gaussian",
    "Hierarchy",
    "Level",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
    "Probit",
    "Reward",
    "Sparse",
    "StudentT",
    "Unknowns",
    "finer",
    "glm",
    "learn_structure",
    "linear",
    "mab",
    "nonlinear",
    "three_level",
    "tree",
]
