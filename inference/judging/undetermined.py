"""What the data do not determine, where a search has ended: zeros, limits and ridges of the evidence."""

import numpy as np

from .declared_unknowns import FAR
from .parts import Part
from .search import FACTOR, FLAT, NOTHING, STEPS, Point, Search, one_unit

__all__ = ["at_limits", "at_zero", "on_a_ridge"]

# Where the slope in a variance at zero is looked at, as a standard deviation in units of the data.
_ABOVE_ZERO = 1e-3
# How many numbers on the real line are looked at one by one, of each part.
_MOST_LOOKED_AT = 64
# Correlations whose smallest eigenvalue is below this are singular.
_SINGULAR = 1e-6


def at_zero(search: Search, point: Point) -> tuple[Point, list[str], list[str]]:
    """Spreads that are zero, set to zero, and those that may as well be: their names."""
    zero, free = [], []
    for part, component in _components(search):
        numbers, most = search.shaped(point.vector, part), point.loss + FLAT
        zeros, above, wider = (
            search.with_part(point.vector, part, np.where(component, other, numbers))
            for other in (0.0, _ABOVE_ZERO * one_unit(numbers), np.sqrt(FACTOR) * numbers)
        )
        none = search.at(zeros, point.steps)
        if none.loss > most:
            free += [part.name] if search.at(wider).loss < most else []
            continue
        # The slope in the variance, per unit: zero where another spread could take its place.
        slope = (search.at(above).loss - none.loss) / _ABOVE_ZERO**2
        if none.loss < point.loss + NOTHING and slope > FLAT:
            zero.append(part.name)
            point = none
        else:
            free.append(part.name)
    zero += [part.name for part in search.places if _is_singular(search, point, part)]
    return point, zero, free


def at_limits(search: Search, point: Point) -> tuple[list[str], list[str]]:
    """What is best at an end of the real line, and what may be anywhere on it: their names."""
    ends, free = [], []
    for part in search.places:
        numbers = (
            search.shaped(point.vector, part).ravel() if part.what == "number" else np.zeros(0)
        )
        for i in range(min(numbers.size, _MOST_LOOKED_AT)):
            further, nearer = numbers.copy(), numbers.copy()
            at = np.clip(numbers[i], -FAR, FAR)  # nothing changes further out
            step = np.copysign(max(STEPS[-1], abs(at) / 2), at)
            further[i], nearer[i] = numbers[i] + step, at - step
            on, back = (
                search.at(search.with_part(point.vector, part, tried)).loss
                for tried in (further, nearer)
            )
            if on < point.loss + FLAT and back < point.loss + FLAT:
                free.append(part.name)
            elif on < point.loss + NOTHING or back < point.loss + NOTHING:
                ends.append(part.name)
    return ends, free


def _components(search: Search) -> list[tuple[Part, np.ndarray]]:
    """Every spread, by component of the vectors: which of its free numbers belong to it."""
    dim, components = len(search.numbers.units), []
    for part in search.places:
        if part.is_spread:
            shape = search.shaped(search.declared, part).shape
            row = np.arange(shape[0] if len(shape) == 1 else shape[-2] if shape else 1) % dim
            for j in range(dim if shape else 1):
                mask = row == j
                if not mask.any():
                    continue
                mask = mask[:, None] if len(shape) > 1 else mask if shape else mask[0]
                components.append((part, np.broadcast_to(mask, shape)))
    return components


def _is_singular(search: Search, point: Point, part: Part) -> bool:
    """Whether a covariance with no variance of zero is singular."""
    root = search.shaped(point.vector, part)
    if part.what != "cov" or root.ndim < 2:
        return False
    root = np.tril(root)
    deviations = np.linalg.norm(root, axis=-1, keepdims=True)
    root = root / np.where(deviations > 0, deviations, 1.0)
    eigenvalues = np.linalg.eigvalsh(root @ np.swapaxes(root, -1, -2))
    return bool((eigenvalues[(deviations > 0).all((-1, -2))] < _SINGULAR).any())


def on_a_ridge(search: Search, point: Point, skip: list[str]) -> list[str]:
    """Spreads that can be exchanged for one another at no loss: their names.

    By the curvature of the evidence in the logarithms of all parts as wholes.
    """
    parts = [p for p in search.places if p.what in ("cov", "noise", "weights")]
    parts = [p for p in parts if p.name not in skip]
    step, columns = 1e-4, []

    def along(at: Point) -> np.ndarray:
        slope = at.slope * at.vector
        return np.array([slope[search.places[part]].sum() for part in parts])

    for part in parts:
        numbers = np.exp(step) * search.shaped(point.vector, part)
        moved = search.at(search.with_part(point.vector, part, numbers))
        columns.append((along(moved) - along(point)) / step)
    if not columns:
        return []
    curvature = np.array(columns)
    values, directions = np.linalg.eigh((curvature + curvature.T) / 2)
    flat = 0.5 * values * np.square(np.log(FACTOR) / 2) < FLAT
    involved = np.abs(directions[:, flat]).max(axis=1, initial=0.0) > 0.3
    return [
        part.name for part, found in zip(parts, involved, strict=True) if found and part.is_spread
    ]
