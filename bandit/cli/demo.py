"""The demonstration behind `make demo`: a movie site that learns what its visitors like.

Edit `movies()` to try a hierarchy of your own.
"""

import argparse

import jax
import numpy as np
import pandas as pd

from ...inference import ClosedForm, Posterior, plot_forest
from ...models import Gaussian, Hierarchy, Level
from .. import Environment, HierarchyProblem, HierTS, LinTS, ThompsonSampling, simulate

__all__ = ["movies", "run_demo"]

GENRES = ("comedy", "drama", "thriller")
DIRECTORS = ("Ozu", "Varda")
MOVIES = 60
VISITORS, RUNS = 1000, 20


def movies() -> Hierarchy:
    """Sixty movies, each of one or two genres and of one director: crossed effects."""
    number = np.arange(MOVIES)
    genres = np.eye(3)[number % 3]
    genres[number % 2 == 1] += 0.5 * np.eye(3)[(number[1::2] + 1) % 3]
    directors = np.eye(2)[number // 3 % 2]
    return Hierarchy(
        [
            Level("genre", len(GENRES), cov=3.0, labels=GENRES),
            Level("director", len(DIRECTORS), cov=1.0, labels=DIRECTORS),
            Level("movie", MOVIES, parents={"genre": genres, "director": directors}, cov=0.2),
        ],
        reward=Gaussian(noise=0.5),
        dim=2,
    )


def run_demo(options: argparse.Namespace) -> None:
    """Declare, play, look at what was learned; print tables and write three pictures into a folder."""
    out = options.out
    out.mkdir(parents=True, exist_ok=True)
    hierarchy = movies()
    print(hierarchy, end="\n\n")
    hierarchy.render(out / "hierarchy.png")

    problem = HierarchyProblem(hierarchy)
    policies = {
        "share genres and directors": lambda h: ThompsonSampling(ClosedForm(h)),
        "share one mean (HierTS)": HierTS,
        "each movie on its own (LinTS)": LinTS,
    }
    print(f"Recommending one movie to each of {VISITORS} visitors, in {RUNS} worlds ...")
    result = simulate(problem, policies, VISITORS, RUNS, key=0)
    if result.interrupted:
        raise KeyboardInterrupt
    print("\nRegret: how much more visitors would have liked the best movie for them, in all.\n")
    print(result.summary()[["mean", "se"]].round(1).to_string(), end="\n\n")
    result.plot(out / "regret.png")

    world = problem.sample(jax.random.key(7)).environment
    before, after = learned(hierarchy, world)
    print(f"What one agent knows after {VISITORS} visitors, first number of each vector:\n")
    effects = hierarchy.levels[:-1]
    print(pd.concat(_known(level, world, after) for level in effects).round(2).to_string())
    known = {"before": before, f"after {VISITORS} visitors": after}
    names = [level.name for level in effects]
    plot_forest(known, truth=world.levels, levels=names).savefig(out / "effects.png", dpi=150)
    pictures = (out / name for name in ("hierarchy.png", "regret.png", "effects.png"))
    print(f"\nPictures: {', '.join(map(str, pictures))}")


def learned(hierarchy: Hierarchy, world: Environment) -> tuple[Posterior, Posterior]:
    """The posteriors of an agent before and after it has met all visitors of one world."""
    backend = ClosedForm(hierarchy)
    policy = ThompsonSampling(backend)

    def meet(state, key):
        key_visitor, key_choice, key_rating = jax.random.split(key, 3)
        visitor = world.context(key_visitor)
        movie = policy.act(key_choice, state, visitor)
        rating = world.reward(key_rating, visitor, movie)
        return policy.update(state, visitor, movie, rating), movie

    prior = policy.init(jax.random.key(0))
    state, _ = jax.lax.scan(meet, prior, jax.random.split(jax.random.key(1), VISITORS))
    return backend.posterior(prior), backend.posterior(state)


def _known(level: Level, world: Environment, after: Posterior) -> pd.DataFrame:
    """Truth, posterior mean and standard deviation of the vectors of a level, in one coordinate."""
    columns = {
        "truth": world.levels[level.name][:, 0],
        "mean": after.mean[level.name][:, 0],
        "sd": after.cov[level.name][:, 0, 0] ** 0.5,
    }
    labels = [level.label_of(row) for row in range(level.size)]
    return pd.DataFrame({name: np.asarray(column) for name, column in columns.items()}, labels)
