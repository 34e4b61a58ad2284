"""How a row becomes a context: by column names, a formula, or a fitted transformer; the same for ever."""

import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ..messages import listed, short
from .cells import label_column
from .table import CatalogueError, Table, is_missing, numbers_of

__all__ = ["Constant", "Encoding", "learn_encoding", "needs_visitors"]


# A name in backticks, or one that is not a function's.
_NAMES = re.compile(r"`([^`]+)`|\b([A-Za-z_]\w*)\b(?!\s*[(.])")


class Encoding(ABC):
    """Rows of a table -> contexts.

    Attributes:
        components: the names of the numbers of a context.
        columns: the columns of a table that it reads.
    """

    components: tuple[str, ...]
    columns: tuple[str, ...]

    @abstractmethod
    def encode(self, table: Table) -> Float[np.ndarray, "n d"]:
        """The contexts of a table."""


class Constant(Encoding):
    """A single one: all visitors are alike."""

    components = ("Intercept",)
    columns = ()

    def encode(self, table: Table) -> Float[np.ndarray, "n d"]:
        """Ones."""
        return np.ones((len(table), 1))


class Columns(Encoding):
    """One, numbers standardised, and for a column of text 0 or 1 for each label but the first."""

    def __init__(self, table: Table, names: Sequence[str]):
        self.columns = tuple(names)
        self.parts: dict[str, Any] = {}
        components = ["Intercept"]
        for name in names:
            self.parts[name] = _learned(table, name)
            if isinstance(self.parts[name], tuple):
                components.append(name)
            else:
                components += [f"{name}[{label}]" for label in self.parts[name][1:]]
        self.components = tuple(components)

    def encode(self, table: Table) -> Float[np.ndarray, "n d"]:
        """The contexts of a table; a label never seen is refused."""
        rows = [np.ones((len(table), 1))]
        for name, part in self.parts.items():
            if isinstance(part, tuple):
                mean, deviation = part
                rows.append(((numbers_of(table, name) - mean) / deviation)[:, None])
            else:
                labels = label_column(table, name)
                _check_labels(table, name, labels, part)
                rows.append(
                    np.array([[label == known for known in part[1:]] for label in labels], float)
                )
        return np.concatenate(rows, axis=1)


def _learned(table: Table, name: str) -> tuple[float, float] | list[Any]:
    """Mean and deviation of numbers, or the labels of a column of text."""
    if any(isinstance(value, str) for value in table.column(name)):
        labels = label_column(table, name)
        _check_labels(table, name, labels, None)
        return sorted(set(labels))  # type: ignore[type-var] # all of one kind
    numbers = numbers_of(table, name)
    mean, deviation = float(numbers.mean()), float(numbers.std())
    if not 0 < deviation < np.inf:
        raise CatalogueError(
            f"{table.what}: column {short(name)} cannot be standardised: its standard deviation is "
            f"{deviation:g}; leave it out of contexts"
        )
    return mean, deviation


def _check_labels(table: Table, name: str, labels: list[Any], known: list[Any] | None) -> None:
    for row, label in enumerate(labels):
        if label is None:
            table.refuse(row, name, None, "is missing; a context needs every value: fill it in")
        if known is not None and label not in known:
            table.refuse(
                row,
                name,
                label,
                f"was never seen; the encoding of contexts knows {listed(known)}",
            )


class Formula(Encoding):
    """A formula of formulaic: categories, interactions, splines; what it learns it keeps."""

    def __init__(self, table: Table, text: str):
        import formulaic

        try:
            formula: Any = formulaic.Formula.from_spec(text)
        except Exception as error:
            raise CatalogueError(
                f"Catalogue contexts: {short(text)} is no formula: {error}"
            ) from error
        if not isinstance(formula, formulaic.SimpleFormula):
            raise CatalogueError(
                f"Catalogue contexts: {short(text)} has a left side; write what contexts are made of "
                "alone, such as '1 + age'"
            )
        self.text = text
        named = {quoted or name for quoted, name in _NAMES.findall(text)}
        self.columns = tuple(sorted(named & set(table.names)))
        rows = _complete(table, self.columns)
        try:
            matrix = formula.get_model_matrix(rows, na_action="ignore", output="pandas")
        except Exception as error:
            raise CatalogueError(
                f"{table.what}: the formula {short(text)} fails: {error}; its columns are "
                f"{listed(self.columns)}"
            ) from error
        self.spec: Any = matrix.model_spec
        self.components = tuple(map(str, matrix.columns))
        self.known = {
            name: sorted(set(rows[name])) for name in self.columns if self._is_category(rows, name)
        }
        if not self.components:
            raise CatalogueError(f"Catalogue contexts: {short(text)} has no terms")
        _check_finite(table, np.asarray(matrix, float), self.components)

    def _is_category(self, rows: Any, name: str) -> bool:
        """Whether a column is text, or used as categories alone."""
        if rows[name].dtype.kind not in "iufb":
            return True
        pattern = rf"C\(\s*`?{re.escape(name)}`?\s*[,)]"
        factors = [factor for factor in self.spec.encoder_state if name in factor]
        return bool(factors) and all(re.match(pattern, factor) for factor in factors)

    def encode(self, table: Table) -> Float[np.ndarray, "n d"]:
        """The contexts of a table; a category never seen is refused."""
        rows = _complete(table, self.columns)
        for name, known in self.known.items():
            seen = set(known)
            for row, value in enumerate(rows[name].tolist()):
                if value not in seen:
                    table.refuse(
                        row,
                        name,
                        value,
                        f"was never seen; the formula's categories are {listed(known)}",
                    )
        if not len(rows):
            return np.zeros((0, len(self.components)))
        if not self.columns:
            return np.ones((len(rows), len(self.components)))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                matrix = self.spec.get_model_matrix(rows, na_action="ignore", output="numpy")
        except Exception as error:
            raise CatalogueError(
                f"{table.what}: the formula {short(self.text)} fails: {error}"
            ) from error
        return _check_finite(table, np.asarray(matrix, float), self.components)


class Transformer(Encoding):
    """A fitted transformer of scikit-learn."""

    def __init__(self, transformer: Any):
        from sklearn.exceptions import NotFittedError
        from sklearn.utils.validation import check_is_fitted

        try:
            check_is_fitted(transformer)
            self.columns = tuple(map(str, transformer.feature_names_in_))
            self.components = tuple(map(str, transformer.get_feature_names_out()))
        except (NotFittedError, AttributeError, TypeError) as error:
            raise CatalogueError(
                f"Catalogue contexts: got {short(transformer)}; expected a transformer of scikit-learn "
                f"that was fitted to a table with named columns and names its results: {error}"
            ) from error
        self.transformer = transformer

    def encode(self, table: Table) -> Float[np.ndarray, "n d"]:
        """What the transformer makes of a table."""
        rows = table.to_pandas(self.columns)
        try:
            matrix: Any = self.transformer.transform(rows)
        except ValueError as error:
            raise CatalogueError(f"{table.what}: {short(self.transformer)}: {error}") from error
        dense = matrix.toarray() if hasattr(matrix, "toarray") else matrix
        return _check_finite(table, np.asarray(dense, float), self.components)


def _complete(table: Table, names: Sequence[str]) -> Any:
    """Columns without a missing value, as pandas has them."""
    rows = table.to_pandas(names)
    for name in names:
        values = table.column(name)
        for row, value in enumerate(values):
            if is_missing(value):
                table.refuse(
                    row, name, value, "is missing; a context needs every value: fill it in"
                )
        # In this one form, whatever library the table is of.
        kinds = set(map(type, values))
        if kinds & {str}:
            if kinds != {str}:
                odd = next(row for row, value in enumerate(values) if not isinstance(value, str))
                table.refuse(odd, name, values[odd], "is not text, as others in the column are")
            rows[name] = rows[name].astype(object)
    return rows


def _check_finite(
    table: Table, matrix: Float[np.ndarray, "n d"], components: Sequence[str]
) -> Float[np.ndarray, "n d"]:
    wrong = np.argwhere(~np.isfinite(matrix))
    if len(wrong):
        row, column = wrong[0]
        table.refuse(int(row), components[column], matrix[row, column], "is not a finite number")
    return matrix


def needs_visitors(contexts: Any) -> bool:
    """Whether an encoding has to see a table first."""
    return isinstance(contexts, str | list | tuple)


def learn_encoding(contexts: Any, visitors: Table | None) -> Encoding | None:
    """The encoding that `contexts` asks for; None where it needs a table first."""
    if contexts is None:
        return Constant()
    if not needs_visitors(contexts):
        if not hasattr(contexts, "transform"):
            raise TypeError(
                f"Catalogue contexts: got {short(contexts)}; expected a formula such as '1 + age', a list "
                "of column names, or a fitted transformer of scikit-learn"
            )
        return Transformer(contexts)
    if visitors is None:
        return None
    if not len(visitors):
        raise CatalogueError(f"{visitors.what}: has no rows; expected some, to learn contexts from")
    if isinstance(contexts, str):
        return Formula(visitors, contexts)
    if not contexts or len(set(contexts)) != len(contexts):
        raise CatalogueError(
            f"Catalogue contexts: got {short(contexts)}; expected different column names"
        )
    return Columns(visitors, contexts)
