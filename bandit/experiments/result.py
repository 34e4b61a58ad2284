"""The results of a figure: lines, totals, and whether its claims hold."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from ..bound import regret_bound
from ..simulation.results import Simulation, standard_error
from ..simulation.run import instance_of_run
from .pieces import Piece, Store, problem_of
from .record import Bound, Claim, Figure, Panel, Size

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Line", "Ordering", "Result", "Verdict", "load_result", "spread"]

LINE_POINTS = 500  # at most; every round of every run is in the NetCDF file
BOUND_POINTS = 40
CERTAIN = 2.0  # standard errors, beyond which a difference counts


class Line(NamedTuple):
    """Regret up to some rounds, in every run.

    Example:
        >>> import numpy as np
        >>> from mixts.bandit.experiments import Line
        >>> line = Line(rounds=np.array([1, 2]), regret=np.array([[1.0, 2.0], [1.0, 4.0]]))
        >>> line.mean.tolist(), line.error.tolist(), line.totals.tolist()
        ([1.0, 3.0], [0.0, 1.0], [2.0, 4.0])
    """

    rounds: Int[np.ndarray, " points"]
    regret: Float[np.ndarray, "runs points"]

    @property
    def mean(self) -> Float[np.ndarray, " points"]:
        """Over runs."""
        return self.regret.mean(0)

    @property
    def error(self) -> Float[np.ndarray, " points"]:
        """Standard error of the mean; NaN for a single run."""
        return standard_error(self.regret)

    @property
    def totals(self) -> Float[np.ndarray, " runs"]:
        """Regret of each run, up to the last round."""
        return self.regret[:, -1]


Verdict = Literal["holds", "differs", "too close to tell"]


class Ordering(NamedTuple):
    """A claim about two policies of a panel, and the result.

    Attributes:
        panel: the panel's title.
        lower: the policy that is claimed to have less regret.
        higher: the other policy, or so many times its regret.
        ratio: mean total regret of the higher over that of the lower.
        difference: mean over runs of the higher's total minus the lower's.
        se: standard error of that mean.
        verdict: whether the difference is above zero by more than two standard errors.
    """

    panel: str
    lower: str
    higher: str
    ratio: float
    difference: float
    se: float
    verdict: Verdict


@dataclass(frozen=True)
class Result:
    """A figure and its results.

    Attributes:
        figure: its declaration.
        size: how much was played.
        played: panel name -> the runs of all its policies.

    Example:
        >>> from mixts.bandit import SyntheticProblem, UniformRandom, simulate
        >>> from mixts.bandit.experiments import Figure, Panel, Result, Size
        >>> panel = Panel("small", "K = 3", lambda: SyntheticProblem(3), {"chance": UniformRandom})
        >>> figure = Figure("example", "An example", (panel,), source="Section 5", says="Nothing.")
        >>> played = simulate(panel.problem(), panel.policies, 5, 2, key=0, progress=False)
        >>> Result(figure, Size(2, 5), {"small": played}).totals()["run"].tolist()
        [0, 1]
    """

    figure: Figure
    size: Size
    played: Mapping[str, Simulation]

    @cached_property
    def lines(self) -> dict[str, dict[str, Line]]:
        """Panel name -> line name -> line: policies, and then bounds."""
        rounds = _rounds(self.size.horizon, LINE_POINTS)
        return {
            panel.name: {
                name: Line(rounds, np.cumsum(regret, axis=1, dtype=float)[:, rounds - 1])
                for name, regret in self.played[panel.name].regret.items()
            }
            | _bounds(panel, self.size)
            for panel in self.figure.panels
        }

    def summary(self) -> pd.DataFrame:
        """A row for each line of each panel: mean and standard error of the total, and its status."""
        rows = []
        for panel, name, line in self._all_lines():
            row = {
                "panel": panel.title,
                "policy": name,
                "mean": line.mean[-1],
                "se": line.error[-1],
            }
            status = self.played[panel.name].summary().drop(columns=["mean", "se", "runs"])
            rows.append(row | (dict(status.loc[name]) if name in status.index else {}))
        return pd.DataFrame(rows)

    def totals(self) -> pd.DataFrame:
        """A row for each run of each line of each panel."""
        return self._table(lambda line: {"run": np.arange(len(line.totals)), "regret": line.totals})

    def curves(self) -> pd.DataFrame:
        """A row for each point of each line: mean and standard error of the regret up to a round."""
        return self._table(lambda line: {"round": line.rounds, "mean": line.mean, "se": line.error})

    def orderings(self) -> list[Ordering]:
        """Every claimed ordering, compared with the results."""
        return [
            _ordering(panel, claim, self.lines[panel.name])
            for panel in self.figure.panels
            for claim in panel.claims
        ]

    def claims(self) -> pd.DataFrame:
        """A row for each of the orderings."""
        return pd.DataFrame(self.orderings(), columns=list(Ordering._fields))

    def to_xarray(self) -> "xr.Dataset":
        """`regret` and `action` over panel, policy, run and round; NaN and -1 where nothing was played."""
        import xarray as xr

        parts = [self.played[panel.name].to_xarray() for panel in self.figure.panels]
        titles = pd.Index([panel.title for panel in self.figure.panels], name="panel")
        fill = {"regret": np.nan, "action": -1}
        whole = xr.concat(parts, titles, join="outer", fill_value=fill)
        return whole.astype({"regret": np.float32, "action": np.int32})

    def _all_lines(self) -> list[tuple[Panel, str, Line]]:
        panels = self.figure.panels
        return [(panel, *pair) for panel in panels for pair in self.lines[panel.name].items()]

    def _table(self, columns: Any) -> pd.DataFrame:
        """The columns of all lines below each other, with the names of panel and policy."""
        parts = [
            pd.DataFrame({"panel": panel.title, "policy": name, **columns(line)})
            for panel, name, line in self._all_lines()
        ]
        return pd.concat(parts, ignore_index=True)


def load_result(figure: Figure, size: Size, store: Store) -> Result | None:
    """A figure from its pieces; None if one is missing."""
    played = {}
    for panel in figure.panels:
        parts = {}
        for policy in panel.policies:
            piece = store.load(Piece(panel, policy, size))
            if piece is None:
                return None
            parts |= piece.played
        played[panel.name] = Simulation(parts, size.horizon)
    return Result(figure, size, played)


def spread(mean: float, error: float, decimals: int = 1) -> str:
    """A mean with its standard error, which a single run does not have."""
    return f"{mean:,.{decimals}f}" + ("" if np.isnan(error) else f" ± {error:,.{decimals}f}")


def _rounds(horizon: int, points: int) -> Int[np.ndarray, " points"]:
    """Rounds at which a line has a point: all of them, or so many at equal distances."""
    return np.unique(np.linspace(1, horizon, min(horizon, points)).round().astype(int))


def _bounds(panel: Panel, size: Size) -> dict[str, Line]:
    if not panel.bounds:
        return {}
    rounds, problem = _rounds(size.horizon, BOUND_POINTS), problem_of(panel)
    runs = jnp.arange(size.runs)
    hierarchies = jax.vmap(lambda run: instance_of_run(problem, size.seed, run).hierarchy)(runs)

    def line(bound: Bound) -> Line:
        def curve(hierarchy: Any) -> jax.Array:
            at = partial(regret_bound, hierarchy, kappa_x=bound.kappa_x, agent=bound.agent)
            return jnp.stack([at(int(end)).total for end in rounds])

        return Line(rounds, np.asarray(jax.jit(jax.vmap(curve))(hierarchies), float))

    return {name: line(bound) for name, bound in panel.bounds.items()}


def _ordering(panel: Panel, claim: Claim, lines: Mapping[str, Line]) -> Ordering:
    low, high = lines[claim.lower].totals, claim.times * lines[claim.higher].totals
    difference, error = float((high - low).mean()), float(standard_error(high - low))
    verdict: Verdict = "holds" if difference > 0 else "differs"
    if not abs(difference) > CERTAIN * error:
        verdict = "too close to tell"
    with np.errstate(divide="ignore", invalid="ignore"):  # few rounds may have no regret at all
        ratio = float(high.mean() / low.mean())
    return Ordering(panel.title, claim.lower, claim.limit, ratio, difference, error, verdict)
