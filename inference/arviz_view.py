"""ArviZ's view of a posterior: the only place that knows ArviZ's versions."""

from typing import Any

import arviz
import numpy as np
from jax import Array

from ..models import Hierarchy
from .backend import Posterior

__all__ = ["level_coordinates", "to_arviz"]


def to_arviz(posterior: Posterior, key: Array, n: int) -> Any:
    """`n` joint draws in a group "posterior": a variable per level, dimensions named after levels.

    Level `movie` is a variable with the dimensions `chain`, `draw`, `movie_id`, `component`; the
    coordinates of `movie_id` are the level's labels, or positions where it has none.
    """
    draws = {name: np.asarray(value)[None] for name, value in posterior.draw(key, n).items()}
    coords, dims = level_coordinates(posterior.backend.hierarchy)
    from_dict: Any = arviz.from_dict
    if int(arviz.__version__.split(".")[0]) >= 1:
        return from_dict({"posterior": draws}, coords=coords, dims=dims)
    return from_dict(posterior=draws, coords=coords, dims=dims)


def level_coordinates(hierarchy: Hierarchy) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """The coordinates and dimensions of every level's variable."""
    coords: dict[str, Any] = {"component": np.arange(hierarchy.dim)}
    dims = {}
    for level in hierarchy.levels:
        name = f"{level.name}_id"
        coords[name] = list(level.labels) if level.labels else np.arange(level.size)
        dims[level.name] = [name, "component"]
    return coords, dims
