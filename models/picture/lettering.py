"""The texts in the picture of a hierarchy, and how much room they take, in inches."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
from numpyro.distributions import Distribution

from ..laws import law_name
from ..level import Level
from ..rewards import Gaussian, Reward
from ..spreads import describe_spread

__all__ = ["FONT", "Lettering", "describe_law", "describe_reward", "letter_level", "measure"]

FONT = "DejaVu Sans"  # comes with matplotlib: pictures look the same on every machine
TITLE, BODY, SMALLEST = 10.0, 9.0, 8.0  # points
LINE = 0.17  # height of a line of a note, inches
GAP = 0.04  # between a circle and its caption
MAX_LINES = 3


class Lettering(NamedTuple):
    """The text of a shape, "inside" it or, as a caption, "above" or "below"."""

    text: str
    size: float = BODY
    place: str = "inside"

    def height(self, place: str) -> float:
        """What the text takes in that place."""
        lines = self.text.count("\n") + 1
        return lines * 1.3 * self.size / 72 + 2 * GAP if place == self.place else 0.0

    @property
    def width(self) -> float:
        """What a caption takes; text inside a shape takes nothing."""
        return 0.0 if self.place == "inside" else measure(self.text, self.size)


@lru_cache(maxsize=4096)
def measure(text: str, size: float = BODY, weight: str = "normal") -> float:
    """The width of the widest line of `text`."""
    font = FontProperties(family=FONT, size=size, weight=weight)
    lines = [line for line in text.split("\n") if line.strip()]
    ends = [TextPath((0, 0), line, prop=font).vertices[:, 0].max() for line in lines]
    return float(max(ends, default=0.0)) / 72


def letter_level(level: Level, radius: float, pitch: float) -> list[Lettering]:
    """Names for the circles of a level: its labels, else its name and the index."""
    if level.labels is not None:
        labels = [str(label).replace("$", r"\$") for label in level.labels]
        size = _fitting_size(labels, radius)
        if size:
            return [Lettering(label, size) for label in labels]
        place = "below" if level.parents else "above"
        return [Lettering(_wrap(label, pitch - 0.08), SMALLEST, place) for label in labels]
    names = [f"{level.name}$_{{{i}}}$" for i in range(level.size)]
    size = _fitting_size(names, radius)
    if size:
        return [Lettering(name, size) for name in names]
    initial = level.name.strip("_")[:1] or "v"
    return [Lettering(f"${initial}_{{{i}}}$") for i in range(level.size)]


def _fitting_size(texts: Sequence[str], radius: float) -> float:
    """The font size at which every text fits in a circle, or zero where it would be too small."""
    widest = max(measure(text) for text in texts)
    size = min(BODY, BODY * 1.7 * radius / max(widest, 1e-6))
    return size if size >= SMALLEST else 0.0


def _wrap(text: str, width: float) -> str:
    """`text` in at most `MAX_LINES` lines of `width`; what does not fit becomes an ellipsis."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and measure(longer, SMALLEST) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES - 1], f"{lines[MAX_LINES - 1]}…"]
    return "\n".join(_shorten(line, width) for line in lines)


def _shorten(line: str, width: float) -> str:
    kept = line
    while len(kept) > 2 and measure(kept, SMALLEST) > width:
        kept = kept.removesuffix("…")[:-1].rstrip("\\ ") + "…"
    return kept


def describe_law(level: Level, dim: int) -> list[str]:
    """The law of a level's vectors, a few words a line."""
    family = "Normal" if level.family is None else _name_of(level.family, "family")
    if level.learns_spread:
        kernel = [] if level.kernel is None else [repr(level.kernel)]
        own = describe_spread(level, with_kernel=False)
        learned = level.scale is not None or isinstance(level.cov, Distribution)
        lines = [family, f"{own} (learned)" if learned else own, *kernel]
    else:
        lines = [f"{family}, {level.covariance(dim).describe()}"]
    word = "intercept" if level.parents else "mean"
    if level.learns_mean:
        lines.append(f"{word} ~ {law_name(level.mean)} (learned)")
    elif np.any(level.mean):
        lines.append(f"{word} {float(level.mean):.3g}" if level.mean.ndim == 0 else f"{word} given")
    if level.link is not None:
        lines.append(_name_of(level.link, "link"))
    return lines


def describe_reward(reward: Reward, actions: str) -> list[str]:
    """The law of the reward, a few words a line."""
    lines = [type(reward).__name__]
    if reward.is_learned:
        for site, law in reward.unknowns.items():
            lines.append(f"{site.removeprefix('reward_')} ~ {law_name(law)} (learned)")
    elif isinstance(reward, Gaussian):
        lines = [f"Gaussian, noise {float(reward.noise):.3g}"]
    return [*lines, f"of context · {actions}"]


def _name_of(function: Callable[..., Any], word: str) -> str:
    """`word` and the function's name, if it has one."""
    name = getattr(function, "__name__", "<lambda>")
    return f"own {word}" if name == "<lambda>" else f"{word} {name}"
