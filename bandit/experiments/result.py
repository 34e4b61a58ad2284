"""What was played of a figure: lines, totals, and whether what is said of it holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import xarray as xr
from jaxtyping import Float, Int

from ..bound import regret_bound
from ..simulation.results import Simulation, standard_error
from ..simulation.run import instance_of_run
from .pieces import Piece, Store, problem_of
from .record import Bound, Claim, Figure, Panel, Size

__all__ = ["Line", "Ordering", "Result", "Verdict", "load_result"]

_MOST_POINTS = 500  # of a line; every round of every run is in the NetCDF file
_BOUND_POINTS = 40
_CERTAIN = 2.0  # standard errors, beyond which a difference counts


class Line(NamedTuple):
    """Regret up to some rounds, in every run."""

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
    """A claim about two policies of a panel, and what was found.

    Attributes:
        panel: the panel's title.
        lower: the policy that is said to have less regret.
        higher: the other.
        ratio: the other's mean total over its own.
        difference: mean over runs of the other's total minus its own.
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
    """A figure and everything that was played of it.

    Attributes:
        figure: its declaration.
        size: how much was played.
        played: panel name -> all its policies.
    """

    figure: Figure
    size: Size
    played: Mapping[str, Simulation]

    @cached_property
    def lines(self) -> dict[str, dict[str, Line]]:
        """Panel name -> line name -> line: policies, and then bounds."""
        return {panel.name: self._lines_of(panel) for panel in self.figure.panels}

    def _lines_of(self, panel: Panel) -> dict[str, Line]:
        n = self.size.horizon
        rounds = np.unique(np.linspace(1, n, min(n, _MOST_POINTS)).round().astype(int))
        played = self.played[panel.name].regret
        lines = {name: Line(rounds, _up_to(regret, rounds)) for name, regret in played.items()}
        return lines | _bounds(panel, self.size)

    def summary(self) -> pd.DataFrame:
        """A row for each line of each panel: mean and standard error of the total, and troubles."""
        rows = []
        for panel in self.figure.panels:
            troubles = self.played[panel.name].summary().drop(columns=["mean", "se", "runs"])
            for name, line in self.lines[panel.name].items():
                total = {"mean": line.mean[-1], "se": line.error[-1]}
                counts = dict(troubles.loc[name]) if name in troubles.index else {}
                rows.append({"panel": panel.title, "policy": name} | total | counts)
        return pd.DataFrame(rows)

    def totals(self) -> pd.DataFrame:
        """A row for each run of each line of each panel."""
        parts = [
            pd.DataFrame({"panel": panel.title, "policy": name, "run": range(len(line.totals))})
            .assign(regret=line.totals)
            for panel, name, line in self._all_lines()
        ]  # fmt: skip
        return pd.concat(parts, ignore_index=True)

    def curves(self) -> pd.DataFrame:
        """A row for each point of each line: mean and standard error of the regret up to a round."""
        parts = [
            pd.DataFrame({"panel": panel.title, "policy": name, "round": line.rounds})
            .assign(mean=line.mean, se=line.error)
            for panel, name, line in self._all_lines()
        ]  # fmt: skip
        return pd.concat(parts, ignore_index=True)

    def orderings(self) -> list["Ordering"]:
        """Every ordering that is claimed, held against what was played."""
        panels = self.figure.panels
        return [
            _ordering(panel, claim, self.lines[panel.name])
            for panel in panels
            for claim in panel.claims
        ]

    def claims(self) -> pd.DataFrame:
        """A row for each of the orderings."""
        return pd.DataFrame(self.orderings(), columns=list(Ordering._fields))

    def to_xarray(self) -> xr.Dataset:
        """`regret` and `action` over panel, policy, run and round; NaN and -1 where nothing was played."""
        parts = [self.played[panel.name].to_xarray() for panel in self.figure.panels]
        titles = pd.Index([panel.title for panel in self.figure.panels], name="panel")
        fill = {"regret": np.nan, "action": -1}
        whole = xr.concat(parts, titles, join="outer", fill_value=fill)
        return whole.astype({"regret": np.float32, "action": np.int32})

    def _all_lines(self) -> list[tuple[Panel, str, Line]]:
        panels = self.figure.panels
        return [
            (panel, name, line) for panel in panels for name, line in self.lines[panel.name].items()
        ]


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


def _up_to(regret: np.ndarray, rounds: np.ndarray) -> Float[np.ndarray, "runs points"]:
    return np.cumsum(regret, axis=1, dtype=float)[:, rounds - 1]


def _bounds(panel: Panel, size: Size) -> dict[str, Line]:
    if not panel.bounds:
        return {}
    n = size.horizon
    rounds = np.unique(np.linspace(1, n, min(n, _BOUND_POINTS)).round().astype(int))
    problem = problem_of(panel)
    runs = jnp.arange(size.runs)
    told = jax.vmap(lambda run: instance_of_run(problem, size.seed, run).hierarchy)(runs)

    def line(bound: Bound) -> Line:
        def curve(hierarchy: Any) -> jax.Array:
            given = [int(end) for end in rounds]
            totals = [
                regret_bound(hierarchy, end, bound.kappa_x, agent=bound.agent).total
                for end in given
            ]
            return jnp.stack(totals)

        return Line(rounds, np.asarray(jax.jit(jax.vmap(curve))(told), float))

    return {name: line(bound) for name, bound in panel.bounds.items()}


def _ordering(panel: Panel, claim: Claim, lines: Mapping[str, Line]) -> Ordering:
    low, high = lines[claim.lower].totals, lines[claim.higher].totals
    difference, error = float((high - low).mean()), float(standard_error(high - low))
    verdict: Verdict = "holds" if difference > 0 else "differs"
    if not abs(difference) > _CERTAIN * error:
        verdict = "too close to tell"
    with np.errstate(
        divide="ignore", invalid="ignore"
    ):  # in a few rounds nobody may regret anything
        ratio = float(high.mean() / low.mean())
    return Ordering(panel.title, *claim, ratio, difference, error, verdict)
