"""Decisions, their probabilities, and the log in which they wait for their rewards."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from .ring import FIRST_ROOM, Ring

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

Label = Hashable


class AgentError(ValueError):
    """A call that does not fit what the agent knows; nothing has changed but its counts.

    Example:
        >>> from mixts.bandit import Agent, UniformRandom
        >>> from mixts.models import linear
        >>> Agent(UniformRandom(linear([[1.0], [0.5]], dim=1))).act([1.0, 2.0])
        Traceback (most recent call last):
        mixts...AgentError: context has shape (2,); expected (1,), shared by all actions, ...
    """


class UnknownAction(AgentError):
    """An action that does not exist, or was removed.

    Example:
        >>> from mixts.bandit import Agent, UniformRandom
        >>> from mixts.models import linear
        >>> Agent(UniformRandom(linear([[1.0], [0.5]], dim=1))).update([1.0], 2, reward=0.5)
        Traceback (most recent call last):
        mixts...UnknownAction: there is no action number 2; numbers run from 0 to 1
    """


class LabelTaken(AgentError):
    """A new action with the label of another one.

    Example:
        >>> from mixts.bandit import Agent, UniformRandom
        >>> from mixts.models import linear
        >>> agent = Agent(UniformRandom(linear([[1.0], [0.5]], dim=1)), labels=["a", "b"])
        >>> agent.add_actions([[0.7]], labels=["b"])
        Traceback (most recent call last):
        mixts...LabelTaken: label 'b' is taken; ...
    """


class UnknownDecision(AgentError):
    """A reward for a decision that was never made.

    Example:
        >>> DecisionLog.empty(keep=10, dim=1, dtype=float).find_one(7)
        Traceback (most recent call last):
        mixts...UnknownDecision: no decision has the id 7; ...
    """


class ExpiredDecision(AgentError):
    """A reward for a decision so old that the agent no longer keeps it.

    Example:
        >>> log = DecisionLog.empty(keep=2, dim=1, dtype=float)
        >>> n = [log.append(np.ones((1, 1)), np.array([0])) for _ in range(3)]
        >>> log.find_one(0)
        Traceback (most recent call last):
        mixts...ExpiredDecision: decision 0 has expired: the newest 2 are kept. ...
    """


class AlreadyRewarded(AgentError):
    """A second reward for the same decision.

    Example:
        >>> from mixts.bandit import Agent, UniformRandom
        >>> from mixts.models import linear
        >>> agent = Agent(UniformRandom(linear([[1.0], [0.5]], dim=1)))
        >>> agent.reward([agent.act([1.0]).id] * 2, [1.0, 1.0])
        Traceback (most recent call last):
        mixts...AlreadyRewarded: the reward of decision 0 was handed in already; ...
    """


class Decision(NamedTuple):
    """One action, chosen in one context.

    Attributes:
        id: the number by which its reward is given.
        action: the label of the action; its number where actions have no labels.
        index: the action's number, which does not change as other actions are added and removed.
        probability: how likely the choice was, where the agent logs it.

    Example:
        >>> Decision(id=0, action="Alien", index=3, probability=None).action
        'Alien'
    """

    id: int
    action: Label
    index: int  # pyright: ignore[reportIncompatibleMethodOverride] (tuple's own is not missed)
    probability: float | None


@dataclass(frozen=True, eq=False)
class Decisions(Sequence[Decision]):
    """Many decisions, in arrays: `decisions[i]` is the one in the i-th context.

    Attributes:
        ids: (n,) the numbers by which their rewards are given.
        indices: (n,) the numbers of the actions.
        probabilities: (n,) how likely each choice was, or None.
        labels: the label of every action by its number, or None.

    Example:
        >>> decisions = Decisions(np.array([4, 5]), np.array([1, 0]), None, ["a", "b"])
        >>> decisions.actions, decisions[0]
        (['b', 'a'], Decision(id=4, action='b', index=1, probability=None))
    """

    ids: np.ndarray
    indices: np.ndarray
    probabilities: np.ndarray | None
    labels: Sequence[Label] | None

    @property
    def actions(self) -> list[Label]:
        """The labels of the actions, or their numbers."""
        numbers: list[int] = self.indices.tolist()
        return [i if self.labels is None else self.labels[i] for i in numbers]

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: Any) -> Any:
        probability = None if self.probabilities is None else self.probabilities[i]
        if isinstance(i, slice):
            return Decisions(self.ids[i], self.indices[i], probability, self.labels)
        index = int(self.indices[i])
        label = index if self.labels is None else self.labels[index]
        chance = None if probability is None else float(probability)
        return Decision(int(self.ids[i]), label, index, chance)

    def __repr__(self) -> str:
        return f"Decisions({len(self)}, from {self[0] if len(self) else 'none'})"


class ActionProbabilities(NamedTuple):
    """How likely each action is to be chosen, estimated from draws.

    Attributes:
        probability: (K,) shares of the draws, in the order of `Agent.labels`.
        standard_error: (K,) `sqrt(p (1 - p) / draws)`, with p no closer to zero or one than
            `1 / (draws + 2)`: an action that was never drawn is not impossible.

    Example:
        >>> ActionProbabilities.estimated(np.array([75, 25, 0]), draws=100).probability.tolist()
        [0.75, 0.25, 0.0]
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
class DecisionLog(Ring):
    """The newest decisions, in a ring buffer: decision `t` is in row `t` modulo the room.

    A decision expires after `keep` later ones. So the log has at most `keep` rows, and knows of each of
    the newest `keep` decisions whether it was rewarded.

    Attributes:
        keep: how many decisions to keep.
        contexts: (room, d) the context of the chosen action.
        actions: (room,) its number.
        probabilities: (room,) how likely it was to be chosen; NaN where that is not logged.
        is_plain: (room,) whether it was the best of all actions in a context that they shared, so that
            the context says all that there was to choose from.
        rewards: (room,) NaN until they arrive.
        exposure: (room,) how many rewards each of them stands for.
        made: how many decisions have been made so far: the number of the next one.
    """

    keep: int
    contexts: np.ndarray
    actions: np.ndarray
    probabilities: np.ndarray
    is_plain: np.ndarray
    rewards: np.ndarray
    exposure: np.ndarray
    made: int = 0
    names = ("contexts", "actions", "probabilities", "is_plain", "rewards", "exposure")
    blank = {"probabilities": np.nan, "exposure": 1}  # noqa: RUF012 (never changed)

    @staticmethod
    def empty(keep: int, dim: int, dtype: Any) -> "DecisionLog":
        """A log without decisions, with room for the first."""
        room = min(keep, FIRST_ROOM)
        numbers, nothing = np.zeros((room, dim), dtype), np.full(room, np.nan)
        actions, is_plain, rewards = (np.zeros(room, kind) for kind in (np.int32, bool, dtype))
        exposure = np.ones(room, dtype)
        return DecisionLog(keep, numbers, actions, nothing, is_plain, rewards, exposure)

    @property
    def waiting(self) -> np.ndarray:
        """(room,) whether the reward has not arrived yet."""
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
        """Add decisions (n, d), (n,), at most `keep` of them; returns how many others expired."""
        n = len(actions)
        rows = self.places(n)
        expired = int(np.isnan(self.rewards[rows]).sum())
        self._write(rows, contexts, actions, probabilities, is_plain)
        self.made += n
        return expired

    def append_one(
        self, context: np.ndarray, action: int, probability: float | None, *, is_plain: bool
    ) -> int:
        """Add one decision, quickly; returns how many others expired."""
        number, room = self.made, len(self.rewards)
        row = number if number < room else number % self.make_room(1)
        expired = isnan(self.rewards[row])
        self._write(row, context, action, probability, is_plain)
        self.made = number + 1
        return expired

    def _write(
        self, rows: Any, context: Any, action: Any, probability: Any, is_plain: bool
    ) -> None:
        self.contexts[rows], self.actions[rows] = context, action
        if probability is not None:  # an agent logs all of them or none
            self.probabilities[rows] = probability
        self.is_plain[rows], self.rewards[rows] = is_plain, nan

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
        made, room = self.made, len(self.rewards)
        row = number % room
        if not (0 <= number < made <= number + room and isnan(self.rewards[row])):
            self.find(np.array([number]))
        return row

    def rewarded(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The ids of decisions that are kept and have their reward, and their rows of all columns."""
        ids = self.kept()
        ids = ids[~self.waiting[ids % self.room]]
        return ids, {name: values[ids % self.room] for name, values in self.columns.items()}


def _listed(ids: np.ndarray, most: int = 5) -> str:
    shown = ", ".join(str(i) for i in ids[:most])
    return shown if len(ids) <= most else f"{shown} and {len(ids) - most} more"
