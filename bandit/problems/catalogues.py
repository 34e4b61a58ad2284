"""`SlateProblem` and `DrugProblem`: many actions combined from a small catalogue."""

from dataclasses import KW_ONLY
from typing import Any

import equinox as eqx
import numpy as np
from jax import Array

from ...models import Bernoulli, Gaussian, Hierarchy, Level, Reward, Sparse
from ...models.arrays import as_integers, as_numbers
from .contexts import as_contexts
from .environment import Instance, Problem, check_counts, check_rewards_known, draw_instance

__all__ = ["DrugProblem", "SlateProblem"]


class SlateProblem(Problem):
    """Ad placement: an action is a slate of items, which count more or less according to their positions.

    The vector of a slate is the sum of its items' vectors, weighted by the attention to their positions,
    plus a deviation of its own; a reward is a click.

    Args:
        num_items: items of the catalogue, the effects.
        num_slates: slates, the actions.
        positions: items on a slate.
        dim: length of a context: what is known of the visitor.
        slates: (num_slates, positions) the items of each slate; None draws them, all different on a slate.
        position_bias: (positions,) the weight of each position; None is `1 / log2(1 + p)` for position
            `p = 1, 2, ...`.
        reward: the family of rewards, by default clicks.
        item_mean: prior mean of an item.
        item_cov: prior covariance of an item.
        slate_cov: covariance of a slate's own deviation.
        contexts: None, a table, a function of a key, or a law of `mixts.bandit.problems.contexts`.
        seed: of the slates that are drawn.

    Example:
        >>> from mixts.bandit import SlateProblem
        >>> problem = SlateProblem(num_items=5, num_slates=8, positions=2)
        >>> problem.slates.shape, problem.hierarchy.num_actions
        ((8, 2), 8)
    """

    num_items: int = eqx.field(default=30, static=True)
    num_slates: int = eqx.field(default=200, static=True)
    positions: int = eqx.field(default=3, static=True)
    dim: int = eqx.field(default=3, static=True)
    _: KW_ONLY
    slates: Any = None
    position_bias: Any = None
    reward: Reward = eqx.field(default_factory=Bernoulli)
    item_mean: Any = 0.0
    item_cov: Any = 1.0
    slate_cov: Any = 0.1
    contexts: Any = None
    seed: int = eqx.field(default=0, static=True)

    def __post_init__(self):
        check_counts(self, "num_items", "num_slates", "positions", "dim")
        if self.positions > self.num_items:
            raise ValueError(
                f"SlateProblem has {self.positions} positions and {self.num_items} items; expected at "
                "least as many items as positions"
            )
        self.slates = _as_slates(self)
        self.position_bias = _as_bias(self)
        self.contexts = as_contexts(self.contexts, self.dim, self.num_slates, "SlateProblem")
        check_rewards_known(self.reward, "SlateProblem")
        _ = self.hierarchy  # errors are raised now, not inside jit

    @property
    def hierarchy(self) -> Hierarchy:
        """Items and slates."""
        bias = np.broadcast_to(np.asarray(self.position_bias), self.slates.shape)
        weights = Sparse(self.slates, bias, num_parents=self.num_items)
        item = Level("item", self.num_items, mean=self.item_mean, cov=self.item_cov)
        slate = Level("slate", self.num_slates, parents={"item": weights}, cov=self.slate_cov)
        return Hierarchy([item, slate], self.reward, self.dim)

    def sample(self, key: Array) -> Instance:
        """Items and slates from their prior."""
        return draw_instance(key, self.hierarchy, self.contexts)


def _as_slates(problem: SlateProblem) -> np.ndarray:
    shape = problem.num_slates, problem.positions
    if problem.slates is None:
        rng = np.random.default_rng(problem.seed)
        rows = [rng.choice(problem.num_items, shape[1], replace=False) for _ in range(shape[0])]
        return np.asarray(rows, np.int32)
    slates = as_integers(problem.slates, "SlateProblem slates", below=problem.num_items)
    return _shaped(slates, "SlateProblem slates have", shape)


def _as_bias(problem: SlateProblem) -> np.ndarray:
    if problem.position_bias is None:
        return 1.0 / np.log2(2.0 + np.arange(problem.positions))
    bias = as_numbers(problem.position_bias, "SlateProblem position_bias")
    shape = (problem.positions,)
    return _shaped(bias, "SlateProblem position_bias has", shape, ", a number for each position")


def _shaped(given: Any, what: str, shape: tuple[int, ...], meaning: str = "") -> np.ndarray:
    array = np.asarray(given)
    if array.shape != shape:
        raise ValueError(f"{what} shape {array.shape}; expected {shape}{meaning}")
    return array


class DrugProblem(Problem):
    """A trial: an action is a drug made of components in known dosages, a reward a patient's response.

    Args:
        num_drugs: the actions.
        num_components: the effects.
        dim: length of a context: what is known of the patient.
        dosages: (num_drugs, num_components) from 0 on; None draws them: each component is in a drug with
            probability `density`, in a dosage uniform on (0, 1], and every drug has one at least.
        density: see `dosages`.
        component_cov: prior covariance of a component's effect.
        drug_cov: covariance of a drug's own deviation.
        noise: standard deviation of a response.
        contexts: None, a table, a function of a key, or a law of `mixts.bandit.problems.contexts`.
        seed: of the dosages that are drawn.

    Example:
        >>> from mixts.bandit import DrugProblem
        >>> problem = DrugProblem(num_drugs=6, num_components=3, dim=2)
        >>> problem.dosages.shape, bool((problem.dosages.max(1) > 0).all())
        ((6, 3), True)
    """

    num_drugs: int = eqx.field(default=100, static=True)
    num_components: int = eqx.field(default=5, static=True)
    dim: int = eqx.field(default=4, static=True)
    _: KW_ONLY
    dosages: Any = None
    density: float = 0.4
    component_cov: Any = 1.0
    drug_cov: Any = 0.1
    noise: float = 1.0
    contexts: Any = None
    seed: int = eqx.field(default=0, static=True)

    def __post_init__(self):
        check_counts(self, "num_drugs", "num_components", "dim")
        if not 0.0 < self.density <= 1.0:
            raise ValueError(
                f"DrugProblem density is {self.density}; expected above 0 and at most 1"
            )
        self.dosages = _as_dosages(self)
        self.contexts = as_contexts(self.contexts, self.dim, self.num_drugs, "DrugProblem")
        _ = self.hierarchy  # errors are raised now, not inside jit

    @property
    def hierarchy(self) -> Hierarchy:
        """Components and drugs."""
        component = Level("component", self.num_components, cov=self.component_cov)
        parents = {"component": self.dosages}
        drug = Level("drug", self.num_drugs, parents=parents, cov=self.drug_cov)
        return Hierarchy([component, drug], Gaussian(self.noise), self.dim)

    def sample(self, key: Array) -> Instance:
        """Components and drugs from their prior."""
        return draw_instance(key, self.hierarchy, self.contexts)


def _as_dosages(problem: DrugProblem) -> np.ndarray:
    shape = problem.num_drugs, problem.num_components
    if problem.dosages is None:
        rng = np.random.default_rng(problem.seed)
        present = rng.random(shape) < problem.density
        present[np.arange(shape[0]), rng.integers(0, shape[1], shape[0])] = True
        return np.where(present, 1.0 - rng.random(shape), 0.0)
    dosages = as_numbers(problem.dosages, "DrugProblem dosages")
    dosages = _shaped(dosages, "DrugProblem dosages have", shape)
    if (dosages < 0).any():
        raise ValueError(f"DrugProblem dosages hold {dosages.min():g}; expected numbers from 0 on")
    return dosages
