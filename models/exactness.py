"""What keeps a posterior from being Gaussian in closed form: a value to decide by, with its sentence."""

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING

from .rewards import Gaussian, Reward

if TYPE_CHECKING:
    from .level import Level

__all__ = ["NotExact", "Obstacle", "find_obstacle"]


class Obstacle(Enum):
    """What prevents a closed form; the value is the reason in words."""

    FAMILY = "has a family of its own"
    MEAN = "learns its mean"
    SCALE = "learns its scale"
    COV = "learns its covariance"
    KERNEL = "learns its kernel"
    WEIGHTS = "learns its weights"
    LINK = "has a link"
    NOISE = "the reward's noise is learned"
    REWARD = "the reward is not Gaussian"


# Numbers that `Collapsed` mixes over, where they are few.
_LEARNED = (Obstacle.MEAN, Obstacle.SCALE, Obstacle.COV, Obstacle.KERNEL, Obstacle.WEIGHTS)


class NotExact(str):
    """The reason why there is no closed form, and which backends fit, as a sentence with attributes.

    Attributes:
        cause: the reason alone.
        obstacle: what prevents it; of several, the first from top to bottom.
        fits_laplace: whether one non-linearity is all there is, so that `Laplace` applies.
    """

    cause: str
    obstacle: Obstacle
    fits_laplace: bool

    def __new__(
        cls, cause: str, obstacle: Obstacle, fits_laplace: bool, fits_collapsed: bool = False
    ) -> "NotExact":
        """The sentence for a cause in words."""
        backends = "Laplace, Nuts or Svi" if fits_laplace else "Nuts or Svi"
        if fits_collapsed:
            backends = f"Collapsed, {backends}"
        if fits_laplace and obstacle is Obstacle.REWARD:
            backends = f"ExpectationPropagation, {backends}"
        sentence = super().__new__(cls, f"{cause}: no closed form; use {backends}")
        sentence.cause, sentence.obstacle, sentence.fits_laplace = cause, obstacle, fits_laplace
        return sentence


def find_obstacle(levels: "Sequence[Level]", reward: Reward) -> NotExact | None:
    """None for a linear-Gaussian model, else what prevents a closed form."""
    is_gaussian = isinstance(reward, Gaussian)
    learned_noise = is_gaussian and reward.is_learned
    broken = [(level, obstacle) for level in levels if (obstacle := level.obstacle) is not None]
    only_links = all(found is Obstacle.LINK and level is levels[-1] for level, found in broken)
    # Laplace takes one non-linearity: the reward's, or a link on the actions under Gaussian rewards.
    fits_laplace = only_links and not reward.is_learned and (is_gaussian or not broken)
    if broken:
        level, obstacle = broken[0]
        cause = f"level '{level.name}' {level.why_not_linear_gaussian}"
        learned = all(found in _LEARNED and each.link is None for each, found in broken)
        return NotExact(cause, obstacle, fits_laplace, learned)
    if learned_noise:
        return NotExact(Obstacle.NOISE.value, Obstacle.NOISE, fits_laplace, True)
    if not is_gaussian:
        learned = ", and some of its numbers are learned" if reward.is_learned else ""
        cause = f"the reward is {type(reward).__name__}, not Gaussian{learned}"
        return NotExact(cause, Obstacle.REWARD, fits_laplace)
    return None
