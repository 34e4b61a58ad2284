"""Simulation-based calibration: does a posterior mean what it says?

Draw a truth from the prior and data from the truth, and ask the backend for its posterior. If the
backend is right, the rank of the truth among posterior draws is uniform, whatever is ranked (Talts et
al. 2018, Modrak et al. 2023). Ranked here are every number of every level, the log-likelihood of the
data, and the reward of the best action.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from jaxtyping import Float, Int
from matplotlib.figure import Figure

from ...models import Hierarchy
from ...models.arrays import as_count
from ...models.picture.look import COLOURS, bare, blank
from ..backend import Backend

__all__ = ["Calibration", "calibrate"]

LOG_LIKELIHOOD, BEST_REWARD = "log-likelihood", "best reward"

# Simulated sets of uniform ranks that deviations are judged against.
_NULL_SETS = 4000


@dataclass(frozen=True)
class Calibration:
    """Ranks of the truth among `draws` posterior draws, one for each simulation.

    Attributes:
        ranks: what is ranked -> (simulations, how many) ranks from 0 to `draws`.
        draws: posterior draws of each simulation.
        backend: what was calibrated, in words.
    """

    ranks: dict[str, np.ndarray]
    draws: int
    backend: str

    @property
    def table(self) -> pd.DataFrame:
        """A row for each quantity: p-value of uniformity, and the shape of the deviation.

        `p_value` is that of the largest deviation of the ranks' distribution function from the
        uniform one, judged by simulation and corrected (Bonferroni) for the numbers of a level.
        `bias` is the mean rank's distance from the middle, from -1 (the truth lies below all draws) to 1.
        `spread` is the ranks' variance over that of uniform ranks: above 1 the posterior is too
        narrow, below 1 too wide.
        """
        uniform_variance = ((self.draws + 1) ** 2 - 1) / 12
        rows = {}
        for name, ranks in self.ranks.items():
            worst = min(self._p_value(column) for column in ranks.T)
            rows[name] = {
                "p_value": min(1.0, worst * ranks.shape[1]),
                "bias": float(2 * ranks.mean() / self.draws - 1),
                "spread": float(np.mean((ranks - self.draws / 2) ** 2) / uniform_variance),
            }
        return pd.DataFrame.from_dict(rows, orient="index")

    @property
    def p_value(self) -> float:
        """One p-value for all that is ranked (Bonferroni)."""
        return min(1.0, float(np.min(self.table["p_value"].to_numpy())) * len(self.ranks))

    def _p_value(self, ranks: Int[np.ndarray, " simulations"]) -> float:
        null = _null_deviations(len(ranks), self.draws)
        seen = np.abs(_ecdf(ranks, self.draws) - _uniform_cdf(self.draws)).max()
        return float((1 + np.sum(null >= seen - 1e-12)) / (1 + len(null)))

    def plot(self) -> Figure:
        """Difference between the ranks' distribution function and the uniform one, a panel each.

        The band holds a right posterior's line, everywhere at once, in 95 of 100 cases; that of a
        level with many numbers is widened so that it holds all of them at once.
        """
        names = list(self.ranks)
        columns = 2 if len(names) in (2, 4) else min(3, len(names))
        rows = -(-len(names) // columns)
        figure = blank(3.4 * columns, 2.6 * rows + 0.4)
        panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
        grid = (np.arange(self.draws + 1) + 1) / (self.draws + 1)
        for panel, name in zip(panels, names, strict=False):
            ranks = self.ranks[name]
            null = _null_deviations(len(ranks), self.draws)
            width = np.quantile(null, 1 - 0.05 / ranks.shape[1])
            panel.axhspan(-width, width, color="0.88", zorder=0)
            panel.axhline(0.0, color="0.4", linewidth=0.8)
            lines = np.stack([_ecdf(column, self.draws) for column in ranks.T])
            alpha = max(0.15, min(1.0, 4 / len(lines)))
            panel.plot(
                grid,
                (lines - _uniform_cdf(self.draws)).T,
                color=COLOURS[0],
                linestyle="-",
                alpha=alpha,
            )
            panel.set_title(name, fontsize=10)
            bare(panel)
        for panel in panels[len(names) :]:
            panel.set_axis_off()
        figure.supxlabel("rank of the truth among posterior draws, as a share", fontsize=9)
        figure.supylabel("distribution function less uniform", fontsize=9)
        figure.suptitle(f"{self.backend}: calibration, p = {self.p_value:.2g}", fontsize=11)
        return figure

    def __repr__(self) -> str:
        return f"Calibration of {self.backend}, p = {self.p_value:.3g}\n{self.table}"


def calibrate(
    hierarchy: Hierarchy,
    backend: Backend[Any] | Callable[[Hierarchy], Backend[Any]],
    *,
    simulations: int = 200,
    observations: int = 50,
    draws: int = 99,
    key: Array | None = None,
    batch: int = 20,
) -> Calibration:
    """Calibrate a backend on a hierarchy by simulation.

    All simulations run in one compiled function, `batch` of them side by side. Contexts are uniform in
    the box [-1, 1]^d and actions uniform.

    Args:
        hierarchy: what truths are drawn from.
        backend: a backend for it, or a function that makes one (every backend's constructor is one).
        simulations: how many truths.
        observations: how many rewards of each truth the backend sees.
        draws: posterior draws that a truth is ranked among.
        key: where the randomness comes from.
        batch: how many simulations run side by side: memory against speed.
    """
    if not isinstance(hierarchy, Hierarchy):
        raise TypeError(f"calibrate: got {hierarchy!r}; expected a Hierarchy")
    counts = {"simulations": simulations, "draws": draws, "observations": observations}
    for name, count in counts.items():
        as_count(count, f"calibrate {name}")
    made = backend if isinstance(backend, Backend) else backend(hierarchy)
    if not isinstance(made, Backend):
        raise TypeError(f"calibrate: got {made!r}; expected a backend or a function that makes one")

    def simulate(key: Array) -> dict[str, Int[Array, " quantities"]]:
        key_truth, key_data, key_init, key_draws = jax.random.split(key, 4)
        truth = hierarchy.sample_prior(key_truth)
        seen = _data(key_data, hierarchy, truth[hierarchy.actions.name], observations)
        state = made.condition(made.init(key_init, room=observations), *seen)
        posterior = made.posterior(state).draw(key_draws, draws)
        ranked = jax.vmap(lambda levels: _quantities(hierarchy, levels, *seen))
        below = jax.tree.map(
            lambda drawn, true: (drawn < true).sum(0),
            ranked(posterior),
            _quantities(hierarchy, truth, *seen),
        )
        return below

    keys = jax.random.split(jax.random.key(0) if key is None else key, simulations)
    ranks = jax.jit(lambda keys: jax.lax.map(simulate, keys, batch_size=batch))(keys)
    # Inside a compiled function dictionaries are sorted; here levels stand from top to bottom again.
    order = [level.name for level in hierarchy.levels] + [LOG_LIKELIHOOD, BEST_REWARD]
    ranked = {name: np.asarray(ranks[name]) for name in order}
    return Calibration(ranked, draws, type(made).__name__)


def _data(
    key: Array, hierarchy: Hierarchy, theta: Float[Array, "K d"], n: int
) -> tuple[Array, Array, Array]:
    key_contexts, key_actions, key_rewards = jax.random.split(key, 3)
    contexts = jax.random.uniform(key_contexts, (n, hierarchy.dim), minval=-1.0, maxval=1.0)
    actions = jax.random.randint(key_actions, (n,), 0, hierarchy.num_actions)
    predictor = jnp.sum(contexts * theta[actions], axis=-1)
    rewards = jnp.asarray(hierarchy.reward.law(predictor).sample(key_rewards), contexts.dtype)
    return contexts, actions, rewards


def _quantities(
    hierarchy: Hierarchy, levels: dict[str, Array], contexts: Array, actions: Array, rewards: Array
) -> dict[str, Float[Array, " quantities"]]:
    """What is ranked: a level's numbers, the log-likelihood, and the best action's reward."""
    theta = levels[hierarchy.actions.name]
    predictor = jnp.sum(contexts * theta[actions], axis=-1)
    log_likelihood = jnp.sum(jnp.asarray(hierarchy.reward.law(predictor).log_prob(rewards)))
    best = hierarchy.reward.mean(jnp.max(theta @ contexts[0]))
    numbers = {level.name: levels[level.name].ravel() for level in hierarchy.levels}
    return numbers | {LOG_LIKELIHOOD: log_likelihood[None], BEST_REWARD: best[None]}


def _ecdf(ranks: Int[np.ndarray, " simulations"], draws: int) -> Float[np.ndarray, " grid"]:
    """The share of ranks up to each of 0 .. draws."""
    return np.cumsum(np.bincount(ranks, minlength=draws + 1)) / len(ranks)


def _uniform_cdf(draws: int) -> Float[np.ndarray, " grid"]:
    return (np.arange(draws + 1) + 1) / (draws + 1)


@cache
def _null_deviations(simulations: int, draws: int) -> Float[np.ndarray, " sets"]:
    """The largest deviation from uniform of so many uniform ranks, simulated."""
    rng = np.random.default_rng(0)
    counts = rng.multinomial(simulations, np.full(draws + 1, 1 / (draws + 1)), size=_NULL_SETS)
    ecdf = np.cumsum(counts, axis=1) / simulations
    return np.abs(ecdf - _uniform_cdf(draws)).max(axis=1)
