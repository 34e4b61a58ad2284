"""The nodes above the actions of an agent, by label and by position, and new ones as a user gives them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...inference.gaussian.new_vectors import NewVectors
from ...models import Hierarchy, Level
from ...models.labels import as_hashable, as_label
from ...models.messages import listed, short
from ...models.weights import arrows_to
from .action_names import Position
from .decisions import AgentError, Label, LabelTaken

__all__ = ["Names", "NewNodes", "NodeNames", "as_new_nodes"]


class NewNodes(NamedTuple):
    """New nodes of a level above the actions, for `Agent.add_actions`.

    Attributes:
        parents: the parent of each, a list of labels, or of numbers where the parent level has no labels;
            or weights as `add_actions` takes them. None where the level has no parents.
        labels: names of the new nodes, where the level has labels.
        mean: as in `Level`; needed where every node has a mean of its own.
        cov: as in `Level`; needed where every node has a covariance of its own.

    Example:
        >>> from mixts.bandit import Agent, ThompsonSampling
        >>> from mixts.inference import ClosedForm
        >>> from mixts.models import Gaussian, Hierarchy, Level, Sparse
        >>> kind = Level("kind", 2, labels=["shoes", "bags"])
        >>> item = Level("item", 2, parents={"kind": Sparse([[0], [1]])}, labels=["boot", "purse"])
        >>> agent = Agent(ThompsonSampling(ClosedForm(Hierarchy([kind, item], Gaussian(), dim=1))))
        >>> agent.add_actions(["hats"], labels=["cap"], nodes={"kind": NewNodes(labels=["hats"])})
        ['cap']
    """

    parents: Any = None
    labels: Sequence[Label] | None = None
    mean: Any = None
    cov: Any = None


def as_new_nodes(nodes: Any) -> dict[str, NewNodes]:
    """What a user gave as new nodes: level's name -> `NewNodes`, or their parents alone."""
    if nodes is None:
        return {}
    if not isinstance(nodes, Mapping) or not nodes:
        raise AgentError(
            f"add_actions: nodes is {short(nodes)}; expected a dict from a level's name to NewNodes(...), "
            "such as {'category': NewNodes(['shoes'], labels=['boots'])}"
        )
    return {
        name: given if isinstance(given, NewNodes) else NewNodes(given)
        for name, given in nodes.items()
    }


class Names(NamedTuple):
    """How many vectors of a level there are, and their labels or None."""

    size: int
    labels: tuple[Label, ...] | None = None


class NodeNames:
    """The nodes of every level above the actions.

    Args:
        names: level's name -> its nodes, top to bottom.
        actions: the name of the actions' level, or None where there are no levels.

    Attributes:
        names: see there.
    """

    def __init__(self, names: Mapping[str, Names], actions: str | None):
        self.names, self._actions = dict(names), actions
        self._positions: dict[str, dict[Label, int]] = {
            name: {label: i for i, label in enumerate(known.labels or ())}
            for name, known in names.items()
        }

    @staticmethod
    def declared(problem: Any) -> dict[str, Names]:
        """The nodes that a hierarchy declares; a program written by hand has no levels."""
        above = problem.levels[:-1] if isinstance(problem, Hierarchy) else ()
        return {
            level.name: Names(level.size, None if level.labels is None else tuple(level.labels))
            for level in above
        }

    @property
    def sizes(self) -> dict[str, int]:
        """How many nodes of each level there are."""
        return {name: known.size for name, known in self.names.items()}

    def with_new(self, new: Sequence[tuple[NewVectors, list[Label] | None]]) -> "NodeNames":
        """The nodes there will be with new ones, checked by `check_new`."""
        names = dict(self.names)
        for level, labels in new:
            known = names[level.name]
            joined = None if known.labels is None else (*known.labels, *(labels or ()))
            names[level.name] = Names(known.size + level.size, joined)
        return NodeNames(names, self._actions)

    def check_levels(
        self, given: Mapping[str, Any], growing: Sequence[str], what: str
    ) -> list[str]:
        """The names of levels, top to bottom; refused where one cannot take in new nodes."""
        for name in given:
            if name not in self.names:
                hint = f"the levels above the actions are {listed(self.names)}"
                if name == self._actions:
                    hint = "that is the level of the actions, of which weights and labels say more"
                raise AgentError(f"{what}: there is no level {short(name)} for new nodes; {hint}")
            if name not in growing:
                able = f", as those of {listed(growing)} are" if growing else ""
                raise AgentError(
                    f"{what}: level '{name}' cannot take in new nodes while the agent runs. Its nodes "
                    f"would have to be kept independently of one another given their parents{able}: in a "
                    "tree, on ClosedForm or Laplace, without a joint covariance. Declare a hierarchy with "
                    "the new nodes, and call Agent.migrate"
                )
        return [name for name in self.names if name in given]

    def check_new(self, name: str, labels: Any, count: int) -> list[Label] | None:
        """Labels of `count` more nodes of a level, refused if they do not fit."""
        here, known = f"add_actions: level '{name}'", self._positions[name]
        if self.names[name].labels is None:
            if labels is not None:
                raise AgentError(f"{here} has no labels, and got {short(labels)}; leave them out")
            return None
        try:
            given = as_hashable(labels, count, here, "new node")
        except TypeError as error:
            raise AgentError(str(error)) from error
        if len(given) != count:
            raise AgentError(f"{here}: got {len(given)} labels; expected {count}")
        for label, times in Counter(given).items():
            if label in known or times > 1:
                raise LabelTaken(f"{here}: label {short(label)} is taken; choose another")
        return list(given)

    def weights(self, level: Level, given: Any) -> Any:
        """Weights of new vectors of a level: what was given, or one parent each, by name."""
        if not isinstance(given, Mapping):
            if len(level.parents or {}) != 1 or given is None:
                return given
            given = {next(iter(level.parents or {})): given}
        declared = level.parents or {}
        return {
            parent: self._on_parent(parent, rows, declared[parent]) if parent in declared else rows
            for parent, rows in given.items()
        }

    def _on_parent(self, parent: str, given: Any, like: Any) -> Any:
        rows = self._as_positions(parent, given)
        if rows is None:
            return given
        return arrows_to(rows, self.names[parent].size, like)

    def _as_positions(self, parent: str, given: Any) -> np.ndarray | None:
        """(m,) positions of parents that are named one by one; None where weights are given."""
        positions, size = self._positions[parent], self.names[parent].size
        if isinstance(given, Position):
            return self._inside(parent, np.atleast_1d(np.asarray(given.numbers)), size)
        if isinstance(given, str | bytes):
            raise AgentError(
                f"add_actions: parents are {short(given)}; expected a list with one of level "
                f"'{parent}' for each, such as [{short(given)}]"
            )
        if not isinstance(given, Sequence | np.ndarray):
            return None
        each = [as_label(one) for one in given]
        if not each or any(np.ndim(one) and not _is_known(one, positions) for one in each):
            return None  # rows of weights
        if self.names[parent].labels is None:
            return self._inside(parent, np.asarray(each), size)
        unknown = [one for one in each if not _is_known(one, positions)]
        if unknown:
            raise AgentError(
                f"add_actions: level '{parent}' has no node {short(unknown[0])}; its labels are "
                f"{listed(positions)}, and a new one comes in the same call by nodes={{'{parent}': ...}}"
            )
        return np.array([positions[one] for one in each])

    def _inside(self, parent: str, rows: np.ndarray, size: int) -> np.ndarray:
        if rows.dtype.kind not in "iu" or rows.ndim != 1:
            raise AgentError(
                f"add_actions: parents are {short(rows.tolist())}; expected whole numbers from 0 to "
                f"{size - 1}, the positions of nodes of level '{parent}', which has no labels"
            )
        outside = rows[(rows < 0) | (rows >= size)]
        if len(outside):
            raise AgentError(
                f"add_actions: level '{parent}' has no node {outside[0]}; it has {size}, from 0 to "
                f"{size - 1}, and a new one comes in the same call by nodes={{'{parent}': ...}}"
            )
        return rows


def _is_known(label: Any, positions: Mapping[Label, int]) -> bool:
    try:
        return label in positions
    except TypeError:  # not hashable
        return False
