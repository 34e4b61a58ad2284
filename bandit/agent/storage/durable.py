"""What outlives a process: agents that are saved and loaded, or live in a folder."""

from abc import ABC, abstractmethod
from typing import Any, TypeVar

import jax
import numpy as np

from ....inference.random import fused_key
from ....models.arrays import as_count
from ...policies.policy import Policy
from ..inputs import as_labels
from ..state import AgentSettings, AgentState
from .file import AgentFileError
from .folder import AgentFolder, open_folder
from .snapshot import read_state, write_state

__all__ = ["Durable"]

SomeAgent = TypeVar("SomeAgent", bound="Durable")


class Durable(ABC):
    """An agent whose state can be taken out, put back, and written down as it changes."""

    _journal: Any
    _lock: Any

    @abstractmethod
    def state(self) -> AgentState:
        """Everything the agent knows, in arrays of its own."""

    @classmethod
    @abstractmethod
    def restore(cls: type[SomeAgent], state: AgentState) -> SomeAgent:
        """An agent that goes on from a state as the one it was taken from would."""

    @abstractmethod
    def redo(self, change: str, arguments: dict[str, Any]) -> None:
        """Make a change again that a journal has taken down."""

    def save(self, path: Any) -> None:
        """Write everything the agent knows to one file, which is replaced whole or not at all."""
        write_state(path, self.state())

    @classmethod
    def load(cls: type[SomeAgent], path: Any, policy: Policy | None = None) -> SomeAgent:
        """The agent that `save` wrote: it makes exactly the decisions that one would have made.

        A file that is damaged, foreign, of a later version, of another precision or of another policy
        is refused with an `AgentFileError`. Reading runs no code of the file's.

        Args:
            path: the file.
            policy: what the agent was made with. Needed only where the policy has parts that a file
                cannot hold: a link or a program of the user's own, learned weights, ...
        """
        return cls.restore(read_state(path, policy))

    @classmethod
    def open(
        cls: type[SomeAgent],
        folder: Any,
        policy: Policy | None = None,
        seed: Any = 0,
        *,
        fsync: bool = True,
        snapshot_every: int = 20_000,
        **settings: Any,
    ) -> SomeAgent:
        """The agent that lives in a folder; it is made if there is none.

        Every change is in the folder's journal before the call that makes it returns: an agent opened
        again after a crash knows all it has ever answered, and goes on as it would have. One agent at
        a time can be open in a folder. When the disk fails, calls raise a `JournalError`, and nothing
        changes until the agent is opened again.

        Args:
            folder: where to keep it.
            policy: what the agent is made with, or was; without one, seed and settings are not needed
                either, but there must be an agent.
            seed: decides every draw.
            fsync: whether a call waits until the disk has the change. Without, changes survive the end
                of the process, but the latest perhaps not a loss of power.
            snapshot_every: after how many changes to write down all the agent knows, so that opening it
                has no more than so many to make again.
            settings: further arguments of `Agent`. Those of an agent that is there must agree.
        """
        every = as_count(snapshot_every, "Agent snapshot_every")

        def restore(state: AgentState) -> SomeAgent:
            if policy is not None:
                _check_agree(state, folder, policy, seed, settings)
            return cls.restore(state)

        make: Any = None if policy is None else lambda: cls(policy, seed, **settings)  # pyright: ignore[reportCallIssue]
        return open_folder(folder, make, restore, policy, fsync=fsync, snapshot_every=every)

    def snapshot(self) -> None:
        """Write down all the agent knows, in the folder it was opened in."""
        self._folder().snapshot()

    @property
    def trouble(self) -> str | None:
        """Why an agent that lives in a folder takes nothing in any more, or None if it does."""
        return None if self._journal is None else self._folder().trouble

    def close(self) -> None:
        """Let go of the folder it was opened in; the agent cannot be changed any more."""
        self._folder().close()

    def __enter__(self: SomeAgent) -> SomeAgent:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _folder(self) -> AgentFolder:
        if not isinstance(self._journal, AgentFolder):
            raise TypeError(
                "this agent lives in no folder; make it with Agent.open(folder, policy), or use save"
            )
        return self._journal


def _check_agree(
    state: AgentState, folder: Any, policy: Policy, seed: Any, settings: dict[str, Any]
) -> None:
    """Refuse to go on with an agent that was made with another seed or other settings."""
    there = state.settings._asdict() | {"labels": state.labels}
    unknown = settings.keys() - there.keys()
    if unknown:
        known = ", ".join((*AgentSettings._fields, "labels"))
        raise TypeError(f"Agent has no argument {sorted(unknown)[0]!r}; it has {known}")
    for name, given in settings.items():
        found = there[name]
        if name == "labels":
            given = as_labels(given, policy.problem)
            # More may have been added.
            found = found if found is None or given is None else found[: len(given)]
        if given != found:
            raise AgentFileError(
                f"the agent in {folder} was made with {name}={found!r}, not {given!r}; hand in what it "
                "was made with, or begin another one in another folder"
            )
    if not np.array_equal(jax.random.key_data(fused_key(seed)), state.key):
        raise AgentFileError(
            f"the agent in {folder} was made with another seed than {seed!r}; hand in that one, or "
            "begin another agent in another folder"
        )
