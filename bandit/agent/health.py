"""What an agent says of its own accord when its inference has trouble."""

import warnings
from collections.abc import Mapping
from typing import Any

from ...inference import Status

__all__ = ["AgentWarning", "Health"]


class AgentWarning(UserWarning):
    """An agent's inference has trouble, such as fits that do not converge; it goes on with what it has.

    Each agent warns once of each kind of trouble; `Agent.status` says how often it has occurred.

    Example:
        >>> import warnings
        >>> from mixts.bandit import AgentWarning
        >>> warnings.simplefilter("error", AgentWarning)  # or: "ignore"
    """


class Health:
    """The kinds of trouble that an agent has warned of."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def tell(self, counts: Mapping[str, Any]) -> None:
        """Warn of trouble, once of each kind."""
        found = {kind: n for kind, n in counts.items() if kind not in self._said and n.any()}
        if found:
            self._said |= set(found)
            self.warn(f"the agent's posterior has trouble: {Status(found)}; see agent.status()")

    def warn(self, message: str) -> None:
        """Warn, whoever called the agent."""
        warnings.warn(message, AgentWarning, stacklevel=6)
