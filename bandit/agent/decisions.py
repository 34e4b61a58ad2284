"""Decisions, how likely they are, and the log in which they wait for their rewards."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

__all__ = [
    "ActionProbabilities",
    "AgentError",
    "AlreadyRewarded",
    "Decision",
    "DecisionLog",
    "Decisions",
    "ExpiredDecision",
    "Label",
    "LabelTaken",
    "UnknownAction",
    "UnknownDecision",
]

Label = str | int

_FIRST_ROOM = 1024
_COLUMNS = ("contexts", "actions", "probabilities", "is_plain", "rewards")
_BLANK = {"probabilities": np.nan}  # what rows without a decision hold, where it is not zero


class AgentError(ValueError):
    """What an agent is asked does not fit what it knows; nothing has changed but its counts."""


class UnknownAction(AgentError):
    """An action that there is not, or not any more."""


class LabelTaken(AgentError):
    """A new action with the label of another one."""


class UnknownDecision(AgentError):
    """A reward for a decision that was never made."""


class ExpiredDecision(AgentError):
    """A reward for a decision so old that the agent no longer keeps it."""


class AlreadyRewarded(AgentError):
    """A second reward for the same decision."""


class Decision(NamedTuple):
    """One action, chosen in one context.

    Attributes:
        id: the number to hand in with the reward.
        action: the label of the action; its number where actions have no labels.
        index: the action's number. It stays the same as other actions come and go.
        probability: how likely the choice was, where the agent is asked to log it.
    """

    id: int
    action: Label
    index: int  # pyright: ignore[reportIncompatibleMethodOverride] (tuple's own is not missed)
    probability: float | None


@dataclass(frozen=True, eq=False)
class Decisions(Sequence[Decision]):
    """Many decisions, in arrays: `decisions[i]` is the one in the i-th context.

    Attributes:
        ids: (n,) the numbers to hand in with the rewards.
        indices: (n,) the numbers of the actions.
        probabilities: (n,) how likely each choice was, or None.
        labels: the label of every action by its number, or None.
    """

    ids: np.ndarray
    indices: np.ndarray
    probabilities: np.ndarray | None
    labels: Sequence[str] | None

    @property
    def actions(self) -> list[Label]:
        """The labels of the actions, or their numbers."""
        numbers: list[int] = self.indices.tolist()
        return [i if self.labels is None else self.labels[i] for i in numbers]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            chances = None if self.probabilities is None else self.probabilities[i]
            return Decisions(self.ids[i], self.indices[i], chances, self.labels)
        index = int(self.indices[i])
        label = index if self.labels is None else self.labels[index]
        chance = None if self.probabilities is None else float(self.probabilities[i])
        return Decision(int(self.ids[i]), label, index, chance)

    def __iter__(self) -> Iterator[Decision]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"Decisions({len(self)}, from {self[0] if len(self) else 'none'})"


class ActionProbabilities(NamedTuple):
    """How likely each action is to be chosen, estimated from draws.

    Attributes:
        probability: (K,) shares of the draws, in the order of `Agent.labels`.
        standard_error: (K,) `sqrt(p (1 - p) / draws)`, with p no closer to zero or one than
            `1 / (draws + 2)`: an action that was never drawn is not impossible.
    """

    probability: Float[np.ndarray, " K"]
    standard_error: Float[np.ndarray, " K"]

    @staticmethod
    def estimated(counts: Int[np.ndarray, " K"], draws: int) -> "ActionProbabilities":
        """The estimate from how many of the draws chose each action."""
        share = counts / draws
        inside = np.clip(share, 1 / (draws + 2), 1 - 1 / (draws + 2))
        return ActionProbabilities(share, np.sqrt(inside * (1 - inside) / draws))


@dataclass
class DecisionLog:
    """The newest decisions, in a ring: decision `t` lies in row `t` modulo the room.

    A decision that `keep` later ones have followed expires. So the log takes no more than `keep` rows,
    and knows of each of the newest `keep` decisions whether its reward has come.

    Attributes:
        keep: how many decisions to keep.
        contexts: (room, d) what the chosen action met.
        actions: (room,) its number.
        probabilities: (room,) how likely it was to be chosen; NaN where nobody asked.
        is_plain: (room,) whether it was the best of all actions in a context that they shared, so that
            the context says all that there was to choose from.
        rewards: (room,) NaN until they come.
        made: how many decisions have been made so far: the number of the next one.
    """

    keep: int
    contexts: np.ndarray
    actions: np.ndarray
    probabilities: np.ndarray
    is_plain: np.ndarray
    rewards: np.ndarray
    made: int = 0

    @staticmethod
    def empty(keep: int, dim: int, dtype: Any) -> "DecisionLog":
        """No decisions, and room for the first."""
        room = min(keep, _FIRST_ROOM)
        return DecisionLog(
            keep,
            contexts=np.zeros((room, dim), dtype),
            actions=np.zeros(room, np.int32),
            probabilities=np.full(room, np.nan),
            is_plain=np.zeros(room, bool),
            rewards=np.zeros(room, dtype),
        )

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """All arrays by name, each with a row for every decision there is room for."""
        return {name: getattr(self, name) for name in _COLUMNS}

    @property
    def room(self) -> int:
        """How many decisions the arrays have room for; it doubles until there is room for `keep`."""
        return len(self.actions)

    @property
    def waiting(self) -> np.ndarray:
        """(room,) whether the reward is still to come."""
        return np.isnan(self.rewards)

    def check_fits(self, n: int) -> None:
        """Refuse more decisions at once than are kept."""
        if n > self.keep:
            raise AgentError(
                f"{n} decisions at once, but the agent keeps {self.keep}; ask for fewer, or make the "
                "agent with a larger keep"
            )

    def append(
        self,
        contexts: np.ndarray,
        actions: np.ndarray,
        probabilities: np.ndarray | None = None,
        *,
        is_plain: bool = False,
    ) -> int:
        """Add decisions (n, d), (n,), of which there are `keep` at most; how many others expired."""
        n = len(actions)
        while self.room < min(self.made + n, self.keep):
            self._grow()
        start = self.made % self.room
        in_a_row = start + n <= self.room  # which is several times as fast
        rows = slice(start, start + n) if in_a_row else (start + np.arange(n)) % self.room
        expired = int(np.isnan(self.rewards[rows]).sum())
        self.contexts[rows], self.actions[rows] = contexts, actions
        if probabilities is not None:
            self.probabilities[rows] = probabilities
        self.is_plain[rows], self.rewards[rows] = is_plain, np.nan
        self.made += n
        return expired

    def append_one(
        self, context: np.ndarray, action: int, probability: float | None, *, is_plain: bool
    ) -> int:
        """Add one decision, quickly; how many others expired."""
        if self.made >= self.room < self.keep:
            self._grow()
        row = self.made % self.room
        expired = self.is_waiting(row)
        self.contexts[row] = context
        self.actions[row] = action
        if probability is not None:  # of one agent either all are known or none
            self.probabilities[row] = probability
        self.is_plain[row] = is_plain
        self.rewards[row] = np.nan
        self.made += 1
        return expired

    def is_waiting(self, row: int) -> bool:
        """Whether the reward of the decision in a row is still to come."""
        return isnan(self.rewards[row])

    def find(self, ids: np.ndarray) -> np.ndarray:
        """The rows of decisions (n,) that wait for a reward; an error that says which do not."""
        unknown = ids[(ids < 0) | (ids >= self.made)]
        if len(unknown):
            raise UnknownDecision(
                f"no decision has the id {_listed(unknown)}; ids run from 0 to {self.made - 1} so far: "
                "hand in the id that `act` returned"
            )
        expired = ids[ids < self.made - self.room]
        if len(expired):
            raise ExpiredDecision(
                f"decision {_listed(expired)} has expired: the newest {self.keep} are kept. Hand in "
                "rewards earlier, or make the agent with a larger keep"
            )
        rows = ids % self.room
        repeated = ids[~np.isnan(self.rewards[rows])]
        if not len(repeated):
            values, times = np.unique(ids, return_counts=True)
            repeated = values[times > 1]
        if len(repeated):
            raise AlreadyRewarded(
                f"the reward of decision {_listed(repeated)} was handed in already; a decision has one"
            )
        return rows

    def find_one(self, number: int) -> int:
        """The row of one decision that waits for a reward, quickly; an error if it does not."""
        row = number % self.room
        if not (max(0, self.made - self.room) <= number < self.made and self.is_waiting(row)):
            self.find(np.array([number]))
        return row

    def kept(self) -> np.ndarray:
        """The ids of the decisions that are kept, the oldest first."""
        return np.arange(max(0, self.made - self.room), self.made)

    def rewarded(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The ids of decisions that are kept and have their reward, and their part of all columns."""
        ids = self.kept()
        ids = ids[~self.waiting[ids % self.room]]
        return ids, {name: values[ids % self.room] for name, values in self.columns.items()}

    def copy(self) -> "DecisionLog":
        """The same decisions in arrays of their own."""
        return replace(self, **{name: values.copy() for name, values in self.columns.items()})

    def _grow(self) -> None:
        kept, before, room = self.kept(), self.room, min(2 * self.room, self.keep)
        for name, values in self.columns.items():
            grown = np.full((room, *values.shape[1:]), _BLANK.get(name, 0), values.dtype)
            grown[kept % room] = values[kept % before]
            setattr(self, name, grown)


def _listed(ids: np.ndarray, most: int = 5) -> str:
    shown = ", ".join(str(i) for i in ids[:most])
    return shown if len(ids) <= most else f"{shown} and {len(ids) - most} more"
