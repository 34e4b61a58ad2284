"""Tables of wrong declarations: what is declared, the error, and what its message must hold."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import jaxtyping
import numpy as np
import numpyro
import pytest
from numpyro.distributions import Distribution

from mixts.models import Gaussian, Hierarchy, Level

__all__ = [
    *("D", "K", "L", "actions", "as_a_user", "cases", "check_refused", "effects", "spoilt"),
    "unchecked",
]

L, K, D = 3, 4, 2

Row = tuple[Callable[[], object], type[Exception], list[str]]


def effects(**changes) -> Hierarchy:
    """Effects and actions; `changes` are made to the effects."""
    bottom = Level("action", K, parents={"effect": np.ones((K, L))})
    return Hierarchy([Level("effect", L, **changes), bottom], Gaussian(), D)


def actions(**changes) -> Hierarchy:
    """Effects and actions; `changes` are made to the actions."""
    given = {"parents": {"effect": np.ones((K, L))}, **changes}
    return Hierarchy([Level("effect", L), Level("action", K, **given)], Gaussian(), D)


def spoilt(shape: tuple[int, ...], value: float, position: int = 0) -> np.ndarray:
    """Ones of the given shape with one bad entry."""
    numbers = np.ones(shape)
    numbers.flat[position] = value
    return numbers


def cases(**tables: dict[str, Row]) -> pytest.MarkDecorator:
    """Every row of every table as one case of a test, named after its mistake."""
    rows = [
        pytest.param(*row, id=f"{table}: {mistake}")
        for table, rows in tables.items()
        for mistake, row in rows.items()
    ]
    return pytest.mark.parametrize(("declare", "error", "parts"), rows)


@contextmanager
def as_a_user() -> Iterator[None]:
    """Without the type checks of a test run, which would complain first, in their own words."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def unchecked(law: Callable[..., Distribution], *parameters: object) -> Distribution:
    """A distribution made while NumPyro does not check parameters, which it does by default."""
    with numpyro.validation_enabled(False):
        return law(*parameters)


def check_refused(declare: Callable[[], object], error: type[Exception], parts: list[str]) -> None:
    """See that it fails at once, and that the message has all its parts."""
    with as_a_user(), pytest.raises(error) as failure:
        declare()
    message = str(failure.value)
    for part in parts:
        assert part in message, message
