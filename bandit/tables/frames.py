"""What a posterior knows, as tables: effects and items by their names."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from ...inference import Posterior
from ...models import Hierarchy
from ...models.labels import label_index

__all__ = ["effects_frame", "unknowns_frame"]


def effects_frame(posterior: Posterior, hierarchy: Hierarchy) -> pd.DataFrame:
    """Mean and standard deviation of each number of each vector above the actions.

    Its columns are `level`, `label`, `component`, `mean`, `sd`.
    """
    parts = [_level_frame(posterior, hierarchy, level.name) for level in hierarchy.levels[:-1]]
    empty = pd.DataFrame(columns=["level", "label", "component", "mean", "sd"])
    return pd.concat(parts, ignore_index=True) if parts else empty


def _level_frame(posterior: Posterior, hierarchy: Hierarchy, name: str) -> pd.DataFrame:
    level, components = hierarchy[name], hierarchy.components or range(hierarchy.dim)
    variances = np.diagonal(np.asarray(posterior.cov[name]), axis1=1, axis2=2)
    d = hierarchy.dim
    return pd.DataFrame(
        {
            "level": name,
            "label": label_index([label for label in _labels(level) for _ in range(d)]),
            "component": label_index(list(components) * level.size),
            "mean": np.asarray(posterior.mean[name]).ravel(),
            "sd": np.sqrt(np.maximum(variances, 0.0)).ravel(),
        }
    )


def _labels(level: Any) -> Sequence[Any]:
    return range(level.size) if level.labels is None else level.labels


def unknowns_frame(draws: dict[str, Float[np.ndarray, "n ..."]]) -> pd.DataFrame:
    """Median and a 90% interval of each number that is learned, by its name."""
    rows = {}
    for name, values in draws.items():
        numbers = np.asarray(values).reshape(len(values), -1)
        for i, column in enumerate(numbers.T):
            rows[name if numbers.shape[1] == 1 else f"{name}[{i}]"] = np.quantile(
                column, [0.5, 0.05, 0.95]
            )
    return pd.DataFrame.from_dict(rows, orient="index", columns=["median", "5%", "95%"])
