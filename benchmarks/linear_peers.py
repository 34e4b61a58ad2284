"""Linear Thompson sampling by others: two packages, and NumPy as a good engineer would write it."""

from typing import Any

import numpy as np

__all__ = ["NumpySampler", "bayesianbandits_sampler", "mabwiser_sampler"]


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


def bayesianbandits_sampler(num_actions: int, dim: int) -> Any:
    """bayesianbandits' `ContextualAgent`; None where the package is not installed."""
    return _made(_Bayesianbandits, num_actions, dim)


def mabwiser_sampler(num_actions: int, dim: int) -> Any:
    """mabwiser's `LinTS`; None where the package is not installed."""
    return _made(_Mabwiser, num_actions, dim)


def _made(kind: type, num_actions: int, dim: int) -> Any:
    try:
        return kind(num_actions, dim)
    except ModuleNotFoundError:
        return None
