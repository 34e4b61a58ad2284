"""What an agent shows of its policy and posterior: the vectors there are, with labels, and no others.

Behind the real actions and nodes the compiled programs may have room for more. Whoever looks from outside
sees a row for each action there has been, removed ones included: its position is its row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from jaxtyping import Float

from ...inference import Backend, Posterior
from ...inference.gaussian.new_vectors import extend
from ...inference.gaussian.places import level_axes
from ...models import Hierarchy, Reward
from ...models.labels import label_index
from ..policies.policy import Policy
from .decisions import Label
from .node_names import Names

__all__ = ["action_moments", "as_frame", "expected_rewards", "shown_policy", "shown_posterior"]

Part = TypeVar("Part", bound=Any)

_NODES = 32  # of the quadrature: exact for Gaussian rewards, and close for smooth mean functions


def shown_policy(policy: Policy, names: Mapping[str, Names]) -> Policy:
    """A policy of the first so many vectors of each level, with labels."""
    return _shown(policy, policy.problem, names)


def shown_posterior(posterior: Posterior, names: Mapping[str, Names]) -> Posterior:
    """A posterior of the first so many vectors of each level, with labels."""
    backend, problem = posterior.backend, posterior.backend.problem
    leaves, structure = jax.tree.flatten(posterior.state)
    mean, cov = dict(posterior.mean), dict(posterior.cov)
    for name, size in _spare(problem, names).items():
        axes = level_axes(lambda other: _blank(backend.with_hierarchy(other)), problem, name)
        leaves = [_first(leaf, axis, size) for leaf, axis in zip(leaves, axes, strict=True)]
        mean[name], cov[name] = mean[name][:size], cov[name][:size]
    own, state = _shown(backend, problem, names), jax.tree.unflatten(structure, leaves)
    return replace(posterior, mean=mean, cov=cov, backend=own, state=state)


def _blank(backend: Backend[Any]) -> Any:
    """The state of a posterior, before any reward."""
    return backend.posterior(backend.init()).state


def _spare(problem: Any, names: Mapping[str, Names]) -> dict[str, int]:
    """The levels that have spare vectors, and how many real ones."""
    return {name: known.size for name, known in names.items() if known.size < problem[name].size}


def _shown(part: Part, problem: Any, names: Mapping[str, Names]) -> Part:
    """A policy or a backend with a hierarchy of the first so many vectors of each level, with labels."""

    def labelled(hierarchy: Hierarchy) -> Hierarchy:
        levels = [
            level.remade(labels=names[level.name].labels)
            if level.name in names and level.labels != names[level.name].labels
            else level
            for level in hierarchy.levels
        ]
        return hierarchy.remade(levels=levels)

    spare = _spare(problem, names)
    if spare:
        return part.with_hierarchy(labelled(extend(problem, spare)))
    return jax.tree.map(
        lambda leaf: labelled(leaf) if isinstance(leaf, Hierarchy) else leaf,
        part,
        is_leaf=lambda leaf: isinstance(leaf, Hierarchy),
    )


def _first(leaf: Array, axis: int | None, size: int) -> Array:
    return leaf if axis is None else jax.lax.slice_in_dim(leaf, 0, size, axis=axis)


def action_moments(posterior: Posterior) -> tuple[np.ndarray, np.ndarray]:
    """The posterior means (K, d) and covariances (K, d, d) of the actions."""
    problem = posterior.backend.problem
    name = problem.actions.name if isinstance(problem, Hierarchy) else problem.action_site
    return np.asarray(posterior.mean[name]), np.asarray(posterior.cov[name])


def expected_rewards(
    reward: Reward,
    context: Float[np.ndarray, "*n d"],
    mean: Float[np.ndarray, "n d"],
    cov: Float[np.ndarray, "n d d"],
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Posterior mean and standard deviation of the reward that n actions are expected to have.

    The score `u = x' theta_i` is taken as Gaussian with the posterior's mean and variance; at a score the
    expected reward is the family's `mean(u)`, which is integrated by Gauss-Hermite quadrature.
    """
    x = np.broadcast_to(context, mean.shape)
    center = np.einsum("nd,nd->n", x, mean)
    spread = np.sqrt(np.maximum(np.einsum("nd,nde,ne->n", x, cov, x), 0.0))
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    scores = jnp.asarray(center[:, None] + spread[:, None] * nodes)
    values, weights = np.asarray(reward.mean(scores), np.float64), weights / weights.sum()
    average = (values + values[:, ::-1]) / 2 @ weights  # in pairs, so that what cancels is zero
    return average, np.sqrt((values - average[:, None]) ** 2 @ weights)


def as_frame(names: Sequence[Label], columns: dict[str, np.ndarray]) -> pd.DataFrame:
    """Columns with a row for each action, by name."""
    index = pd.Index(label_index(names), tupleize_cols=False, name="action")
    return pd.DataFrame(columns, index=index)
