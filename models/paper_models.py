"""The paper's models by name: each a few lines over `Hierarchy`.

Levels are called "effect", "action" and, in the middle of three, "item".
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array

from .arrays import as_numbers
from .hierarchy import Hierarchy
from .level import Level
from .rewards import Bernoulli, Gaussian, Reward
from .weights import weights_shape

__all__ = ["finer", "glm", "linear", "mab", "nonlinear", "three_level"]


def linear(
    weights: Any,
    dim: int,
    *,
    effect_mean: Any = 0.0,
    effect_cov: Any = 1.0,
    action_cov: Any = 1.0,
    noise: Any = 1.0,
) -> Hierarchy:
    """The mixed-effect linear bandit, Eq. 2; `weights` is (K, L).

    Example:
        >>> linear([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]], dim=2, noise=0.5)
        Hierarchy of 2 levels, dim 2
          effect  2 x  Normal(0; cov 1)
          action  3 x  Normal(effect (weights, 33% missing); cov 1)
          reward  Gaussian(noise=0.5) of context . action
    """
    return _two_levels(weights, dim, Gaussian(noise), effect_mean, effect_cov, action_cov)


def mab(
    weights: Any,
    *,
    effect_mean: Any = 0.0,
    effect_cov: Any = 1.0,
    action_cov: Any = 1.0,
    noise: Any = 1.0,
) -> Hierarchy:
    """The mixed-effect multi-armed bandit, Eq. 17; contexts are ones.

    `effect_mean` may be the paper's (L,) vector, `effect_cov` its (L, L) matrix and `action_cov` the
    (K,) variances `sigma_{0,i}^2`.

    Example:
        >>> mab([[1.0, 0.0], [0.5, 0.5]], effect_mean=[2.0, 3.0]).dim
        1
    """
    if np.ndim(effect_mean) == 1:
        effect_mean = as_numbers(effect_mean, "mab effect_mean")[:, None]
    if np.ndim(action_cov) == 1:
        action_cov = as_numbers(action_cov, "mab action_cov")[:, None, None]
    return _two_levels(weights, 1, Gaussian(noise), effect_mean, effect_cov, action_cov)


def glm(
    weights: Any,
    dim: int,
    *,
    reward: Reward = Bernoulli(),
    effect_mean: Any = 0.0,
    effect_cov: Any = 1.0,
    action_cov: Any = 1.0,
) -> Hierarchy:
    """The mixed-effect generalised linear bandit, Eq. 3.

    Example:
        >>> glm([[1.0, 0.0], [0.5, 0.5]], dim=3).why_not_exact.cause
        'the reward is Bernoulli, not Gaussian'
    """
    return _two_levels(weights, dim, reward, effect_mean, effect_cov, action_cov)


def finer(
    maps: Any,
    *,
    effect_mean: Any = 0.0,
    effect_cov: Any = 1.0,
    action_cov: Any = 1.0,
    noise: Any = 1.0,
) -> Hierarchy:
    """Finer linear effects (Appendix E.2): `maps` holds the matrices `C_il`, (K, L, d, d).

    Example:
        >>> maps = np.random.default_rng(0).normal(size=(4, 3, 2, 2))
        >>> finer(maps).actions, finer(maps).dim
        (Level('action', 4, parents=['effect']), 2)
    """
    shape = weights_shape(maps)
    if len(shape) != 4 or shape[2] != shape[3]:
        raise ValueError(
            f"finer: maps have shape {shape}; expected (K, L, d, d), a matrix for each action and effect"
        )
    return _two_levels(maps, shape[2], Gaussian(noise), effect_mean, effect_cov, action_cov)


def nonlinear(
    weights: Any,
    dim: int,
    *,
    link: Callable[[Array], Array] = jax.nn.sigmoid,
    effect_mean: Any = 0.0,
    effect_cov: Any = 1.0,
    action_cov: Any = 1.0,
    noise: Any = 1.0,
) -> Hierarchy:
    """Non-linear effects, Eq. 51: `link` is the paper's `g`.

    Example:
        >>> nonlinear([[1.0, 0.0], [0.5, 0.5]], dim=2, link=jax.numpy.tanh).why_not_exact
        "level 'action' has a link: no closed form; use Laplace, Nuts or Svi"
    """
    return _two_levels(weights, dim, Gaussian(noise), effect_mean, effect_cov, action_cov, link)


def three_level(
    item_weights: Any,
    action_weights: Any,
    dim: int,
    *,
    effect_mean: Any = 0.0,
    effect_cov: Any = 1.0,
    item_cov: Any = 1.0,
    action_cov: Any = 1.0,
    noise: Any = 1.0,
) -> Hierarchy:
    """Effects, items, actions, Eq. 53: weights are (J, L) and (K, J).

    Example:
        >>> three_level(np.ones((3, 2)), np.ones((4, 3)), dim=2).levels[1]
        Level('item', 3, parents=['effect'])
    """
    (num_items, num_effects), (num_actions, _) = _sizes(item_weights), _sizes(action_weights)
    levels = [
        Level("effect", num_effects, mean=effect_mean, cov=effect_cov),
        Level("item", num_items, parents={"effect": item_weights}, cov=item_cov),
        Level("action", num_actions, parents={"item": action_weights}, cov=action_cov),
    ]
    return Hierarchy(levels, Gaussian(noise), dim)


def _two_levels(
    weights: Any,
    dim: int,
    reward: Reward,
    effect_mean: Any,
    effect_cov: Any,
    action_cov: Any,
    link: Callable[[Array], Array] | None = None,
) -> Hierarchy:
    num_actions, num_effects = _sizes(weights)
    effect = Level("effect", num_effects, mean=effect_mean, cov=effect_cov)
    parents = {"effect": weights}
    action = Level("action", num_actions, parents=parents, cov=action_cov, link=link)
    return Hierarchy([effect, action], reward, dim)


def _sizes(weights: Any) -> tuple[int, int]:
    """The sizes of a level and of its parent, from the shape of its weights."""
    shape = weights_shape(weights)
    if len(shape) not in (2, 4):
        raise ValueError(
            f"weights have shape {shape}; expected (K, L): a row for each action and a column "
            "for each effect"
        )
    return shape[0], shape[1]
