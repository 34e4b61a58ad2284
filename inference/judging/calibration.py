"""Simulation-based calibration: are the probabilities of a posterior right?

Draw a truth from the prior and data from the truth, and condition the backend on the data. If the
backend is right, the rank of the truth among posterior draws is uniform, for any quantity (Talts et
al. 2018). The quantities here are every number of every unknown: levels, learned scales, weights and
noise. A posterior that ignores the data, and returns the prior, has uniform ranks in all of these; so
quantities that depend on the data are ranked too (Modrak et al. 2023): the log-likelihood, the log
density of unknowns and data together, and the reward of the best action.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from ...models import Hierarchy
from ...models.arrays import as_count
from ...models.messages import short
from ..backend import Backend
from ..programs.by_hand import Program
from ..programs.target import Target, as_target
from ..progress import Task, task
from ..status import Status
from .generative import Rows, log_densities, simulated

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["Calibration", "calibrate"]

LOG_LIKELIHOOD, LOG_JOINT, BEST_REWARD = "log-likelihood", "log joint density", "best reward"

# Simulated sets of uniform ranks that deviations are judged against.
_NULL_SETS = 4000
_TESTS = 3  # of a quantity: the distribution of its ranks, their mean, and their variance


@dataclass(frozen=True)
class Calibration:
    """Ranks of the truth among `draws` posterior draws, one for each simulation.

    Attributes:
        ranks: quantity -> (simulations, its numbers) ranks from 0 to `draws`.
        draws: posterior draws of each simulation.
        backend: the name of the backend.
        status: what went wrong, with counts (simulations,).

    Example:
        >>> import numpy as np
        >>> from mixts.inference import Calibration
        >>> Calibration({"action": np.arange(100)[:, None]}, draws=99, backend="mine").p_value
        1.0
    """

    ranks: dict[str, np.ndarray]
    draws: int
    backend: str
    status: Status = field(default_factory=Status)

    @property
    def table(self) -> "pd.DataFrame":
        """A row for each quantity: how its ranks deviate from uniform ones, and a p-value of that.

        `bias` is the mean rank's distance from the middle, from -1 (the truth lies below all draws) to 1.
        `spread` is the ranks' variance over that of uniform ranks: above 1 the posterior is too
        narrow, below 1 too wide. `bias_z` and `spread_z` are their distances from 0 and 1 in standard
        errors, taken over simulations, since the numbers of a level depend on each other.

        `p_value` is for all three ways to deviate together, corrected (Bonferroni) for looking at
        three: mean and variance over all numbers of the quantity, and of any one of them the largest
        distance of the distribution function from the uniform one, judged by simulation.
        """
        import pandas as pd

        rows = {name: self._row(ranks) for name, ranks in self.ranks.items()}
        return pd.DataFrame.from_dict(rows, orient="index")

    @property
    def p_value(self) -> float:
        """One p-value for all quantities (Bonferroni)."""
        return min(1.0, float(np.min(self.table["p_value"].to_numpy())) * len(self.ranks))

    def _row(self, ranks: Int[np.ndarray, "simulations numbers"]) -> dict[str, float]:
        from scipy.stats import t

        deviation = 2 * ranks / self.draws - 1
        uniform_variance = (self.draws + 2) / (3 * self.draws)
        bias, bias_z = _mean_and_z(deviation, 0.0)
        spread, spread_z = _mean_and_z(deviation**2 / uniform_variance, 1.0)
        moments = 2 * t.sf(np.abs([bias_z, spread_z]), max(len(ranks) - 1, 1))
        shape = min(self._p_value(column) for column in ranks.T) * ranks.shape[1]
        return {
            "p_value": min(1.0, _TESTS * float(np.min([*moments, shape]))),
            "bias": bias,
            "bias_z": bias_z,
            "spread": spread,
            "spread_z": spread_z,
        }

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
        digits: Any = {"p_value": "{:.2g}".format}
        digits |= dict.fromkeys(("bias", "spread"), "{:.3f}".format)
        digits |= dict.fromkeys(("bias_z", "spread_z"), "{:.1f}".format)
        table = self.table.to_string(formatters=digits)
        text = f"Calibration of {self.backend}, p = {self.p_value:.3g}\n{table}"
        return text if self.status.ok else f"{text}\n{self.status}"


def calibrate(
    hierarchy: Hierarchy | Program,
    backend: Backend[Any] | Callable[[Any], Backend[Any]],
    *,
    simulations: int = 200,
    observations: int = 50,
    draws: int = 99,
    key: Array | None = None,
    batch: int = 20,
    contexts: Callable[[Array, int], Any] | None = None,
    progress: bool | None = None,
) -> Calibration:
    """Calibrate a backend on a hierarchy, or on a program written by hand, by simulation.

    One compiled function runs `batch` simulations side by side. Actions are uniform. What the
    hierarchy learns (scales, weights, noise) is drawn from its prior and ranked if the backend draws it.

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
        contexts: a function of a random key and a number that draws so many contexts (n, d); by default
            they are uniform in the box [-1, 1]^d. Give one where a program has columns of its own.
        progress: whether to show a progress bar; by default, if it takes longer than two seconds.
    """
    if not isinstance(hierarchy, Hierarchy | Program):
        raise TypeError(f"calibrate: got {short(hierarchy)}; expected a Hierarchy or a Program")
    counts = {"simulations": simulations, "draws": draws, "observations": observations}
    for name, count in counts.items():
        as_count(count, f"calibrate {name}")
    batch = min(as_count(batch, "calibrate batch"), simulations)
    made = backend if isinstance(backend, Backend) else backend(hierarchy)
    if not isinstance(made, Backend):
        raise TypeError(
            f"calibrate: got {short(made)}; expected a backend or a function that makes one"
        )

    target = as_target(hierarchy, "action", None, "calibrate")

    def simulate(key: Array) -> tuple[dict[str, Int[Array, " numbers"]], Status]:
        key_truth, key_init, key_draws, key_ties = jax.random.split(key, 4)
        truth, rows = simulated(target, key_truth, observations, contexts)
        state = made.condition(made.init(key_init, room=observations), *rows)
        posterior = made.posterior(state)
        drawn = made.sample_unknowns(key_draws, posterior.state, draws)
        # What a backend takes as known, it does not draw, and is not judged by.
        shared = {k: truth[k] for k in truth if k in drawn and drawn[k].shape[1:] == truth[k].shape}
        is_complete = len(shared) == len(truth)
        of = partial(_quantities, target, rows=rows, is_complete=is_complete)
        return _ranks(
            key_ties, jax.vmap(of)({k: drawn[k] for k in shared}), of(shared)
        ), posterior.status

    keys = jax.random.split(jax.random.key(0) if key is None else key, simulations)
    words = f"calibrate: {type(made).__name__}"
    with task(words, simulations, "simulations", progress) as bar:
        ranks, status = _in_batches(jax.jit(jax.vmap(simulate)), keys, batch, bar)
    # A compiled function sorts dictionaries by name; levels are listed from top to bottom.
    last = (LOG_LIKELIHOOD, LOG_JOINT, BEST_REWARD)
    learned = [name for name in ranks if name not in (*target.levels, *last)]
    order = [name for name in (*target.levels, *learned, *last) if name in ranks]
    return Calibration({name: ranks[name] for name in order}, draws, type(made).__name__, status)


def _in_batches(run: Callable[[Array], Any], keys: Array, batch: int, bar: Task) -> Any:
    """What `run` returns for all keys, so many at a time; a last batch is filled up with the last key."""
    parts = []
    for start in range(0, len(keys), batch):
        rows = np.minimum(np.arange(start, start + batch), len(keys) - 1)
        parts.append(jax.tree.map(np.asarray, run(keys[rows])))
        bar.advance(min(batch, len(keys) - start))
    return jax.tree.map(lambda *each: np.concatenate(each)[: len(keys)], *parts)


def _quantities(
    target: Target, unknowns: dict[str, Array], rows: Rows, is_complete: bool
) -> dict[str, Float[Array, " numbers"]]:
    """The numbers of every unknown, and quantities that depend on the data."""
    numbers = {name: jnp.ravel(value) for name, value in unknowns.items()}
    if target.action_site in unknowns and not target.has_own_scores:
        numbers[BEST_REWARD] = jnp.max(unknowns[target.action_site] @ rows.contexts[0])[None]
    if is_complete:
        densities = log_densities(target, unknowns, rows)
        numbers[LOG_LIKELIHOOD] = densities.log_likelihood[None]
        numbers[LOG_JOINT] = densities.log_joint[None]
    return numbers


def _ranks(key: Array, drawn: dict[str, Array], true: dict[str, Array]) -> dict[str, Array]:
    """How many draws lie below the truth; draws that equal it do so at random, as many as may be."""

    def rank(drawn: Float[Array, "draws n"], true: Float[Array, " n"]) -> Int[Array, " n"]:
        below, equal = (drawn < true).sum(0), (drawn == true).sum(0)
        return below + jax.random.randint(key, below.shape, 0, equal + 1)

    return jax.tree.map(rank, drawn, true)


def _mean_and_z(
    values: Float[np.ndarray, "simulations numbers"], expected: float
) -> tuple[float, float]:
    """The mean, and its distance from what is expected in standard errors over simulations."""
    each = values.mean(1)
    if len(each) < 2:
        return float(each.mean()), 0.0
    distance, error = each.mean() - expected, each.std(ddof=1) / np.sqrt(len(each))
    z = distance / error if error > 0 else np.inf * np.sign(distance) if distance else 0.0
    return float(each.mean()), float(z)


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
