"""Simulation-based calibration: are the probabilities of a posterior right?

Draw a truth from the prior and data from the truth, and condition the backend on the data. If the
backend is right, the rank of the truth among posterior draws is uniform, for any quantity (Talts et
al. 2018, Modrak et al. 2023). The quantities here are every number of every level, the log-likelihood
of the data, and the reward of the best action.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from ...models import Hierarchy
from ...models.arrays import as_count
from ..backend import Backend

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["Calibration", "calibrate"]

LOG_LIKELIHOOD, BEST_REWARD = "log-likelihood", "best reward"

# Simulated sets of uniform ranks that deviations are judged against.
_NULL_SETS = 4000


@dataclass(frozen=True)
class Calibration:
    """Ranks of the truth among `draws` posterior draws, one for each simulation.

    Attributes:
        ranks: quantity -> (simulations, its numbers) ranks from 0 to `draws`.
        draws: posterior draws of each simulation.
        backend: the name of the backend.

    Example:
        >>> import numpy as np
        >>> from mixts.inference import Calibration
        >>> Calibration({"action": np.arange(100)[:, None]}, draws=99, backend="mine").p_value
        1.0
    """

    ranks: dict[str, np.ndarray]
    draws: int
    backend: str

    @property
    def table(self) -> "pd.DataFrame":
        """A row for each quantity: p-value of uniformity, and the shape of the deviation.

        `p_value` is that of the largest deviation of the ranks' distribution function from the
        uniform one, judged by simulation and corrected (Bonferroni) for the numbers of a level.
        `bias` is the mean rank's distance from the middle, from -1 (the truth lies below all draws) to 1.
        `spread` is the ranks' variance over that of uniform ranks: above 1 the posterior is too
        narrow, below 1 too wide.
        """
        import pandas as pd

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
        """One p-value for all quantities (Bonferroni)."""
        return min(1.0, float(np.min(self.table["p_value"].to_numpy())) * len(self.ranks))

    def _p_value(self, ranks: Int[np.ndarray, " simulations"]) -> float:
        null = _null_deviations(len(ranks), self.draws)
        seen = np.abs(_ecdf(ranks, self.draws) - _uniform_cdf(self.draws)).max()
        return float((1 + np.sum(null >= seen - 1e-12)) / (1 + len(null)))

    def plot(self) -> "Figure":
        """Difference between the ranks' distribution function and the uniform one, a panel each.

        The whole line of a right posterior is inside the band in 95 of 100 cases; the band of a level
        with many numbers is wider, so that all their lines are inside together.
        """
        from ...models.picture.look import COLOURS, bare, blank

        names = list(self.ranks)
        columns = 2 if len(names) in (2, 4) else min(3, len(names))
        rows = -(-len(names) // columns)
        figure = blank(3.4 * columns, 2.6 * rows + 0.4)
        panels = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
        grid = _uniform_cdf(self.draws)
        for panel, name in zip(panels, names, strict=False):
            ranks = self.ranks[name]
            null = _null_deviations(len(ranks), self.draws)
            width = np.quantile(null, 1 - 0.05 / ranks.shape[1])
            panel.axhspan(-width, width, color="0.88", zorder=0)
            panel.axhline(0.0, color="0.4", linewidth=0.8)
            lines = np.stack([_ecdf(column, self.draws) for column in ranks.T], axis=1)
            alpha = max(0.15, min(1.0, 4 / ranks.shape[1]))
            panel.plot(grid, lines - grid[:, None], color=COLOURS[0], linestyle="-", alpha=alpha)
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

    Example:
        >>> from mixts.inference import ClosedForm, calibrate
        >>> from mixts.models import linear
        >>> result = calibrate(linear([[1.0]], dim=1), ClosedForm, simulations=20, observations=3)
        >>> result.p_value > 0.01
        True

    Args:
        hierarchy: truths are drawn from its prior.
        backend: a backend for it, or a function that makes one (every backend's constructor is one).
        simulations: the number of truths.
        observations: the number of rewards of each truth that the backend observes.
        draws: posterior draws that a truth is ranked among.
        key: the source of all randomness.
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
        drawn = jax.vmap(lambda levels: _quantities(hierarchy, levels, *seen))(posterior)
        true = _quantities(hierarchy, truth, *seen)
        return jax.tree.map(lambda drawn, true: (drawn < true).sum(0), drawn, true)

    keys = jax.random.split(jax.random.key(0) if key is None else key, simulations)
    ranks = jax.jit(lambda keys: jax.lax.map(simulate, keys, batch_size=batch))(keys)
    # A compiled function sorts dictionaries by name; levels are listed from top to bottom.
    order = [level.name for level in hierarchy.levels] + [LOG_LIKELIHOOD, BEST_REWARD]
    return Calibration({k: np.asarray(ranks[k]) for k in order}, draws, type(made).__name__)


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
    """The quantities: a level's numbers, the log-likelihood, and the best action's reward."""
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
    """The largest deviation from uniform of this many uniform ranks, simulated."""
    rng = np.random.default_rng(0)
    counts = rng.multinomial(simulations, np.full(draws + 1, 1 / (draws + 1)), size=_NULL_SETS)
    ecdf = np.cumsum(counts, axis=1) / simulations
    return np.abs(ecdf - _uniform_cdf(draws)).max(axis=1)
