"""What the world may look like: hierarchies declared by a user, as NumPyro programs."""

from .catalogue.catalogue import Catalogue, NewItems
from .catalogue.table import CatalogueError
from .covariance_laws import LKJCovariance
from .data import Data
from .hierarchy import Hierarchy
from .kernels import AR1, GaussianProcess, Graph, Kernel, Relationship
from .level import Level
from .paper_models import finer, glm, linear, mab, nonlinear, three_level
from .reward_families import Binomial, NegativeBinomial, Ordinal, Probit, StudentT
from .rewards import Bernoulli, Gaussian, Poisson, Reward
from .structure import learn_structure
from .trees import tree
from .unknowns import Unknowns
from .weights import Sparse

__all__ = [
    "AR1",
    "Bernoulli",
    "Binomial",
    "Catalogue",
    "CatalogueError",
    "Data",
    "Gaussian",
    "GaussianProcess",
    "Graph",
    "Hierarchy",
    "Kernel",
    "LKJCovariance",
    "Level",
    "NegativeBinomial",
    "NewItems",
    "Ordinal",
    "Poisson",
    "Probit",
    "Relationship",
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
