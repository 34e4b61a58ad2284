"""`MovieLensProblem`: recommend movies to users, with vectors and effects learned from ratings."""

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Int

from ...inference.random import plain_key
from ...models import Gaussian, Hierarchy, Level, Reward, learn_structure
from ...models.arrays import as_count
from .contexts import Table
from .environment import Environment, Instance, Problem, check_rewards_known
from .factorise import Factors, cached_factors
from .ratings import Ratings, read_ratings, shipped_ratings

__all__ = ["MovieLensProblem"]


@dataclass(frozen=True, eq=False)
class MovieLensProblem(Problem):
    """Random movies as actions, random users as contexts (Section 5.2).

    Ratings are factorised once, `stars - mean rating ~ x_j' theta_i`; a run takes `K` different movies
    and hides their `theta_i`. A linear reward is `N(x_j' theta_i, noise^2)`, a logistic one
    `Ber(sigmoid(x_j' theta_i))`. The hidden vectors do not come from a mixed-effect model: the agent is
    told a proxy that `learn_structure` finds in the vectors of all movies.

    What the paper leaves open is chosen so: the mean rating is taken off before factorising, so that
    `x' theta` is how many stars a user gives a movie above or below the average, and clicks are neither
    certain nor hopeless. On the shipped data `x' theta` is between -1.1 and 0.8 for 98 pairs in a
    hundred, and ratings that were held out are predicted with an error of 0.88 stars. Without centring it
    is 0.98, by the mean rating 1.04, and the movies with three ratings or fewer, more than half of all,
    are taken for movies of 1.2 stars. Users have a mean squared length of one; that is a unit, which
    Thompson sampling does not notice and LinUCB does.

    Args:
        path: `ratings.dat` of MovieLens 1M or `ratings.csv` of ml-latest-small, or the folder that
            holds it; None takes ml-latest-small, which comes with mixts (for its licence and citation
            see `data/README.md` beside this file). The paper uses MovieLens 1M.
        num_actions: `K`.
        num_effects: `L`, as `learn_structure` takes it: None chooses it.
        dim: `d`.
        reward: `Gaussian(noise)`, `Bernoulli()` or another family.
        min_ratings: movies with fewer ratings are left out of the catalogue.
        penalty: of the factorisation: the larger, the shorter are vectors of movies with few ratings.
        centred: whether the mean rating is taken off, see above.
        sweeps: of the factorisation.
        covariances: `"marginal"` (the paper's choice) or `"mixture"`, as `learn_structure` takes it.
        effect_share: how much of the variance of movies is that of effects, as `learn_structure` takes it.
        seed: of the factorisation and of the structure.

    Attributes:
        factors: the vectors of all users and of the movies of the catalogue.
        titles: the movies of the catalogue.
        structure: the hierarchy learned from the whole catalogue, with titles as labels.
    """

    path: Any = None
    _: KW_ONLY
    num_actions: int = 100
    num_effects: Any = 5
    dim: int = 5
    reward: Reward = field(default_factory=lambda: Gaussian(1.0))
    min_ratings: int = 1
    penalty: float = 5.0
    centred: bool = True
    sweeps: int = 50
    covariances: str = "marginal"
    effect_share: float = 0.75
    seed: int = 0
    factors: Factors = field(init=False, repr=False)
    titles: tuple[str, ...] = field(init=False, repr=False)
    structure: Hierarchy = field(init=False, repr=False)

    def __post_init__(self):
        for name in ("num_actions", "dim", "min_ratings", "sweeps"):
            as_count(getattr(self, name), f"MovieLensProblem {name}")
        if not 0.0 < self.penalty < np.inf:
            raise ValueError(
                f"MovieLensProblem penalty is {self.penalty}; expected a positive number"
            )
        check_rewards_known(self.reward, "MovieLensProblem")
        ratings = shipped_ratings() if self.path is None else read_ratings(self.path)
        catalogue = _catalogue(self, ratings)
        given = {"penalty": self.penalty, "centred": self.centred, "sweeps": self.sweeps}
        factors = cached_factors(ratings, self.dim, **given, seed=self.seed)
        factors = factors._replace(movies=factors.movies[catalogue])
        titles = tuple(ratings.titles[i] for i in catalogue)
        structure = learn_structure(
            factors.movies,
            self.num_effects,
            reward=self.reward,
            covariances=self.covariances,
            effect_share=self.effect_share,
            labels=titles,
            seed=self.seed,
        )
        for name, value in (("factors", factors), ("titles", titles), ("structure", structure)):
            object.__setattr__(self, name, value)

    @property
    def unstructured(self) -> Hierarchy:
        """Movies without effects: the prior `N(mu, diag(v))` of the paper's LinTS and GLM-TS.

        `mu` and `v` are the mean and the variance of the catalogue's vectors, so it is the same in
        every run. `LinTS(hierarchy)` has the marginal prior of what it is told instead, whose mean
        knows the clusters of the movies; for the paper's, write `lambda _: LinTS(problem.unstructured)`.
        """
        movies = self.factors.movies
        level = Level("action", self.num_actions, mean=movies.mean(0), cov=movies.var(0))
        return Hierarchy([level], self.reward, self.dim)

    def sample(self, key: Array) -> Instance:
        """Different movies of the catalogue, each set of them as likely as any other."""
        catalogue = len(self.titles)
        chosen = jax.random.permutation(plain_key(key), catalogue)[: self.num_actions]
        told = _rows(self.structure, chosen)
        levels = {
            "effect": jnp.asarray(self.structure["effect"].mean),
            "action": jnp.asarray(self.factors.movies, float)[chosen],
        }
        return Instance(told, Environment(told, levels, Table(self.factors.users)))


def _catalogue(problem: MovieLensProblem, ratings: Ratings) -> Int[np.ndarray, " movies"]:
    """Numbers of the movies with enough ratings."""
    enough = np.flatnonzero(np.bincount(ratings.movie) >= problem.min_ratings)
    if len(enough) < problem.num_actions:
        raise ValueError(
            f"MovieLensProblem: {problem.num_actions} movies a run, of {len(enough)} with at least "
            f"{problem.min_ratings} ratings; expected at most as many as there are: ask for fewer "
            "num_actions, or lower min_ratings"
        )
    if problem.dim > min(len(ratings.user_ids), len(ratings.movie_ids)):
        raise ValueError(
            f"MovieLensProblem dim is {problem.dim}, with {len(ratings.user_ids)} users and "
            f"{len(ratings.movie_ids)} movies; expected at most the smaller of the two"
        )
    return enough


def _rows(structure: Hierarchy, chosen: Int[Array, " K"]) -> Hierarchy:
    """The hierarchy of some of the actions."""
    effect, action = structure.levels
    weights = (action.parents or {})["effect"]
    cov = action.cov[chosen] if action.cov.ndim == 3 else action.cov
    rows = Level("action", chosen.shape[0], parents={"effect": weights[chosen]}, cov=cov)
    return Hierarchy([effect, rows], structure.reward, structure.dim)
