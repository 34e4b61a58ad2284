"""The actions of an agent, by name and by number, and which of them may still be chosen."""

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from .decisions import AgentError, Label, LabelTaken, UnknownAction

__all__ = ["ActionNames"]


class ActionNames:
    """Names of actions, in order of their numbers, and which are open: not removed.

    A number is never given to another action, so that a late reward still finds the action it is for.

    Args:
        labels: a name for each action, or None: then numbers serve as names.
        is_open: (K,) whether each action may still be chosen.
        capacity: how many actions the compiled programs have room for.
    """

    def __init__(self, labels: Sequence[str] | None, is_open: np.ndarray, capacity: int):
        self.labels = None if labels is None else list(labels)
        self.is_open = np.array(is_open, bool)
        self._numbers = {name: i for i, name in enumerate(self.labels or ())}
        self.resize(capacity)

    def resize(self, capacity: int) -> None:
        """Set the capacity, and list the open actions again."""
        self.open, self._capacity = np.flatnonzero(self.is_open), capacity
        # On the device already when a decision needs it.
        self._all_open = jnp.asarray(np.isin(np.arange(capacity), self.open))

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
        if not isinstance(found, int) or isinstance(found, bool):
            raise UnknownAction(self._unknown(action))
        if not 0 <= found < len(self):
            raise UnknownAction(
                f"there is no action number {found}; numbers run from 0 to {len(self) - 1}"
            )
        return found

    def numbers(self, actions: Any) -> np.ndarray:
        """The numbers of many actions."""
        # One by one: NumPy would make text of numbers among labels, and numbers of True and False.
        is_mixed = isinstance(actions, list | tuple) and set(map(type, actions)) != {int}
        given = actions if is_mixed else np.asarray(actions)
        if isinstance(given, np.ndarray) and given.ndim != 1:
            raise AgentError(
                f"actions have shape {given.shape}; expected a list of labels or numbers"
            )
        if isinstance(given, np.ndarray) and given.dtype.kind in "iu":
            for outside in given[(given < 0) | (given >= len(self))][:1]:
                self.number(int(outside))
            return given.astype(np.int32)
        return np.array([self.number(action) for action in given], np.int32)

    def allowed(self, eligible: Any) -> Any:
        """(capacity,) which actions may be chosen: open ones, and of these the eligible ones.

        `eligible` is a list of labels or numbers, or (K,) of True and False, one for each open action.
        """
        if eligible is None:
            return self._all_open
        given = _collected(eligible)
        if given is None:
            raise AgentError(
                f"eligible is {eligible!r}; expected a list of labels or numbers, or True or False "
                "for each action in the order of `labels`"
            )
        chosen, mask = np.zeros(self._capacity, bool), _as_mask(given)
        if mask is not None:
            if mask.shape != self.open.shape:
                raise AgentError(
                    f"eligible has shape {mask.shape}; expected ({len(self.open)},), True or "
                    "False for each action in the order of `labels`, or a list of labels"
                )
            chosen[self.open[mask]] = True
        elif len(given):
            numbers = self.numbers(given)
            self._check_open(numbers, "cannot be eligible")
            chosen[numbers] = True
        if not chosen.any():
            raise AgentError("no action is eligible; name at least one")
        return chosen

    def _check_open(self, numbers: np.ndarray, consequence: str) -> None:
        closed = numbers[~self.is_open[numbers]]
        if len(closed):
            raise AgentError(f"action {self.name(int(closed[0]))!r} was removed and {consequence}")

    def spread(self, context: np.ndarray) -> np.ndarray:
        """(..., K, d) contexts of open actions as those of all `capacity` actions; (d,) as it is."""
        shape = context.shape
        if context.ndim == 1 or shape[-2] == self._capacity:
            return context
        full = np.zeros((*shape[:-2], self._capacity, shape[-1]), context.dtype)
        full[..., self.open, :] = context
        return full

    def rows_of(self, contexts: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """The rows (n, d) of contexts (n, K, d) that are those of the given actions."""
        self._check_open(
            numbers,
            "has no row among those of the actions there are; give the context (d,) that it met",
        )
        return self.spread(contexts)[np.arange(len(numbers)), numbers]

    def add(self, labels: Iterable[str] | None, count: int) -> None:
        """Add `count` actions, checked before by `check_new`."""
        for name in labels or ():
            self._numbers[name] = len(self._numbers)
        self.labels = None if self.labels is None else list(self._numbers)
        self.is_open = np.concatenate([self.is_open, np.ones(count, bool)])
        self.resize(self._capacity)

    def check_new(self, labels: Any, count: int) -> list[str] | None:
        """Labels for `count` more actions, refused if they do not fit."""
        if self.labels is None:
            if labels is not None:
                raise AgentError(
                    f"labels are {labels!r}, but the actions so far have none; make the agent with "
                    "labels, or leave them out"
                )
            return None
        found = _collected(labels)
        given = [] if found is None else [_plain(name) for name in found]
        if len(given) != count or not all(isinstance(name, str) for name in given):
            raise AgentError(f"labels are {labels!r}; expected {count} strings, one per new action")
        times = Counter(given)
        again = [name for name in given if name in self._numbers or times[name] > 1]
        if again:
            raise LabelTaken(
                f"label {again[0]!r} is taken; a removed action keeps its label: choose another"
            )
        return given

    def remove(self, numbers: np.ndarray) -> None:
        """Close actions, checked before by `check_removed`."""
        self.is_open[numbers] = False
        self.resize(self._capacity)

    def check_removed(self, actions: Any) -> np.ndarray:
        """The numbers of actions to be closed, refused if they are closed or none would be left."""
        given = _collected(actions)
        numbers = self.numbers([actions] if given is None else given)
        closed = numbers[~self.is_open[numbers]]
        if len(closed):
            raise UnknownAction(f"action {self.name(int(closed[0]))!r} was removed already")
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
    """Actions from anything that holds several; None if it does not: a label, a number, ..."""
    if isinstance(actions, str | bytes) or not isinstance(actions, Iterable):
        return None
    if not hasattr(actions, "__array__"):
        return list(actions)
    array = np.asarray(actions)
    return array if array.ndim else None


def _as_mask(actions: np.ndarray | list[Any]) -> np.ndarray | None:
    """True and False for each action, or None if actions are given otherwise."""
    if isinstance(actions, np.ndarray):
        return actions if actions.dtype == bool else None
    is_mask = bool(actions) and all(isinstance(_plain(action), bool) for action in actions)
    return np.array(actions, bool) if is_mask else None
