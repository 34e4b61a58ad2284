"""What a simulation leaves behind: regrets, actions and troubles of every run of every policy."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from ..atomic_file import replace_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Played", "Simulation", "standard_error"]

_FORMAT = 1


class Played(NamedTuple):
    """The runs of one policy.

    Attributes:
        regret: (runs, horizon) expected regret of each round (Section 2.2).
        actions: (runs, horizon) the actions taken.
        troubles: what went wrong -> (runs,) how often; see `Backend.troubles`.
        runs: (runs,) their numbers; an interrupted simulation may lack some. None is 0, 1, ...
    """

    regret: np.ndarray
    actions: np.ndarray
    troubles: dict[str, np.ndarray]
    runs: np.ndarray | None = None

    @property
    def numbers(self) -> np.ndarray:
        """The numbers of the runs: runs of two policies that share one met the same instance."""
        return np.arange(len(self.regret)) if self.runs is None else self.runs


@dataclass(frozen=True, eq=False)
class Simulation:
    """All policies on the same instances.

    Attributes:
        played: policy name -> its runs.
        horizon: rounds of a run.
        interrupted: whether it was stopped before all runs were finished.
    """

    played: Mapping[str, Played]
    horizon: int
    interrupted: bool = False

    @property
    def regret(self) -> dict[str, np.ndarray]:
        """Policy name -> (runs, horizon) expected regret of each round."""
        return {name: part.regret for name, part in self.played.items()}

    @property
    def actions(self) -> dict[str, np.ndarray]:
        """Policy name -> (runs, horizon) actions taken."""
        return {name: part.actions for name, part in self.played.items()}

    @property
    def troubles(self) -> dict[str, dict[str, np.ndarray]]:
        """Policy name -> what went wrong -> (runs,) how often."""
        return {name: part.troubles for name, part in self.played.items()}

    def mean(self) -> dict[str, np.ndarray]:
        """Policy name -> (horizon,) mean over runs of the regret up to each round."""
        return {name: _cumulative(part).mean(0) for name, part in self._with_runs()}

    def standard_error(self) -> dict[str, np.ndarray]:
        """Policy name -> (horizon,) standard error of `mean`; NaN for a single run."""
        return {name: standard_error(_cumulative(part)) for name, part in self._with_runs()}

    def summary(self) -> pd.DataFrame:
        """A row for each policy: mean and standard error of the total regret, runs and troubles."""
        rows = {}
        for name, part in self.played.items():
            total = part.regret.sum(1, dtype=float)
            row = {"mean": total.mean() if len(total) else np.nan, "se": standard_error(total)}
            counts = {trouble: int(count.sum()) for trouble, count in part.troubles.items()}
            rows[name] = row | {"runs": len(total)} | counts
        table = pd.DataFrame.from_dict(rows, orient="index")
        table.index.name = "policy"
        counted = [column for column in table if column not in ("mean", "se")]
        return table.astype(dict.fromkeys(counted, "Int64"))

    def to_xarray(self) -> xr.Dataset:
        """`regret` and `action` over policy, run and round; runs that were not finished are NaN, -1."""
        runs = max(part.numbers.max(initial=-1) + 1 for part in self.played.values())
        shape = len(self.played), runs, self.horizon
        regret, actions = np.full(shape, np.nan), np.full(shape, -1, np.int32)
        for i, part in enumerate(self.played.values()):
            regret[i, part.numbers] = part.regret
            actions[i, part.numbers] = part.actions
        dims = ("policy", "run", "round")
        coords = {
            "policy": list(self.played),
            "run": np.arange(runs),
            "round": np.arange(1, self.horizon + 1),
        }
        return xr.Dataset({"regret": (dims, regret), "action": (dims, actions)}, coords)

    def plot(self, path: Any = None) -> "Figure":
        """Mean regret over rounds with standard errors; see `regret_plot.plot_regret`."""
        from .regret_plot import plot_regret

        figure = plot_regret(self)
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def save(self, path: Any) -> None:
        """Write everything to one `.npz` file; a file of that name is replaced whole or not at all."""
        arrays, troubles = {}, {}
        for i, (name, part) in enumerate(self.played.items()):
            arrays |= {f"regret_{i}": part.regret, f"actions_{i}": part.actions}
            arrays |= {f"runs_{i}": part.numbers}
            arrays |= {f"trouble_{i}_{j}": c for j, c in enumerate(part.troubles.values())}
            troubles[name] = list(part.troubles)
        about = {
            "format": _FORMAT,
            "horizon": self.horizon,
            "interrupted": self.interrupted,
            "troubles": troubles,
        }
        buffer = io.BytesIO()
        np.savez_compressed(buffer, about=np.asarray(json.dumps(about)), **arrays)
        replace_file(Path(path), buffer.getvalue())

    @staticmethod
    def load(path: Any) -> "Simulation":
        """What `save` wrote."""
        content = io.BytesIO(Path(path).read_bytes())
        try:
            with np.load(content, allow_pickle=False) as file:
                about = json.loads(str(file["about"]))
                if about["format"] != _FORMAT:
                    raise ValueError(f"format {about['format']}, expected {_FORMAT}")
                played = {
                    name: Played(
                        file[f"regret_{i}"],
                        file[f"actions_{i}"],
                        {trouble: file[f"trouble_{i}_{j}"] for j, trouble in enumerate(names)},
                        file[f"runs_{i}"],
                    )
                    for i, (name, names) in enumerate(about["troubles"].items())
                }
        except Exception as error:
            raise ValueError(
                f"{path} is not a simulation written by Simulation.save: {error}"
            ) from error
        return Simulation(played, about["horizon"], about["interrupted"])

    def _with_runs(self) -> list[tuple[str, Played]]:
        return [(name, part) for name, part in self.played.items() if len(part.regret)]

    def __repr__(self) -> str:
        stopped = ", interrupted" if self.interrupted else ""
        return f"Simulation of {self.horizon} rounds{stopped}\n{self.summary()}"


def _cumulative(part: Played) -> np.ndarray:
    return np.cumsum(part.regret, axis=1, dtype=float)


def standard_error(values: np.ndarray) -> Any:
    """Of the mean over the first axis; NaN for a single value."""
    runs = len(values)
    if runs < 2:
        return np.full(values.shape[1:], np.nan)[()]
    return values.std(0, ddof=1) / np.sqrt(runs)
