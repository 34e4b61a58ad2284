"""ArviZ's view of a posterior: the only place that knows ArviZ's versions."""

from typing import Any

import arviz
import numpy as np
from jax import Array

from .backend import Posterior

__all__ = ["to_arviz"]


def to_arviz(posterior: Posterior, key: Array, n: int) -> Any:
    """`n` joint draws in a group "posterior": a variable per level, dimensions named after levels.

    Level `movie` is a variable with the dimensions `chain`, `draw`, `movie_id`, `component`; the
    coordinates of `movie_id` are the level's labels, or positions where it has none.
    """
    draws = {name: np.asarray(value)[None] for name, value in posterior.draw(key, n).items()}
    coords, dims = _coordinates(posterior)
    from_dict: Any = arviz.from_dict
    if int(arviz.__version__.split(".")[0]) >= 1:
        return from_dict({"posterior": draws}, coords=coords, dims=dims)
    return from_dict(posterior=draws, coords=coords, dims=dims)


def _coordinates(posterior: Posterior) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """The coordinates and dimensions of every level's variable."""
    hierarchy = getattr(posterior.backend, "hierarchy", None)
    labels = {} if hierarchy is None else {level.name: level.labels for level in hierarchy.levels}
    coords: dict[str, Any] = {}
    dims = {}
    for name, mean in posterior.mean.items():
        coords[f"{name}_id"] = list(labels.get(name) or range(mean.shape[0]))
        coords["component"] = np.arange(mean.shape[1])
        dims[name] = [f"{name}_id", "component"]
    return coords, dims
