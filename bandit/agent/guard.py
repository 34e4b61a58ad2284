"""Who may speak to an agent when: one call at a time, and none answered before it is written down."""

from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol, TypeVar, cast

from .decisions import AgentError, AlreadyRewarded, ExpiredDecision, UnknownDecision

__all__ = ["Journal", "guarded"]

Method = TypeVar("Method", bound=Callable[..., Any])

_REFUSALS = {
    UnknownDecision: "unknown",
    ExpiredDecision: "too_late",
    AlreadyRewarded: "duplicate",
}


class Journal(Protocol):
    """Writes down how an agent changes, so that it can be changed again after a crash."""

    @property
    def number(self) -> int:
        """How many changes have been taken down."""
        ...

    def check_process(self) -> None:
        """Refuse a call in a process other than the one that the journal was opened in."""

    def record(self, method: str, arguments: dict[str, Any]) -> Any:
        """Take down a change that is in order, before it is made; returns a ticket.

        Decisions come with the actions that were chosen, everything else as it was asked for, and all
        in the order in which they take effect. If this raises, nothing has changed.
        """

    def wait(self, ticket: Any) -> None:
        """Return when the change is safe; the agent answers only then."""

    def spoil(self, error: BaseException) -> None:
        """A change that was taken down could not be made: take down no more."""


def guarded(method: Method) -> Method:
    """One call at a time: refusals are counted, and a journal is waited for outside the lock."""

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        journal = self._journal
        if journal is None:
            with self._lock:
                try:
                    return method(self, *args, **kwargs)
                except AgentError as error:
                    _count(self, error)
                    raise
        journal.check_process()  # before the lock, which in another process nobody may release
        with self._lock:
            before = journal.number
            try:
                result = method(self, *args, **kwargs)
            except AgentError as error:
                _count(self, error)
                raise
            except BaseException as error:
                if journal.number != before:
                    # Journal and agent differ from here on; opened again, the agent makes the change.
                    self._ticket = None
                    journal.spoil(error)
                raise
            ticket, self._ticket = self._ticket, None
        if ticket is not None:
            journal.wait(ticket)
        return result

    return cast(Method, call)


def _count(agent: Any, refusal: AgentError) -> None:
    agent._counts[_REFUSALS.get(type(refusal), "refused")] += 1
