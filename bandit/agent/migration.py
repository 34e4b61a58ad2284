"""An agent moved to another policy: the same actions and decisions, before any observation."""

from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from ...models.messages import listed
from ..policies.policy import Policy
from .action_names import Position
from .decisions import AgentError, Label
from .inputs import labels_of
from .state import AgentState, first_state

if TYPE_CHECKING:
    from .agent import Agent

__all__ = ["Observed", "check_all_are_kept", "learn_again", "moved_state"]


class Observed(NamedTuple):
    """What another policy is to learn from.

    Attributes:
        contexts: (n, d).
        actions: (n,) their positions.
        rewards: (n,).
        exposure: (n,).
        moments: (n,) up to what time evidence had been discounted when each was learned.
        until: up to what time it was discounted last, or None.
    """

    contexts: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    exposure: np.ndarray
    moments: np.ndarray
    until: float | None


def check_all_are_kept(state: AgentState) -> None:
    """Refuse to begin anew from a log that has not all that was learned."""
    observations, learned = state.observations, state.counts["observations"]
    kept = len(observations.kept())
    if not observations.from_prior:
        raise AgentError(
            "the agent started from a posterior, and what that has learned from is not kept, so another "
            "policy would not learn all it knows; condition the new policy on the same data and give "
            "Agent that posterior, or give partial=True to begin from what came since"
        )
    if learned != kept:
        raise AgentError(
            f"the agent has learned from {learned:,} observations and keeps {kept:,} of them, so another "
            "policy would not learn all it knows; make agents with a larger keep, or give partial=True to "
            "begin from those that are kept"
        )


def moved_state(state: AgentState, policy: Policy, labels: Any) -> tuple[AgentState, Observed]:
    """The state of an agent of another policy with the same actions, decisions and random key.

    Actions are matched by label, or by position where the agent has no labels; those that the policy
    has besides are new. Nothing is learned yet: what there is to learn from is returned beside it.
    """
    old, new = state.policy.problem, policy.problem
    _check_same_contexts(old, new)
    names = labels_of(labels, new)
    places = _places(state, names, new.num_actions)
    fresh = first_state(policy, jnp.asarray(state.key), labels, state.settings)
    is_open = np.ones(new.num_actions, bool)
    is_open[places[(places >= 0) & ~state.is_open]] = False
    decisions = state.decisions.copy()
    # Places without a decision hold action 0, whichever that was.
    decisions.actions = np.maximum(places[decisions.actions], 0).astype(np.int32)
    counts = state.counts | {"observations": 0, "left_out": 0}
    contexts, actions, rewards, exposure = state.observations.newest()
    moments, until = state.observations.newest_moments(), state.discounted_until
    moved = fresh._replace(
        is_open=is_open,
        decisions=decisions,
        counts=counts,
        discounted_until=float(moments[0]) if len(moments) and until is not None else until,
    )
    actions = places[actions].astype(np.int32)
    return moved, Observed(contexts, actions, rewards, exposure, moments, until)


def learn_again(agent: "Agent", observed: Observed) -> None:
    """Learn from observations at the moments they were learned at, with the discounts in between."""
    *columns, moments, until = observed
    starts = np.flatnonzero(np.diff(moments, prepend=np.nan))
    stops = np.append(starts, len(moments))[1:]
    for start, stop in zip(starts, stops, strict=True):
        _pass_time(agent, float(moments[start]))
        contexts, actions, *seen = (column[start:stop] for column in columns)
        agent.update(contexts, Position(actions), *seen)
    if until is not None:
        _pass_time(agent, until)


def _pass_time(agent: "Agent", until: float) -> None:
    due = agent.clock.due_at(until, least=0.0)
    if due is not None:
        agent.discount(*due)


def _check_same_contexts(old: Any, new: Any) -> None:
    if new.dim != old.dim:
        raise AgentError(
            f"the agent's contexts have {old.dim} numbers and the policy's {new.dim}; expected a policy "
            "that learns from the same contexts"
        )
    if new.components != old.components and new.components and old.components:
        raise AgentError(
            f"the agent's contexts are made of {listed(old.components)}, and the policy's of "
            f"{listed(new.components)}; expected the same in the same order"
        )


def _places(state: AgentState, names: tuple[Label, ...] | None, size: int) -> np.ndarray:
    """(K,) the new position of each action; -1 where there is none and none is needed."""
    K = len(state.is_open)
    if state.labels is None:
        places = np.where(np.arange(K) < size, np.arange(K), -1)
    elif names is None:
        raise AgentError(
            "the agent's actions have labels, and those of the policy have none to match them by; hand in "
            "labels=[...] in the order of the policy's actions, or declare them in its hierarchy"
        )
    else:
        known = {label: place for place, label in enumerate(names)}
        places = np.array([known.get(label, -1) for label in state.labels])
    is_needed = state.is_open.copy()
    decisions = state.decisions
    is_needed[decisions.actions[decisions.kept() % decisions.room]] = True
    is_needed[state.observations.newest()[1]] = True
    missing = np.flatnonzero(is_needed & (places < 0)).tolist()
    if missing:
        lost = missing if state.labels is None else [state.labels[i] for i in missing]
        raise AgentError(
            f"the policy has no action {listed(lost)}, which the agent has; expected all of the agent's "
            "actions: remove what is not to be chosen afterwards"
        )
    return places
