"""Numeric columns as effects: the weight of an item is its number, standardised."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..messages import short
from .table import CatalogueError, Table, numbers_of

__all__ = ["Numeric", "learn_numeric"]


class Numeric(NamedTuple):
    """Columns of numbers, each an effect of one level; mean and spread stay those first seen.

    Attributes:
        level: the name of the level.
        columns: the names of the columns.
        missing: "error" or "unknown": the mean.
        means: of each column.
        deviations: the standard deviation of each column.
    """

    level: str
    columns: tuple[str, ...]
    missing: str
    means: Float[np.ndarray, " columns"]
    deviations: Float[np.ndarray, " columns"]

    def weights(self, table: Table) -> Float[np.ndarray, "n columns"]:
        """The standardised numbers of a table."""
        if self.missing == "error":
            filled = [numbers_of(table, column) for column in self.columns]
        else:
            pairs = zip(self.columns, self.means, strict=True)
            filled = [numbers_of(table, column, missing=float(mean)) for column, mean in pairs]
        return (np.stack(filled, axis=1) - self.means) / self.deviations


def learn_numeric(table: Table, level: str, columns: tuple[str, ...], missing: str) -> Numeric:
    """Means and standard deviations of columns."""
    means, deviations = [], []
    for column in columns:
        given = numbers_of(table, column, missing=None if missing == "error" else np.nan)
        known = given[~np.isnan(given)]
        if not known.size:
            raise CatalogueError(f"{table.what}: column {short(column)} has no numbers")
        with np.errstate(over="ignore", invalid="ignore"):
            mean, deviation = float(known.mean()), float(known.std())
        if not np.isfinite(deviation) or deviation <= 1e-12 * max(1e-300, np.abs(known).max()):
            raise CatalogueError(
                f"{table.what}: column {short(column)} cannot be standardised: its standard deviation is "
                f"{deviation:g} and its mean {mean:g}; leave it out, or write it in other units"
            )
        means.append(mean)
        deviations.append(deviation)
    return Numeric(level, columns, missing, np.array(means), np.array(deviations))
