"""What an agent shows of its policy and posterior: the actions there are, with labels, and no others.

Behind the real actions the compiled programs may have room for more. Whoever looks from outside sees a
row for each action there has been, removed ones included: its position is its row.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from jaxtyping import Float

from ...inference import Posterior
from ...inference.gaussian.new_actions import action_axes, extend
from ...models import Hierarchy, Reward
from ...models.labels import label_index
from ..policies.policy import Policy
from .decisions import Label

__all__ = ["action_moments", "as_frame", "expected_rewards", "shown_policy", "shown_posterior"]

Part = TypeVar("Part", bound=Any)

_NODES = 32  # of the quadrature: exact for Gaussian rewards, and close for smooth mean functions


def shown_policy(policy: Policy, size: int, labels: Sequence[Label] | None) -> Policy:
    """A policy of the first `size` actions, with labels."""
    return _shown(policy, policy.problem, size, labels)


def shown_posterior(posterior: Posterior, size: int, labels: Sequence[Label] | None) -> Posterior:
    """A posterior of the first `size` actions, with labels."""
    backend, state, problem = posterior.backend, posterior.state, posterior.backend.problem
    own = _shown(backend, problem, size, labels)
    if size == problem.num_actions:
        return replace(posterior, backend=own)
    axes = action_axes(lambda hierarchy: backend.with_hierarchy(hierarchy).init(), problem)
    leaves, structure = jax.tree.flatten(state)
    kept = [_first(leaf, axis, size) for leaf, axis in zip(leaves, axes, strict=True)]
    name = problem.actions.name
    mean, cov = ({**part, name: part[name][:size]} for part in (posterior.mean, posterior.cov))
    return replace(
        posterior, mean=mean, cov=cov, backend=own, state=jax.tree.unflatten(structure, kept)
    )


def _shown(part: Part, problem: Any, size: int, labels: Sequence[Label] | None) -> Part:
    """A policy or a backend with a hierarchy of the first `size` actions, with labels."""

    def labelled(hierarchy: Hierarchy) -> Hierarchy:
        own = hierarchy.actions.remade(labels=labels)
        return hierarchy.remade(levels=[*hierarchy.levels[:-1], own])

    if size < problem.num_actions:
        return part.with_hierarchy(labelled(extend(problem, None, size, size)))
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
