"""What `empirical_bayes` may vary, by name: the noise, and means, covariances and weights of levels."""

from collections.abc import Collection
from typing import Any, NamedTuple

from numpyro.distributions import Distribution

from ...models import Gaussian, Hierarchy
from ...models.messages import short

__all__ = ["Part", "all_parts", "chosen_parts"]

_OF_LEVELS = ("cov", "mean", "weights")
_LEARNABLE = ("cov", "noise", "mean", "weights")


class Part(NamedTuple):
    """One thing to learn: the noise, or a level's mean, covariance or weights on one parent.

    Attributes:
        what: "noise", "mean", "cov", "weights", or "number" for what is varied on the real line.
        level: whose it is; empty for the reward's.
        parent: of weights.
        site: where it is declared as unknown, the site in the program.
        coordinates: of a scale of which some are known, those that are not.
    """

    what: str
    level: str = ""
    parent: str = ""
    site: str = ""
    coordinates: tuple[int, ...] | None = None

    @property
    def name(self) -> str:
        """As a user writes it, "noise" or "genre.cov"; of what is declared as unknown, its site."""
        if self.site:
            return self.site
        return f"{self.level}.{self.what}" if self.level else self.what

    @property
    def is_spread(self) -> bool:
        """Whether it is a standard deviation, or a square root of a covariance."""
        return self.what in ("cov", "noise")


def all_parts(
    hierarchy: Hierarchy, unknown: Collection[Part], chosen: Collection[Part]
) -> tuple[Part, ...]:
    """What is declared as unknown and what was chosen besides, from the noise up to the top level."""
    learned = {(level.name, "mean") for level in hierarchy.levels if level.learns_mean}
    learned |= {(level.name, "cov") for level in hierarchy.levels if level.scale is not None}
    learned |= {(lv.name, "cov") for lv in hierarchy.levels if isinstance(lv.cov, Distribution)}
    learned |= {("", "noise")} if hierarchy.reward.is_learned else set()
    weights = {(lv.name, parent) for lv in hierarchy.levels for parent in lv.learned_weights}
    others = [
        part
        for part in chosen
        if (part.level, part.what) not in learned and (part.level, part.parent) not in weights
    ]
    order = ["", *(level.name for level in reversed(hierarchy.levels))]
    return tuple(sorted([*unknown, *others], key=lambda part: order.index(part.level)))


def chosen_parts(
    hierarchy: Hierarchy, learn: Any, levels: Collection[str] | None
) -> tuple[Part, ...]:
    """The parts that a user chose, from the noise up to the top level."""
    learnable = tuple(
        what for what in _LEARNABLE if what != "noise" or isinstance(hierarchy.reward, Gaussian)
    )
    names = [level.name for level in hierarchy.levels]
    if levels is not None and (isinstance(levels, str) or not set(levels) <= set(names)):
        raise ValueError(
            f"levels is {short(levels)}; expected a tuple of some of {', '.join(names)}"
        )
    is_tuple = isinstance(learn, Collection) and not isinstance(learn, str)
    entries = [str(entry).rpartition(".") for entry in learn] if is_tuple else []
    known = [
        (w in _OF_LEVELS and level in names) if dot else w in learnable for level, dot, w in entries
    ]
    if not entries or not all(known):
        raise ValueError(
            f"learn is {short(learn)}; expected a tuple of some of {', '.join(learnable)}, or "
            f"of those of one level, such as '{names[0]}.mean' (levels: {', '.join(names)})"
        )
    chosen = {(level, what) for level, _, what in entries}
    everywhere = set(names if levels is None else levels)
    parts = [Part("noise")] if ("", "noise") in chosen else []
    for level in reversed(hierarchy.levels):
        for what in _OF_LEVELS:
            if (level.name, what) in chosen or (("", what) in chosen and level.name in everywhere):
                by_parent = [Part(what, level.name, parent) for parent in level.arrows]
                parts += by_parent if what == "weights" else [Part(what, level.name)]
    if not parts:
        where = f"levels {levels!r}" if levels is not None else "the levels"
        missing = " or ".join(dict.fromkeys(what for _, _, what in entries))
        raise ValueError(f"nothing to learn: {where} have no {missing}")
    return tuple(parts)
