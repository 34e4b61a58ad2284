"""The actions an agent has, by name and by number, and which of them may still be chosen."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jax import Array

from .decisions import AgentError, Label, LabelTaken, UnknownAction

__all__ = ["ActionNames"]


class ActionNames:
    """Names of actions, in order of their numbers, and which are open: not removed.

    A number is never given to another action, so that a reward that comes late still finds the action
    it is for.

    Args:
        labels: a name for each action, or None: then numbers serve as names.
        is_open: (K,) whether each action may still be chosen.
    """

    def __init__(self, labels: Sequence[str] | None, is_open: np.ndarray):
        self.labels = None if labels is None else list(labels)
        self.is_open = np.array(is_open, bool)
        self._numbers = {name: i for i, name in enumerate(self.labels or ())}
        self._settle()

    def _settle(self) -> None:
        self.open = np.flatnonzero(self.is_open)

    def __len__(self) -> int:
        """How many actions there have been, removed ones included."""
        return len(self.is_open)

    def name(self, number: int) -> Label:
        """The label of an action, or its number where there are no labels."""
        return number if self.labels is None else self.labels[number]

    def number(self, action: Any) -> int:
        """The number of an action given by its label, or by its number."""
        if type(action) is int and 0 <= action < len(self.is_open):
            return action
        action = _plain(action)
        found = self._numbers.get(action) if isinstance(action, str) else action
        if isinstance(found, int) and not isinstance(found, bool):
            if 0 <= found < len(self.is_open):
                return found
            raise UnknownAction(
                f"there is no action number {found}; numbers run from 0 to {len(self) - 1}"
            )
        raise UnknownAction(self._unknown(action))

    def numbers(self, actions: Any) -> np.ndarray:
        """The numbers of many actions."""
        if isinstance(actions, list | tuple) and set(map(type, actions)) != {int}:
            # One by one: NumPy would make text of numbers among labels, and numbers of True and False.
            return np.array([self.number(action) for action in actions], np.int32)
        given = np.asarray(actions)
        if given.dtype.kind in "iu" and given.ndim == 1:
            outside = given[(given < 0) | (given >= len(self))]
            if len(outside):
                self.number(int(outside[0]))
            return given.astype(np.int32)
        if given.ndim != 1:
            raise AgentError(
                f"actions have shape {given.shape}; expected a list of labels or numbers"
            )
        return np.array([self.number(action) for action in given], np.int32)

    def allowed(self, eligible: Any, capacity: int) -> np.ndarray:
        """(capacity,) which actions may be chosen: open ones, and of these the eligible ones.

        `eligible` is a list of labels or numbers, or (K,) of True and False, one for each open action.
        """
        chosen = np.zeros(capacity, bool)
        if eligible is None:
            chosen[self.open] = True
        else:
            given = _collected(eligible)
            if given is None:
                raise AgentError(
                    f"eligible is {eligible!r}; expected a list of labels or numbers, or True or False "
                    "for each action in the order of `labels`"
                )
            mask = _as_mask(given)
            if mask is not None:
                if mask.shape != self.open.shape:
                    raise AgentError(
                        f"eligible has shape {mask.shape}; expected ({len(self.open)},), True or "
                        "False for each action in the order of `labels`, or a list of labels"
                    )
                chosen[self.open[mask]] = True
            elif len(given):
                chosen[self.numbers(given)] = True
                closed = chosen[: len(self)] & ~self.is_open
                if closed.any():
                    raise AgentError(
                        f"action {self.name(int(np.flatnonzero(closed)[0]))!r} was removed and cannot "
                        "be eligible"
                    )
        if not chosen.any():
            raise AgentError("no action is eligible; name at least one")
        return chosen

    def spread(self, context: np.ndarray, capacity: int) -> np.ndarray:
        """(..., K, d) contexts of open actions as those of all `capacity` places; (d,) as it is."""
        shape = context.shape
        if context.ndim == 1 or shape[-2] == capacity:
            return context
        full = np.zeros((*shape[:-2], capacity, shape[-1]), context.dtype)
        full[..., self.open, :] = context
        return full

    def rows_of(self, contexts: np.ndarray, numbers: np.ndarray, capacity: int) -> np.ndarray:
        """The rows (n, d) of contexts (n, K, d) that are those of the given actions."""
        closed = numbers[~self.is_open[numbers]]
        if len(closed):
            raise AgentError(
                f"action {self.name(int(closed[0]))!r} was removed and has no row among those "
                "of the actions there are; give the context (d,) that it met"
            )
        return self.spread(contexts, capacity)[np.arange(len(numbers)), numbers]

    def add(self, labels: Iterable[str] | None, count: int) -> None:
        """Take in `count` more actions, checked before by `check_new`."""
        if self.labels is not None and labels is not None:
            for name in labels:
                self._numbers[name] = len(self.labels)
                self.labels.append(name)
        self.is_open = np.concatenate([self.is_open, np.ones(count, bool)])
        self._settle()

    def check_new(self, labels: Any, count: int) -> list[str] | None:
        """Labels for `count` more actions, refused if they do not fit."""
        if self.labels is None:
            if labels is not None:
                raise AgentError(
                    f"labels are {labels!r}, but the actions so far have none; make the agent with "
                    "labels, or leave them out"
                )
            return None
        given = _collected(labels)
        given = [] if given is None else [_plain(name) for name in given]
        if len(given) != count or not all(isinstance(name, str) for name in given):
            raise AgentError(f"labels are {labels!r}; expected {count} strings, one per new action")
        taken = [name for name in given if name in self._numbers]
        if taken or len(set(given)) < count:
            again = taken or [name for name in given if given.count(name) > 1]
            raise LabelTaken(
                f"label {again[0]!r} is taken; a removed action keeps its label: choose another"
            )
        return given

    def remove(self, numbers: np.ndarray) -> None:
        """Close actions, checked before by `check_removed`."""
        self.is_open[numbers] = False
        self._settle()

    def check_removed(self, actions: Any) -> np.ndarray:
        """The numbers of actions to be closed, refused if they are closed or none would be left."""
        given = _collected(actions)
        numbers = self.numbers([actions] if given is None else given)
        closed = [self.name(i) for i in numbers.tolist() if not self.is_open[i]]
        if closed:
            raise UnknownAction(f"action {closed[0]!r} was removed already")
        if len(set(numbers.tolist())) == len(self.open):
            raise AgentError("these are all the actions there are; leave one at least")
        return numbers

    def _unknown(self, action: Any) -> str:
        if self.labels is None:
            return (
                f"got {action!r} for an action; the actions have no labels: expected a number from 0 "
                f"to {len(self) - 1}"
            )
        near = difflib.get_close_matches(str(action), self.labels, n=3)
        hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "see `labels`"
        return f"there is no action {action!r}; {hint}"


def _plain(action: Any) -> Any:
    """A label or number as Python's own: NumPy's and JAX's would not be found among the labels."""
    alone = isinstance(action, np.generic | np.ndarray | Array) and action.ndim == 0
    return action.item() if alone else action


def _collected(actions: Any) -> np.ndarray | list[Any] | None:
    """Actions from whatever holds several; None if it does not: a label, a number, ..."""
    if isinstance(actions, str | bytes) or not isinstance(actions, Iterable):
        return None
    if not hasattr(actions, "__array__"):
        return list(actions)
    array = np.asarray(actions)
    return array if array.ndim else None


def _as_mask(actions: np.ndarray | list[Any]) -> np.ndarray | None:
    """True and False for each action, if that is what they are."""
    if isinstance(actions, np.ndarray):
        return actions if actions.dtype == bool else None
    is_mask = bool(actions) and all(isinstance(_plain(action), bool) for action in actions)
    return np.array(actions, bool) if is_mask else None
