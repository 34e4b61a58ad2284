"""The demonstration behind `make demo`: a movie site that learns what its visitors like.

Edit `movies()` to try a hierarchy of your own.
"""

from pathlib import Path

import jax
import numpy as np

from ...inference import ClosedForm, Posterior, plot_forest
from ...models import Gaussian, Hierarchy, Level
from ..policies.baselines import HierTS, LinTS
from ..policies.policy import ThompsonSampling
from ..problems.environment import Environment, HierarchyProblem
from ..simulation.loop import simulate

__all__ = ["movies", "run_demo"]

GENRES = ("comedy", "drama", "thriller")
DIRECTORS = ("Ozu", "Varda")
MOVIES = 60
VISITORS, RUNS = 1000, 20


def movies() -> Hierarchy:
    """Sixty movies, each of one or two genres and of one director: crossed effects."""
    genres = np.zeros((MOVIES, len(GENRES)))
    directors = np.zeros((MOVIES, len(DIRECTORS)))
    for movie in range(MOVIES):
        genres[movie, movie % 3] = 1.0
        if movie % 2:
            genres[movie, (movie + 1) % 3] = 0.5
        directors[movie, (movie // 3) % 2] = 1.0
    return Hierarchy(
        [
            Level("genre", len(GENRES), cov=3.0, labels=GENRES),
            Level("director", len(DIRECTORS), cov=1.0, labels=DIRECTORS),
            Level("movie", MOVIES, parents={"genre": genres, "director": directors}, cov=0.2),
        ],
        reward=Gaussian(noise=0.5),
        dim=2,
    )


def run_demo(out: Path) -> None:
    """Declare, play, look at what was learned; print a table and write three pictures into `out`."""
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
    print(
        "\nRegret: by how much visitors liked the best movie for them more than the one shown, in all.\n"
    )
    print(result.summary()[["mean", "se"]].round(1).to_string(), end="\n\n")
    result.plot(out / "regret.png")

    world = problem.sample(jax.random.key(7)).environment
    before, after = learned(hierarchy, world)
    _print_effects(hierarchy, world, after)
    effects = [level.name for level in hierarchy.levels[:-1]]
    known = {"before": before, f"after {VISITORS} visitors": after}
    plot_forest(known, truth=world.levels, levels=effects).savefig(out / "effects.png", dpi=150)
    names = ("hierarchy.png", "regret.png", "effects.png")
    print(f"\nPictures: {', '.join(str(out / name) for name in names)}")


def learned(hierarchy: Hierarchy, world: Environment) -> tuple[Posterior, Posterior]:
    """What an agent knows before and after it has met all visitors of one world."""
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


def _print_effects(hierarchy: Hierarchy, world: Environment, after: Posterior) -> None:
    print(f"What one agent knows after {VISITORS} visitors, first number of each vector:\n")
    print(f"{'':12}{'truth':>8}{'mean':>8}{'sd':>8}")
    for level in hierarchy.levels[:-1]:
        truth, mean = world.levels[level.name][:, 0], after.mean[level.name][:, 0]
        sd = np.sqrt(after.cov[level.name][:, 0, 0])
        for row in range(level.size):
            print(f"{level.label_of(row):12}{truth[row]:>8.2f}{mean[row]:>8.2f}{sd[row]:>8.2f}")
