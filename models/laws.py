"""Distributions that a user declares for unknown numbers: their names, and checks."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import (
    Distribution,
    ExpandedDistribution,
    Independent,
    MultivariateNormal,
    Normal,
)
from numpyro.distributions.constraints import is_dependent

from .arrays import is_concrete
from .messages import short

__all__ = [
    "as_one_event",
    "check_law_within",
    "check_parameters",
    "check_positive_law",
    "check_real_law",
    "is_gaussian",
    "law_name",
]

_POWERS = range(-6, 7)  # of ten: how far outside its limits a law is tried


def law_name(law: Distribution) -> str:
    """What a user would call a distribution that was expanded or made one event."""
    while isinstance(law, ExpandedDistribution | Independent):
        law = law.base_dist
    return type(law).__name__


def check_parameters(law: Distribution, what: str) -> None:
    """Refuse a distribution whose parameters, where their values are known, are not allowed.

    NumPyro checks them too, but lets `HalfCauchy(inf)` and `Uniform(0, nan)` pass, and everything
    where its validation is switched off or a law was rebuilt from its leaves. The distributions that
    a law is made of (truncated, transformed, mixed) are checked as well.
    """
    for name, constraint in law.arg_constraints.items():
        value = vars(law).get(name)  # some are worked out on demand, from the others
        if value is None or not is_concrete(value):
            continue
        with jax.ensure_compile_time_eval():
            numbers = jnp.asarray(value)
            allowed = is_dependent(constraint) or np.asarray(constraint(numbers)).all()
        if not (allowed and np.isfinite(numbers).all()):
            which = "" if is_dependent(constraint) else f" that satisfy {short(constraint)}"
            raise ValueError(
                f"{what} ~ {law_name(law)} has {name}={np.asarray(numbers)}; expected finite "
                f"numbers{which}"
            )
    for part in jax.tree.leaves(vars(law), is_leaf=lambda part: isinstance(part, Distribution)):
        if isinstance(part, Distribution):
            check_parameters(part, what)


def check_positive_law(law: Any, shapes: list[tuple[int, ...]], what: str) -> None:
    """Refuse a law of standard deviations that could give a negative one or has another shape."""
    _check_shape(law, shapes, what)
    if _can_be(law, [-(10.0**power) for power in _POWERS]):
        raise ValueError(
            f"{what} ~ {law_name(law)} can be negative; a standard deviation needs a "
            "distribution on positive numbers, such as HalfNormal or HalfCauchy"
        )


def check_law_within(
    law: Distribution, shapes: list[tuple[int, ...]], low: float, high: float, what: str
) -> None:
    """Refuse a law of another shape, or of numbers that are not all between two ends."""
    _check_shape(law, shapes, what)
    steps = [10.0**power for power in _POWERS]
    outside = [low - step for step in steps if np.isfinite(low)]
    outside += [high + step for step in steps if np.isfinite(high)]
    if _can_be(law, outside):
        raise ValueError(
            f"{what} ~ {law_name(law)} can be outside ({low:g}, {high:g}); expected a distribution of "
            "numbers in between"
        )


def check_real_law(law: Distribution, shapes: list[tuple[int, ...]], what: str) -> None:
    """Refuse a law of another shape, or of numbers that are not continuous."""
    _check_shape(law, shapes, what)
    if law.is_discrete:
        raise ValueError(
            f"{what} ~ {law_name(law)} is discrete; expected a continuous distribution"
        )


def is_gaussian(law: Any) -> bool:
    """Whether a law is a normal one."""
    while isinstance(law, ExpandedDistribution | Independent):
        law = law.base_dist
    return isinstance(law, Normal | MultivariateNormal)


def _check_shape(law: Distribution, shapes: Sequence[tuple[int, ...]], what: str) -> None:
    if law.shape() not in shapes:
        raise ValueError(
            f"{what}: the distribution has shape {law.shape()}; "
            f"expected {' or '.join(map(str, dict.fromkeys(shapes)))}"
        )
    check_parameters(law, what)


def _can_be(law: Distribution, values: Sequence[float]) -> bool:
    """Whether some value, of all its numbers, is known to be in the support of a law."""
    with jax.ensure_compile_time_eval():
        support: Any = law.support
        inside = [support(jnp.full(law.shape(), value)) for value in values]
    return any(is_concrete(answer) and bool(np.asarray(answer).any()) for answer in inside)


def as_one_event(
    law: Distribution, shapes: Sequence[tuple[int, ...]], what: str = "weights"
) -> Distribution:
    """The law as one event, of the first of `shapes` that it broadcasts to; refused if none fits."""
    for shape in shapes:
        batch = shape[: len(shape) - law.event_dim]
        pairs = zip(reversed(law.batch_shape), reversed(batch), strict=False)
        fits = len(law.batch_shape) <= len(batch) and all(n in (1, m) for n, m in pairs)
        if fits and (*batch, *law.event_shape) == shape:
            return law.expand(batch).to_event(len(batch))
    raise ValueError(
        f"{what}: the distribution has shape {law.shape()}; "
        f"expected one that broadcasts to {' or '.join(map(str, shapes))}"
    )
