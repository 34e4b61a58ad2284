"""Evidence with a half-life: by how much it is discounted when, from what a clock says.

After `s` seconds all evidence counts `0.5 ** (s / half_life)` times as much. A discount costs what
`forgetting.forget` does, so it is made when a hundredth of the half-life has passed since the last one, and
then for all of that time. No time is lost; an observation counts as if it had been made at the last
discount, which takes 0.7 per cent of its evidence at most.
"""

from collections.abc import Callable
from math import ceil, inf, isfinite, log2
from typing import Any, NamedTuple

from ...models.messages import short

__all__ = ["Clock", "Discount", "EvidenceClock", "as_clock", "as_half_life", "in_steps"]

_STEPS = 100  # discounts in a half-life, at most
_MOST = 256.0  # half-lives after which nothing is left in any precision
_IN_ONE_STEP = 8.0  # half-lives that are forgotten at once: see `in_steps`

Clock = Callable[[], float]


class Discount(NamedTuple):
    """All evidence is to be multiplied by `factor`, for the time that has passed until `until`."""

    factor: float
    until: float


class EvidenceClock:
    """When and by how much evidence is discounted.

    Args:
        half_life: in seconds, or None where evidence is not discounted by the clock.
        until: up to when it has been so far; None begins now.
        now: what returns the seconds since some moment, such as `time.time`; without it no time passes.
    """

    def __init__(self, half_life: float | None, until: float | None, now: Clock | None):
        self.half_life, self.now = half_life, now
        if half_life is not None and until is None and now is not None:
            until = float(now())
        self.until = None if half_life is None else until

    def due(self) -> Discount | None:
        """The discount that is to be made now, if any."""
        if self.half_life is None or self.now is None:
            return None
        return self.due_at(float(self.now()))

    def due_at(self, time: float, least: float = 1 / _STEPS) -> Discount | None:
        """The discount that is to be made at a time, if as many half-lives have passed as are least.

        A clock that was set back takes no discount back: the factor is one, and time counts from there.
        """
        if self.half_life is None:
            return None
        passed = 0.0 if self.until is None else (time - self.until) / self.half_life
        if self.until is not None and (not isfinite(time) or abs(passed) < least or passed == 0):
            return None
        return Discount(0.5 ** min(max(passed, 0.0), _MOST), time)


def in_steps(factor: float) -> tuple[float, int]:
    """A factor as so many equal ones, none of them small.

    What a discount inverts has eigenvalues between its factor and one: with a small factor and a posterior
    that is much narrower than the prior, float32 would lose all its digits.
    """
    steps = max(1, ceil(-log2(factor) / _IN_ONE_STEP))
    return factor ** (1 / steps), steps


def as_half_life(half_life: Any) -> float | None:
    """Seconds after which evidence counts half, or None."""
    if half_life is None:
        return None
    is_number = isinstance(half_life, float | int) and not isinstance(half_life, bool)
    if not is_number or not 0 < half_life < inf:
        raise ValueError(
            f"Agent half_life is {short(half_life)}; expected a positive number of seconds, after which "
            "evidence counts half: 86400 is a day"
        )
    return float(half_life)


def as_clock(clock: Callable[..., Any]) -> Clock:
    """What says the time."""
    if not callable(clock):
        raise TypeError(
            f"Agent clock is {short(clock)}; expected a function that returns seconds, as time.time does"
        )
    return clock
