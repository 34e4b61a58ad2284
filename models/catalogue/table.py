"""Tables of any library, column by column: pandas, polars and pyarrow, through narwhals."""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from jaxtyping import Float

from ..messages import listed, short

__all__ = ["CatalogueError", "Table", "as_table", "is_missing", "numbers_of"]


class CatalogueError(ValueError):
    """A table that does not fit: the message names the row, the column and the value.

    Rows are counted from 0, as positions in the table.
    """


class Table:
    """A table, whatever library made it; columns are read one at a time, as Python's own values.

    Args:
        frame: a data frame of narwhals.
        what: what errors call it, such as "items".
    """

    def __init__(self, frame: Any, what: str):
        self.frame, self.what = frame, what
        self.names: list[str] = list(frame.columns)

    def __len__(self) -> int:
        return len(self.frame)

    def column(self, name: Any) -> list[Any]:
        """The values of a column."""
        self.check_has(name)
        return self.frame[name].to_list()

    def check_has(self, name: Any) -> None:
        """Refuse a column that is not there."""
        if name not in self.names:
            raise CatalogueError(
                f"{self.what}: there is no column {short(name)}; the columns are {listed(self.names)}"
            )

    def to_pandas(self, names: Sequence[str]) -> Any:
        """Some columns as a pandas table with rows numbered from zero."""
        for name in names:
            self.check_has(name)
        return self.frame.select(list(names)).to_pandas().reset_index(drop=True)

    def refuse(self, row: int, column: Any, value: Any, why: str) -> NoReturn:
        """Say which cell is wrong, and why."""
        raise CatalogueError(
            f"{self.what}: row {row}, column {short(column)}: {short(value)} {why}"
        )


def as_table(given: Any, what: str) -> Table:
    """A table of pandas, polars or pyarrow; also a dict of columns, a list of dicts, or one row.

    Args:
        given: what a user gave.
        what: what errors call it.
    """
    if isinstance(given, Table):
        return Table(given.frame, what)
    import narwhals as nw

    try:
        frame: Any = nw.from_native(_framed(given), eager_only=True)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{what}: got {short(given)}; expected a table of pandas, polars or pyarrow, a dict of "
            "columns, or a list of dicts"
        ) from error
    names = list(frame.columns)
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong:
        raise CatalogueError(
            f"{what}: the column name {short(wrong[0])} is not text; rename the columns"
        )
    return Table(frame, what)


def _framed(given: Any) -> Any:
    """One row, a dict of columns or a list of dicts as a pandas table; all else as it is."""
    is_rows = isinstance(given, list | tuple)
    if not is_rows and not isinstance(given, Mapping) and not hasattr(given, "to_frame"):
        return given
    import pandas as pd

    if isinstance(given, pd.Series):
        return pd.DataFrame([given.to_dict()])
    if is_rows:
        if not given or not all(isinstance(row, Mapping) for row in given):
            raise TypeError("rows are dicts")
        return pd.DataFrame.from_records(list(given))
    if not isinstance(given, Mapping):
        return given
    several = [_is_several(value) for value in given.values()]
    if any(several) and not all(several):
        raise TypeError("some columns hold one value and others several")
    return pd.DataFrame(dict(given) if any(several) else [dict(given)])


def _is_several(value: Any) -> bool:
    return not isinstance(value, str | bytes | Mapping) and np.ndim(value) > 0


def is_missing(value: Any) -> bool:
    """Whether a cell holds nothing: None, NaN, or what pandas has for them; also an empty text."""
    if value is None or type(value).__name__ == "NAType":
        return True
    if isinstance(value, str):
        return not value.strip()
    return (isinstance(value, float | np.floating) and value != value) or _is_no_time(value)


def _is_no_time(value: Any) -> bool:
    return type(value).__name__ == "NaTType"


def numbers_of(table: Table, name: str, *, missing: float | None = None) -> Float[np.ndarray, " n"]:
    """A column of finite numbers; True and False are 1 and 0.

    Args:
        table: the table.
        name: the column.
        missing: what stands for a missing number; by default one is refused.
    """
    numbers = np.empty(len(table))
    for row, value in enumerate(table.column(name)):
        if type(value) is float and -np.inf < value < np.inf:
            numbers[row] = value
        elif is_missing(value):
            if missing is None:
                table.refuse(row, name, value, "is missing; expected a number")
            numbers[row] = missing
        else:
            numbers[row] = _number(table, row, name, value)
    return numbers


def _number(table: Table, row: int, name: str, value: Any) -> float:
    if isinstance(value, str | bytes | complex) or not hasattr(value, "__float__"):
        table.refuse(row, name, value, "is not a number")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = np.inf
    if not np.isfinite(number):
        table.refuse(row, name, value, "is not a finite number")
    return number
