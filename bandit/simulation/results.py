"""What a simulation returns: regrets, actions and the status of every run of every policy."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...inference import Status
from ..atomic_file import replace_file

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.figure import Figure

__all__ = ["Played", "Simulation", "standard_error"]

_FORMAT = 1


class Played(NamedTuple):
    """The runs of one policy.

    Attributes:
        regret: (runs, horizon) expected regret of each round (Section 2.2).
        actions: (runs, horizon) the chosen actions.
        status: what went wrong, with counts (runs,); see `Backend.status`.
        runs: (runs,) their numbers; an interrupted simulation may lack some. None is 0, 1, ...

    Example:
        >>> import numpy as np
        >>> from mixts.bandit import Played
        >>> from mixts.inference import Status
        >>> Played(np.ones((2, 5)), np.zeros((2, 5), int), Status()).numbers
        array([0, 1])
    """

    regret: np.ndarray
    actions: np.ndarray
    status: Status
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

    Example:
        >>> import numpy as np
        >>> from mixts.bandit import Played, Simulation
        >>> from mixts.inference import Status
        >>> runs = Played(np.array([[1.0, 0.5], [2.0, 0.5]]), np.zeros((2, 2), int), Status())
        >>> Simulation({"random": runs}, horizon=2).mean()["random"]
        array([1.5, 2. ])
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
        """Policy name -> (runs, horizon) chosen actions."""
        return {name: part.actions for name, part in self.played.items()}

    @property
    def status(self) -> dict[str, Status]:
        """Policy name -> what went wrong, with counts (runs,)."""
        return {name: part.status for name, part in self.played.items()}

    def troubles(self) -> dict[str, str]:
        """Policy name -> what went wrong in words, and in how many runs; nothing of those that are ok."""
        said = {}
        for name, part in self.played.items():
            counts = [np.asarray(n) for n in part.status.counts.values() if np.any(n)]
            if counts:
                runs = int(np.sum(np.any(counts, axis=0)))
                said[name] = f"{part.status} (in {runs} of {len(part.regret)} runs)"
        return said

    def mean(self) -> dict[str, np.ndarray]:
        """Policy name -> (horizon,) mean over runs of the regret up to each round."""
        return {name: regret.mean(0) for name, regret in self._cumulative().items()}

    def standard_error(self) -> dict[str, np.ndarray]:
        """Policy name -> (horizon,) standard error of `mean`; NaN for a single run."""
        return {name: standard_error(regret) for name, regret in self._cumulative().items()}

    def _cumulative(self) -> dict[str, np.ndarray]:
        regrets = {name: regret for name, regret in self.regret.items() if len(regret)}
        return {name: np.cumsum(regret, 1, dtype=float) for name, regret in regrets.items()}

    def summary(self) -> "pd.DataFrame":
        """A row for each policy: mean and standard error of total regret, runs, counts of troubles."""
        import pandas as pd

        rows = {}
        for name, part in self.played.items():
            total = part.regret.sum(1, dtype=float)
            row = {"mean": total.mean() if len(total) else np.nan, "se": standard_error(total)}
            counts = {str(kind): int(np.sum(n)) for kind, n in part.status.counts.items()}
            rows[name] = row | {"runs": len(total)} | counts
        table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("policy")
        return table.astype(dict.fromkeys(table.columns.drop(["mean", "se"]), "Int64"))

    def to_xarray(self) -> "xr.Dataset":
        """`regret` and `action` over policy, run and round; runs that were not finished are NaN, -1."""
        import xarray as xr

        runs = max(part.numbers.max(initial=-1) + 1 for part in self.played.values())
        shape = len(self.played), runs, self.horizon
        regret, actions = np.full(shape, np.nan), np.full(shape, -1, np.int32)
        for i, part in enumerate(self.played.values()):
            regret[i, part.numbers] = part.regret
            actions[i, part.numbers] = part.actions
        coords = {
            "policy": list(self.played),
            "run": np.arange(runs),
            "round": np.arange(1, self.horizon + 1),
        }
        return xr.Dataset(
            {"regret": (list(coords), regret), "action": (list(coords), actions)}, coords
        )

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
            arrays |= {f"trouble_{i}_{j}": c for j, c in enumerate(part.status.counts.values())}
            troubles[name] = list(part.status.counts)
        about = {"format": _FORMAT, "horizon": self.horizon, "interrupted": self.interrupted}
        content = io.BytesIO()
        about = np.asarray(json.dumps(about | {"troubles": troubles}))
        np.savez_compressed(content, about=about, **arrays)
        replace_file(Path(path), content.getvalue())

    @staticmethod
    def load(path: Any) -> "Simulation":
        """What `save` wrote."""
        content = io.BytesIO(Path(path).read_bytes())
        try:
            with np.load(content, allow_pickle=False) as file:
                about = json.loads(str(file["about"]))
                if about["format"] != _FORMAT:
                    raise ValueError(f"format {about['format']}, expected {_FORMAT}")
                played = {}
                for i, (name, names) in enumerate(about["troubles"].items()):
                    status = Status({t: file[f"trouble_{i}_{j}"] for j, t in enumerate(names)})
                    regret, actions, runs = (
                        file[f"{x}_{i}"] for x in ("regret", "actions", "runs")
                    )
                    played[name] = Played(regret, actions, status, runs)
        except Exception as error:
            raise ValueError(
                f"{path} is not a simulation written by Simulation.save: {error}"
            ) from error
        return Simulation(played, about["horizon"], about["interrupted"])

    def __repr__(self) -> str:
        """The table, and below it what went wrong."""
        stopped = ", interrupted" if self.interrupted else ""
        troubled = [f"{name}: {words}" for name, words in self.troubles().items()]
        lines = [f"Simulation of {self.horizon} rounds{stopped}", str(self.summary()), *troubled]
        return "\n".join(lines)


def standard_error(values: np.ndarray) -> Any:
    """Of the mean over the first axis; NaN for a single value."""
    runs = len(values)
    if runs < 2:
        return np.full(values.shape[1:], np.nan)[()]
    return values.std(0, ddof=1) / np.sqrt(runs)
