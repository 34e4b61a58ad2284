"""Everything an agent knows, in plain values: what a file must hold to bring it back."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...inference.buffer import buffers_in
from ...inference.random import fused_key
from ...models import Hierarchy
from ...models.arrays import as_count
from ...models.messages import short
from ..policies.policy import Policy
from .decisions import DecisionLog, Label
from .evidence_clock import as_half_life
from .inputs import as_factor, labels_of
from .node_names import Names, NodeNames
from .observations import ObservationLog
from .storage.declaration import fingerprint
from .views import shown_policy

__all__ = [
    "COUNTED",
    "STARTED_FROM",
    "AgentSettings",
    "AgentState",
    "checked_settings",
    "first_state",
]

# What an agent counts, besides its decisions; see `Agent.counts`.
COUNTED = ("observations", "left_out", "expired", "unknown", "too_late", "duplicate", "refused")

# Arguments of `Agent` that say what it knows at first, and are not kept.
STARTED_FROM = ("posterior", "data")

# The child of the agent's key that the policy starts from; decisions use the children 0, 1, 2, ...
_KEY_OF_POLICY = 0xFFFFFFFF

_MOST = 2**31 - 1  # the largest count among the settings


class AgentSettings(NamedTuple):
    """The arguments of an `Agent` besides its policy, seed and labels; see there.

    Example:
        >>> from mixts.bandit import AgentSettings
        >>> AgentSettings(keep=1000).forget is None
        True
    """

    keep: int = 100_000
    propensity_draws: int | None = None
    forget: float | None = None
    forget_every: int = 1
    half_life: float | None = None


def checked_settings(
    keep: Any, propensity_draws: Any, forget: Any, forget_every: Any, half_life: Any = None
) -> AgentSettings:
    """Settings as an agent can use them, or an error that says what is wrong."""
    counts = {"keep": keep, "propensity_draws": propensity_draws, "forget_every": forget_every}
    for name, count in counts.items():
        if name != "propensity_draws" or count is not None:
            counts[name] = as_count(count, f"Agent {name}")
            if counts[name] > _MOST:
                raise ValueError(f"Agent {name} is {count}; expected {_MOST:,} at most")
    if forget is not None and half_life is not None:
        raise ValueError(
            f"Agent forget is {short(forget)} and half_life is {short(half_life)}; expected one of them: "
            "forget discounts evidence before each observation, half_life by the clock"
        )
    return AgentSettings(**counts, forget=as_factor(forget), half_life=as_half_life(half_life))


class AgentState(NamedTuple):
    """An agent at one moment. `Agent.restore` makes one that continues exactly as the first would.

    Attributes:
        key: (2,) the words of the random key that decisions draw from.
        policy: the policy, a pytree of arrays, without labels; its levels may have spare vectors behind
            the last one.
        posterior: the policy's state, a pytree of arrays.
        labels: the name of every action by its number, or None.
        nodes: level's name -> how many nodes it has and their labels, of every level above the actions.
        is_open: (K,) whether each action may still be chosen.
        decisions: the newest decisions, and which of them wait for a reward.
        observations: the newest observations that were learned from.
        counts: what has happened so far, by name.
        settings: the agent's settings.
        made_with: the `fingerprint` of the policy that the agent was made with, before any action was
            added to it.
        discounted_until: where evidence has a half-life, up to what time it has been discounted, by the
            agent's clock; None begins when the agent does.

    Example:
        >>> from mixts.bandit import Agent, UniformRandom
        >>> from mixts.models import linear
        >>> state = Agent(UniformRandom(linear([[1.0], [0.5]], dim=1))).state()
        >>> Agent.restore(state)
        Agent(2 actions, 0 decisions, 0 observations)
    """

    key: np.ndarray
    policy: Policy
    posterior: Any
    labels: tuple[Label, ...] | None
    nodes: dict[str, Names]
    is_open: np.ndarray
    decisions: DecisionLog
    observations: ObservationLog
    counts: dict[str, int]
    settings: AgentSettings
    made_with: str
    discounted_until: float | None = None


def first_state(
    policy: Policy, seed: Any, labels: Any, settings: AgentSettings, posterior: Any = None
) -> AgentState:
    """The state of a new agent, which knows what `posterior` knows: by default nothing."""
    key, problem, dtype = fused_key(seed), policy.problem, jnp.result_type(float)
    observations = ObservationLog.empty(settings.keep, problem.dim, problem.num_actions, dtype)
    observations.from_prior = posterior is None
    if posterior is None:
        posterior = policy.init(jax.random.fold_in(key, _KEY_OF_POLICY))
    else:
        posterior = _own(policy, posterior)
    if settings.forget is not None or settings.half_life is not None:
        policy.forget(posterior, settings.forget or 0.5)  # raises at once if the policy cannot
    return AgentState(
        key=np.asarray(jax.random.key_data(key)),
        # Labels are kept apart: agents that differ in them alone share their compiled programs.
        policy=shown_policy(policy, _without_labels(problem)),
        posterior=posterior,
        labels=labels_of(labels, problem),
        nodes=NodeNames.declared(problem),
        is_open=np.ones(problem.num_actions, bool),
        decisions=DecisionLog.empty(settings.keep, problem.dim, dtype),
        observations=observations,
        counts=dict.fromkeys(COUNTED, 0),
        settings=settings,
        made_with=fingerprint(policy),
    )


def _without_labels(problem: Any) -> dict[str, Names]:
    levels = problem.levels if isinstance(problem, Hierarchy) else ()
    return {level.name: Names(level.size) for level in levels}


def _own(policy: Policy, posterior: Any) -> Any:
    """A copy of a state of the policy, refused if it is one of another policy."""
    room = max((buffer.capacity for buffer in buffers_in(posterior)), default=0)
    expected = jax.eval_shape(lambda: policy.init(fused_key(0), room=room))

    def form(state: Any) -> tuple[Any, list[tuple[int, ...]]]:
        leaves, structure = jax.tree.flatten(state)
        return structure, [np.shape(leaf) for leaf in leaves]

    if form(posterior) != form(expected):
        raise ValueError(
            f"Agent posterior: got {type(posterior).__name__}, which is no state of this "
            f"{type(policy).__name__}; expected what its `condition` returns, or that of its backend"
        )
    return jax.tree.map(jnp.copy, posterior)
