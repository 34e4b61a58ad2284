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
from .weights import sizes, weights_shape

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
    """The mixed-effect linear bandit, Eq. 2; `weights` is (K, L)."""
    effect = _effects(weights, effect_mean, effect_cov)
    return Hierarchy([effect, _actions(weights, effect, action_cov)], Gaussian(noise), dim)


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
    """
    if np.ndim(effect_mean) == 1:
        effect_mean = as_numbers(effect_mean, "mab effect_mean")[:, None]
    if np.ndim(action_cov) == 1:
        action_cov = as_numbers(action_cov, "mab action_cov")[:, None, None]
    return linear(
        weights,
        1,
        effect_mean=effect_mean,
        effect_cov=effect_cov,
        action_cov=action_cov,
        noise=noise,
    )


def glm(
    weights: Any,
    dim: int,
    *,
    reward: Reward = Bernoulli(),
    effect_mean: Any = 0.0,
    effect_cov: Any = 1.0,
    action_cov: Any = 1.0,
) -> Hierarchy:
    """The mixed-effect generalised linear bandit, Eq. 3."""
    effect = _effects(weights, effect_mean, effect_cov)
    levels = [effect, _actions(weights, effect, action_cov)]
    return Hierarchy(levels, reward, dim)


def finer(
    maps: Any,
    *,
    effect_mean: Any = 0.0,
    effect_cov: Any = 1.0,
    action_cov: Any = 1.0,
    noise: Any = 1.0,
) -> Hierarchy:
    """Finer linear effects (Appendix E.2): `maps` holds the matrices `C_il`, (K, L, d, d)."""
    shape = weights_shape(maps)
    if len(shape) != 4 or shape[2] != shape[3]:
        raise ValueError(
            f"finer: maps have shape {shape}; expected (K, L, d, d), a matrix for each action and effect"
        )
    return linear(
        maps,
        shape[2],
        effect_mean=effect_mean,
        effect_cov=effect_cov,
        action_cov=action_cov,
        noise=noise,
    )


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
    """Non-linear effects, Eq. 51: `link` is the paper's `g`."""
    effect = _effects(weights, effect_mean, effect_cov)
    actions = _actions(weights, effect, action_cov, link=link)
    return Hierarchy([effect, actions], Gaussian(noise), dim)


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
    """Effects, items, actions, Eq. 53: weights are (J, L) and (K, J)."""
    effect = _effects(item_weights, effect_mean, effect_cov)
    item = Level("item", sizes(item_weights)[0], parents={"effect": item_weights}, cov=item_cov)
    return Hierarchy(
        [effect, item, _actions(action_weights, item, action_cov)], Gaussian(noise), dim
    )


def _effects(weights: Any, mean: Any, cov: Any) -> Level:
    return Level("effect", sizes(weights)[1], mean=mean, cov=cov)


def _actions(
    weights: Any, parent: Level, cov: Any, link: Callable[[Array], Array] | None = None
) -> Level:
    return Level("action", sizes(weights)[0], parents={parent.name: weights}, cov=cov, link=link)
