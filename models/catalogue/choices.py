"""What a user says of the columns of a catalogue, converted and checked."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..messages import listed, short

__all__ = ["Choices", "as_choices", "as_columns", "as_one_column", "option_of"]


class Choices(NamedTuple):
    """Level's name -> column, by the kind of column.

    Attributes:
        action: name and column of the actions.
        crossed: of the columns of labels.
        nested: of the columns of the tree, top to bottom.
        numeric: level's name -> its columns.
    """

    action: tuple[str, str]
    crossed: dict[str, str]
    nested: dict[str, str]
    numeric: dict[str, tuple[str, ...]]

    @property
    def levels(self) -> list[str]:
        """The names of all levels but the actions'."""
        return [*self.nested, *self.crossed, *self.numeric]


def as_choices(action: Any, crossed: Any, nested: Any, numeric: Any, common: bool) -> Choices:
    """The columns that matter, by the names of their levels."""
    choices = Choices(
        as_one_column(action),
        as_columns(crossed, "crossed"),
        as_columns(nested, "nested"),
        _as_numeric(numeric),
    )
    names = [*(["common"] if common else []), *choices.levels, choices.action[0]]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(
            f"Catalogue: two levels are called {short(twice[0])}; name one of them by a dict from its "
            "level's name to its column, such as {'kind': 'category'}"
        )
    for name in names:
        if not name.isidentifier():
            raise ValueError(
                f"Catalogue: the column {short(name)} cannot name a level, which needs letters, digits and "
                f"underscores; write {{'name': {name!r}}} in place of {name!r}"
            )
    return choices


def as_one_column(action: Any) -> tuple[str, str]:
    """The name of the actions' level, and the column of their labels."""
    if isinstance(action, str):
        return action, action
    given = as_columns(action, "action")
    if len(given) != 1:
        raise ValueError(f"Catalogue action: got {short(action)}; expected the name of one column")
    return next(iter(given.items()))


def as_columns(given: Any, what: str) -> dict[str, str]:
    """Level's name -> column: from names of columns, which name their levels too, or a dict."""
    if given is None:
        return {}
    if isinstance(given, str):
        return {given: given}
    pairs: dict[Any, Any]
    if isinstance(given, Mapping):
        pairs = dict(given)
    elif isinstance(given, Sequence):
        pairs = {name: name for name in given if isinstance(name, str)}
        if len(pairs) != len(given):
            raise TypeError(
                f"Catalogue {what}: got {short(given)}; expected names of different columns"
            )
    else:
        pairs = {None: None}
    wrong = [pair for pair in pairs.items() if not all(isinstance(part, str) for part in pair)]
    if wrong:
        raise TypeError(
            f"Catalogue {what}: got {short(given)}; expected the name of a column, a list of them, or a "
            "dict from names of levels to names of columns"
        )
    return pairs


def _as_numeric(given: Any) -> dict[str, tuple[str, ...]]:
    """Level's name -> columns; a list makes one level of all."""
    if isinstance(given, Mapping):
        return {
            name: tuple(as_columns(columns, "numeric").values()) for name, columns in given.items()
        }
    columns = tuple(as_columns(given, "numeric").values())
    return {"numeric": columns} if columns else {}


def option_of(given: Any, level: str, what: str, allowed: Sequence[Any], levels: Any) -> Any:
    """The option of one level: one for all, or by its name in a dict (the first allowed elsewhere)."""
    if isinstance(given, Mapping):
        check_levels(given, levels, what)
        given = given.get(level, allowed[0])
    if given not in allowed:
        raise ValueError(
            f"Catalogue {what}: got {short(given)} for level '{level}'; expected {listed(allowed)}"
        )
    return given


def check_levels(given: Mapping[str, Any], levels: Sequence[str], what: str) -> None:
    """Refuse a dict by names of levels that names another."""
    for name in given:
        if name not in levels:
            raise ValueError(
                f"Catalogue {what}: there is no level {short(name)}; the levels are {listed(levels)}"
            )
