"""An agent behind an application: it chooses actions, and learns from rewards as they arrive."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ...inference import Posterior, Status
from ...inference.gaussian.new_actions import newcomers
from ...models import Hierarchy
from ...models.arrays import as_count
from ...models.messages import short
from ..off_policy import LoggedDecisions
from ..policies.policy import Policy
from .action_names import ActionNames, Position
from .decisions import ActionProbabilities, AgentError, Decision, Decisions, Label
from .engine import Engine
from .inputs import Checks, are_many, as_id, as_ids, as_log, as_size, how_many_new
from .migration import check_all_are_kept, moved_state
from .state import AgentState, checked_settings, first_state
from .storage.durable import DurableAgent, Recorder, recorded
from .views import action_moments, as_frame, expected_rewards, shown_policy, shown_posterior

__all__ = ["Agent"]


class Agent(DurableAgent):
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
        posterior: Any = None,
        data: Any = None,
    ):
        if not isinstance(policy, Policy):
            raise TypeError(
                f"Agent: got {short(policy)}; expected a policy, such as "
                "ThompsonSampling(ClosedForm(hierarchy))"
            )
        settings = checked_settings(keep, propensity_draws, forget, forget_every)
        self._start(first_state(policy, seed, labels, settings, posterior))
        if data is not None:
            self._learn(*as_log(data, policy.problem))

    @classmethod
    def restore(cls, state: AgentState) -> "Agent":
        """An agent that continues from a state as the one it was copied from would."""
        agent = cls.__new__(cls)
        agent._start(state)
        return agent

    def _start(self, state: AgentState) -> None:
        self.recorder = Recorder(state.counts)
        self.engine = Engine(state.key, state.policy, state.posterior, state.settings)
        self._settings, self._made_with = state.settings, state.made_with
        self._log, self._observations = state.decisions.copy(), state.observations.copy()
        self._names = ActionNames(state.labels, state.is_open, self.engine.capacity)
        self._checks = Checks(state.policy.problem, self.engine.dtype)

    def state(self) -> AgentState:
        """A copy of everything the agent knows."""
        with self.recorder.lock:
            return AgentState(
                key=np.asarray(self.engine.key),
                policy=self.engine.policy,
                posterior=self.engine.posterior(),
                labels=None if self._names.labels is None else tuple(self._names.labels),
                is_open=self._names.is_open.copy(),
                decisions=self._log.copy(),
                observations=self._observations.copy(),
                counts=dict(self.recorder.counts),
                settings=self._settings,
                made_with=self._made_with,
            )

    @property
    def policy(self) -> Policy:
        """The policy, of all actions there have been, with their labels; removed ones are among them."""
        with self.recorder.lock:
            policy, names = self.engine.policy, self._names
            return shown_policy(policy, len(names), names.labels)

    @property
    def labels(self) -> list[Label]:
        """The actions that may be chosen, in the order of their numbers: names, or the numbers."""
        with self.recorder.lock:
            return [self._names.name(number) for number in self._names.open.tolist()]

    @property
    def counts(self) -> dict[str, int]:
        """What has happened so far.

        `decisions` made, `observations` learned from, decisions that `expired` without a reward; and
        rewards refused because their decision was `unknown`, had expired (`too_late`) or had its
        reward already (`duplicate`), and calls `refused` for any other reason.
        """
        with self.recorder.lock:
            return {"decisions": self._log.made} | self.recorder.counts

    def status(self) -> Status:
        """What went wrong in the policy's inference so far; see `Backend.status`.

        The agent looks at it from time to time, and warns once of each kind (`AgentWarning`). An
        observation after which scores would not be numbers is left out and counted as `not_finite`.
        """
        with self.recorder.lock:
            return self.engine.status()

    def posterior(self) -> Posterior:
        """What is known of every level, and draws from it.

        Row `i` of the actions is the action at position `i`, with its label; removed ones are there too,
        for they may come back. See `summary` for those that may be chosen.
        """
        with self.recorder.lock:
            policy, names = self.engine.policy, self._names
            known = policy.posterior(self.engine.posterior())
            return shown_posterior(known, len(names), names.labels)

    @recorded
    def summary(self, context: Any = None, draws: int = 1000) -> pd.DataFrame:
        """A table of the actions that may be chosen, by name.

        Its columns are `mean` and `sd`, the posterior mean and standard deviation of the reward that an
        action is expected to have in the context; `rewards`, how many rewards of it were learned from;
        and `best`, the share of `draws` draws in which it is the best of all.

        Args:
            context: as in `act`; by default the mean of the contexts that were learned from and kept.
            draws: how many draws `best` is estimated from, with a standard error of at most
                `0.5 / sqrt(draws)`.
        """
        names, seen = self._names, self._observations
        if context is None and seen.made:
            context = seen.newest()[0].mean(0)
        elif context is None and self._checks.dim == 1:
            context = np.ones(1)
        if context is None:
            raise AgentError(
                "there are no observations yet whose mean context could be used; give a context"
            )
        known = action_moments(self.engine.policy.posterior(self.engine.posterior()))
        x, of = self._checks.context(context, names), names.open
        mean, sd = expected_rewards(self._checks.family, x, *(part[of] for part in known))
        best = self.probabilities(x, draws).probability
        columns = {"mean": mean, "sd": sd, "rewards": seen.times[of], "best": best}
        return as_frame([names.name(i) for i in of.tolist()], columns)

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
        log, names = self._log, self._names
        x = self._checks.context(context, names)
        full = x if x.ndim == 1 else names.spread(x)
        index, probability = self.engine.choose(log.made, full, names.allowed(eligible))
        x, is_plain = (x, eligible is None) if x.ndim == 1 else (full[index], False)
        if self.recorder.folder is not None:
            logged = None if probability is None else np.array([probability])
            chosen = np.array([index], np.int32)
            self.recorder.record(
                "decide", contexts=x[None], actions=chosen, probabilities=logged, is_plain=is_plain
            )
        expired = log.append_one(x, index, probability, is_plain=is_plain)
        self.recorder.counts["expired"] += expired
        return Decision(log.made - 1, names.name(index), index, probability)

    @recorded
    def slate(self, context: Any, size: int | np.integer, *, eligible: Any = None) -> Decisions:
        """Choose the `size` best actions of one draw, the best first, each a decision of its own.

        Their probabilities, where they are logged, are those of each action in its place.
        """
        x = self._names.spread(self._checks.context(context, self._names))
        allowed = self._names.allowed(eligible)
        size = as_size(size, int(np.count_nonzero(allowed)))
        self._log.check_fits(size)
        chosen, probabilities = self.engine.choose_slate(self._log.made, x, allowed, size)
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
        x = self._checks.contexts(contexts, self._names)
        allowed = self._names.allowed(eligible)
        self._log.check_fits(len(x))
        full = x if x.ndim == 2 else self._names.spread(x)
        chosen, probabilities = self.engine.choose_many(self._log.made, full, allowed)
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
        ids = self._log.made + np.arange(len(actions))
        self.recorder.counts["expired"] += self._log.append(**columns, is_plain=is_plain)
        return Decisions(ids, actions, probabilities, self._names.labels)

    def redo(self, change: str, arguments: dict[str, Any]) -> None:
        """Make a change again that was read from a journal."""
        if change == "decide":
            self._checks.decided(**arguments, K=len(self._names))
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
            getattr(self, change)(**arguments)

    @recorded
    def probabilities(
        self, context: Any, draws: int = 1000, *, eligible: Any = None
    ) -> ActionProbabilities:
        """How likely each action of `labels` is to be chosen now, from `draws` draws.

        The draws are those from which the probability of the next decision would be estimated, if it
        is logged: where `n` of N draws choose the action of the decision, the log has
        `(n + 1) / (N + 1)`, the decision itself included. So it is never zero.
        """
        x = self._names.spread(self._checks.context(context, self._names))
        draws = as_count(draws, "probabilities draws")
        counts = self.engine.tally(self._log.made, x, self._names.allowed(eligible), draws)
        return ActionProbabilities.estimated(counts[0, self._names.open], draws)

    def log(self) -> LoggedDecisions:
        """The decisions that are kept and have their reward, the oldest first, for `off_policy_value`.

        Propensities are there if the agent was made with `propensity_draws`. The log has the context
        of the chosen action alone; so where a decision was made in contexts (K, d), among some actions
        only or for a slate, it cannot say what another policy would have done, and `contexts` is None:
        find what the application knows of the decisions by their ids.
        """
        with self.recorder.lock:
            ids, found = self._log.rewarded()
        is_logged = self._settings.propensity_draws is not None
        return LoggedDecisions(
            contexts=found["contexts"] if found["is_plain"].all() else None,
            actions=found["actions"],
            rewards=found["rewards"],
            propensities=found["probabilities"] if is_logged else None,
            ids=ids,
        )

    # Learning.

    @recorded
    def update(self, context: Any, action: Any, reward: Any) -> None:
        """Learn from one observation, or from many: contexts (n, d), n actions, n rewards.

        Actions are given by their labels, by numbers where there are no labels, or by a `Position`;
        those that were removed may still be learned from.
        """
        checks, names = self._checks, self._names
        if type(reward) is not float and are_many(reward, "rewards"):
            x, chosen, y = (
                checks.contexts(context, names),
                names.numbers(action),
                checks.rewards(reward),
            )
            if not len(x) == len(chosen) == len(y):
                raise AgentError(
                    f"got {len(x)} contexts, {len(chosen)} actions and {len(y)} rewards; expected as "
                    "many of each"
                )
            x = x if x.ndim == 2 else names.rows_of(x, chosen)
        else:
            x, chosen, y = (
                checks.context(context, names),
                names.number(action),
                checks.reward(reward),
            )
            x = x if x.ndim == 1 else names.rows_of(x[None], np.array([chosen]))[0]
        self.recorder.record("update", context=x, action=chosen, reward=y)
        self._learn(x, chosen, y)

    @recorded
    def reward(self, decision: Any, reward: Any) -> None:
        """Learn the reward of a decision, given by its id, or many rewards by as many ids.

        If one of many is refused, none is learned. Rewards of decisions for an action that was removed
        since still count: they are evidence of the effects it shares.
        """
        log = self._log
        if type(decision) is not int and are_many(decision, "ids"):
            ids, y = as_ids(decision), self._checks.rewards(reward)
            if len(ids) != len(y):
                raise AgentError(f"got {len(ids)} ids and {len(y)} rewards; expected as many")
            rows = log.find(ids)
            actions = log.actions[rows]
        else:
            ids, y = as_id(decision), self._checks.reward(reward)
            rows = log.find_one(ids)
            actions = int(log.actions[rows])
        self.recorder.record("reward", decision=ids, reward=y)
        self._learn(log.contexts[rows], actions, y, rows)

    def _learn(self, contexts: np.ndarray, actions: Any, rewards: Any, rows: Any = None) -> None:
        """Update with one observation or many; `rows` are those of their decisions in the log.

        Decisions are marked as rewarded and observations counted if they are learned, and else not:
        Control-C may come at any call.
        """
        engine, counts, log = self.engine, self.recorder.counts, self._log
        is_one = type(rewards) is float
        n, learn = (1, engine.learn_one) if is_one else (len(rewards), engine.learn)
        engine.reserve(n)
        before, first = engine.packed_state, counts["observations"]
        try:
            counts["observations"] = first + n
            if rows is not None:
                log.rewards[rows] = rewards
            learn(first, contexts, actions, rewards)
        except BaseException:
            if engine.packed_state is before:
                counts["observations"] = first
                if rows is not None:
                    log.rewards[rows] = np.nan
            raise
        self._observations.append(contexts, actions, rewards)

    # Room, and programs for it.

    @recorded
    def reserve(self, *, rewards: int = 0, actions: int = 0) -> None:
        """Make room for so many more rewards, where the policy keeps them, and for more actions.

        Without it room doubles whenever it runs out, each time with programs of its own.
        """
        rewards = rewards and as_count(rewards, "reserve rewards")
        actions = actions and as_count(actions, "reserve actions")
        if actions:
            self.engine.make_places(len(self._names) + actions)
            self._names.resize(self.engine.capacity)
        self.engine.make_room(rewards)
        self.recorder.record("reserve", rewards=rewards, actions=actions)

    def warm_up(self, *, rewards: int = 0, actions: int = 0, act_many: Sequence[int] = ()) -> None:
        """Compile all that the agent needs before it serves, or load it from the disk.

        Without it the first call of each kind compiles what it needs. Also compiled are the programs
        for twice the room, for rewards and for actions; when half of that is taken, those for the next
        are compiled in the background. A second process finds compiled programs on the disk.

        Args:
            rewards: make room for so many more at once; see `reserve`.
            actions: make room for so many more at once.
            act_many: for how many contexts `act_many` will be called.
        """
        if rewards or actions:
            self.reserve(rewards=rewards, actions=actions)
        with self.recorder.lock:
            self.engine.compile([as_count(n, "warm_up act_many") for n in act_many])

    # Adding and removing actions.

    @recorded
    def add_actions(
        self,
        weights: Any = None,
        *,
        labels: Sequence[Label] | None = None,
        mean: Any = None,
        cov: Any = None,
    ) -> list[Label]:
        """Add actions, which start from what is known of their effects.

        What is known of the others does not change by a bit. (There is one exception: the first
        covariance of its own that a new action has makes all others be written out.) Room for actions
        doubles when it runs out; the programs for that are compiled in the background (`warm_up`).

        Args:
            weights: parent level's name -> `(m, parent_size)` numbers, `(m, parent_size, dim, dim)`
                matrices or `Sparse`, as the actions so far have; the weights alone where there is one
                parent; None where there is none.
            labels: m names, where the actions so far have labels.
            mean: as in `Level`; needed where every action has a mean of its own, as in `LinTS`.
            cov: as in `Level`; needed where every action has a covariance of its own.

        Returns:
            The labels, or numbers, of the new actions.
        """
        hierarchy, names = self.engine.problem, self._names
        if not isinstance(hierarchy, Hierarchy):
            raise TypeError("a program written by hand has the actions that it has; add none")
        start = len(names)
        try:
            level = newcomers(hierarchy, how_many_new(labels, mean), weights, mean, cov)
        except (TypeError, ValueError) as error:
            raise AgentError(f"add_actions: {error}") from error
        new_labels = names.check_new(labels, level.size)
        extended = self.engine.extended(level, start)
        names.resize(self.engine.capacity)
        # Recorded last, when everything that can fail has succeeded.
        self.recorder.record(
            "add_actions",
            weights=dict(level.parents or {}) or None,
            labels=new_labels,
            mean=None if mean is None else np.asarray(mean),
            cov=None if cov is None else np.asarray(cov),
        )
        self.engine.install(*extended)
        names.add(new_labels, level.size)
        self._observations.make_room_for_actions(len(names))
        return [names.name(start + i) for i in range(level.size)]

    @recorded
    def remove_actions(self, actions: Any) -> None:
        """Choose these actions no more, given by one name or several, or by a `Position`.

        The evidence they gave of their effects stays, and rewards of decisions for them that arrive
        later will add to it. Their positions and labels are not given to others: `reopen_actions`
        brings them back.
        """
        numbers = self._names.check_closing(actions)
        self.recorder.record("remove_actions", actions=numbers)
        self._names.set_open(numbers, False)

    @recorded
    def reopen_actions(self, actions: Any) -> None:
        """Let removed actions be chosen again, under their labels, with all that is known of them."""
        numbers = self._names.check_opening(actions)
        self.recorder.record("reopen_actions", actions=numbers)
        self._names.set_open(numbers, True)

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
        with self.recorder.replacing() as write:
            state = self.state()
            if not partial:
                check_all_are_kept(state)
            moved, (contexts, actions, rewards) = moved_state(state, policy, labels)
            agent = type(self).restore(moved)
            if len(rewards):
                agent.update(contexts, Position(actions), rewards)
            parts = {name: part for name, part in vars(agent).items() if name != "recorder"}
            write(agent.state)
            vars(self).update(parts)  # in one step: Control-C may come at any call
            self.recorder.counts.update(agent.recorder.counts)

    def __repr__(self) -> str:
        counts = self.counts
        return (
            f"Agent({len(self._names.open)} actions, {counts['decisions']} decisions, "
            f"{counts['observations']} observations)"
        )
