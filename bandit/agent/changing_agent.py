"""The part of an agent that changes what it chooses from: room, actions and nodes, other policies."""

import gc
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...inference.gaussian.new_vectors import NewVectors, newcomers
from ...inference.progress import task
from ...models import Hierarchy
from ...models.arrays import as_count
from .decisions import AgentError, Label
from .inputs import how_many_new
from .knowledge import AgentKnowledge
from .node_names import NewNodes, NodeNames, as_new_nodes
from .storage.durable import recorded

__all__ = ["ChangingAgent"]


class ChangingAgent(AgentKnowledge):
    """An agent whose actions come and go while it runs."""

    # Room, and programs for it.

    @recorded
    def reserve(
        self, *, rewards: int = 0, actions: int = 0, nodes: Mapping[str, int] | None = None
    ) -> None:
        """Make room for so many more rewards, where the policy keeps them, actions and nodes.

        Without it room doubles whenever it runs out, each time with programs of its own.

        Args:
            rewards: how many more.
            actions: how many more.
            nodes: level's name -> how many more of it; see `add_actions`.
        """
        rewards = rewards and as_count(rewards, "reserve rewards")
        actions = actions and as_count(actions, "reserve actions")
        more = {name: as_count(n, f"reserve nodes '{name}'") for name, n in (nodes or {}).items()}
        if more:
            self.nodes.check_levels(more, self.engine.levels_that_grow(), "reserve")
        needed = {name: self.nodes.sizes[name] + n for name, n in more.items()}
        if actions:
            needed[self._hierarchy().actions.name] = len(self.names) + actions
        self.engine.make_places(needed)
        self.names.resize(self.engine.capacity)
        self.engine.make_room(rewards)
        self.recorder.record("reserve", rewards=rewards, actions=actions, nodes=more)

    def warm_up(
        self,
        *,
        rewards: int = 0,
        actions: int = 0,
        nodes: Mapping[str, int] | None = None,
        act_many: Sequence[int] = (),
        freeze: bool = True,
    ) -> None:
        """Compile all that the agent needs before it serves, or load it from the disk.

        Without it the first call of each kind compiles what it needs. Also compiled are the programs
        for twice the room, for rewards and for actions; when half of that is taken, those for the next
        are compiled in the background. A second process finds compiled programs on the disk.

        Args:
            rewards: make room for so many more at once; see `reserve`.
            actions: make room for so many more at once.
            nodes: level's name -> make room for so many more of its nodes at once.
            act_many: for how many contexts `act_many` will be called.
            freeze: whether Python's garbage collector is to leave alone all objects of the process that
                there are afterwards (`gc.freeze`): JAX and its programs make so many of them that one
                look at all of them takes up to a third of a second, while every thread waits. Those that
                are given up later and refer to one another are then kept until `gc.unfreeze`.
        """
        if rewards or actions or nodes:
            self.reserve(rewards=rewards, actions=actions, nodes=nodes)
        with self.recorder.lock:
            self.engine.compile([as_count(n, "warm_up act_many") for n in act_many])
        if freeze:
            gc.collect()
            gc.freeze()

    # Adding and removing actions.

    @recorded
    def add_actions(
        self,
        weights: Any = None,
        *,
        labels: Sequence[Label] | None = None,
        mean: Any = None,
        cov: Any = None,
        nodes: Mapping[str, Any] | None = None,
    ) -> list[Label]:
        """Add actions, which start from what is known of their effects, and nodes above them.

        What is known of the others does not change by a bit. (There is one exception: the first
        covariance of its own that a new action has makes all others be written out.) Room for actions
        doubles when it runs out; the programs for that are compiled in the background (`warm_up`).

        Args:
            weights: parent level's name -> `(m, parent_size)` numbers, `(m, parent_size, dim, dim)`
                matrices or `Sparse`, as the actions so far have; the weights alone where there is one
                parent; None where there is none. Or the parent of each new action, on which its weight
                is one: a list of labels, or of numbers where the parent level has no labels.
            labels: m names, where the actions so far have labels.
            mean: as in `Level`; needed where every action has a mean of its own, as in `LinTS`.
            cov: as in `Level`; needed where every action has a covariance of its own.
            nodes: level's name -> `NewNodes`, or just their parents: new nodes above the actions, such
                as a category, which new actions of the same call may have as a parent. A level needs to
                be part of a tree; see `ClosedForm`. With nothing but nodes no actions are added.

        Returns:
            The labels, or numbers, of the new actions.

        Example:
            >>> from mixts.bandit import Agent, ThompsonSampling
            >>> from mixts.inference import ClosedForm
            >>> from mixts.models import Gaussian, Hierarchy, Level, Sparse
            >>> item = Level("item", 3, parents={"kind": Sparse([[0], [0], [1]])})
            >>> shop = Hierarchy([Level("kind", 2), item], Gaussian(), dim=1)
            >>> agent = Agent(ThompsonSampling(ClosedForm(shop)))
            >>> agent.add_actions([2, 0], nodes={"kind": NewNodes()})  # one more kind: number 2
            [3, 4]
        """
        hierarchy, names, start = self._hierarchy(), self.names, len(self.names)
        given = as_new_nodes(nodes)
        growing = self.engine.levels_that_grow() if given else []
        known, added = self.nodes, []
        for name in known.check_levels(given, growing, "add_actions"):
            own = given[name]
            level = self._newcomers(hierarchy, known, own, name)
            added.append((level, known.check_new(name, own.labels, level.size)))
            known = known.with_new(added[-1:])
        joining = [(level, self.nodes.sizes[level.name]) for level, _ in added]
        own, level, new_labels = NewNodes(weights, labels, mean, cov), None, None
        if not given or any(part is not None for part in own):
            level = self._newcomers(hierarchy, known, own, hierarchy.actions.name)
            new_labels = names.check_new(labels, level.size)
            joining.append((level, start))
        with task("Agent.add_actions"):
            extended = self.engine.extended(joining)
        if names.capacity != self.engine.capacity:
            names.resize(self.engine.capacity)
        # Recorded last, when everything that can fail has succeeded.
        change = _written(level, own._replace(labels=new_labels))
        change["weights"] = change.pop("parents")
        if added:
            change["nodes"] = {
                level.name: _written(level, given[level.name]._replace(labels=labels))
                for level, labels in added
            }
        self.recorder.record("add_actions", **change)
        self.engine.install(*extended)
        self.nodes = known
        if level is None:
            return []
        names.add(new_labels, level.size)
        self.observations.make_room_for_actions(len(names))
        return [names.name(start + i) for i in range(level.size)]

    def _hierarchy(self) -> Hierarchy:
        if not isinstance(self.engine.problem, Hierarchy):
            raise TypeError("a program written by hand has the actions that it has; add none")
        return self.engine.problem

    def _newcomers(
        self, hierarchy: Hierarchy, known: NodeNames, given: NewNodes, name: str
    ) -> NewVectors:
        """New vectors of a level, checked against the nodes there are."""
        weights = known.weights(hierarchy[name], given.parents)
        count = how_many_new(given.labels, given.mean)
        try:
            return newcomers(
                hierarchy, count, weights, given.mean, given.cov, name=name, sizes=known.sizes
            )
        except (TypeError, ValueError) as error:
            raise AgentError(f"add_actions: {error}") from error

    @recorded
    def remove_actions(self, actions: Any) -> None:
        """Choose these actions no more, given by one name or several, or by a `Position`.

        The evidence they gave of their effects stays, and rewards of decisions for them that arrive
        later will add to it. Their positions and labels are not given to others: `reopen_actions`
        brings them back.
        """
        numbers = self.names.check_closing(actions)
        self.recorder.record("remove_actions", actions=numbers)
        self.names.set_open(numbers, False)

    @recorded
    def reopen_actions(self, actions: Any) -> None:
        """Let removed actions be chosen again, under their labels, with all that is known of them."""
        numbers = self.names.check_opening(actions)
        self.recorder.record("reopen_actions", actions=numbers)
        self.names.set_open(numbers, True)


def _written(level: NewVectors | None, given: NewNodes) -> dict[str, Any]:
    """New vectors as a journal holds them: with the weights that they were found to have."""
    mean, cov = (None if part is None else np.asarray(part) for part in (given.mean, given.cov))
    parents = None if level is None else level.parents or None
    return given._replace(parents=parents, mean=mean, cov=cov)._asdict()
