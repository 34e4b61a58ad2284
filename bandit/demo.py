"""The demonstration behind `make demo`: movies that share genres, learned from a few ratings.

Edit `movies()` to try a hierarchy of your own.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from matplotlib.figure import Figure

from ..inference import ClosedForm, Posterior
from ..models import Data, Gaussian, Hierarchy, Level

__all__ = ["movies", "run_demo"]

GENRES = ("comedy", "drama", "thriller")
DIRECTORS = ("Ozu", "Varda")
MOVIES = 12
RATED = 8  # ratings are seen for the first so many movies only
RATINGS = 160


def movies() -> Hierarchy:
    """Twelve movies, each of one or two genres and of one director: crossed effects."""
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
    """Declare, observe, condition; print a table and write two pictures into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    hierarchy = movies()
    print(hierarchy, end="\n\n")
    hierarchy.render(out / "hierarchy.png")

    truth = hierarchy.sample_prior(jax.random.key(7))
    backend = ClosedForm(hierarchy)
    before = backend.posterior(backend.init())
    after = backend.posterior(backend.condition(backend.init(), *_ratings(truth["movie"])))
    _print_table(truth["movie"], before, after)
    _picture(hierarchy, truth, before, after).savefig(out / "posterior.png", dpi=150)
    print(f"\nPictures: {out / 'hierarchy.png'}, {out / 'posterior.png'}")


def _ratings(movies: Array) -> Data:
    """Ratings of the first movies by users with random tastes."""
    rng = np.random.default_rng(0)
    users = rng.uniform(-1, 1, (RATINGS, 2))
    seen = rng.integers(0, RATED, RATINGS)
    noise = 0.5 * rng.normal(size=RATINGS)
    return Data(users, seen, np.sum(users * np.asarray(movies)[seen], axis=1) + noise)


def _spread(posterior: Posterior, level: str) -> Array:
    """Standard deviations of a level's numbers, (size, d)."""
    return jnp.sqrt(jnp.diagonal(posterior.cov[level], axis1=-2, axis2=-1))


def _print_table(truth: Array, before: Posterior, after: Posterior) -> None:
    print(
        f"{RATINGS} ratings of movies 0 to {RATED - 1}; movies {RATED} to {MOVIES - 1} have none."
    )
    print("Typical error and standard deviation of a movie's two numbers:\n")
    print(f"{'':24}{'before':>10}{'after':>10}{'after, sd':>12}")
    groups = {"movies with ratings": slice(0, RATED), "movies without ratings": slice(RATED, None)}
    for name, rows in groups.items():
        error = [
            float(jnp.sqrt(jnp.mean((p.mean["movie"][rows] - truth[rows]) ** 2)))
            for p in (before, after)
        ]
        sd = float(jnp.sqrt(jnp.mean(_spread(after, "movie")[rows] ** 2)))
        print(f"{name:24}{error[0]:>10.2f}{error[1]:>10.2f}{sd:>12.2f}")


def _picture(
    hierarchy: Hierarchy, truth: dict[str, Array], before: Posterior, after: Posterior
) -> Figure:
    """Every vector's first number: prior, posterior and truth, a panel for each level."""
    sizes = [level.size for level in hierarchy.levels]
    figure = Figure(figsize=(7, 6), layout="constrained")
    panels = figure.subplots(len(sizes), 1, sharex=True, height_ratios=sizes)
    for panel, level in zip(panels, hierarchy.levels, strict=True):
        rows = np.arange(level.size)
        labels = level.labels or [f"{level.name} {row}" for row in rows]
        for posterior, shift, colour, name in (
            (before, -0.18, "0.65", "before"),
            (after, 0.18, "#0072b2", f"after {RATINGS} ratings"),
        ):
            mean, sd = posterior.mean[level.name][:, 0], _spread(posterior, level.name)[:, 0]
            panel.errorbar(
                mean, rows + shift, xerr=2 * sd, fmt="o", color=colour, label=name, markersize=4
            )
        panel.plot(truth[level.name][:, 0], rows, "k|", markersize=14, label="truth")
        panel.set_yticks(rows, labels)
        panel.set_ylim(level.size - 0.5, -0.5)
    panels[-1].axhspan(RATED - 0.5, MOVIES - 0.5, color="0.93", zorder=0)
    last = panels[-1]
    where = last.get_yaxis_transform()
    last.text(0.99, MOVIES - 0.6, "no ratings", va="bottom", ha="right", transform=where)
    panels[-1].set_xlabel("first number of each vector, with two standard deviations")
    panels[0].legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    return figure
