"""An agent behind an application: it chooses actions, and learns from rewards as they arrive."""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...inference.gaussian.new_vectors import NewVectors, newcomers
from ...inference.progress import task
from ...models import Hierarchy
from ...models.arrays import as_count
from ...models.messages import short
from ..policies.policy import Policy
from .action_names import Position
from .decisions import AgentError, Decision, Decisions, Label
from .evidence_clock import as_clock
from .inputs import are_many, as_id, as_ids, as_log, as_size, how_many_new
from .knowledge import AgentKnowledge
from .migration import check_all_are_kept, learn_again, moved_state
from .node_names import NewNodes, NodeNames, as_new_nodes
from .state import checked_settings, first_state
from .storage.durable import recorded

__all__ = ["Agent"]


class Agent(AgentKnowledge):
    """A policy with a memory: one object that threads can share.

    `act` chooses an action and returns a `Decision` with an id. Its reward is given by that id, once,
    later, in any order or never (`reward`); observations made elsewhere go to `update`. After the same
    observations the posterior is the same in whatever order they arrived, but for rounding.

    Decision `t` draws from `fold_in(key(seed), t)`: the same calls give the same decisions. A call that
    does not fit is refused with an `AgentError`, which changes nothing but `counts`.

    A call costs what the policy costs with K actions (a linear Thompson sampler: O(K d^2) to act and
    O(d^2) to learn) and some tens of microseconds. It is faster if JAX's dispatch is synchronous, which
    the application has to decide: `jax.config.update("jax_cpu_enable_async_dispatch", False)` before
    anything is computed.

    Args:
        policy: `ThompsonSampling` on any backend, a baseline such as `LinTS(hierarchy)`, `LinUCB`, ...
        seed: decides every draw.
        labels: a name for each action, a string or anything else that is hashable; by default those of
            the hierarchy's last level, if it has any. Actions with labels are called by nothing else,
            unless by a `Position`; without labels by their numbers.
        keep: how many of the newest decisions can still be rewarded; older ones expire.
        propensity_draws: if given, every decision has its probability, estimated from so many further
            draws, which take most of its time.
        forget: if given, a number in (0, 1]: all evidence is multiplied by it before the next
            observation, so that the agent follows a changing world (see `GaussianBackend.forget`).
        forget_every: forget only before every so many observations, which is cheaper.
        half_life: if given, a positive number of seconds: evidence counts half when so much time has
            passed, whatever was observed meanwhile, and whether or not the agent was running.
        clock: what says the time in seconds, for `half_life`. It must go on while the agent is closed.
        posterior: a state of the policy to start from, such as `policy.condition` or the `condition` of
            its backend returns; by default the prior.
        data: `Data` to start from, conditioned on at once; it names actions by their numbers.

    Example:
        >>> from mixts.bandit import LinTS
        >>> from mixts.models import linear
        >>> agent = Agent(LinTS(linear([[1.0], [0.5]], dim=2)), labels=["a", "b"])
        >>> decision = agent.act([1.0, 0.3])
        >>> agent.reward(decision.id, 1.0)
        >>> agent
        Agent(2 actions, 1 decisions, 1 observations)
    """

    def __init__(
        self,
        policy: Policy,
        seed: Any = 0,
        *,
        labels: Sequence[Label] | None = None,
        keep: int = 100_000,
        propensity_draws: int | None = None,
        forget: float | None = None,
        forget_every: int = 1,
        half_life: float | None = None,
        clock: Callable[[], float] = time.time,
        posterior: Any = None,
        data: Any = None,
    ):
        if not isinstance(policy, Policy):
            raise TypeError(
                f"Agent: got {short(policy)}; expected a policy, such as "
                "ThompsonSampling(ClosedForm(hierarchy))"
            )
        settings = checked_settings(keep, propensity_draws, forget, forget_every, half_life)
        self.start(first_state(policy, seed, labels, settings, posterior), as_clock(clock))
        if data is not None:
            self._learn(*as_log(data, policy))

    # Choosing.

    @recorded
    def act(self, context: Any, *, eligible: Any = None) -> Decision:
        """Choose an action in a context.

        Args:
            context: (d,), shared by all actions, or (K, d), a row for each action of `labels`. One with
                names (a dict, a pandas `Series` or table) is matched by the hierarchy's `components`,
                and rows with names by `labels`.
            eligible: which actions may be chosen: names, a `Position`, or (K,) of True and False in the
                order of `labels`, or by name. By default all.
        """
        log, names = self.decisions, self.names
        x = self.checks.context(context, names)
        full = x if x.ndim == 1 else names.spread(x)
        allowed = names.all_open if eligible is None else names.allowed(eligible)
        index, probability = self.engine.choose(log.made, full, allowed)
        x, is_plain = (x, eligible is None) if x.ndim == 1 else (full[index], False)
        if self.recorder.folder is not None:
            logged = None if probability is None else np.array([probability])
            chosen = np.array([index], np.int32)
            self.recorder.record(
                "decide", contexts=x[None], actions=chosen, probabilities=logged, is_plain=is_plain
            )
        if log.append_one(x, index, probability, is_plain=is_plain):
            self.recorder.counts["expired"] += 1
        return Decision(log.made - 1, names.name(index), index, probability)

    @recorded
    def slate(self, context: Any, size: int | np.integer, *, eligible: Any = None) -> Decisions:
        """Choose the `size` best actions of one draw, the best first, each a decision of its own.

        Their probabilities, where they are logged, are those of each action in its place.
        """
        x = self.names.spread(self.checks.context(context, self.names))
        allowed = self.names.allowed(eligible)
        size = as_size(size, int(np.count_nonzero(allowed)))
        self.decisions.check_fits(size)
        chosen, probabilities = self.engine.choose_slate(self.decisions.made, x, allowed, size)
        own = x[chosen] if x.ndim == 2 else np.broadcast_to(x, (size, len(x)))
        return self._decide(own, chosen, probabilities, is_plain=False)

    @recorded
    def act_many(self, contexts: Any, *, eligible: Any = None) -> Decisions:
        """Choose an action in each of many contexts, in one call, each by a draw of its own.

        Numbers of contexts that have the same next power of two share one compiled program.

        Args:
            contexts: (n, d), or (n, K, d) with a row for each action of `labels`.
            eligible: which actions may be chosen in all of them, as in `act`.
        """
        x = self.checks.contexts(contexts, self.names)
        allowed = self.names.allowed(eligible)
        self.decisions.check_fits(len(x))
        full = x if x.ndim == 2 else self.names.spread(x)
        chosen, probabilities = self.engine.choose_many(self.decisions.made, full, allowed)
        own = x if x.ndim == 2 else full[np.arange(len(x)), chosen]
        is_plain = x.ndim == 2 and eligible is None
        return self._decide(own, chosen, probabilities, is_plain=is_plain)

    def _decide(
        self,
        contexts: np.ndarray,
        actions: np.ndarray,
        probabilities: np.ndarray | None,
        is_plain: bool,
    ) -> Decisions:
        """Record and log decisions: the context (n, d) of each chosen action (n,); see `DecisionLog`."""
        columns = {"contexts": contexts, "actions": actions, "probabilities": probabilities}
        self.recorder.record("decide", **columns, is_plain=is_plain)
        ids = self.decisions.made + np.arange(len(actions))
        self.recorder.counts["expired"] += self.decisions.append(**columns, is_plain=is_plain)
        return Decisions(ids, actions, probabilities, self.names.labels)

    def redo(self, change: str, arguments: dict[str, Any]) -> None:
        """Make a change again that was read from a journal."""
        if change == "decide":
            self.checks.decided(**arguments, K=len(self.names))
            with self.recorder.lock:
                self._decide(**arguments)
        else:
            positions = {
                "update": "action",
                "remove_actions": "actions",
                "reopen_actions": "actions",
            }
            if change in positions:
                arguments[positions[change]] = Position(arguments[positions[change]])
            if change == "add_actions" and "nodes" in arguments:
                nodes = arguments["nodes"].items()
                arguments["nodes"] = {name: NewNodes(**given) for name, given in nodes}
            getattr(self, change)(**arguments)

    # Learning.

    @recorded
    def update(self, context: Any, action: Any, reward: Any, exposure: Any = 1.0) -> None:
        """Learn from one observation, or from many: contexts (n, d), n actions, n rewards.

        Actions are given by their labels, by numbers where there are no labels, or by a `Position`;
        those that were removed may still be learned from. The exposure, one number or n, is how many
        rewards each stands for; see `Data`.
        """
        checks, names = self.checks, self.names
        if type(reward) is not float and are_many(reward, "rewards"):
            m = checks.exposures(exposure, np.size(reward))
            x, chosen, y = (
                checks.contexts(context, names),
                names.numbers(action),
                checks.rewards(reward, m),
            )
            if not len(x) == len(chosen) == len(y):
                raise AgentError(
                    f"got {len(x)} contexts, {len(chosen)} actions and {len(y)} rewards; expected as "
                    "many of each"
                )
            x = x if x.ndim == 2 else names.rows_of(x, chosen)
        else:
            m = checks.exposure(exposure)
            x, chosen, y = (
                checks.context(context, names),
                names.number(action),
                checks.reward(reward, m),
            )
            x = x if x.ndim == 1 else names.rows_of(x[None], np.array([chosen]))[0]
        if self.recorder.folder is not None:
            self.recorder.record("update", context=x, action=chosen, reward=y, **_unless_one(m))
        self._learn(x, chosen, y, m)

    @recorded
    def reward(self, decision: Any, reward: Any, exposure: Any = 1.0) -> None:
        """Learn the reward of a decision, given by its id, or many rewards by as many ids.

        The reward may stand for several, such as clicks out of impressions: `exposure` says how many,
        one number or as many as there are ids; see `Data`.

        If one of many is refused, none is learned. Rewards of decisions for an action that was removed
        since still count: they are evidence of the effects it shares.
        """
        log = self.decisions
        if type(decision) is not int and are_many(decision, "ids"):
            ids, m = as_ids(decision), self.checks.exposures(exposure, np.size(reward))
            y = self.checks.rewards(reward, m)
            if len(ids) != len(y):
                raise AgentError(f"got {len(ids)} ids and {len(y)} rewards; expected as many")
            rows = log.find(ids)
            actions = log.actions[rows]
        else:
            ids, m = as_id(decision), self.checks.exposure(exposure)
            y = self.checks.reward(reward, m)
            rows = log.find_one(ids)
            actions = int(log.actions[rows])
        if self.recorder.folder is not None:
            self.recorder.record("reward", decision=ids, reward=y, **_unless_one(m))
        self._learn(log.contexts[rows], actions, y, m, rows)

    def _learn(
        self, contexts: np.ndarray, actions: Any, rewards: Any, exposure: Any, rows: Any = None
    ) -> None:
        """Update with one observation or many; `rows` are those of their decisions in the log.

        Decisions are marked as rewarded and observations counted if they are learned, and else not:
        Control-C may come at any call.
        """
        engine, counts, log = self.engine, self.recorder.counts, self.decisions
        learn: Callable[..., None] = engine.learn
        keep: Callable[..., None] = self.observations.append
        if type(rewards) is float:
            n, learn, keep = 1, engine.learn_one, self.observations.append_one
        else:
            n = len(rewards)
        if engine.keeps_rewards:
            engine.reserve(n)
        before, first = engine.packed_state, counts["observations"]
        try:
            counts["observations"] = first + n
            if rows is not None:
                log.rewards[rows], log.exposure[rows] = rewards, exposure
            learn(first, contexts, actions, rewards, exposure)
        except BaseException:
            if engine.packed_state is before:
                counts["observations"] = first
                if rows is not None:
                    log.rewards[rows] = np.nan
            raise
        keep(contexts, actions, rewards, exposure)

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

    def migrate(
        self, policy: Policy, *, labels: Sequence[Label] | None = None, partial: bool = False
    ) -> None:
        """Continue with another policy, which learns from everything the agent has learned from.

        Its hierarchy may have other variances, other effects or levels, more actions and another backend,
        but contexts are the same. Actions are matched by their labels, or by their numbers where they
        have no labels; their positions become those of the new hierarchy. Decisions keep their ids, so
        their late rewards still count. Other calls wait meanwhile. An agent that is kept in a folder is
        opened with the new policy afterwards.

        Args:
            policy: what to continue with.
            labels: names of its actions, by default those that its hierarchy declares.
            partial: whether to begin from the observations that are kept, where the agent has learned
                from more than `keep`. By default that is refused, for evidence would be lost.
        """
        if not isinstance(policy, Policy):
            raise TypeError(f"migrate: got {short(policy)}; expected a policy")
        with task("Agent.migrate"), self.recorder.replacing() as write:
            state = self.copied()
            if not partial:
                check_all_are_kept(state)
            moved, observed = moved_state(state, policy, labels)
            agent = type(self).restore(moved, clock=None)
            learn_again(agent, observed)
            agent.clock.now = self.clock.now
            parts = {name: part for name, part in vars(agent).items() if name != "recorder"}
            write(agent.copied)
            vars(self).update(parts)  # in one step: Control-C may come at any call
            self.recorder.counts.update(agent.recorder.counts)
            self.recorder.pending = agent.recorder.pending

    def __repr__(self) -> str:
        counts = self.counts
        return (
            f"Agent({len(self.names.open)} actions, {counts['decisions']} decisions, "
            f"{counts['observations']} observations)"
        )


def _unless_one(exposure: Any) -> dict[str, Any]:
    """Exposures as a journal holds them: not at all where they are one."""
    plain = exposure == 1.0 if type(exposure) is float else (exposure == 1).all()
    return {} if plain else {"exposure": exposure}


def _written(level: NewVectors | None, given: NewNodes) -> dict[str, Any]:
    """New vectors as a journal holds them: with the weights that they were found to have."""
    mean, cov = (None if part is None else np.asarray(part) for part in (given.mean, given.cov))
    parents = None if level is None else level.parents or None
    return given._replace(parents=parents, mean=mean, cov=cov)._asdict()
