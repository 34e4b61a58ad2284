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
        exposure: (room,) how many rewards each stands for.
        moments: (room,) up to what time, by the agent's clock, evidence had been discounted when each was
            learned; zero where evidence has no half-life.
        times: (K,) how often each action was observed, kept or not. A list: adding one to an entry of an
            array takes several times as long.
        made: how many observations there have been so far.
        from_prior: whether they are all that was learned: the agent did not start from a posterior.
        moment: what `moments` of the next one will be.
    """

    keep: int
    contexts: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    exposure: np.ndarray
    moments: np.ndarray
    times: list[int]
    made: int = 0
    from_prior: bool = True
    moment: float = 0.0
    names = ("contexts", "actions", "rewards", "exposure", "moments")
    blank = {"exposure": 1}  # noqa: RUF012 (never changed)

    @staticmethod
    def empty(keep: int, dim: int, K: int, dtype: Any) -> "ObservationLog":
        """A log without observations of K actions, with room for the first."""
        room = min(keep, FIRST_ROOM)
        columns = np.zeros(room, np.int32), np.zeros(room, dtype), np.ones(room, dtype)
        contexts, moments = np.zeros((room, dim), dtype), np.zeros(room)
        return ObservationLog(keep, contexts, *columns, moments, [0] * K)

    def append(
        self, contexts: np.ndarray, actions: np.ndarray, rewards: np.ndarray, exposure: np.ndarray
    ) -> None:
        """Add observations (n, d), (n,), (n,), (n,)."""
        for action, times in zip(*np.unique(actions, return_counts=True), strict=True):
            self.times[action] += int(times)
        n, kept = len(rewards), min(len(rewards), self.keep)
        self.made += n - kept
        rows, columns = self.places(kept), (contexts, actions, rewards, exposure)
        self._write(rows, *(column[n - kept :] for column in columns))
        self.made += kept

    def append_one(self, context: np.ndarray, action: int, reward: float, exposure: float) -> None:
        """Add one observation (d,), quickly."""
        number, room = self.made, len(self.rewards)
        row = number if number < room else number % self.make_room(1)
        self._write(row, context, action, reward, exposure)
        self.times[action] += 1
        self.made = number + 1

    def _write(self, rows: Any, context: Any, action: Any, reward: Any, exposure: Any) -> None:
        self.contexts[rows], self.actions[rows], self.rewards[rows] = context, action, reward
        self.exposure[rows], self.moments[rows] = exposure, self.moment

    def make_room_for_actions(self, K: int) -> None:
        """Count K actions, of which the last have not been observed yet."""
        self.times += [0] * (K - len(self.times))

    def newest(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The observations that are kept, the oldest first, with their exposure."""
        rows = self.kept() % self.room
        return self.contexts[rows], self.actions[rows], self.rewards[rows], self.exposure[rows]

    def newest_moments(self) -> np.ndarray:
        """`moments` of the observations that are kept, the oldest first."""
        return self.moments[self.kept() % self.room]

    def copy(self) -> "ObservationLog":
        """The same observations in new arrays."""
        copied = super().copy()
        copied.times = self.times.copy()
        return copied
