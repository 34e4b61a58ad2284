"""What `empirical_bayes` may vary, as numbers without units or limits.

Standard deviations are counted in those of the rewards over those of the contexts, so that a search is
the same in whatever units rewards and contexts are measured. A covariance is varied through its square
root: any root is a covariance, and one that is singular, or zero, is a point like any other.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ...models import Gaussian, Hierarchy
from ...models.messages import short
from ..gaussian.evidence import GaussianLevel, gaussian_levels

__all__ = ["FreeNumbers", "Part", "chosen_parts", "with_values"]

_OF_LEVELS = ("cov", "mean", "weights")
_LEARNABLE = ("cov", "noise", "mean", "weights")
# The least noise, in units of the rewards: with none at all the evidence may be infinite.
_LEAST_NOISE = 1e-8


class Part(NamedTuple):
    """One thing to learn: the noise, or a level's mean, covariance or weights on one parent."""

    what: str
    level: str = ""
    parent: str = ""

    @property
    def name(self) -> str:
        """As a user writes it: "noise" or "genre.cov"."""
        return f"{self.level}.{self.what}" if self.level else self.what

    @property
    def is_spread(self) -> bool:
        """Whether it is a standard deviation, or a square root of a covariance."""
        return self.what in ("cov", "noise")


def chosen_parts(
    hierarchy: Hierarchy, learn: Any, levels: Collection[str] | None
) -> tuple[Part, ...]:
    """The parts that a user chose, from the noise up to the top level."""
    names = [level.name for level in hierarchy.levels]
    if levels is not None and (isinstance(levels, str) or not set(levels) <= set(names)):
        raise ValueError(
            f"levels is {short(levels)}; expected a tuple of some of {', '.join(names)}"
        )
    is_tuple = isinstance(learn, Collection) and not isinstance(learn, str)
    entries = [str(entry).rpartition(".") for entry in learn] if is_tuple else []
    known = [
        (w in _OF_LEVELS and level in names) if dot else w in _LEARNABLE
        for level, dot, w in entries
    ]
    if not entries or not all(known):
        raise ValueError(
            f"learn is {short(learn)}; expected a tuple of some of {', '.join(_LEARNABLE)}, or "
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


class FreeNumbers(eqx.Module):
    """A hierarchy as a function of the numbers to learn, one array for each part.

    Attributes:
        levels: the levels as they were declared.
        noise: the noise as it was declared.
        reward_unit: the unit of rewards and of the noise.
        units: (d,), the units of the components of the actions' vectors.
        gains: by level, how much its vectors move the actions: its own units are smaller by that.
        parts: what is learned.
        forms: by level, how many axes its declared covariance has.
    """

    levels: tuple[GaussianLevel, ...]
    noise: Array
    reward_unit: Array
    units: Float[Array, " d"]
    gains: dict[str, Array]
    parts: tuple[Part, ...] = eqx.field(static=True)
    forms: tuple[tuple[str, int], ...] = eqx.field(static=True)

    @classmethod
    def of(
        cls, hierarchy: Hierarchy, parts: tuple[Part, ...], reward_unit: Any, units: Any
    ) -> "FreeNumbers":
        """Those of a hierarchy, in the given units."""
        reward = hierarchy.reward
        assert isinstance(reward, Gaussian), "hierarchies with an evidence have Gaussian rewards"
        forms = tuple((level.name, level.cov.ndim) for level in hierarchy.levels)
        gains = {
            level.name: jnp.asarray(_gain(hierarchy, level.name)) for level in hierarchy.levels
        }
        return cls(
            levels=gaussian_levels(hierarchy),
            noise=reward.noise,
            reward_unit=jnp.asarray(reward_unit, float),
            units=jnp.asarray(units, float),
            gains=gains,
            parts=parts,
            forms=forms,
        )

    def level(self, name: str) -> GaussianLevel:
        """The declared level of that name."""
        return next(level for level in self.levels if level.name == name)

    def _unit(self, part: Part) -> Array:
        """What one free number of a spread or a mean stands for, by component."""
        if part.what == "noise":
            return self.reward_unit
        level, axes = self.level(part.level), dict(self.forms)[part.level]
        units = self.units / self.gains[part.level]
        if not (level.mean.ndim if part.what == "mean" else axes):
            return jnp.exp(jnp.log(units).mean())
        if part.what == "cov" and axes > 1:
            return jnp.tile(units, level.size if level.is_joint else 1)[:, None]
        return units

    def declared(self) -> tuple[Array, ...]:
        """The free numbers that stand for what was declared."""

        def one(part: Part) -> Array:
            if part.what == "noise":
                return self.noise / self.reward_unit
            level = self.level(part.level)
            if part.what == "weights":
                return level.arrows[part.parent].values
            if part.what == "mean":
                return level.mean / self._unit(part)
            axes = dict(self.forms)[part.level]
            root = level.root if axes > 1 else jnp.diagonal(level.root)
            return (root if axes else root[0]) / self._unit(part)

        return tuple(one(part) for part in self.parts)

    def at(self, free: tuple[Array, ...]) -> tuple[tuple[GaussianLevel, ...], Array]:
        """The levels and the noise that free numbers stand for."""
        levels, noise = {level.name: level for level in self.levels}, self.noise
        for part, numbers in zip(self.parts, free, strict=True):
            if part.what == "noise":
                noise = self.reward_unit * jnp.sqrt(numbers**2 + _LEAST_NOISE**2)
                continue
            level = levels[part.level]
            if part.what == "weights":
                arrows = level.arrows[part.parent]
                # Missing arrows stay missing.
                values = jnp.where(arrows.values != 0, numbers, 0.0)
                changed = eqx.tree_at(lambda a: a.values, arrows, values)
                others = level.arrows | {part.parent: changed}
                new = eqx.tree_at(lambda o: o.arrows, level, others)
            elif part.what == "mean":
                new = eqx.tree_at(lambda o: o.mean, level, self._unit(part) * numbers)
            else:
                new = eqx.tree_at(lambda o: o.root, level, self._root(part, numbers))
            levels[part.level] = new
        return tuple(levels.values()), noise

    def _root(self, part: Part, numbers: Array) -> Array:
        if numbers.ndim > 1:
            return self._unit(part) * jnp.tril(numbers)
        return jnp.diag(jnp.broadcast_to(self._unit(part) * numbers, self.units.shape))

    def least(self, part: Part, numbers: np.ndarray, precision: float) -> np.ndarray:
        """Free numbers of a spread, raised where it is closer to zero or singular than `Level` takes.

        Variances are at least `precision`, in units; eigenvalues of a covariance and of its correlations
        at least a few times `precision`, relative to the largest.
        """
        if part.what == "noise":
            return np.asarray(np.abs(numbers))
        if numbers.ndim < 2:
            return np.asarray(np.maximum(np.abs(numbers), np.sqrt(precision)))
        unit, least = np.asarray(self._unit(part)), np.sqrt(precision)
        root = np.tril(numbers)
        deviations = np.linalg.norm(root, axis=-1, keepdims=True)
        root = np.where(deviations < least, least * np.eye(root.shape[-1]), root)
        deviations = np.maximum(deviations, least)
        correlation = _away_from_singular(root / deviations, precision)
        return _away_from_singular(unit * deviations * correlation, precision) / unit

    def values(self, free: tuple[Array, ...]) -> dict[Part, np.ndarray]:
        """What free numbers stand for, in the forms in which a user declares it."""
        levels, noise = self.at(free)
        by_name = {level.name: level for level in levels}

        def one(part: Part, numbers: Array) -> Array:
            level = by_name.get(part.level)
            if level is None:
                return noise
            if part.what == "weights":
                return level.arrows[part.parent].values
            if part.what == "mean":
                return level.mean
            if numbers.ndim < 2:
                return jnp.square(self._unit(part) * numbers)
            return level.root @ jnp.swapaxes(level.root, -1, -2)

        return {p: np.asarray(one(p, numbers)) for p, numbers in zip(self.parts, free, strict=True)}


def with_values(hierarchy: Hierarchy, values: dict[Part, np.ndarray]) -> Hierarchy | None:
    """The hierarchy with other numbers, or None where its precision cannot hold them."""
    dtype = jnp.result_type(float)
    changes: dict[str, dict[str, Any]] = {level.name: {} for level in hierarchy.levels}
    reward = hierarchy.reward
    for part, value in values.items():
        with np.errstate(over="ignore"):
            written = value.astype(dtype)
        variances = np.diagonal(written, axis1=-2, axis2=-1) if written.ndim > 1 else written
        if not np.isfinite(written).all() or (part.is_spread and not (variances > 0).all()):
            return None
        if part.what == "noise":
            reward = Gaussian(value)
        elif part.what == "weights":
            level = hierarchy[part.level]
            parents = changes[part.level].setdefault("parents", dict(level.parents or {}))
            parents[part.parent] = level.arrows[part.parent].with_values(value)
        else:
            changes[part.level][part.what] = value
    levels = [level.remade(**changes[level.name]) for level in hierarchy.levels]
    return Hierarchy(levels, reward, hierarchy.dim)


def _gain(hierarchy: Hierarchy, name: str) -> float:
    """The standard deviation of the actions, root mean square, that one of a level's own causes."""
    moved: dict[str, np.ndarray] = {}
    for level in hierarchy.levels:
        variance = np.full(level.size, float(level.name == name))
        for parent, arrows in level.arrows.items():
            which, strengths = arrows.strengths(level.size, hierarchy[parent].size)
            variance = variance + np.sum(strengths**2 * moved[parent][which], axis=1)
        moved[level.name] = variance
    return float(np.sqrt(moved[hierarchy.actions.name].mean())) or 1.0


def _away_from_singular(root: np.ndarray, precision: float) -> np.ndarray:
    """The triangular root of the same covariance plus a multiple of the identity, if that is needed."""
    n = root.shape[-1]
    cov = root @ np.swapaxes(root, -1, -2)
    eigenvalues = np.linalg.eigvalsh(cov)
    lowest, highest = eigenvalues[..., :1, None], eigenvalues[..., -1:, None]
    missing = np.maximum(4 * precision * highest - lowest, 0.0)
    return np.linalg.cholesky(cov + missing * np.eye(n)) if missing.any() else root
