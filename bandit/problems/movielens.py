"""`MovieLensProblem`: recommend movies to users, with vectors and effects learned from ratings."""

from typing import Any

import equinox as eqx
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


class MovieLensProblem(Problem):
    """Random movies as actions, random users as contexts (Section 5.2).

    Ratings are factorised once, `stars - mean rating ~ x_j' theta_i`; a run draws `K` different movies
    and hides their `theta_i`. A linear reward is `N(x_j' theta_i, noise^2)`, a logistic one
    `Ber(sigmoid(x_j' theta_i))`. The hidden vectors do not come from a mixed-effect model: the agent's
    hierarchy is a proxy that `learn_structure` fits to the vectors of all movies.

    Where the paper is silent, the mean rating is subtracted before factorising, so that `x' theta` is how
    many stars a user gives a movie above or below the average, and click rates stay away from 0 and 1.
    On the shipped data `x' theta` is between -1.1 and 0.8 for 98% of pairs, and held-out ratings are
    predicted with an error of 0.88 stars. Without centring it is 0.98, by the mean rating 1.04, and the
    movies with three ratings or fewer, more than half of all, are estimated at 1.2 stars. Users have a
    mean squared length of one, a unit that changes LinUCB but not Thompson sampling.

    Args:
        path: `ratings.dat` of MovieLens 1M or `ratings.csv` of ml-latest-small, or the folder that
            holds it; None is ml-latest-small, which comes with mixts (for its licence and citation
            see `data/README.md` beside this file). The paper uses MovieLens 1M.
        num_actions: `K`.
        num_effects: `L`, an argument of `learn_structure`: None chooses it.
        dim: `d`.
        reward: `Gaussian(noise)`, `Bernoulli()` or another family; None is `Gaussian(1.0)`.
        min_ratings: movies with fewer ratings are left out of the catalogue.
        penalty: of the factorisation: the larger, the shorter are vectors of movies with few ratings.
        centred: whether the mean rating is subtracted, see above.
        sweeps: of the factorisation.
        covariances: `"marginal"` (the paper's choice) or `"mixture"`, see `learn_structure`.
        effect_share: the share of effects in the variance of movies, see `learn_structure`.
        seed: of the factorisation and of the structure.

    Attributes:
        factors: the vectors of all users and of the movies of the catalogue.
        titles: the movies of the catalogue.
        structure: the hierarchy learned from the whole catalogue, with titles as labels.

    Example:
        >>> from mixts.bandit import MovieLensProblem
        >>> problem = MovieLensProblem(num_actions=20, dim=2, num_effects=3, min_ratings=50, sweeps=2)
        >>> problem.sample(jax.random.key(0)).environment.theta.shape
        (20, 2)
        >>> problem.titles[0]
        'Toy Story (1995)'
    """

    num_actions: int = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    reward: Reward
    factors: Factors = eqx.field(repr=False)
    titles: tuple[str, ...] = eqx.field(repr=False, static=True)
    structure: Hierarchy = eqx.field(repr=False)

    def __init__(
        self,
        path: Any = None,
        *,
        num_actions: int = 100,
        num_effects: Any = 5,
        dim: int = 5,
        reward: Reward | None = None,
        min_ratings: int = 1,
        penalty: float = 5.0,
        centred: bool = True,
        sweeps: int = 50,
        covariances: Any = "marginal",
        effect_share: float = 0.75,
        seed: int = 0,
    ):
        self.num_actions = as_count(num_actions, "MovieLensProblem num_actions")
        self.dim = as_count(dim, "MovieLensProblem dim")
        least = as_count(min_ratings, "MovieLensProblem min_ratings")
        as_count(sweeps, "MovieLensProblem sweeps")
        if not 0.0 < penalty < np.inf:
            raise ValueError(f"MovieLensProblem penalty is {penalty}; expected a positive number")
        self.reward = Gaussian(1.0) if reward is None else reward
        check_rewards_known(self.reward, "MovieLensProblem")
        ratings = shipped_ratings() if path is None else read_ratings(path)
        catalogue = _catalogue(ratings, self.num_actions, self.dim, least)
        given = {"penalty": penalty, "centred": centred, "sweeps": sweeps, "seed": seed}
        factors = cached_factors(ratings, self.dim, **given)
        self.factors = factors._replace(movies=factors.movies[catalogue])
        self.titles = tuple(ratings.titles[i] for i in catalogue)
        self.structure = learn_structure(
            self.factors.movies,
            num_effects,
            reward=self.reward,
            covariances=covariances,
            effect_share=effect_share,
            labels=self.titles,
            seed=seed,
        )

    @property
    def unstructured(self) -> Hierarchy:
        """Movies without effects: the prior `N(mu, diag(v))` of the paper's LinTS and GLM-TS.

        `mu` and `v` are the mean and the variance of the catalogue's vectors, the same in every run.
        `LinTS(hierarchy)` has the marginal prior of its hierarchy instead, whose mean depends on the
        clusters of the movies; for the paper's, write `lambda _: LinTS(problem.unstructured)`.
        """
        movies = self.factors.movies
        level = Level("action", self.num_actions, mean=movies.mean(0), cov=movies.var(0))
        return Hierarchy([level], self.reward, self.dim)

    def sample(self, key: Array) -> Instance:
        """Different movies of the catalogue, each set of them as likely as any other."""
        chosen = jax.random.permutation(plain_key(key), len(self.titles))[: self.num_actions]
        known = _rows(self.structure, chosen)
        levels = {
            "effect": jnp.asarray(self.structure["effect"].mean),
            "action": jnp.asarray(self.factors.movies, float)[chosen],
        }
        return Instance(known, Environment(known, levels, Table(self.factors.users)))


def _catalogue(ratings: Ratings, K: int, dim: int, least: int) -> Int[np.ndarray, " movies"]:
    """Numbers of the movies with enough ratings."""
    enough = np.flatnonzero(np.bincount(ratings.movie) >= least)
    if len(enough) < K:
        raise ValueError(
            f"MovieLensProblem: {K} movies a run, of {len(enough)} with at least {least} ratings; "
            "expected at most as many as there are: ask for fewer num_actions, or lower min_ratings"
        )
    users, movies = len(ratings.user_ids), len(ratings.movie_ids)
    if dim > min(users, movies):
        raise ValueError(
            f"MovieLensProblem dim is {dim}, with {users} users and {movies} movies; expected at most "
            "the smaller of the two"
        )
    return enough


def _rows(structure: Hierarchy, chosen: Int[Array, " K"]) -> Hierarchy:
    """The hierarchy of some of the actions."""
    effect, action = structure.levels
    weights = (action.parents or {})["effect"]
    cov = action.cov[chosen] if action.cov.ndim == 3 else action.cov
    rows = Level("action", chosen.shape[0], parents={"effect": weights[chosen]}, cov=cov)
    return Hierarchy([effect, rows], structure.reward, structure.dim)
