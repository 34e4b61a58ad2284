"""An agent behind an application: it chooses actions, and learns from rewards as they arrive."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...inference.progress import task
from ...models.messages import short
from ..policies.policy import Policy
from .action_names import Position
from .decisions import AgentError, Decision, Decisions, Label
from .evidence_clock import as_clock
from .growth import patiently
from .inputs import are_many, as_id, as_ids, as_log, as_size
from .migration import check_all_are_kept, learn_again, moved_state
from .node_names import NewNodes
from .rows import RowAgent, as_catalogue
from .state import checked_settings, first_state
from .storage.durable import recorded

__all__ = ["Agent"]


class Agent(RowAgent):
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
        catalogue: if given, what the policy's hierarchy was made of: contexts may then be rows of tables,
            such as a visitor as a dict, and new actions come as rows (`add_items`).

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
        catalogue: Any = None,
    ):
        if not isinstance(policy, Policy):
            raise TypeError(
                f"Agent: got {short(policy)}; expected a policy, such as "
                "ThompsonSampling(ClosedForm(hierarchy))"
            )
        settings = checked_settings(keep, propensity_draws, forget, forget_every, half_life)
        self.start(first_state(policy, seed, labels, settings, posterior), as_clock(clock))
        self.speak(as_catalogue(catalogue, policy.problem))
        if data is not None:
            observed = as_log(data, policy)
            patiently(lambda: self.engine.reserve(len(observed[2])))
            self._learn(*observed)

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
        if self.engine.keeps_rewards:
            self.engine.reserve(np.size(y))
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
        if self.engine.keeps_rewards:
            self.engine.reserve(np.size(y))
        if self.recorder.folder is not None:
            self.recorder.record("reward", decision=ids, reward=y, **_unless_one(m))
        self._learn(log.contexts[rows], actions, y, m, rows)

    def _learn(
        self, contexts: np.ndarray, actions: Any, rewards: Any, exposure: Any, rows: Any = None
    ) -> None:
        """Update with one observation or many, that there is room for; `rows` are those of the decisions.

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
