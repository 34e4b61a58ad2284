"""The observations an agent has learned from: what another policy can learn from again."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .ring import FIRST_ROOM, Ring

__all__ = ["ObservationLog"]


@dataclass
class ObservationLog(Ring):
    """The newest observations, in the order in which they were learned.

    Attributes:
        keep: how many observations to keep.
        contexts: (room, d) the context of the action.
        actions: (room,) its position.
        rewards: (room,).
        times: (K,) how often each action was observed, kept or not.
        made: how many observations there have been so far.
        from_prior: whether they are all that was learned: the agent did not start from a posterior.
    """

    keep: int
    contexts: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    times: np.ndarray
    made: int = 0
    from_prior: bool = True
    names = ("contexts", "actions", "rewards")

    @staticmethod
    def empty(keep: int, dim: int, K: int, dtype: Any) -> "ObservationLog":
        """A log without observations of K actions, with room for the first."""
        room = min(keep, FIRST_ROOM)
        actions, rewards = np.zeros(room, np.int32), np.zeros(room, dtype)
        return ObservationLog(
            keep, np.zeros((room, dim), dtype), actions, rewards, np.zeros(K, np.int64)
        )

    def append(self, contexts: np.ndarray, actions: Any, rewards: Any) -> None:
        """Add one observation (d,), or many (n, d), (n,), (n,)."""
        if contexts.ndim == 1:
            n = 1
            self.times[actions] += 1
        else:
            n = len(rewards)
            self.times += np.bincount(actions, minlength=len(self.times))
        if n > self.keep:
            self.made += n - self.keep
            contexts, actions, rewards = (
                part[-self.keep :] for part in (contexts, actions, rewards)
            )
            n = self.keep
        rows = self.places(n)
        self.contexts[rows], self.actions[rows], self.rewards[rows] = contexts, actions, rewards
        self.made += n

    def make_room_for_actions(self, K: int) -> None:
        """Count K actions, of which the last have not been observed yet."""
        self.times = np.pad(self.times, (0, K - len(self.times)))

    def newest(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The observations that are kept, the oldest first."""
        rows = self.kept() % self.room
        return self.contexts[rows], self.actions[rows], self.rewards[rows]

    def copy(self) -> "ObservationLog":
        """The same observations in new arrays."""
        copied = super().copy()
        copied.times = self.times.copy()
        return copied
