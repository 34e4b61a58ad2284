"""What an agent knows and tells: the part of it that changes nothing but by the time that passes."""

import time
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from ...inference import Posterior, Status
from ...models import Hierarchy
from ...models.arrays import as_count
from ..off_policy import LoggedDecisions
from ..policies.policy import Policy
from .action_names import ActionNames
from .decisions import ActionProbabilities, AgentError, DecisionLog, Label
from .engine import Engine
from .evidence_clock import Clock, EvidenceClock
from .inputs import Checks
from .node_names import Names, NodeNames
from .observations import ObservationLog
from .state import AgentSettings, AgentState
from .storage.durable import DurableAgent, Recorder, recorded
from .views import action_moments, as_frame, expected_rewards, shown_policy, shown_posterior

__all__ = ["AgentKnowledge"]

SomeAgent = TypeVar("SomeAgent", bound="AgentKnowledge")


class AgentKnowledge(DurableAgent):
    """An agent's posterior, names and logs, and what can be asked of them.

    Attributes:
        engine: the posterior, and the compiled programs that choose and learn.
        names: the actions, by name and by number.
        nodes: the nodes above them, by name and by number.
        checks: checks of what comes from outside.
        decisions: the newest decisions, and which of them wait for a reward.
        observations: the newest observations that were learned from.
        settings: the agent's settings.
        made_with: the fingerprint of the policy it was made with.
        clock: when evidence is discounted, where it has a half-life.
    """

    engine: Engine
    names: ActionNames
    nodes: NodeNames
    checks: Checks
    decisions: DecisionLog
    observations: ObservationLog
    settings: AgentSettings
    made_with: str
    clock: EvidenceClock

    @classmethod
    def restore(
        cls: type[SomeAgent], state: AgentState, clock: Clock | None = time.time
    ) -> SomeAgent:
        """An agent that continues from a state as the one it was copied from would.

        Where evidence has a half-life, the clock says how much time has passed; without one none does.
        """
        agent = cls.__new__(cls)
        agent.start(state, clock)
        return agent

    def start(self, state: AgentState, clock: Clock | None) -> None:
        """Begin with a state: called once, when the agent is made."""
        left_out = state.counts["left_out"]
        self.engine = Engine(state.key, state.policy, state.posterior, state.settings, left_out)
        self.recorder = Recorder(state.counts, self.engine.health.pending)
        self.settings, self.made_with = state.settings, state.made_with
        self.decisions, self.observations = state.decisions.copy(), state.observations.copy()
        self.names = ActionNames(state.labels, state.is_open, self.engine.capacity)
        problem = state.policy.problem
        last = problem.actions.name if isinstance(problem, Hierarchy) else None
        self.nodes = NodeNames(state.nodes, last)
        self.checks = Checks(problem, self.engine.dtype, state.policy)
        self.clock = EvidenceClock(state.settings.half_life, state.discounted_until, clock)
        self.observations.moment = self.clock.until or 0.0

    def pass_time(self) -> None:
        """Discount evidence for the time that has passed, if that is due; the lock is held."""
        due = self.clock.due()
        if due is not None and self.trouble is None:
            self.recorder.record("discount", **due._asdict())
            self.discount(*due)

    def discount(self, factor: float, until: float) -> None:
        """Multiply all evidence by a factor, for the time that has passed until then."""
        before = self.engine.packed_state
        try:
            self.engine.discount(factor)
        finally:  # Control-C may come at any call
            if factor == 1 or self.engine.packed_state is not before:
                self.clock.until = self.observations.moment = until

    def copied(self) -> AgentState:
        """A copy of everything the agent knows, for whoever holds its lock."""
        return AgentState(
            key=np.asarray(self.engine.key),
            policy=self.engine.policy,
            posterior=self.engine.posterior(),
            labels=None if self.names.labels is None else tuple(self.names.labels),
            nodes=dict(self.nodes.names),
            is_open=self.names.is_open.copy(),
            decisions=self.decisions.copy(),
            observations=self.observations.copy(),
            counts=self._counted(),
            settings=self.settings,
            made_with=self.made_with,
            discounted_until=self.clock.until,
        )

    @property
    def policy(self) -> Policy:
        """The policy, of all actions there have been, with their labels; removed ones are among them."""
        with self.recorder.lock:
            return shown_policy(self.engine.policy, self._shown())

    def _shown(self) -> dict[str, Names]:
        """How many vectors of each level there are, and their labels."""
        problem, names = self.engine.problem, self.names
        if not isinstance(problem, Hierarchy):
            return {}
        labels = None if names.labels is None else tuple(names.labels)
        return self.nodes.names | {problem.actions.name: Names(len(names), labels)}

    @property
    def labels(self) -> list[Label]:
        """The actions that may be chosen, in the order of their numbers: names, or the numbers."""
        with self.recorder.lock:
            return [self.names.name(number) for number in self.names.open.tolist()]

    @property
    def counts(self) -> dict[str, int]:
        """What has happened so far.

        `decisions` made, `observations` learned from, decisions that `expired` without a reward; and
        rewards refused because their decision was `unknown`, had expired (`too_late`) or had its
        reward already (`duplicate`), and calls `refused` for any other reason. Of the observations,
        `left_out` ones would have spoiled the posterior; see `status`.
        """
        with self.recorder.lock:
            return {"decisions": self.decisions.made} | self._counted()

    def _counted(self) -> dict[str, int]:
        return self.recorder.counts | {"left_out": self.engine.left_out}

    def status(self) -> Status:
        """What went wrong in the policy's inference so far; see `Backend.status`.

        The agent looks at it from time to time, and warns once of each kind (`AgentWarning`). An
        observation after which scores would not be numbers is left out and counted as `not_finite`.
        """
        with self.recorder.reading():
            return self.engine.status()

    def posterior(self) -> Posterior:
        """What is known of every level, and draws from it.

        Row `i` of the actions is the action at position `i`, with its label; removed ones are there too,
        for they may come back. See `summary` for those that may be chosen.
        """
        with self.recorder.reading():
            due = self.clock.due()
            state = self.engine.posterior() if due is None else self.engine.posterior(due.factor)
            return shown_posterior(self.engine.policy.posterior(state), self._shown())

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
        names, seen = self.names, self.observations
        if context is None and seen.made:
            context = seen.newest()[0].mean(0)
        elif context is None and self.checks.dim == 1:
            context = np.ones(1)
        if context is None:
            raise AgentError(
                "there are no observations yet whose mean context could be used; give a context"
            )
        known = action_moments(self.engine.policy.posterior(self.engine.posterior()))
        x, of = self.checks.context(context, names), names.open
        mean, sd = expected_rewards(self.checks.family, x, *(part[of] for part in known))
        best = self.probabilities(x, draws).probability
        columns = {"mean": mean, "sd": sd, "rewards": np.array(seen.times)[of], "best": best}
        return as_frame([names.name(i) for i in of.tolist()], columns)

    @recorded
    def probabilities(
        self, context: Any, draws: int = 1000, *, eligible: Any = None
    ) -> ActionProbabilities:
        """How likely each action of `labels` is to be chosen now, from `draws` draws.

        The draws are those from which the probability of the next decision would be estimated, if it
        is logged: where `n` of N draws choose the action of the decision, the log has
        `(n + 1) / (N + 1)`, the decision itself included. So it is never zero.
        """
        x = self.names.spread(self.checks.context(context, self.names))
        draws = as_count(draws, "probabilities draws")
        counts = self.engine.tally(self.decisions.made, x, self.names.allowed(eligible), draws)
        return ActionProbabilities.estimated(counts[0, self.names.open], draws)

    def log(self) -> LoggedDecisions:
        """The decisions that are kept and have their reward, the oldest first, for `off_policy_value`.

        Propensities are there if the agent was made with `propensity_draws`. The log has the context
        of the chosen action alone; so where a decision was made in contexts (K, d), among some actions
        only or for a slate, it cannot say what another policy would have done, and `contexts` is None:
        find what the application knows of the decisions by their ids.
        """
        with self.recorder.lock:
            ids, found = self.decisions.rewarded()
        is_logged = self.settings.propensity_draws is not None
        return LoggedDecisions(
            contexts=found["contexts"] if found["is_plain"].all() else None,
            actions=found["actions"],
            rewards=found["rewards"],
            propensities=found["probabilities"] if is_logged else None,
            ids=ids,
            exposure=None if (found["exposure"] == 1).all() else found["exposure"],
        )
