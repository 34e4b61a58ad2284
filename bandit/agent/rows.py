"""An agent that speaks rows: visitors and items of tables, as a catalogue reads them."""

from typing import Any

import jax
import numpy as np
import pandas as pd

from ...models import Catalogue, Hierarchy
from ...models.catalogue.table import CatalogueError, as_table
from ...models.messages import short
from ..tables.frames import effects_frame
from .changing_agent import ChangingAgent
from .decisions import AgentError, Label
from .node_names import NewNodes

__all__ = ["RowAgent", "as_catalogue"]


class RowAgent(ChangingAgent):
    """An agent with a catalogue, by which visitors and new items are rows of tables.

    Attributes:
        catalogue: how rows are read, or None.
    """

    catalogue: Catalogue | None = None

    def speak(self, catalogue: Catalogue | None) -> None:
        """Read rows by a catalogue from now on."""
        self.catalogue = catalogue
        self.checks.encode = None if catalogue is None else self._encoded

    def add_items(self, items: Any) -> list[Label]:
        """Add the items of a table, with the columns that the catalogue was made of.

        They start from what is known of their effects. Nodes of a tree that there are not yet are added
        with them, where the catalogue was made with `missing="new"`.

        Returns:
            Their labels.
        """
        catalogue = self._known()
        try:
            new = catalogue.new_items(items)
        except CatalogueError as error:
            raise AgentError(f"add_items: {error}") from error
        nodes = {
            level: NewNodes(_parents(catalogue, level, nodes), [node.label for node in nodes])
            for level, nodes in new.nodes.items()
        }
        labels = self.add_actions(new.weights or None, labels=new.labels, nodes=nodes or None)
        self.catalogue = new.catalogue
        return labels

    def effects(self) -> pd.DataFrame:
        """What is known of the vectors above the actions: `level`, `label`, `component`, `mean`, `sd`."""
        hierarchy = self.policy.problem
        if not isinstance(hierarchy, Hierarchy):
            raise TypeError("a program written by hand has no levels whose effects could be named")
        return effects_frame(self.posterior(), hierarchy)

    def items(self, visitors: Any = None, draws: int = 1000) -> pd.DataFrame:
        """The actions that may be chosen, as `summary` tells of them; for each of several visitors.

        Args:
            visitors: a visitor as a dict, or a table of some, whose rows then number the first index; by
                default the average of those that were learned from.
            draws: how many draws `best` is estimated from.
        """
        if visitors is None:
            return self.summary(draws=draws)
        contexts = self._known().contexts(visitors)
        tables = {row: self.summary(context, draws) for row, context in enumerate(contexts)}
        together: Any = pd.concat
        return tables[0] if len(tables) == 1 else together(tables, names=["visitor"])

    def _known(self) -> Catalogue:
        if self.catalogue is None:
            raise AgentError(
                "this agent has no catalogue to read rows by; make it with Agent(policy, catalogue=...)"
            )
        return self.catalogue

    def _encoded(self, given: Any) -> Any:
        """Rows as contexts; what has no names is a context already."""
        if isinstance(given, np.ndarray | jax.Array) or _is_numbers(given):
            return given
        try:
            contexts = self._known().contexts(given)
        except (CatalogueError, TypeError) as error:
            raise AgentError(str(error)) from error
        return contexts[0] if _is_one(given) else contexts


def _parents(catalogue: Catalogue, level: str, nodes: Any) -> Any:
    """The parents of new nodes, by their labels; those at the top are below what all have in common."""
    own = catalogue.hierarchy[level]
    if not own.parents:
        return None
    labels: Any = catalogue.hierarchy[next(iter(own.parents))].labels
    return [labels[0] if node.parent is None else node.parent for node in nodes]


def _is_numbers(given: Any) -> bool:
    return isinstance(given, list | tuple) and not any(hasattr(row, "keys") for row in given)


def _is_one(given: Any) -> bool:
    """Whether this is one visitor: a dict of values, or a row of a table."""
    return isinstance(given, dict | pd.Series) and len(as_table(given, "visitor")) == 1


def as_catalogue(catalogue: Any, problem: Any) -> Catalogue | None:
    """A catalogue that fits an agent's problem."""
    if catalogue is None:
        return None
    if not isinstance(catalogue, Catalogue):
        raise TypeError(f"Agent catalogue: got {short(catalogue)}; expected a Catalogue")
    components = None if catalogue.encoding is None else catalogue.encoding.components
    if components is None or len(components) != problem.dim:
        size = "is not learned" if components is None else f"has {len(components)} numbers"
        raise ValueError(
            f"Agent catalogue: its context {size}, and that of the policy {problem.dim}; make the policy "
            "of catalogue.hierarchy"
        )
    if problem.num_actions != len(catalogue.labels):
        raise ValueError(
            f"Agent catalogue: it has {len(catalogue.labels)} items, and the policy {problem.num_actions} "
            "actions; make the policy of catalogue.hierarchy"
        )
    return catalogue
