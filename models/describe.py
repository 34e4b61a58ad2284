"""A hierarchy in words: its `repr`, and why a posterior has no closed form."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jax import Array
from numpyro.distributions import Distribution

from .arrays import is_concrete
from .level import Level
from .rewards import Gaussian, Reward, law_name
from .weights import Sparse

if TYPE_CHECKING:
    from .hierarchy import Hierarchy

__all__ = ["describe", "describe_weights", "why_not_exact"]


def why_not_exact(levels: Sequence[Level], reward: Reward) -> str | None:
    """None for a linear-Gaussian model, else a sentence: what breaks it, and which backends fit."""
    learned_noise = isinstance(reward, Gaussian) and reward.is_learned
    broken = [(level, level.why_not_linear_gaussian) for level in levels]
    broken = [(level, why) for level, why in broken if why]
    only_links = all(why == "has a link" and level is levels[-1] for level, why in broken)
    # Laplace takes one non-linearity: the reward's, or a link on the actions under Gaussian rewards.
    fits_laplace = only_links and not learned_noise and (isinstance(reward, Gaussian) or not broken)
    if broken:
        level, why = broken[0]
        cause = f"level '{level.name}' {why}"
    elif learned_noise:
        cause = "the reward's noise is learned"
    elif not isinstance(reward, Gaussian):
        cause = f"the reward is {type(reward).__name__}, not Gaussian"
    else:
        return None
    return f"{cause}: no closed form; use {'Laplace, ' if fits_laplace else ''}Nuts or Svi"


def describe(hierarchy: "Hierarchy") -> str:
    """The hierarchy as text: a line a level, top to bottom, and the reward."""
    sizes = {level.name: level.size for level in hierarchy.levels}
    names = list(sizes)
    width = max(map(len, [*names, "reward"]))
    count = max(len(str(level.size)) for level in hierarchy.levels)
    lines = [f"Hierarchy of {len(names)} level{'s' if len(names) > 1 else ''}, dim {hierarchy.dim}"]
    for level in hierarchy.levels:
        law = _describe_law(level, sizes)
        lines.append(f"  {level.name:<{width}}  {level.size:>{count}} x  {law}")
    predictor = f"context . {names[-1]}"
    lines.append(f"  {'reward':<{width}}  {hierarchy.reward!r} of {predictor}")
    return "\n".join(lines)


def describe_weights(weights: Any, parent_size: int) -> str:
    """Weights in a few words: their form, size and how many arrows are missing."""
    if isinstance(weights, Sparse):
        learned = "learned " if isinstance(weights.values, Distribution) else ""
        return f"{learned}{weights.indices.shape[-1]} of {parent_size}"
    if isinstance(weights, Distribution):
        return f"learned ~ {law_name(weights)}"
    if not _is_known(weights, 2, 4):
        return "weights"
    arrows = np.asarray(weights) != 0
    kind, arrows = ("weights", arrows) if arrows.ndim == 2 else ("matrices", arrows.any((2, 3)))
    missing = 1.0 - float(arrows.mean())
    return kind if missing == 0 else f"{kind}, {missing:.0%} missing"


def _is_known(numbers: Any, *ndims: int) -> bool:
    """Whether the values are there to be read: not traced, stacked for `vmap` or a stand-in."""
    return isinstance(numbers, Array) and is_concrete(numbers) and numbers.ndim in ndims


def _describe_law(level: Level, sizes: Mapping[str, int]) -> str:
    mean = _describe_numbers(level.mean, "mean")
    parents = (level.parents or {}).items()
    terms = [
        f"{parent} ({describe_weights(weights, sizes[parent])})" for parent, weights in parents
    ]
    loc = " + ".join([*([] if terms and mean == "0" else [mean]), *terms])
    if level.link is not None:
        loc = f"{getattr(level.link, '__name__', 'link')}({loc})"
    if level.scale is not None:
        spread = f"scale ~ {law_name(level.scale)}"
    else:
        spread = f"cov {_describe_numbers(level.cov, 'given')}"
    family = "Normal" if level.family is None else getattr(level.family, "__name__", "family")
    form = "" if level.centered else ", non-centred"
    return f"{family}({loc}; {spread}{form})"


def _describe_numbers(numbers: Any, word: str) -> str:
    if _is_known(numbers, 0):
        return f"{float(numbers):g}"
    shape = getattr(numbers, "shape", ())
    return f"{word} {shape}" if shape else word
