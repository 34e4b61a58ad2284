"""The actions of an agent, by label and by position, and which of them may still be chosen."""

import difflib
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import Array

from ...models.components import index_names
from ...models.labels import as_hashable, as_label
from ...models.messages import listed, short
from .decisions import AgentError, Label, LabelTaken, UnknownAction

__all__ = ["ActionNames", "Position"]


@dataclass(frozen=True, eq=False)
class Position:
    """An action by its position, or several by theirs; other numbers are labels where there are labels.

    A position is what `Decision.index` and `Agent.log` hold, and a row of `Agent.posterior`. It can
    stand wherever an agent is given actions.

    Args:
        numbers: a whole number, or (n,) of them, from 0 on.

    Example:
        >>> from mixts.bandit import Agent, UniformRandom
        >>> from mixts.models import linear
        >>> agent = Agent(UniformRandom(linear(np.ones((3, 1)), dim=1)), labels=["2", "1", "0"])
        >>> agent.act([1.0], eligible=Position([2])).action
        '0'
    """

    numbers: Any


class ActionNames:
    """Labels of actions, in order of their positions, and which are open: not removed.

    A position is never given to another action, so that a late reward still finds the action it is for.

    Args:
        labels: a name for each action, or None: then positions serve as names.
        is_open: (K,) whether each action may still be chosen.
        capacity: how many actions the compiled programs have room for.

    Attributes:
        capacity: how many actions the compiled programs have room for.
        open: the positions of open actions.
        all_open: (capacity,) whether each place is that of an open action; on the device.
    """

    def __init__(self, labels: Iterable[Hashable] | None, is_open: np.ndarray, capacity: int):
        self.labels = None if labels is None else list(labels)
        self.is_open = np.array(is_open, bool)
        self._numbers = {name: i for i, name in enumerate(self.labels or ())}
        self.resize(capacity)

    def resize(self, capacity: int) -> None:
        """Set the capacity, and list the open actions again."""
        self.open, self.capacity = np.flatnonzero(self.is_open), capacity
        open_places = np.zeros(capacity, bool)
        open_places[: len(self.is_open)] = self.is_open[:capacity]
        self.all_open = jax.device_put(open_places)  # compiles nothing, unlike `jnp.asarray`

    def __len__(self) -> int:
        """How many actions there have been, removed ones included."""
        return len(self.is_open)

    def name(self, number: int) -> Label:
        """The label of an action, or its position where there are no labels."""
        return number if self.labels is None else self.labels[number]

    def number(self, action: Any) -> int:
        """The position of an action given by its name, or by a `Position`."""
        if type(action) is int and self.labels is None and 0 <= action < len(self.is_open):
            return action
        if isinstance(action, Position):
            if np.ndim(action.numbers):
                raise AgentError(f"got {short(action)} for one action; expected one whole number")
            return int(_as_positions(action.numbers, len(self))[0])
        found = self._found(action)
        if found is None:
            plain = as_label(action)
            found = self._found(plain)
            if found is None:
                raise UnknownAction(self._unknown(plain))
        return found

    def _found(self, action: Any) -> int | None:
        """The position of the action of this name, or None."""
        if self.labels is None:
            is_whole = isinstance(action, int | np.integer) and not isinstance(action, bool)
            return int(_as_positions(action, len(self))[0]) if is_whole else None
        try:
            found = self._numbers.get(action)
        except TypeError:  # not hashable
            return None
        if found is None or isinstance(action, bool) == isinstance(self.labels[found], bool):
            return found
        return None  # True is not the label 1, though Python holds them equal

    def numbers(self, actions: Any) -> np.ndarray:
        """The positions of many actions, given by their names or by a `Position`."""
        if isinstance(actions, Position):
            return _as_positions(actions.numbers, len(self))
        given = self._several(actions)
        given = [actions] if given is None else given
        is_array = isinstance(given, np.ndarray)
        if is_array and given.ndim != 1:
            raise AgentError(
                f"actions have shape {given.shape}; expected a list of labels or numbers"
            )
        # Not of other lists: NumPy would make numbers of True and False.
        is_whole = given.dtype.kind in "iu" if is_array else set(map(type, given)) == {int}
        if self.labels is None and is_whole:
            return _as_positions(given, len(self))
        each = given.tolist() if is_array and given.dtype.kind not in "mM" else given
        return np.array([self.number(action) for action in each], np.int32)

    def _several(self, actions: Any) -> np.ndarray | list[Any] | None:
        """Actions from anything that holds several; None if it is one: a label, a number, ..."""
        is_one = isinstance(actions, str | bytes) or not isinstance(actions, Iterable)
        if is_one or (self.labels is not None and self._found(actions) is not None):
            return None  # a label may be a tuple
        if not isinstance(actions, np.ndarray | Array):
            return list(actions)
        array = np.asarray(actions)
        return array if array.ndim else None

    def allowed(self, eligible: Any) -> Any:
        """(capacity,) which actions may be chosen: open ones, and of these the eligible ones.

        `eligible` is a list of names, a `Position`, or (K,) of True and False, one for each open action.
        """
        if eligible is None:
            return self.all_open
        chosen = np.zeros(self.capacity, bool)
        chosen[self._eligible(eligible)] = True
        if not chosen.any():
            raise AgentError("no action is eligible; name at least one")
        return chosen

    def _eligible(self, eligible: Any) -> np.ndarray:
        if not isinstance(eligible, Position):
            given = self._several(_named_true(eligible))
            if given is None:
                raise AgentError(
                    f"eligible is {short(eligible)}; expected a list of labels or numbers, or True or "
                    "False for each action in the order of `labels`"
                )
            mask = _as_mask(given)
            if mask is not None:
                return self.open[self._checked_mask(mask)]
            eligible = given
        numbers = self.numbers(eligible)
        self._check_open(numbers, "cannot be eligible")
        return numbers

    def _checked_mask(self, mask: np.ndarray) -> np.ndarray:
        if any(isinstance(label, bool) for label in self.labels or ()):
            raise AgentError(
                "eligible is a list of True and False, which may be labels or say which actions are "
                "eligible; write Position([...]) with the positions of those that are"
            )
        if mask.shape != self.open.shape:
            raise AgentError(
                f"eligible has shape {mask.shape}; expected ({len(self.open)},), True or "
                "False for each action in the order of `labels`, or a list of labels"
            )
        return mask

    def _check_open(self, numbers: np.ndarray, consequence: str) -> None:
        closed = numbers[~self.is_open[numbers]]
        if len(closed):
            name = short(self.name(int(closed[0])))
            raise AgentError(f"action {name} was removed and {consequence}")

    def in_order(self, context: Any) -> Any:
        """A table with a row for each open action, rows in the order of the actions.

        Rows are matched by name, the index of the table, unless they are numbered 0, 1, ...; what is no
        such table is returned as it is.
        """
        index = index_names(context) if getattr(context, "columns", None) is not None else None
        if index is None:
            return context
        numbers = self.numbers(index)
        if sorted(numbers.tolist()) != self.open.tolist():
            raise AgentError(
                f"context: its rows are named {listed(index)}; expected a row for each action of "
                "`labels`, in any order"
            )
        return context.iloc[np.argsort(numbers)]

    def spread(self, context: np.ndarray) -> np.ndarray:
        """(..., K, d) contexts of open actions as those of all `capacity` actions; (d,) as it is."""
        shape = context.shape
        if context.ndim == 1 or shape[-2] == self.capacity:
            return context
        full = np.zeros((*shape[:-2], self.capacity, shape[-1]), context.dtype)
        full[..., self.open, :] = context
        return full

    def rows_of(self, contexts: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """The rows (n, d) of contexts (n, K, d) that are those of the given actions."""
        self._check_open(
            numbers,
            "has no row among those of the actions there are; give the context (d,) that it met",
        )
        return self.spread(contexts)[np.arange(len(numbers)), numbers]

    def add(self, labels: Iterable[Hashable] | None, count: int) -> None:
        """Add `count` actions, checked before by `check_new`."""
        for name in labels or ():
            self._numbers[name] = len(self._numbers)
        if self.labels is not None:
            self.labels = [
                *self.labels,
                *(labels or ()),
            ]  # another list: decisions hold the one before
        self.is_open = np.concatenate([self.is_open, np.ones(count, bool)])
        self.resize(self.capacity)

    def check_new(self, labels: Any, count: int) -> list[Hashable] | None:
        """Labels for `count` more actions, refused if they do not fit."""
        if self.labels is None:
            if labels is not None:
                raise AgentError(
                    f"labels are {short(labels)}, but the actions so far have none; make the agent with "
                    "labels, or leave them out"
                )
            return None
        try:
            given = as_hashable(labels, count, "add_actions", "new action")
        except TypeError as error:
            raise AgentError(str(error)) from error
        if len(given) != count:
            raise AgentError(f"add_actions: got {len(given)} labels; expected {count}")
        for name, times in Counter(given).items():
            number = self._numbers.get(name)
            if number is not None and not self.is_open[number]:
                raise LabelTaken(
                    f"label {short(name)} is taken by an action that was removed; reopen_actions brings it "
                    "back with all that is known of it: do that, or choose another label"
                )
            if number is not None or times > 1:
                raise LabelTaken(f"label {short(name)} is taken; choose another")
        return list(given)

    def set_open(self, numbers: np.ndarray, is_open: bool) -> None:
        """Close or open actions, checked before by `check_closing` or `check_opening`."""
        self.is_open[numbers] = is_open
        self.resize(self.capacity)

    def check_closing(self, actions: Any) -> np.ndarray:
        """The positions of actions to be closed, refused if one is closed or none would be left."""
        numbers = self.numbers(actions)
        for closed in numbers[~self.is_open[numbers]][:1].tolist():
            raise UnknownAction(f"action {short(self.name(closed))} was removed already")
        if len(set(numbers.tolist())) == len(self.open):
            raise AgentError("these are all the actions there are; leave one at least")
        return numbers

    def check_opening(self, actions: Any) -> np.ndarray:
        """The positions of actions to be opened again, refused if one was not removed."""
        numbers = self.numbers(actions)
        for known in numbers[self.is_open[numbers]][:1].tolist():
            raise AgentError(
                f"action {short(self.name(known))} was not removed; there is nothing to do"
            )
        return numbers

    def _unknown(self, action: Any) -> str:
        if self.labels is None:
            return (
                f"got {short(action)} for an action; the actions have no labels: expected a number "
                f"from 0 to {len(self) - 1}"
            )
        by_text = {str(label): label for label in self.labels}
        near = difflib.get_close_matches(str(action)[:200], by_text, n=3)
        hint = " or ".join(short(by_text[text]) for text in near)
        hint = f"did you mean {hint}?" if near else "see `labels`"
        if isinstance(action, int) and not isinstance(action, bool) and 0 <= action < len(self):
            hint += (
                f". Only labels name actions that have some: the one at position {action} is "
                f"{short(self.labels[action])}, or Position({action})"
            )
        return f"there is no action {short(action)}; {hint}"


def _as_positions(numbers: Any, size: int) -> np.ndarray:
    """Positions below `size`, one or several, as (n,) whole numbers."""
    array = np.asarray(numbers)
    if array.dtype.kind not in ("iu" if array.size else "iuf") or array.ndim > 1:
        raise UnknownAction(
            f"got {short(numbers)} as positions; expected a whole number, or (n,) of them"
        )
    for outside in array[(array < 0) | (array >= size)].tolist()[:1]:
        raise UnknownAction(
            f"there is no action number {outside}; numbers run from 0 to {size - 1}"
        )
    return np.atleast_1d(array).astype(np.int32)


def _named_true(eligible: Any) -> Any:
    """The names that are True in a dict, or a pandas `Series`, of True and False; others as they are."""
    if isinstance(eligible, Mapping) or index_names(eligible) is not None:
        items = dict(eligible.items())
        if items and all(isinstance(as_label(value), bool) for value in items.values()):
            return [name for name, value in items.items() if value]
    return eligible


def _as_mask(actions: np.ndarray | list[Any]) -> np.ndarray | None:
    """True and False for each action, or None if actions are given otherwise."""
    if isinstance(actions, np.ndarray):
        return actions if actions.dtype == bool else None
    is_mask = bool(actions) and all(isinstance(as_label(action), bool) for action in actions)
    return np.array(actions, bool) if is_mask else None
