"""Off-policy evaluation: the mean reward that another policy would have had, from logged decisions.

A log holds, for each of n decisions, the chosen action, its reward, and its *propensity*: the probability
with which the action was chosen. The policy to be evaluated gives the probabilities with which it would
have chosen each action. With `w_t = pi(a_t | x_t) / p_t`,

    IPS    sum w_t r_t / n                               (Horvitz & Thompson 1952)
    SNIPS  sum w_t r_t / sum w_t                         (Swaminathan & Joachims 2015)
    DR     sum (w_t (r_t - q(x_t, a_t)) + sum_a pi(a | x_t) q(x_t, a)) / n   (Dudik et al. 2011)
    Switch-DR   the same without its first term where w_t is above a bound   (Wang et al. 2017)
    MIPS   sum v_t r_t / n, v_t = pi(g_t | x_t) / p(g_t | x_t)               (Saito & Joachims 2022)

estimate its mean reward, where `g_t` is the group that the logged action belongs to. IPS is unbiased if
every action that the policy might choose could have been logged; SNIPS has a bias of O(1 / n), but
follows a constant added to all rewards; DR is unbiased as IPS is whatever the predictions `q` are, and
varies less the better they are. Switch-DR trusts the predictions where weights are large. MIPS, which
varies least with many actions, is unbiased where actions of one group pay alike. The standard errors
hold for decisions that are independent given their contexts. Where the logging policy learned from its
rewards, its propensities changed over time, which the weights account for.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from ..inference.random import fused_key
from ..models.arrays import as_count
from ..models.messages import short
from .policies.policy import Policy
from .simulation.results import standard_error

__all__ = [
    "Estimate",
    "LoggedDecisions",
    "OffPolicyValue",
    "PolicyChoices",
    "choice_probabilities",
    "off_policy_value",
]

# Probabilities that were estimated, or stored in float32, sum to one up to this error.
_SUM_TOLERANCE = 1e-3


class LoggedDecisions(NamedTuple):
    """Decisions and their rewards.

    Attributes:
        contexts: (n, d), or (n, K, d) with a row for each action; None if they are not needed.
        actions: (n,) the chosen actions.
        rewards: (n,) their rewards.
        propensities: (n,) the probability with which each action was chosen; None if unknown.
        ids: (n,) the ids of the decisions, in a log from `Agent.log`.
        exposure: (n,) how many rewards each stands for; None where each is one. See `Data`.

    Example:
        >>> from mixts.bandit import LoggedDecisions
        >>> log = LoggedDecisions(None, actions=[0, 1, 0], rewards=[1, 0, 1], propensities=[0.5] * 3)
        >>> log.actions
        [0, 1, 0]
    """

    contexts: Any
    actions: Any
    rewards: Any
    propensities: Any
    ids: Any = None
    exposure: Any = None


class Estimate(NamedTuple):
    """An estimate of the mean reward of a policy, and its standard error.

    Example:
        >>> from mixts.bandit import Estimate
        >>> Estimate(value=0.3, standard_error=0.02).value
        0.3
    """

    value: float
    standard_error: float


class OffPolicyValue(NamedTuple):
    """Estimates of a policy's mean reward, and how much of the log they rest on.

    Attributes:
        ips: inverse propensity scores.
        snips: the same, self-normalised.
        doubly_robust: with predicted rewards; None without them.
        switch: doubly robust where weights are at most `switch`; None without it or predictions.
        marginalised: with weights of groups of actions; None without groups.
        effective_sample_size: `(sum w)^2 / sum w^2`: how many rewards logged by the policy itself the
            weighted ones are worth. Far below n, the estimates depend on a few decisions.
        largest_weight: the largest `w_t`, before clipping.
        clipped: how many weights were cut; where it is not zero, all estimates are biased.

    Example:
        >>> from mixts.bandit import LoggedDecisions, off_policy_value
        >>> log = LoggedDecisions(None, [0, 1, 0, 1], [1.0, 0.0, 1.0, 0.0], [0.5] * 4)
        >>> off_policy_value(log, [[0.75, 0.25]] * 4).effective_sample_size
        3.2
    """

    ips: Estimate
    snips: Estimate
    doubly_robust: Estimate | None
    switch: Estimate | None
    marginalised: Estimate | None
    effective_sample_size: float
    largest_weight: float
    clipped: int


def off_policy_value(
    log: LoggedDecisions,
    probabilities: Any,
    *,
    predictions: Any = None,
    clip: float | None = None,
    switch: float | None = None,
    groups: Any = None,
    logging: Any = None,
) -> OffPolicyValue:
    """Estimates of the mean reward of the policy that chooses with the given probabilities.

    Args:
        log: decisions with rewards and propensities.
        probabilities: (n, K) how the policy to be evaluated chooses in each context, see
            `choice_probabilities`; or (n,) the probabilities of the logged actions, or the actions
            of a deterministic policy as whole numbers.
        predictions: (n, K) predicted mean rewards, for the doubly robust estimate, such as
            `contexts @ backend.posterior(state).mean["action"].T`; needs (n, K) probabilities, or
            actions.
        clip: cut weights at this number, which trades variance for bias.
        switch: rely on the predictions alone where a weight is above this number, in `switch`.
        groups: (K,) the group that each action belongs to, as whole numbers or labels, for
            `marginalised`; needs (n, K) probabilities, and `logging`.
        logging: (n, K) how the logging policy chose in each context.

    Example:
        >>> from mixts.bandit import LoggedDecisions, off_policy_value
        >>> log = LoggedDecisions(None, [0, 1, 0, 1], [1.0, 0.0, 1.0, 0.0], [0.5] * 4)
        >>> off_policy_value(log, [[0.75, 0.25]] * 4).snips.value
        0.75
    """
    actions, rewards, propensities = _checked_log(log)
    chosen, every = _checked_probabilities(probabilities, actions)
    q = None if predictions is None else _checked_predictions(predictions, actions, every)
    for name, bound in (("clip", clip), ("switch", switch)):
        if bound is not None and not (isinstance(bound, int | float) and 0 < bound < np.inf):
            raise ValueError(f"{name} is {short(bound)}; expected a positive number, or None")
    if switch is not None and q is None:
        raise ValueError("switch is given without predictions, which it switches to; add them")
    unclipped = chosen / propensities
    weights = unclipped if clip is None else np.minimum(unclipped, clip)
    robust = switched = None
    if q is not None and every is not None:
        own = q[np.arange(len(actions)), actions]
        corrections, predicted = weights * (rewards - own), (every * q).sum(1)
        robust = _mean(corrections + predicted)
        if switch is not None:
            switched = _mean(np.where(unclipped <= switch, corrections, 0.0) + predicted)
    of_groups = _weights_of_groups(actions, every, groups, logging)
    total, squares = weights.sum(), np.square(weights).sum()
    return OffPolicyValue(
        ips=_mean(weights * rewards),
        snips=_ratio(weights, rewards),
        doubly_robust=robust,
        switch=switched,
        marginalised=None if of_groups is None else _mean(of_groups * rewards),
        effective_sample_size=float(total**2 / squares) if squares > 0 else 0.0,
        largest_weight=float(unclipped.max()),
        clipped=int((unclipped > weights).sum()),
    )


class PolicyChoices(NamedTuple):
    """How probable each action is in each context.

    Attributes:
        probabilities: (n, K) the share of draws in which a policy chose the action.
        standard_error: (n, K) `sqrt(p (1 - p) / draws)`, with p no closer to zero or one than
            `1 / (draws + 2)`, so that it is not zero for an action that was never drawn.

    Example:
        >>> from mixts.bandit import PolicyChoices
        >>> PolicyChoices(np.array([[0.5, 0.5]]), np.array([[0.01, 0.01]])).probabilities
        array([[0.5, 0.5]])
    """

    probabilities: np.ndarray
    standard_error: np.ndarray


def choice_probabilities(
    policy: Policy, state: Any, contexts: Any, *, draws: int = 1000, key: Any = 0
) -> PolicyChoices:
    """How a policy with a fixed state chooses, by Monte Carlo: `draws` calls of `act` per context.

    The state is not changed: this is the policy as it stands, not as it would go on learning. Costs
    `n * draws` calls of `act` in one compiled program, and memory for `draws` of them.

    Example:
        >>> from mixts.bandit import LinUCB, choice_probabilities
        >>> from mixts.models import linear
        >>> policy = LinUCB(linear([[1.0], [0.5]], dim=2))
        >>> state = policy.update(policy.init(jax.random.key(0)), [1.0, 0.0], 0, -3.0)
        >>> choice_probabilities(policy, state, [[1.0, 0.0]], draws=10).probabilities
        array([[0., 1.]])
    """
    if not isinstance(policy, Policy):
        raise TypeError(
            f"policy is {short(policy)}; expected a policy, such as ThompsonSampling(backend)"
        )
    draws = as_count(draws, "draws")
    contexts = jnp.asarray(contexts, float)
    if contexts.ndim not in (2, 3):
        raise ValueError(
            f"contexts have shape {contexts.shape}; expected (n, d), or (n, K, d) with a row for "
            "each action"
        )
    K = policy.problem.num_actions
    p = np.asarray(_count_choices(policy, state, contexts, fused_key(key), draws, K)) / draws
    inside = np.clip(p, 1 / (draws + 2), 1 - 1 / (draws + 2))
    return PolicyChoices(p, np.sqrt(inside * (1 - inside) / draws))


@partial(jax.jit, static_argnames=("draws", "K"))
def _count_choices(
    policy: Any, state: Any, contexts: Array, key: Array, draws: int, K: int
) -> Int[Array, "n K"]:
    def one_context(row: tuple[Array, Array]) -> Int[Array, " K"]:
        context, key = row
        keys = jax.random.split(key, draws)
        actions = jax.vmap(lambda key: policy.act(key, state, context))(keys)
        return jnp.zeros(K, jnp.int32).at[actions].add(1)

    keys = jax.random.split(key, len(contexts))
    return jax.lax.map(one_context, (contexts, keys))


def _mean(terms: Float[np.ndarray, " n"]) -> Estimate:
    return Estimate(float(terms.mean()), float(standard_error(terms)))


def _ratio(weights: Float[np.ndarray, " n"], rewards: Float[np.ndarray, " n"]) -> Estimate:
    """`sum w r / sum w`, with the standard error of a ratio to first order (the delta method)."""
    total, n = weights.sum(), len(weights)
    if total == 0:
        return Estimate(np.nan, np.nan)
    value = (weights * rewards).sum() / total
    spread = np.sqrt(np.square(weights * (rewards - value)).sum()) / total
    return Estimate(float(value), float(spread * np.sqrt(n / (n - 1))) if n > 1 else np.nan)


def _checked_log(log: LoggedDecisions) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if log.propensities is None:
        raise ValueError(
            "log: there are no propensities; expected the probability with which each action was chosen, "
            "which an Agent logs if it is made with propensity_draws"
        )
    if log.exposure is not None:
        raise ValueError(
            "log: some rewards stand for several, by their exposure; expected the mean of each: of clicks "
            "or counts log._replace(rewards=log.rewards / log.exposure, exposure=None), of mean ratings "
            "log._replace(exposure=None)"
        )
    actions, rewards, propensities = map(np.asarray, (log.actions, log.rewards, log.propensities))
    for name, column in (("rewards", rewards), ("propensities", propensities)):
        if actions.ndim != 1 or column.shape != actions.shape or not actions.size:
            raise ValueError(
                f"log: actions have shape {actions.shape} and {name} {column.shape}; expected one of "
                "each for every decision, and at least one decision"
            )
    if actions.dtype.kind not in "iu" or actions.min() < 0:
        raise ValueError(
            f"log: actions are {actions.dtype} from {actions.min()}; expected whole numbers from 0"
        )
    rewards = _finite(rewards, "log: rewards")
    propensities = _finite(propensities, "log: propensities")
    if propensities.min() <= 0 or propensities.max() > 1:
        wrong = int(np.argmin(np.where(propensities > 1, -1.0, propensities)))
        raise ValueError(
            f"log: the propensity of decision {wrong} is {propensities[wrong]:g}; expected one in "
            "(0, 1]: a chosen action had some probability. Leave out decisions without a propensity"
        )
    return actions, rewards, propensities


def _checked_probabilities(
    probabilities: Any, actions: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None]:
    """The probability of each logged action, and those of all actions where they are known."""
    p, n = np.asarray(probabilities), len(actions)
    if p.ndim not in (1, 2) or len(p) != n or (p.ndim == 2 and p.shape[1] <= actions.max()):
        raise ValueError(
            f"probabilities have shape {p.shape}; expected ({n}, K) with K above the largest action "
            f"of the log, {actions.max()}, or ({n},) for the logged actions alone"
        )
    if p.ndim == 1 and p.dtype.kind in "iu":
        if p.min() < 0:
            raise ValueError(f"probabilities hold the action {p.min()}; expected actions from 0")
        every = np.zeros((n, int(max(p.max(), actions.max())) + 1))
        every[np.arange(n), p] = 1.0
        return every[np.arange(n), actions], every
    p = _finite(p, "probabilities")
    if p.min() < 0 or p.max() > 1 + _SUM_TOLERANCE:
        wrong = p.min() if p.min() < 0 else p.max()
        raise ValueError(f"probabilities hold {wrong:g}; expected numbers from 0 to 1")
    if p.ndim == 1:
        return p, None
    sums = p.sum(1)
    worst = int(np.argmax(np.abs(sums - 1)))
    if abs(sums[worst] - 1) > _SUM_TOLERANCE:
        raise ValueError(
            f"probabilities of decision {worst} sum to {sums[worst]:g}; expected 1: a row holds the "
            "probability of every action"
        )
    return p[np.arange(n), actions], p


def _weights_of_groups(
    actions: np.ndarray, every: np.ndarray | None, groups: Any, logging: Any
) -> np.ndarray | None:
    """(n,) `pi(g_t | x_t) / p(g_t | x_t)`, the groups of the logged actions."""
    if groups is None and logging is None:
        return None
    if groups is None or logging is None or every is None:
        raise ValueError(
            "groups, logging and (n, K) probabilities belong together: the probability of a group, under "
            "both policies, is that of its actions"
        )
    _, logged = _checked_probabilities(logging, actions)
    group = np.unique(np.asarray(groups), return_inverse=True)[1].reshape(np.shape(groups))
    if logged is None or logged.shape != every.shape or group.shape != every.shape[1:]:
        raise ValueError(
            f"groups have shape {group.shape} and logging {np.shape(logging)}; expected "
            f"{every.shape[1:]} and {every.shape}, as the probabilities have"
        )
    same = group == group[actions][:, None]  # (n, K): actions of the group of the logged one
    under_log = (logged * same).sum(1)
    if under_log.min() <= 0:
        raise ValueError(
            f"logging: the group of the action of decision {int(under_log.argmin())} had probability 0; "
            "expected some, as it was chosen"
        )
    return (every * same).sum(1) / under_log


def _checked_predictions(
    predictions: Any, actions: np.ndarray, every: np.ndarray | None
) -> np.ndarray:
    if every is None:
        raise ValueError(
            "predictions are given, but probabilities of the logged actions only; the doubly robust "
            "estimate needs those of all actions, (n, K)"
        )
    q = _finite(np.asarray(predictions), "predictions")
    if q.ndim != 2 or len(q) != len(actions) or q.shape[1] < every.shape[1]:
        raise ValueError(
            f"predictions have shape {q.shape}; expected {(len(actions), every.shape[1])}, the mean "
            "reward of every action in the context of every decision"
        )
    return q[:, : every.shape[1]]


def _finite(values: np.ndarray, what: str) -> np.ndarray:
    if values.dtype.kind not in "fiub":
        raise TypeError(f"{what}: got values of type {values.dtype}; expected numbers")
    numbers = values.astype(float)
    if not np.isfinite(numbers).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(numbers))[0])
        raise ValueError(f"{what}: holds {numbers[where]} at {where}; every entry must be finite")
    return numbers
