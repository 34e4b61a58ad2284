"""`SlateProblem` and `DrugProblem`: many actions put together from a small catalogue."""

from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
from jax import Array

from ...models import Bernoulli, Gaussian, Hierarchy, Level, Reward, Sparse
from ...models.arrays import as_count, as_integers, as_numbers
from .contexts import as_contexts
from .environment import Instance, Problem, check_rewards_known, draw_instance

__all__ = ["DrugProblem", "SlateProblem"]


@dataclass(frozen=True, eq=False)
class SlateProblem(Problem):
    """Ad placement: an action is a slate of items, seen more or less according to their positions.

    The vector of a slate is that of its items, weighed by how much their positions are looked at, plus
    what is its own; a slate brings a click or none.

    Args:
        num_items: how many items the catalogue holds: the effects.
        num_slates: how many slates there are: the actions.
        positions: items on a slate.
        dim: length of a context: what is known of the visitor.
        slates: (num_slates, positions) the items of each slate; None draws them, all different on a slate.
        position_bias: (positions,) how much each position is looked at; None is `1 / log2(1 + p)` for
            position `p = 1, 2, ...`.
        reward: the family of rewards, clicks if not said otherwise.
        item_mean: prior mean of an item.
        item_cov: prior covariance of an item.
        slate_cov: what is a slate's own.
        contexts: None, a table, a function of a key, or a law of `mixts.bandit.problems.contexts`.
        seed: of the slates that are drawn.
    """

    num_items: int = 30
    num_slates: int = 200
    positions: int = 3
    dim: int = 3
    _: KW_ONLY
    slates: Any = None
    position_bias: Any = None
    reward: Reward = field(default_factory=Bernoulli)
    item_mean: Any = 0.0
    item_cov: Any = 1.0
    slate_cov: Any = 0.1
    contexts: Any = None
    seed: int = 0

    def __post_init__(self):
        for name in ("num_items", "num_slates", "positions", "dim"):
            object.__setattr__(self, name, as_count(getattr(self, name), f"SlateProblem {name}"))
        if self.positions > self.num_items:
            raise ValueError(
                f"SlateProblem has {self.positions} positions and {self.num_items} items; expected at "
                "least as many items as positions"
            )
        object.__setattr__(self, "slates", _as_slates(self))
        object.__setattr__(self, "position_bias", _as_bias(self))
        contexts = as_contexts(self.contexts, self.dim, self.num_slates, "SlateProblem")
        object.__setattr__(self, "contexts", contexts)
        check_rewards_known(self.reward, "SlateProblem")
        _ = self.hierarchy  # what is wrong with it shows now, not inside jit

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
    slates = np.asarray(as_integers(problem.slates, "SlateProblem slates", below=problem.num_items))
    if slates.shape != shape:
        raise ValueError(f"SlateProblem slates have shape {slates.shape}; expected {shape}")
    return slates


def _as_bias(problem: SlateProblem) -> np.ndarray:
    if problem.position_bias is None:
        return 1.0 / np.log2(2.0 + np.arange(problem.positions))
    bias = np.asarray(as_numbers(problem.position_bias, "SlateProblem position_bias"))
    if bias.shape != (problem.positions,):
        raise ValueError(
            f"SlateProblem position_bias has shape {bias.shape}; expected ({problem.positions},), a "
            "number for each position"
        )
    return bias


@dataclass(frozen=True, eq=False)
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
        drug_cov: of what is a drug's own.
        noise: standard deviation of a response.
        contexts: None, a table, a function of a key, or a law of `mixts.bandit.problems.contexts`.
        seed: of the dosages that are drawn.
    """

    num_drugs: int = 100
    num_components: int = 5
    dim: int = 4
    _: KW_ONLY
    dosages: Any = None
    density: float = 0.4
    component_cov: Any = 1.0
    drug_cov: Any = 0.1
    noise: float = 1.0
    contexts: Any = None
    seed: int = 0

    def __post_init__(self):
        for name in ("num_drugs", "num_components", "dim"):
            object.__setattr__(self, name, as_count(getattr(self, name), f"DrugProblem {name}"))
        if not 0.0 < self.density <= 1.0:
            raise ValueError(
                f"DrugProblem density is {self.density}; expected above 0 and at most 1"
            )
        object.__setattr__(self, "dosages", _as_dosages(self))
        contexts = as_contexts(self.contexts, self.dim, self.num_drugs, "DrugProblem")
        object.__setattr__(self, "contexts", contexts)
        _ = self.hierarchy  # what is wrong with it shows now, not inside jit

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
        taken = rng.random(shape) < problem.density
        taken[np.arange(shape[0]), rng.integers(0, shape[1], shape[0])] = True
        return np.where(taken, 1.0 - rng.random(shape), 0.0)
    dosages = np.asarray(as_numbers(problem.dosages, "DrugProblem dosages"))
    if dosages.shape != shape:
        raise ValueError(f"DrugProblem dosages have shape {dosages.shape}; expected {shape}")
    if (dosages < 0).any():
        raise ValueError(f"DrugProblem dosages hold {dosages.min():g}; expected numbers from 0 on")
    return dosages
