"""What an agent says of its own accord when its inference has trouble."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ...inference import Status, Trouble, TroubleWarning

__all__ = ["AgentWarning", "Health"]


class AgentWarning(TroubleWarning):
    """An agent's inference has trouble, such as fits that do not converge; it goes on with what it has.

    Each agent warns once of each kind of trouble; `Agent.status` says how often it has occurred.

    Example:
        >>> import warnings
        >>> from mixts.bandit import AgentWarning
        >>> warnings.simplefilter("error", AgentWarning)  # or: "ignore"
    """


class Health:
    """The kinds of trouble that an agent has warned of.

    A warning may be an error, if the application has turned it into one. So it is said when a call has done
    its work: then journal and posterior agree whatever comes of it.

    Attributes:
        pending: warnings that are to be said when the call has done its work.
    """

    def __init__(self) -> None:
        self._said: set[str] = set()
        self.pending: list[AgentWarning] = []

    def tell(self, counts: Mapping[str, Any]) -> None:
        """Warn of trouble, once of each kind."""
        found = {kind: n for kind, n in counts.items() if kind not in self._said and np.any(n)}
        if found:
            self._warn(found, f"the agent's posterior has trouble: {Status(found)}")

    def tell_left_out(self, number: int) -> None:
        """Warn that the agent went back to a posterior that is sound, once."""
        if Trouble.NOT_FINITE not in self._said:
            message = (
                "the agent's posterior was not finite: it goes on from the last one that was, and "
                f"{number} observations are left out; check the model and the data"
            )
            self._warn([Trouble.NOT_FINITE], message)

    def _warn(self, kinds: Iterable[str], message: str) -> None:
        self._said.update(kinds)
        self.pending.append(AgentWarning(f"{message}; see agent.status()"))
