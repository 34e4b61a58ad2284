"""Agents that outlive their process: saved to a file and loaded, or kept in a folder."""

import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar, cast

import jax
import numpy as np

from ....inference.random import fused_key
from ....models.arrays import as_count
from ....models.messages import short
from ...policies.policy import Policy
from ..decisions import AgentError, AlreadyRewarded, ExpiredDecision, UnknownDecision
from ..evidence_clock import Clock, EvidenceClock, as_clock
from ..growth import RoomNotReadyError
from ..inputs import labels_of
from ..state import STARTED_FROM, AgentSettings, AgentState
from .file import AgentFileError
from .folder import AgentFolder
from .snapshot import read_state, write_state

__all__ = ["DurableAgent", "Recorder", "recorded"]

Method = TypeVar("Method", bound=Callable[..., Any])

_REFUSALS = {
    UnknownDecision: "unknown",
    ExpiredDecision: "too_late",
    AlreadyRewarded: "duplicate",
}

SomeAgent = TypeVar("SomeAgent", bound="DurableAgent")


class Recorder:
    """What an agent needs to be shared by threads and to outlive its process.

    Attributes:
        lock: held while the agent is read or changed.
        counts: what has happened so far; see `Agent.counts`.
        pending: warnings to be said when a call has done its work.
        is_silent: whether they have to wait for another call.
        folder: where changes are written, or None.
    """

    def __init__(self, counts: dict[str, int], pending: list[Any]):
        self.lock = threading.RLock()
        self.counts = dict(counts)
        self.pending, self.is_silent = pending, False
        self.folder: AgentFolder | None = None

    def refuse(self, error: AgentError) -> None:
        """Count a call that was refused."""
        self.counts[_REFUSALS.get(type(error), "refused")] += 1

    def record(self, change: str, **arguments: Any) -> None:
        """Write a checked change that is about to be made; if this raises, nothing has changed.

        Decisions are written with the actions that were chosen, everything else as it was asked for,
        and all in the order in which they take effect.
        """
        if self.folder is not None:
            self.folder.record(change, arguments)

    def say(self, stacklevel: int = 3) -> None:
        """Say the warnings that a call has left; one that raises leaves the others to the next call."""
        while self.pending and not self.is_silent:
            with self.lock:
                first = self.pending.pop(0) if self.pending else None
            if first is not None:
                warnings.warn(first, stacklevel=stacklevel)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """With the lock held; what there is to warn of is said afterwards."""
        with self.lock:
            yield
        self.say(stacklevel=5)

    @contextmanager
    def replacing(self) -> Iterator[Callable[[Callable[[], AgentState]], None]]:
        """With the lock held: what writes another state than the changes lead to, where one is kept."""
        if self.folder is None:
            with self.lock:
                yield lambda state: None
        else:
            with self.folder.replacing() as write:
                yield write


def recorded(method: Method) -> Method:
    """One call at a time of such methods of an agent; disk and room are waited for outside the lock."""

    @wraps(method)
    def call(agent: Any, *args: Any, **kwargs: Any) -> Any:
        recorder: Recorder = agent.recorder
        while True:
            try:
                if recorder.folder is not None:
                    result = in_journal(recorder, recorder.folder, agent, *args, **kwargs)
                else:
                    with recorder.lock:
                        try:
                            agent.pass_time()
                            result = method(agent, *args, **kwargs)
                        except AgentError as error:
                            recorder.refuse(error)
                            raise
                break
            except RoomNotReadyError as missing:
                preparation = missing.preparation
            preparation.wait()
        if recorder.pending:
            recorder.say()
        return result

    def in_journal(
        recorder: Recorder, folder: AgentFolder, agent: Any, *args: Any, **kwargs: Any
    ) -> Any:
        folder.check_process()  # before the lock, which in a forked process nobody may release
        with recorder.lock:
            before = folder.journal.number
            try:
                agent.pass_time()
                result = method(agent, *args, **kwargs)
            except AgentError as error:
                recorder.refuse(error)
                raise
            except RoomNotReadyError:
                raise
            except BaseException as error:
                if folder.journal.number != before:
                    # Journal and agent now differ; opened again, the agent makes the change.
                    folder.journal.spoil(error)
                raise
            after = folder.journal.number
        if after != before:
            folder.wait(after)
        return result

    return cast(Method, call)


class DurableAgent(ABC):
    """An agent whose state can be copied, restored, and written to the disk as it changes.

    Attributes:
        recorder: its lock, its counts and the folder that changes are written to.
        clock: what time is left out while changes are made again.
    """

    recorder: Recorder
    clock: EvidenceClock

    @abstractmethod
    def copied(self) -> AgentState:
        """A copy of everything the agent knows, for whoever holds its lock."""

    def state(self) -> AgentState:
        """A copy of everything the agent knows."""
        with self.recorder.reading():
            return self.copied()

    @classmethod
    @abstractmethod
    def restore(
        cls: type[SomeAgent], state: AgentState, clock: Clock | None = time.time
    ) -> SomeAgent:
        """An agent that continues from a state as the one it was copied from would."""

    @abstractmethod
    def pass_time(self) -> None:
        """Do what is due since the last call; the lock is held."""

    @abstractmethod
    def redo(self, change: str, arguments: dict[str, Any]) -> None:
        """Make a change again that was read from a journal."""

    def save(self, path: Any) -> None:
        """Write everything the agent knows to one file, which is replaced whole or not at all."""
        write_state(path, self.state())

    @classmethod
    def load(
        cls: type[SomeAgent],
        path: Any,
        policy: Policy | None = None,
        *,
        clock: Clock = time.time,
    ) -> SomeAgent:
        """The agent that `save` wrote: it makes exactly the decisions that one would have made.

        A file that is damaged, foreign, of another version, of another precision or of another policy
        is refused with an `AgentFileError`. Reading runs no code of the file's.

        Args:
            path: the file.
            policy: what the agent was made with. Needed only where the policy has parts that a file
                cannot hold: a link or a program of the user's own, learned weights, ...
            clock: as in `Agent`. The time since the agent was saved counts.
        """
        return cls.restore(read_state(path, policy), as_clock(clock))

    @classmethod
    def open(
        cls: type[SomeAgent],
        folder: Any,
        policy: Policy | None = None,
        seed: Any = 0,
        *,
        fsync: bool = True,
        snapshot_every: int = 20_000,
        clock: Clock = time.time,
        **settings: Any,
    ) -> SomeAgent:
        """The agent that is kept in a folder; it is made if there is none.

        Every change is in the folder's journal before the call that makes it returns: an agent opened
        again after a crash knows all it has ever answered, and continues as it would have. One agent
        at a time can be open in a folder. When the disk fails, calls raise a `JournalError`, and
        nothing changes until the agent is opened again.

        Args:
            folder: where to keep it.
            policy: what the agent is made with, or was; without one, seed and settings are not needed
                either, but there must be an agent.
            seed: decides every draw.
            fsync: whether a call waits until the disk has the change. Without, changes survive the end
                of the process, but the latest perhaps not a loss of power.
            snapshot_every: after how many changes to write a snapshot of the whole state, so that
                opening the agent has no more than so many to make again.
            clock: as in `Agent`. The time for which the agent was closed counts.
            settings: further arguments of `Agent`. Those of an agent that is there must agree, but for
                what it started from, `posterior` and `data`, which it knows.
        """
        every = as_count(snapshot_every, "Agent snapshot_every")
        kept = AgentFolder(folder, fsync=fsync, snapshot_every=every, must_exist=policy is None)
        try:
            state = kept.newest_state(policy)
            if state is not None:
                if policy is not None:
                    _check_agree(state, folder, policy, seed, settings)
                agent = cls.restore(state, clock=None)  # time passes as the journal says
                agent.recorder.is_silent = True  # the first call says what there is to warn of
                kept.replay(agent.redo)
                agent.recorder.is_silent = False
                agent.clock.now = as_clock(clock)
            elif policy is not None:
                agent = cls(policy, seed, clock=clock, **settings)  # pyright: ignore[reportCallIssue]
                kept.begin(agent.state())
            else:
                raise kept.no_agent()
            kept.follow(agent.recorder.lock, agent.copied)
        except BaseException:
            kept.lock.release()
            raise
        agent.recorder.folder = kept
        return agent

    def snapshot(self) -> None:
        """Write everything the agent knows to the folder it was opened in."""
        self._folder().snapshot()

    @property
    def trouble(self) -> str | None:
        """Why an agent that is kept in a folder cannot be changed any more, or None if it can."""
        return None if self.recorder.folder is None else self.recorder.folder.journal.trouble

    def close(self) -> None:
        """Release the folder it was opened in; the agent cannot be changed any more."""
        self._folder().close()

    def __enter__(self: SomeAgent) -> SomeAgent:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _folder(self) -> AgentFolder:
        if self.recorder.folder is None:
            raise TypeError(
                "this agent lives in no folder; make it with Agent.open(folder, policy), or use save"
            )
        return self.recorder.folder


def _check_agree(
    state: AgentState, folder: Any, policy: Policy, seed: Any, settings: dict[str, Any]
) -> None:
    """Refuse to continue with an agent that was made with another seed or other settings."""
    there = state.settings._asdict() | {"labels": state.labels}
    settings = {name: given for name, given in settings.items() if name not in STARTED_FROM}
    unknown = settings.keys() - there.keys()
    if unknown:
        known = ", ".join((*AgentSettings._fields, "labels"))
        raise TypeError(f"Agent has no argument {sorted(unknown)[0]!r}; it has {known}")
    for name, given in settings.items():
        found = there[name]
        if name == "labels":
            given = labels_of(given, policy.problem)
            # Actions may have been added.
            found = found if found is None or given is None else found[: len(given)]
        if given != found:
            raise AgentFileError(
                f"the agent in {folder} was made with {name}={short(found)}, not {short(given)}; hand in "
                "what it was made with, or begin another one in another folder"
            )
    if not np.array_equal(jax.random.key_data(fused_key(seed)), state.key):
        raise AgentFileError(
            f"the agent in {folder} was made with another seed than {seed!r}; hand in that one, or "
            "begin another agent in another folder"
        )
