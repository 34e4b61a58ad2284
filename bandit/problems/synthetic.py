"""`SyntheticProblem`: the paper's synthetic experiments and their variants."""

from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Any

import equinox as eqx
import jax
from jax import Array

from ...models import Gaussian, Hierarchy, Level, Reward
from ...models.arrays import as_numbers
from .contexts import as_contexts
from .environment import Instance, Problem, check_counts, check_rewards_known, draw_instance

__all__ = ["SyntheticProblem"]


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
        effect_drift: the covariance of the step that each effect takes from round to round, as a `Level`
            takes it; None where effects stay.
        action_drift: the same of what each action differs by from the weighted sum of its effects.
        contexts: None, a table, a function of a key, or a law of `mixts.bandit.problems.contexts`.
        misspecified: give the agent wrong hyper-parameters (Appendix F.3):
            `Sigma_Psi`, `mu_Psi`, `Sigma_{0,i}` and the weights of the actions, each times a number
            from (0.001, 2) drawn in each run. A policy wrapped in `told_truth` knows the right ones.

    Example:
        >>> from mixts.bandit import SyntheticProblem
        >>> from mixts.models import Bernoulli
        >>> clicks = SyntheticProblem(num_actions=50, num_effects=5, dim=3, reward=Bernoulli())
        >>> clicks.sample(jax.random.key(0)).hierarchy.actions.size
        50
    """

    num_actions: int = eqx.field(default=100, static=True)
    num_effects: int = eqx.field(default=3, static=True)
    dim: int = eqx.field(default=2, static=True)
    _: KW_ONLY
    reward: Reward = eqx.field(default_factory=lambda: Gaussian(1.0))
    effect_mean: Any = 0.0
    effect_cov: Any = 3.0
    action_cov: Any = 1.0
    weights: Any = None
    matrix_weights: bool = eqx.field(default=False, static=True)
    link: Callable[[Array], Array] | None = eqx.field(default=None, static=True)
    num_items: int | None = eqx.field(default=None, static=True)
    item_cov: Any = 1.0
    effect_drift: Any = None
    action_drift: Any = None
    contexts: Any = None
    misspecified: bool = eqx.field(default=False, static=True)

    def __post_init__(self):
        items = () if self.num_items is None else ("num_items",)
        check_counts(self, "num_actions", "num_effects", "dim", *items)
        if self.weights is not None:
            self.weights = as_numbers(self.weights, "SyntheticProblem weights")
            if self.matrix_weights:
                raise ValueError(
                    "SyntheticProblem: matrix_weights=True draws weights, and weights are given too; "
                    "expected one of the two: given weights may be matrices, (K, L, d, d)"
                )
        K, d = self.num_actions, self.dim
        self.contexts = as_contexts(self.contexts, d, K, "SyntheticProblem")
        check_rewards_known(self.reward, "SyntheticProblem")
        self._hierarchy(jax.random.key(0))  # errors are raised now, not inside jit

    def sample(self, key: Array) -> Instance:
        """Weights, effects and actions."""
        key_weights, key_levels, key_wrong = jax.random.split(key, 3)
        hierarchy = self._hierarchy(key_weights)
        known = _misspecified(key_wrong, hierarchy) if self.misspecified else None
        return draw_instance(key_levels, hierarchy, self.contexts, known)

    def _hierarchy(self, key: Array) -> Hierarchy:
        key_items, key_actions = jax.random.split(key)
        effects = {"mean": self.effect_mean, "cov": self.effect_cov, "drift": self.effect_drift}
        levels = [Level("effect", self.num_effects, **effects)]
        if self.num_items is not None:
            mixing = _uniform(key_items, self.num_items, self.num_effects)
            levels += [Level("item", self.num_items, parents={"effect": mixing}, cov=self.item_cov)]
        parent = levels[-1]
        weights = self.weights
        if weights is None:
            matrix = (self.dim, self.dim) if self.matrix_weights else ()
            weights = _uniform(key_actions, self.num_actions, parent.size, *matrix)
        parents = {parent.name: weights}
        own = {"cov": self.action_cov, "link": self.link, "drift": self.action_drift}
        levels += [Level("action", self.num_actions, parents=parents, **own)]
        return Hierarchy(levels, self.reward, self.dim)


def _uniform(key: Array, *shape: int) -> Array:
    return jax.random.uniform(key, shape, minval=-1.0, maxval=1.0)


def _misspecified(key: Array, hierarchy: Hierarchy) -> Hierarchy:
    """The hierarchy with each hyper-parameter times a number of its own from (0.001, 2)."""
    factors = jax.random.uniform(key, (4,), minval=1e-3, maxval=2.0)
    effect, *between, action = hierarchy.levels
    weights = jax.tree.map(lambda weights: factors[3] * weights, action.parents)
    effect = effect.remade(mean=factors[1] * effect.mean, cov=factors[0] * effect.cov)
    action = action.remade(parents=weights, cov=factors[2] * action.cov)
    return Hierarchy([effect, *between, action], hierarchy.reward, hierarchy.dim)
