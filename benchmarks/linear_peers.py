"""Linear Thompson sampling by others: two packages, and NumPy as a good engineer would write it.

And a tree as regression on the sums of its increments, which is the same law.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["NumpySampler", "bayesianbandits_sampler", "bayesianbandits_tree", "mabwiser_sampler"]


class NumpySampler:
    """All K posteriors in one einsum, and a rank-one step of the one that changes."""

    def __init__(self, num_actions: int, dim: int, noise: float = 1.0):
        self.mean = np.zeros((num_actions, dim), np.float32)
        self.root = np.tile(np.eye(dim, dtype=np.float32), (num_actions, 1, 1))
        self.variance = np.float32(noise**2)
        self.rng = np.random.default_rng(0)

    def act(self, context: np.ndarray) -> int:
        noise = self.rng.standard_normal(self.mean.shape, dtype=np.float32)
        theta = self.mean + np.einsum("kde,ke->kd", self.root, noise)
        return int(np.argmax(theta @ context))

    def update(self, context: np.ndarray, action: int, reward: float) -> None:
        """Potter's square-root update, as in mixts: no inversion, no factorisation."""
        root = self.root[action]
        w = context @ root
        covariance = root @ w
        total = self.variance + w @ w
        self.root[action] -= np.outer(covariance, w / (total + np.sqrt(self.variance * total)))
        self.mean[action] += covariance * ((reward - self.mean[action] @ context) / total)


class _Bayesianbandits:
    def __init__(self, num_actions: int, dim: int):
        from bayesianbandits import Arm, ContextualAgent, NormalRegressor, ThompsonSampling

        arms = [Arm(i, learner=NormalRegressor(1.0, 1.0)) for i in range(num_actions)]
        self.agent: Any = ContextualAgent(arms, ThompsonSampling(), random_seed=0)

    def act(self, context: np.ndarray) -> int:
        return self.agent.pull(context[None])[0]

    def update(self, context: np.ndarray, action: int, reward: float) -> None:
        self.agent.select_for_update(action).update(context[None], np.array([reward]))


class _Mabwiser:
    def __init__(self, num_actions: int, dim: int):
        from mabwiser.mab import MAB, LearningPolicy

        arms = list(range(num_actions))
        self.agent: Any = MAB(arms, LearningPolicy.LinTS(alpha=1.0), seed=0)
        # It has to be fitted before it can predict; each arm once.
        contexts = np.random.default_rng(0).normal(size=(num_actions, dim))
        self.agent.fit(arms, np.zeros(num_actions), contexts)

    def act(self, context: np.ndarray) -> int:
        return self.agent.predict(context[None])

    def update(self, context: np.ndarray, action: int, reward: float) -> None:
        self.agent.partial_fit([action], [reward], context[None])


class _SparseTree:
    """Every node's difference from its parent is N(0, I): a product is the sum along its path."""

    def __init__(self, parents: Sequence[np.ndarray], num_roots: int, dim: int):
        from bayesianbandits import NormalRegressor

        sizes = [num_roots, *map(len, parents)]
        first = np.cumsum([0, *sizes])  # where the nodes of each level begin
        node = np.arange(sizes[-1])
        path = [first[-2] + node]
        for above, start in zip(parents[::-1], first[-3::-1], strict=True):
            node = above[node]
            path.append(start + node)
        self.path, self.dim, self.num_nodes = np.stack(path, axis=1), dim, first[-1]
        self.model: Any = NormalRegressor(1.0, 1.0, sparse=True, random_state=0)

    def rows(self, contexts: np.ndarray, actions: np.ndarray) -> Any:
        """One row of the design for each action in its context, (n, dim)."""
        from scipy.sparse import csc_array, csr_array

        path = self.path[actions]
        n, depth = path.shape
        columns = path[:, :, None] * self.dim + np.arange(self.dim)
        values = np.broadcast_to(contexts[:, None].astype(float), columns.shape)
        starts = np.arange(n + 1) * depth * self.dim
        shape = n, self.num_nodes * self.dim
        return csc_array(csr_array((values.ravel(), columns.ravel(), starts), shape=shape))

    def update(self, rows: Any, rewards: np.ndarray) -> None:
        self.model.partial_fit(rows, rewards)

    def scores(self, rows: Any) -> np.ndarray:
        """One joint draw, and the score of each row."""
        return self.model.sample(rows)[0]


def bayesianbandits_sampler(num_actions: int, dim: int) -> Any:
    """bayesianbandits' `ContextualAgent`; None where the package is not installed."""
    return _made(_Bayesianbandits, num_actions, dim)


def mabwiser_sampler(num_actions: int, dim: int) -> Any:
    """mabwiser's `LinTS`; None where the package is not installed."""
    return _made(_Mabwiser, num_actions, dim)


def bayesianbandits_tree(parents: Sequence[np.ndarray], num_roots: int, dim: int) -> Any:
    """bayesianbandits' sparse `NormalRegressor` on a tree; None where the package is not installed."""
    return _made(_SparseTree, parents, num_roots, dim)


def _made(kind: type, *args: Any) -> Any:
    try:
        return kind(*args)
    except ModuleNotFoundError:
        return None
