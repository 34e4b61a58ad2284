"""What `empirical_bayes` may vary, as numbers without units or limits.

Standard deviations are counted in those of the rewards over those of the contexts, so that a search is
the same in whatever units rewards and contexts are measured. A covariance is varied through its square
root: any root is a covariance, and one that is singular, or zero, is a point like any other.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ...models import Gaussian, Hierarchy, Reward
from ..gaussian.evidence import GaussianLevel, gaussian_levels
from .declared_unknowns import DeclaredUnknowns
from .parts import Part

__all__ = ["FreeNumbers", "with_values"]

# The least noise, in units of the rewards: with none at all the evidence may be infinite.
_LEAST_NOISE = 1e-8


class FreeNumbers(eqx.Module):
    """A hierarchy as a function of the numbers to learn, one array for each part.

    Attributes:
        levels: the levels as they were declared.
        noise: the noise as it was declared; one where rewards are not Gaussian.
        reward_unit: the unit of rewards and of the noise.
        units: (d,), the units of the components of the actions' vectors.
        gains: by level, how much its vectors move the actions: its own units are smaller by that.
        unknowns: what is declared as unknown.
        parts: what is learned.
        forms: by level, how many axes its declared covariance has.
    """

    levels: tuple[GaussianLevel, ...]
    noise: Array
    reward_unit: Array
    units: Float[Array, " d"]
    gains: dict[str, Array]
    unknowns: DeclaredUnknowns
    parts: tuple[Part, ...] = eqx.field(static=True)
    forms: tuple[tuple[str, int], ...] = eqx.field(static=True)

    @classmethod
    def of(
        cls, unknowns: DeclaredUnknowns, parts: tuple[Part, ...], reward_unit: Any, units: Any
    ) -> "FreeNumbers":
        """Those of a hierarchy, in the given units."""
        hierarchy = unknowns.given({})
        forms = tuple((level.name, level.cov.ndim) for level in hierarchy.levels)
        gains = {
            level.name: jnp.asarray(_gain(hierarchy, level.name)) for level in hierarchy.levels
        }
        return cls(
            levels=gaussian_levels(hierarchy),
            noise=jnp.asarray(getattr(hierarchy.reward, "noise", 1.0), float),
            reward_unit=jnp.asarray(reward_unit, float),
            units=jnp.asarray(units, float),
            gains=gains,
            unknowns=unknowns,
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
            return jnp.tile(units, level.root.shape[-1] // len(units))[:, None]
        return units if part.coordinates is None else units[np.array(part.coordinates)]

    def declared(self) -> tuple[Array, ...]:
        """The free numbers that stand for what was declared."""

        def one(part: Part) -> Array:
            if part.what == "number":
                return self.unknowns.free(part)
            if part.what == "noise":
                return self.noise / self.reward_unit
            level = self.level(part.level)
            if part.what == "weights":
                return level.arrows[part.parent].values
            if part.what == "mean":
                return level.mean / self._unit(part)
            axes = dict(self.forms)[part.level]
            root = level.root if axes > 1 else jnp.diagonal(level.root)
            root = root if part.coordinates is None else root[np.array(part.coordinates)]
            return (root if axes else root[0]) / self._unit(part)

        return tuple(one(part) for part in self.parts)

    def at(self, free: tuple[Array, ...]) -> tuple[tuple[GaussianLevel, ...], Array]:
        """The levels and the noise that free numbers stand for."""
        by_part = dict(zip(self.parts, free, strict=True))
        found, noise = self._with_numbers(by_part)
        levels = {level.name: level for level in found}
        for part, numbers in by_part.items():
            if part.what == "noise":
                noise = self._in_units(part, numbers)
            if part.what in ("noise", "number"):
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
                new = eqx.tree_at(lambda o: o.mean, level, self._in_units(part, numbers))
            else:
                new = eqx.tree_at(lambda o: o.root, level, self._root(part, numbers))
            levels[part.level] = new
        return tuple(levels.values()), noise

    def _with_numbers(self, by_part: dict[Part, Array]) -> tuple[Any, Array]:
        """The levels and the noise with what is varied on the real line."""
        numbers = {part: value for part, value in by_part.items() if part.what == "number"}
        if not numbers:
            return self.levels, self.noise
        values = {part.site: self.unknowns.value(part, free) for part, free in numbers.items()}
        known = self.unknowns.given(values)
        return gaussian_levels(known), getattr(known.reward, "noise", self.noise)

    def reward(self, free: tuple[Array, ...]) -> Reward:
        """The law of rewards that free numbers stand for, where it has no noise."""
        by_part = zip(self.parts, free, strict=True)
        numbers = {part: own for part, own in by_part if part.what == "number" and not part.level}
        values = {part.site: self.unknowns.value(part, own) for part, own in numbers.items()}
        return self.unknowns.given(values).reward

    def _in_units(self, part: Part, numbers: Array) -> Array:
        """Numbers as they are declared: the noise, a mean, deviations, a root, or a number's value."""
        if part.what == "number":
            return self.unknowns.value(part, numbers)
        if part.what == "noise":
            return self.reward_unit * jnp.sqrt(numbers**2 + _LEAST_NOISE**2)
        return self._unit(part) * numbers

    def _root(self, part: Part, numbers: Array) -> Array:
        if numbers.ndim > 1:
            return self._unit(part) * jnp.tril(numbers)
        deviations = self._unit(part) * numbers
        if part.coordinates is None:
            return jnp.diag(jnp.broadcast_to(deviations, self.units.shape))
        learned = np.array(part.coordinates)
        known = jnp.diagonal(self.level(part.level).root)
        return jnp.diag(known.at[learned].set(deviations))

    def log_prior(self, free: tuple[Array, ...]) -> Float[Array, ""]:
        """The log density of what is declared as unknown, by its laws."""
        total = jnp.zeros(())
        for part, numbers in zip(self.parts, free, strict=True):
            if part.site:
                total += self.unknowns.log_prior(part, self._in_units(part, numbers))
        return total

    def sites(self, free: tuple[Array, ...]) -> dict[str, Array]:
        """Site -> value, of everything that is declared as unknown."""
        values: dict[str, Array] = {}
        for part, numbers in zip(self.parts, free, strict=True):
            if part.site:
                values |= self.unknowns.values(part, self._in_units(part, numbers))
        return values

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

    def known(self, free: tuple[Array, ...]) -> dict[Part, np.ndarray]:
        """What free numbers of known things stand for, in the forms in which a user declares it."""
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

        pairs = zip(self.parts, free, strict=True)
        return {p: np.asarray(one(p, numbers)) for p, numbers in pairs if not p.site}


def with_values(
    hierarchy: Hierarchy, sites: dict[str, np.ndarray], values: dict[Part, np.ndarray]
) -> Hierarchy | None:
    """The hierarchy with numbers for what is unknown, and others for some of what is known.

    None where its precision cannot hold them.
    """
    dtype = jnp.result_type(float)
    with np.errstate(over="ignore"):
        if not all(np.isfinite(value.astype(dtype)).all() for value in sites.values()):
            return None
    if hierarchy.unknowns.laws:
        hierarchy = hierarchy.unknowns.given(sites)
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
    return hierarchy.remade(levels=levels, reward=reward)


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
