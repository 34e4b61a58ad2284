"""An agent behind an application: it acts, waits for rewards, and learns from them as they come."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from ...inference.gaussian.new_actions import newcomers
from ...models import Hierarchy
from ...models.arrays import as_count
from ..off_policy import LoggedDecisions
from ..policies.policy import Policy
from .action_names import ActionNames
from .decisions import ActionProbabilities, AgentError, Decision, Decisions, Label
from .engine import Engine
from .guard import Journal, guarded
from .inputs import Checks, are_many, as_id, as_ids, as_size, how_many_new
from .state import AgentState, checked_settings, first_state
from .storage.durable import Durable

__all__ = ["Agent"]


class Agent(Durable):
    """A policy with a memory: one object that threads can share.

    `act` chooses an action and returns a `Decision` with an id. Its reward is handed in by that id,
    once, later, in any order or never (`reward`); observations made elsewhere go to `update`. After
    the same observations the posterior is the same in whatever order they came, but for rounding.

    Decision `t` draws from `fold_in(key(seed), t)`: the same calls give the same decisions. What does
    not fit is refused with an `AgentError`, which changes nothing but `counts`.

    A call with K actions takes what the policy takes (for a linear Thompson sampler O(K d^2) to act and
    O(d^2) to learn) and some tens of microseconds. It takes less if JAX's dispatch is synchronous, which
    is for the application to decide: `jax.config.update("jax_cpu_enable_async_dispatch", False)`
    before anything is computed.

    Args:
        policy: `ThompsonSampling` on any backend, a baseline such as `LinTS(hierarchy)`, `LinUCB`, ...
        seed: decides every draw.
        labels: a name for each action; by default those of the hierarchy's last level, if it has any.
            Without labels an action is called by its number.
        keep: how many of the newest decisions can still be rewarded; older ones expire.
        propensity_draws: if given, every decision says how likely it was, estimated from so many
            further draws, which is what most of its time will go to.
        forget: if given, between 0 and 1: what all evidence is multiplied by before the next
            observation, so that the agent follows a changing world (see `GaussianBackend.forget`).
        forget_every: the same once in so many observations, which is cheaper.
    """

    def __init__(
        self,
        policy: Policy,
        seed: Any = 0,
        *,
        labels: Sequence[str] | None = None,
        keep: int = 100_000,
        propensity_draws: int | None = None,
        forget: float | None = None,
        forget_every: int = 1,
    ):
        if not isinstance(policy, Policy):
            raise TypeError(
                f"Agent: got {policy!r}; expected a policy, such as "
                "ThompsonSampling(ClosedForm(hierarchy))"
            )
        settings = checked_settings(keep, propensity_draws, forget, forget_every)
        self._adopt(first_state(policy, seed, labels, settings))

    # What the agent knows: taken out, put back, and looked at.

    @classmethod
    def restore(cls, state: AgentState) -> "Agent":
        """An agent that goes on from a state as the one it was taken from would."""
        agent = cls.__new__(cls)
        agent._adopt(state)
        return agent

    def _adopt(self, state: AgentState) -> None:
        self._lock = threading.RLock()
        self._journal: Journal | None = None
        self._ticket: Any = None
        self._settings, self._made_with = state.settings, state.made_with
        self._log = state.decisions.copy()
        self._counts = dict(state.counts)
        self._names = ActionNames(state.labels, state.is_open)
        self._engine = Engine(state.key, state.policy, state.posterior, state.settings)
        self._checks = Checks(state.policy.problem, self._engine.dtype)
        self._settle_actions()

    def _settle_actions(self) -> None:
        # On the device already when a decision needs it.
        self._open = jnp.asarray(self._allowed(None))

    def state(self) -> AgentState:
        """Everything the agent knows, in arrays of its own."""
        with self._lock:
            return AgentState(
                key=np.asarray(self._engine.key),
                policy=self.policy,
                posterior=self._engine.posterior(),
                labels=None if self._names.labels is None else tuple(self._names.labels),
                is_open=self._names.is_open.copy(),
                decisions=self._log.copy(),
                counts=dict(self._counts),
                settings=self._settings,
                made_with=self._made_with,
            )

    @property
    def policy(self) -> Policy:
        """The policy; behind the last action it may have spare ones that are never chosen."""
        return self._engine.policy

    @property
    def labels(self) -> list[Label]:
        """The actions that may be chosen, in the order of their numbers: names, or the numbers."""
        with self._lock:
            return [self._names.name(number) for number in self._names.open.tolist()]

    @property
    def counts(self) -> dict[str, int]:
        """What has happened so far.

        `decisions` made, `observations` learned from, decisions that `expired` without a reward; and
        rewards refused because their decision was `unknown`, had expired (`too_late`) or had its
        reward already (`duplicate`), and calls `refused` for any other reason.
        """
        with self._lock:
            return {"decisions": self._log.made} | self._counts

    def troubles(self) -> dict[str, int]:
        """What the policy had trouble with so far; see `Backend.troubles`."""
        with self._lock:
            troubles = self.policy.troubles(self._engine.posterior())
        return {name: int(count) for name, count in troubles.items()}

    # Choosing.

    @guarded
    def act(self, context: Any, *, eligible: Any = None) -> Decision:
        """Choose an action in a context.

        Args:
            context: (d,), shared by all actions, or (K, d), a row for each action of `labels`.
            eligible: which actions may be chosen: labels or numbers, or (K,) of True and False in the
                order of `labels`. By default all.
        """
        x = self._checks.context(context, len(self._names.open))
        allowed = self._open if eligible is None else self._allowed(eligible)
        spread = x if x.ndim == 1 else self._spread(x)
        log, names, engine = self._log, self._names.labels, self._engine
        index = engine.decide(log.made, spread, allowed)
        met, is_plain = (x, eligible is None) if x.ndim == 1 else (spread[index], False)
        chance = None
        if engine.draws or self._journal is not None:  # what most decisions need no time for
            chosen = np.array([index], np.int32)
            chances = engine.chances(log.made, spread, allowed, chosen) if engine.draws else None
            chance = None if chances is None else float(chances[0])
            self._take_down(
                "decide", met=met[None], chosen=chosen, chances=chances, is_plain=is_plain
            )
        self._counts["expired"] += log.append_one(met, index, chance, is_plain=is_plain)
        return Decision(log.made - 1, index if names is None else names[index], index, chance)

    @guarded
    def slate(self, context: Any, size: int | np.integer, *, eligible: Any = None) -> Decisions:
        """Choose the `size` best actions of one draw, the best first, each a decision of its own.

        Their probabilities, where they are logged, are those of each action in its place.
        """
        x = self._checks.context(context, len(self._names.open))
        allowed = self._allowed(eligible)
        size = as_size(size, int(allowed.sum()))
        self._log.check_fits(size)
        spread = self._spread(x)
        chosen = self._engine.slate(self._log.made, spread, allowed, size)
        chances = None
        if self._engine.draws:
            chances = self._engine.chances(self._log.made, spread, allowed, chosen)
        met = spread[chosen] if spread.ndim == 2 else np.broadcast_to(x, (size, len(x)))
        return self._decided(met, chosen, chances, is_plain=False)

    @guarded
    def act_many(self, contexts: Any, *, eligible: Any = None) -> Decisions:
        """Choose an action in each of many contexts, in one call, each by a draw of its own.

        Numbers of contexts that have the same next power of two share one compiled program.

        Args:
            contexts: (n, d), or (n, K, d) with a row for each action of `labels`.
            eligible: which actions may be chosen in all of them, as in `act`.
        """
        x = self._checks.contexts(contexts, len(self._names.open))
        allowed = self._open if eligible is None else self._allowed(eligible)
        self._log.check_fits(len(x))
        spread = self._spread(x) if x.ndim == 3 else x
        chosen = self._engine.decide_many(self._log.made, spread, allowed)
        chances = None
        if self._engine.draws:
            asked = zip(range(self._log.made, self._log.made + len(x)), spread, chosen, strict=True)
            chances = np.concatenate(
                [self._engine.chances(t, own, allowed, i[None]) for t, own, i in asked]
            )
        met = x if x.ndim == 2 else spread[np.arange(len(x)), chosen]
        return self._decided(met, chosen, chances, is_plain=x.ndim == 2 and eligible is None)

    def _decided(
        self, met: np.ndarray, chosen: np.ndarray, chances: np.ndarray | None, is_plain: bool
    ) -> Decisions:
        """Log decisions: contexts (n, d), actions (n,) and how likely they were; see `DecisionLog`."""
        first = self._log.made
        self._take_down("decide", met=met, chosen=chosen, chances=chances, is_plain=is_plain)
        self._counts["expired"] += self._log.append(met, chosen, chances, is_plain=is_plain)
        return Decisions(first + np.arange(len(chosen)), chosen, chances, self._names.labels)

    def _take_down(self, change: str, **arguments: Any) -> None:
        """Tell the journal, if there is one, of a change that is in order and about to be made."""
        if self._journal is not None:
            self._ticket = self._journal.record(change, arguments)

    def redo(self, change: str, arguments: dict[str, Any]) -> None:
        """Make a change again that a journal has taken down."""
        if change == "decide":
            self._checks.decided(**arguments, K=len(self._names))
            with self._lock:
                self._decided(**arguments)
        else:
            getattr(self, change)(**arguments)

    @guarded
    def probabilities(
        self, context: Any, draws: int = 1000, *, eligible: Any = None
    ) -> ActionProbabilities:
        """How likely each action of `labels` is to be chosen now, from `draws` draws.

        The draws are those from which the probability of the next decision would be estimated, if it
        is logged: where `n` of N draws choose the action that the decision takes, the log says
        `(n + 1) / (N + 1)`, the decision itself counted in. So it is never zero.
        """
        spread = self._spread(self._checks.context(context, len(self._names.open)))
        draws = as_count(draws, "probabilities draws")
        counts = self._engine.tally(self._log.made, spread, self._allowed(eligible), draws)
        return ActionProbabilities.estimated(counts[0, self._names.open], draws)

    def log(self) -> LoggedDecisions:
        """The decisions that are kept and have their reward, the oldest first, for `off_policy_value`.

        Propensities are there if the agent was made with `propensity_draws`. Of a context the log has
        what the chosen action met; so where a decision was made in contexts (K, d), among some actions
        only or for a slate, it cannot say what another policy would have done, and `contexts` is None:
        find what the application knows of the decisions by their ids.
        """
        with self._lock:
            ids, found = self._log.rewarded()
        return LoggedDecisions(
            contexts=found["contexts"] if found["is_plain"].all() else None,
            actions=found["actions"],
            rewards=found["rewards"],
            propensities=found["probabilities"] if self._engine.draws else None,
            ids=ids,
        )

    # Learning.

    @guarded
    def update(self, context: Any, action: Any, reward: Any) -> None:
        """Learn from one observation, or from many: contexts (n, d), n actions, n rewards.

        Actions are labels or numbers; those that were removed may still be learned from.
        """
        K = len(self._names.open)
        if type(reward) is not float and are_many(reward, "rewards"):
            x, numbers = self._checks.contexts(context, K), self._names.numbers(action)
            y = self._checks.rewards(reward)
            if not len(x) == len(numbers) == len(y):
                raise AgentError(
                    f"got {len(x)} contexts, {len(numbers)} actions and {len(y)} rewards; expected as "
                    "many of each"
                )
            met = x if x.ndim == 2 else self._rows_of(x, numbers)
            self._take_down("update", context=met, action=numbers, reward=y)
            return self._learn(self._engine.learn, len(y), met, numbers, y)
        x, number = self._checks.context(context, K), self._names.number(action)
        y = self._checks.reward(reward)
        met = x if x.ndim == 1 else self._rows_of(x[None], np.array([number]))[0]
        if self._journal is not None:
            self._take_down("update", context=met, action=number, reward=y)
        self._learn(self._engine.learn_one, 1, met, number, y)

    @guarded
    def reward(self, decision: Any, reward: Any) -> None:
        """Hand in the reward of a decision by its id, or many rewards by as many ids.

        Many are taken all together or, if one of them is refused, not at all. Rewards of decisions
        for an action that was removed since still count: they tell of the effects it shares.
        """
        if type(decision) is not int and are_many(decision, "ids"):
            ids, y = as_ids(decision), self._checks.rewards(reward)
            if len(ids) != len(y):
                raise AgentError(f"got {len(ids)} ids and {len(y)} rewards; expected as many")
            rows = self._log.find(ids)
            self._take_down("reward", decision=ids, reward=y)
            met, taken = self._log.contexts[rows], self._log.actions[rows]
            return self._learn(self._engine.learn, len(y), met, taken, y, rows)
        number, y, log = as_id(decision), self._checks.reward(reward), self._log
        row = log.find_one(number)
        self._take_down("reward", decision=number, reward=y)
        met, taken = log.contexts[row], int(log.actions[row])
        self._learn(self._engine.learn_one, 1, met, taken, y, row)

    def _learn(
        self,
        learn: Callable[..., None],
        n: int,
        context: np.ndarray,
        action: Any,
        reward: Any,
        rows: Any = None,
    ) -> None:
        """Learn from `n` observations by a method of the engine; `rows` are those of their decisions.

        Decisions are marked as rewarded and observations counted if they are learned, and else not:
        Control-C may come at any call.
        """
        engine, counts, log = self._engine, self._counts, self._log
        engine.make_room(n)
        before, first = engine.held, counts["observations"]
        try:
            counts["observations"] = first + n
            if rows is not None:
                log.rewards[rows] = reward
            learn(first, context, action, reward)
        except BaseException:
            if engine.held is before:
                counts["observations"] = first
                if rows is not None:
                    log.rewards[rows] = np.nan
            raise

    # Coming and going.

    @guarded
    def add_actions(
        self,
        weights: Any = None,
        *,
        labels: Sequence[str] | None = None,
        mean: Any = None,
        cov: Any = None,
    ) -> list[Label]:
        """Take in new actions; what is known of their effects is known of them at once.

        What is known of the others does not change, by as much as a bit. (There is one exception: the
        first covariance of its own that a newcomer brings along makes all others be written out.)
        Room for actions doubles when it runs out, and only then is anything compiled again.

        Args:
            weights: parent level's name -> `(m, parent_size)` numbers, `(m, parent_size, dim, dim)`
                matrices or `Sparse`, as the actions so far have; the weights alone where there is one
                parent; None where there is none.
            labels: m names, where the actions so far have names.
            mean: as in `Level`; needed where every action has a mean of its own, as in `LinTS`.
            cov: as in `Level`; needed where every action has a covariance of its own.

        Returns:
            The labels, or numbers, of the new actions.
        """
        hierarchy = self.policy.problem
        if not isinstance(hierarchy, Hierarchy):
            raise TypeError("a program written by hand has the actions that it has; add none")
        start = len(self._names)
        try:
            level = newcomers(hierarchy, how_many_new(labels, mean), weights, mean, cov)
        except (TypeError, ValueError) as error:
            raise AgentError(f"add_actions: {error}") from error
        names = self._names.check_new(labels, level.size)
        self._engine.make_places(start, start + level.size)
        # Everything that can go wrong has gone wrong before the journal is told.
        admitted = self._engine.admitted(level, start, self._engine.places)
        self._take_down(
            "add_actions",
            weights=dict(level.parents or {}) or None,
            labels=names,
            mean=None if mean is None else np.asarray(mean),
            cov=None if cov is None else np.asarray(cov),
        )
        self._names.add(names, level.size)
        self._engine.admit(admitted)
        self._settle_actions()
        return [self._names.name(start + i) for i in range(level.size)]

    @guarded
    def remove_actions(self, actions: Any) -> None:
        """Never choose these actions again, given by labels or numbers.

        What they taught of their effects stays, and rewards of decisions for them that are still to
        come will teach more. Their numbers and labels are not given to others.
        """
        numbers = self._names.check_removed(actions)
        self._take_down("remove_actions", actions=numbers)
        self._names.remove(numbers)
        self._settle_actions()

    # What callers hand in.

    def _allowed(self, eligible: Any) -> np.ndarray:
        return self._names.allowed(eligible, self._engine.places)

    def _spread(self, context: np.ndarray) -> np.ndarray:
        return self._names.spread(context, self._engine.places)

    def _rows_of(self, contexts: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        return self._names.rows_of(contexts, numbers, self._engine.places)

    def __repr__(self) -> str:
        counts = self.counts
        return (
            f"Agent({len(self._names.open)} actions, {counts['decisions']} decisions, "
            f"{counts['observations']} observations)"
        )
