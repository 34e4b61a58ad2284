"""ArviZ's view of posteriors, and its diagnostics: the only place that knows ArviZ's versions."""

from collections.abc import Mapping
from typing import Any

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import xarray
from jax import Array
from numpyro.distributions import Distribution

from ..models import Data, Hierarchy, Level
from ..models.labels import label_index
from .backend import Posterior
from .mixture.collapsed import Collapsed
from .programs.nuts import Nuts
from .programs.svi import Svi

__all__ = ["checks_to_arviz", "groups_to_arviz", "rhat_and_ess", "to_arviz"]

_OTHER = "other_component"  # the columns of a learned covariance


def to_arviz(posterior: Posterior, key: Array, n: int, hierarchy: Hierarchy | None = None) -> Any:
    """Joint draws in a group "posterior": a variable per level, dimensions named after levels.

    Level `movie` is a variable with the dimensions `chain`, `draw`, `movie_id`, `component`; the
    coordinates of `movie_id` are the level's labels, or positions where it has none, and those of
    `component` the names of the components of a context. Both are those of `hierarchy`, by default
    the backend's own. `Collapsed`, `Nuts` and `Svi` have a variable for every other site too: learned
    scales, covariances, means, numbers of kernels, weights, and noise. There are `n` draws in one chain;
    of `Collapsed` and `Nuts` the last `n` of their chains, or all there are, chain by chain, so that ArviZ
    sees whether they have mixed.
    """
    draws = {name: np.asarray(value) for name, value in _draws(posterior, key, n).items()}
    coords, dims = _coordinates(posterior, hierarchy)
    from_dict: Any = arviz.from_dict
    if _gives_trees():
        return from_dict({"posterior": draws}, coords=coords, dims=dims)
    return from_dict(posterior=draws, coords=coords, dims=dims)


def checks_to_arviz(posterior: Posterior, data: Data, key: Array, n: int = 1000) -> Any:
    """`n` joint draws with what is needed to check them: for `arviz.loo`, `compare`, `plot_ppc`.

    The groups are `posterior` (levels and learned numbers), `posterior_predictive`, `log_likelihood` and
    `observed_data`, the last three with a variable `reward` that has a number for each observation. All
    draws are in one chain. Memory is O(n rows).
    """
    hierarchy: Any = posterior.backend.problem
    key_draw, key_rewards = jax.random.split(key)
    draws = posterior.backend.sample_unknowns(key_draw, posterior.state, n)
    exposure = None if data.exposure is None else data.exposure

    def of_draw(draw: dict[str, Array], own: Array) -> tuple[Array, Array]:
        vectors = draw[hierarchy.actions.name][data.actions]
        numbers = {name: draw[name] for name in hierarchy.reward.unknowns}
        law = hierarchy.reward.given(numbers).law_of(jnp.sum(data.contexts * vectors, -1), exposure)
        return law.sample(own), law.log_prob(data.rewards)

    rewards, densities = jax.jit(jax.vmap(of_draw))(draws, jax.random.split(key_rewards, n))
    coords, dims = _coordinates(posterior, hierarchy)
    dims = dims | {"reward": ["observation"]}
    groups: dict[str, Any] = {
        "posterior": {name: np.asarray(value)[None] for name, value in draws.items()},
        "posterior_predictive": {"reward": np.asarray(rewards)[None]},
        "log_likelihood": {"reward": np.asarray(densities)[None]},
        "observed_data": {"reward": np.asarray(data.rewards)},
    }
    from_dict: Any = arviz.from_dict
    coords = coords | {"observation": np.arange(len(data))}
    if _gives_trees():
        return from_dict(groups, coords=coords, dims=dims)
    return from_dict(**groups, coords=coords, dims=dims)


def groups_to_arviz(
    views: Mapping[str, tuple[Posterior, Array]], n: int, hierarchy: Hierarchy | None
) -> Any:
    """`n` joint draws of each posterior, by its key: one object with a group for each."""
    groups: dict[str, Any] = {
        group: to_arviz(posterior, key, n, hierarchy)["posterior"]
        for group, (posterior, key) in views.items()
    }
    if _gives_trees():
        return xarray.DataTree.from_dict({name: tree.to_dataset() for name, tree in groups.items()})
    return arviz.InferenceData(**groups)


def rhat_and_ess(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rank-normalised split R-hat and bulk effective sample size (Vehtari et al. 2021) of each number.

    Draws are (chains, draws, ...). One chain is compared with itself, as two halves. R-hat is infinite
    where no chain moves and they disagree, and NaN where all draws are equal.
    """
    if len(draws) == 1:
        half = draws.shape[1] // 2
        draws = np.concatenate([draws[:, :half], draws[:, half : 2 * half]])
    dims = ("chain", "draw", *(f"axis_{i}" for i in range(draws.ndim - 2)))
    data: Any = xarray.Dataset({"numbers": (dims, np.asarray(draws, np.float64))})
    functions: tuple[Any, Any] = (arviz.rhat, arviz.ess)
    with np.errstate(divide="ignore", invalid="ignore"):
        rhat, ess = (np.asarray(function(data)["numbers"]) for function in functions)
    stands_still = np.ptp(draws, axis=1).max(axis=0) == 0
    return np.where(stands_still & (np.ptp(draws, axis=(0, 1)) > 0), np.inf, rhat), ess


def _draws(posterior: Posterior, key: Array, n: int) -> dict[str, Array]:
    """Every site, (chains, draws, ...)."""
    backend, state = posterior.backend, posterior.state
    if isinstance(backend, Nuts | Collapsed):
        return {k: v[:, n // -backend.chains :] for k, v in backend.draws(state).items()}
    one_chain = backend.draws(key, state, n) if isinstance(backend, Svi) else posterior.draw(key, n)
    return {name: value[None] for name, value in one_chain.items()}


def _gives_trees() -> bool:
    """Whether this is ArviZ 1, which holds groups in an `xarray.DataTree`."""
    return int(arviz.__version__.split(".")[0]) >= 1


def _coordinates(
    posterior: Posterior, hierarchy: Hierarchy | None
) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """The coordinates and dimensions of every level's variable."""
    hierarchy = hierarchy or getattr(posterior.backend, "hierarchy", None)
    coords: dict[str, Any] = {}
    dims = {}
    for name, mean in posterior.mean.items():
        coords[f"{name}_id"], coords["component"] = map(np.arange, mean.shape)
        if hierarchy is not None and name in hierarchy:
            coords[f"{name}_id"] = hierarchy[name].coordinates
        if hierarchy is not None and hierarchy.components is not None:
            coords["component"] = label_index(hierarchy.components)
        dims[name] = [f"{name}_id", "component"]
    if hierarchy is not None:
        for level in hierarchy.levels:
            dims |= _dimensions_of_numbers(level, hierarchy)
            if level.cov_site in dims:
                coords[_OTHER] = coords["component"]
    return coords, dims


def _dimensions_of_numbers(level: Level, hierarchy: Hierarchy) -> dict[str, list[str]]:
    """The dimensions of what a level learns besides its vectors, where they are those of something."""
    sizes = {each.name: each.size for each in hierarchy.levels}
    laws, dims = level.unknowns(sizes, hierarchy.dim), {}
    for site in (level.mean_site, level.scale_site):
        if site in laws:
            shape, both = laws[site].shape(), [f"{level.name}_id", "component"]
            each = both[-len(shape) :] if shape else []
            # One scale for all components of a vector.
            shared = len(shape) == 2 and shape[1] != hierarchy.dim
            dims[site] = [each[0], f"{site}_shared"] if shared else each
    if level.cov_site in laws:
        dims[level.cov_site] = ["component", _OTHER]
    for parent in level.learned_weights:
        site, is_dense = (
            level.weights_site(parent),
            isinstance((level.parents or {})[parent], Distribution),
        )
        if is_dense and len(laws[site].shape()) == 2:
            dims[site] = [f"{level.name}_id", f"{parent}_id"]
    return dims
