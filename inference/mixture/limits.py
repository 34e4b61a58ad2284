"""What `Collapsed` takes: few unknown numbers, given which there is a closed form, and enough memory."""

from typing import Any

import jax
from numpyro.distributions import Distribution

from ...models import Hierarchy, Level
from ...models.exactness import Obstacle
from ...models.messages import listed
from .numbers import Numbers, number_of
from .particles import as_rows
from .population import Mixing

__all__ = ["check_memory", "has_own_numbers", "why_not_collapsed"]

# Unknown numbers that particles can stand for. Learned weights may be thousands.
_MOST_NUMBERS = 64
_MOST_BYTES = 4 * 1024**3


def why_not_collapsed(hierarchy: Hierarchy) -> str:
    """Why `Collapsed` does not take a hierarchy, or an empty string where it does."""
    laws = hierarchy.unknowns.laws
    if not laws:
        return (
            "the hierarchy learns no scale, noise or weights: there is nothing to mix over; use ClosedForm "
            "or ExpectationPropagation"
        )
    numbers = number_of(hierarchy)
    if numbers > _MOST_NUMBERS:
        return (
            f"{listed(laws)} are {numbers:,} unknown numbers; particles stand for at most "
            f"{_MOST_NUMBERS}: use Nuts or Svi"
        )
    found: list[Any] = []
    position = jax.eval_shape(lambda: as_rows(Numbers(hierarchy).draw(jax.random.key(0), 1), 0))
    jax.eval_shape(lambda at: found.append(Numbers(hierarchy).given(at).why_not_exact), position)
    (left,) = found
    if left is None or left.obstacle is Obstacle.REWARD:
        return ""
    return f"given its unknown numbers, {left.cause}: no closed form; use Nuts or Svi"


def has_own_numbers(level: Level) -> bool:
    """Whether there are more numbers to learn where there are more vectors."""
    has_own_scales = isinstance(level.scale, Distribution) and len(level.scale.shape()) > 1
    has_own_means = level.learns_mean and level.has_own_means
    return bool(level.learned_weights) or has_own_scales or has_own_means


def check_memory(mixing: Mixing, particles: int) -> None:
    """Refuse particles whose posteriors take too much memory together."""
    shapes = jax.eval_shape(lambda: mixing.start(jax.random.key(0), particles))
    total = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes.states))
    if total > _MOST_BYTES:
        raise ValueError(
            f"Collapsed keeps {particles} exact posteriors of {mixing.hierarchy.num_actions:,} "
            f"actions, which take {total / 1024**3:,.1f} GiB; at most {_MOST_BYTES / 1024**3:g} GiB are "
            "allowed: use fewer particles, or empirical_bayes and then ClosedForm"
        )
