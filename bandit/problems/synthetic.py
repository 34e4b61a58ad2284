"""`SyntheticProblem`: the paper's synthetic experiments, with every knob."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ...models import Gaussian, Hierarchy, Level, Reward
from ...models.arrays import as_count, as_numbers
from .contexts import as_contexts
from .environment import Instance, Problem, check_rewards_known, draw_instance

__all__ = ["SyntheticProblem"]


@dataclass(frozen=True, eq=False)
class SyntheticProblem(Problem):
    """Effects, weights and actions drawn anew in each run (Section 5.1).

    The defaults are the paper's: `mu_Psi = 0`, `Sigma_Psi = 3 I`, `Sigma_{0,i} = I`, noise 1, weights
    uniform on [-1, 1], contexts uniform on `[-1, 1]^d`.

    Args:
        num_actions: `K`.
        num_effects: `L`.
        dim: `d`.
        reward: `Gaussian(noise)`, `Bernoulli()`, `Poisson()` or another family.
        effect_mean: `mu_Psi`; a number, (d,) or (L, d).
        effect_cov: `Sigma_Psi`, as a `Level` takes it.
        action_cov: `Sigma_{0,i}`, as a `Level` takes it.
        weights: (K, L), or (K, J) where there are items; None draws them in each run.
        matrix_weights: draw matrices for the weights of the actions (Appendix E.2), (K, L, d, d),
            with entries uniform on [-1, 1].
        link: elementwise function of the weighted sum (Appendix E.3).
        num_items: `J`, the size of a level between effects and actions (Appendix E.4); None for
            two levels. Weights of items on effects are drawn in each run.
        item_cov: the covariance of an item given the effects.
        contexts: None, a table, a function of a key, or a law of `mixts.bandit.problems.contexts`.
        misspecified: tell the agent wrong hyper-parameters (Appendix F.3):
            `Sigma_Psi`, `mu_Psi`, `Sigma_{0,i}` and the weights of the actions, each times a number
            from (0, 2) drawn in each run, from 0.001 on: no covariance is zero. A policy wrapped in
            `told_truth` is told the right ones.
    """

    num_actions: int = 100
    num_effects: int = 3
    dim: int = 2
    _: KW_ONLY
    reward: Reward = field(default_factory=lambda: Gaussian(1.0))
    effect_mean: Any = 0.0
    effect_cov: Any = 3.0
    action_cov: Any = 1.0
    weights: Any = None
    matrix_weights: bool = False
    link: Callable[[Array], Array] | None = None
    num_items: int | None = None
    item_cov: Any = 1.0
    contexts: Any = None
    misspecified: bool = False

    def __post_init__(self):
        for name in ("num_actions", "num_effects", "dim"):
            object.__setattr__(
                self, name, as_count(getattr(self, name), f"SyntheticProblem {name}")
            )
        if self.num_items is not None:
            as_count(self.num_items, "SyntheticProblem num_items")
        if self.weights is not None:
            weights = as_numbers(self.weights, "SyntheticProblem weights")
            object.__setattr__(self, "weights", weights)
            if self.matrix_weights:
                raise ValueError(
                    "SyntheticProblem: matrix_weights=True draws weights, and weights are given too; "
                    "expected one of the two: given weights may be matrices, (K, L, d, d)"
                )
        contexts = as_contexts(self.contexts, self.dim, self.num_actions, "SyntheticProblem")
        object.__setattr__(self, "contexts", contexts)
        check_rewards_known(self.reward, "SyntheticProblem")
        self._hierarchy(jax.random.key(0))  # what is wrong with it shows now, not inside jit

    def sample(self, key: Array) -> Instance:
        """Weights, effects and actions."""
        key_weights, key_levels, key_wrong = jax.random.split(key, 3)
        hierarchy = self._hierarchy(key_weights)
        told = _misspecified(key_wrong, hierarchy) if self.misspecified else None
        return draw_instance(key_levels, hierarchy, self.contexts, told)

    def _hierarchy(self, key: Array) -> Hierarchy:
        key_items, key_actions = jax.random.split(key)
        levels = [Level("effect", self.num_effects, mean=self.effect_mean, cov=self.effect_cov)]
        if self.num_items is not None:
            mixing = _uniform(key_items, self.num_items, self.num_effects)
            levels += [Level("item", self.num_items, parents={"effect": mixing}, cov=self.item_cov)]
        parent = levels[-1]
        weights = self.weights
        if weights is None:
            matrix = (self.dim, self.dim) if self.matrix_weights else ()
            weights = _uniform(key_actions, self.num_actions, parent.size, *matrix)
        parents = {parent.name: weights}
        K, cov, link = self.num_actions, self.action_cov, self.link
        levels += [Level("action", K, parents=parents, cov=cov, link=link)]
        return Hierarchy(levels, self.reward, self.dim)


def _uniform(key: Array, *shape: int) -> Array:
    return jax.random.uniform(key, shape, minval=-1.0, maxval=1.0)


def _misspecified(key: Array, hierarchy: Hierarchy) -> Hierarchy:
    """The hierarchy with each hyper-parameter times a number of its own from (0.001, 2)."""
    factors = jax.random.uniform(key, (4,), minval=1e-3, maxval=2.0)
    effect, *between, action = hierarchy.levels
    wrong = [
        Level(effect.name, effect.size, mean=factors[1] * effect.mean, cov=factors[0] * effect.cov),
        *between,
        Level(
            action.name,
            action.size,
            parents=jax.tree.map(lambda weights: factors[3] * weights, action.parents),
            cov=factors[2] * jnp.asarray(action.cov),
            link=action.link,
        ),
    ]
    return Hierarchy(wrong, hierarchy.reward, hierarchy.dim)
