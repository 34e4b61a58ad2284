"""New movies in a running recommender: an agent that shares effects against one that does not.

    python examples/cold_start.py --out out

Thirty movies of four genres are recommended to visitors; every 200 rounds twenty more come out. Both
agents have the true prior of a movie: meTS its genres, LinTS the mean and the variance that follow from
them. What meTS has learned about genres applies to a new movie at once; LinTS has to try every one. The
picture `cold_start.png` shows what that costs.
"""

import argparse
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from matplotlib.figure import Figure

from mixts.bandit import Agent, LinTS, ThompsonSampling
from mixts.bandit.policies.baselines import prior_moments
from mixts.inference import ClosedForm
from mixts.models import Hierarchy, linear
from mixts.models.picture.look import COLOURS, DASHES, bare, blank

GENRES, DIM, FIRST, MORE, EVERY, ARRIVALS = 4, 3, 30, 20, 200, 3
NOISE, WINDOW = 0.5, 20


class World(NamedTuple):
    """All movies there will be: their genres, what visitors think of them, and a hierarchy of them."""

    weights: np.ndarray
    movies: np.ndarray
    hierarchy: Hierarchy


def catalogue(weights: np.ndarray) -> Hierarchy:
    """Movies that are mixtures of genres; every genre appeals to visitors in a way to be learned."""
    return linear(weights, DIM, effect_cov=2.0, action_cov=0.2, noise=NOISE)


def draw_world(seed: int) -> World:
    """All movies there will be, drawn from the agents' prior."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(GENRES, 0.5), FIRST + ARRIVALS * MORE)
    hierarchy = catalogue(weights)
    movies = np.asarray(hierarchy.sample_prior(jax.random.key(seed))["action"])
    return World(weights, movies, hierarchy)


def play(world: World, shares_effects: bool, seed: int, rounds: int) -> np.ndarray:
    """The regret of each round: how much better the best movie there is would have been."""
    weights, movies, hierarchy = world
    moments = prior_moments(hierarchy)
    prior = catalogue(weights[:FIRST])
    agent = Agent(ThompsonSampling(ClosedForm(prior)) if shares_effects else LinTS(prior), seed)
    rng, regret, out = np.random.default_rng(seed), np.empty(rounds), FIRST
    for t in range(rounds):
        if t and t % EVERY == 0 and out < len(movies):
            new = slice(out, out + MORE)
            if shares_effects:
                agent.add_actions(weights[new])
            else:
                agent.add_actions(mean=moments.mean["action"][new], cov=moments.cov["action"][new])
            out += MORE
        visitor = rng.uniform(-1, 1, DIM)
        liked = movies[:out] @ visitor
        decision = agent.act(visitor)
        agent.reward(decision.id, liked[decision.index] + NOISE * rng.normal())
        regret[t] = liked.max() - liked[decision.index]
    return regret


def draw(regrets: dict[str, np.ndarray]) -> Figure:
    """Regret per round over rounds, mean over runs with a band of one standard error."""
    figure = blank(7.6, 4.2)
    axes = figure.subplots()
    for i, (name, regret) in enumerate(regrets.items()):
        runs, rounds = regret.shape
        binned = regret.reshape(runs, rounds // WINDOW, WINDOW).mean(2)
        x = (np.arange(binned.shape[1]) + 0.5) * WINDOW
        mean, error = binned.mean(0), binned.std(0, ddof=1) / np.sqrt(runs)
        colour = COLOURS[i]
        axes.plot(x, mean, linestyle=DASHES[i], color=colour, linewidth=1.8)
        axes.fill_between(x, mean - error, mean + error, color=colour, alpha=0.2, linewidth=0)
        axes.annotate(
            name,
            (x[-1], mean[-1]),
            (6, 0),
            textcoords="offset points",
            color=colour,
            va="center",
            fontweight="bold",
            annotation_clip=False,
        )
    rounds = next(iter(regrets.values())).shape[1]
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, rounds)
    for t in range(EVERY, rounds, EVERY):
        axes.axvline(t, color="0.6", linewidth=0.8, zorder=0)
        axes.annotate(
            f"{MORE} new movies",
            (t, axes.get_ylim()[1]),
            (4, -4),
            textcoords="offset points",
            color="0.35",
            fontsize=8,
            va="top",
        )
    axes.set_xlabel("round")
    axes.set_ylabel(f"regret per round, means of {WINDOW} rounds")
    bare(axes)
    return figure


def main(arguments: list[str] | None = None) -> dict[str, np.ndarray]:
    """Play, draw, and return the regret (runs, rounds) of each agent."""
    parser = argparse.ArgumentParser(description="New movies in a running recommender.")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture")
    parser.add_argument("--runs", type=int, default=30, help="worlds to average over")
    parser.add_argument("--rounds", type=int, default=(ARRIVALS + 1) * EVERY)
    options = parser.parse_args(arguments)
    if options.runs < 2 or options.rounds <= EVERY or options.rounds % WINDOW:
        parser.error(
            f"expected two runs at least, and rounds in multiples of {WINDOW} above {EVERY}"
        )
    regrets: dict[str, list[np.ndarray]] = {"meTS": [], "LinTS": []}
    for run in range(options.runs):
        world = draw_world(run)
        for name, found in regrets.items():
            found.append(play(world, name == "meTS", run, options.rounds))
    arrays = {name: np.array(found) for name, found in regrets.items()}
    options.out.mkdir(parents=True, exist_ok=True)
    picture = options.out / "cold_start.png"
    draw(arrays).savefig(picture, dpi=150)
    # The 50 rounds after each arrival are those in which newcomers are new.
    rounds = np.arange(options.rounds)
    fresh = (rounds >= EVERY) & (rounds % EVERY < 50)
    for name, regret in arrays.items():
        after = regret[:, fresh].mean(1)
        error = after.std(ddof=1) / np.sqrt(len(after))
        print(f"{name:>5}: regret {after.mean():.3f} +- {error:.3f} a round after newcomers come")
    print(f"The picture is in {picture}.")
    return arrays


if __name__ == "__main__":
    main()
