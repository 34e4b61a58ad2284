"""Off-policy evaluation: what another policy would have earned, from a log of decisions.

A log says, for each of n decisions, the action taken, its reward, and the *propensity*: the probability
with which the action was chosen. The policy to be judged gives the probabilities with which it would
have chosen each action. With `w_t = pi(a_t | x_t) / p_t`,

    IPS    sum w_t r_t / n                               (Horvitz & Thompson 1952)
    SNIPS  sum w_t r_t / sum w_t                         (Swaminathan & Joachims 2015)
    DR     sum (w_t (r_t - q(x_t, a_t)) + sum_a pi(a | x_t) q(x_t, a)) / n   (Dudik et al. 2011)

estimate its mean reward. IPS is unbiased wherever every action that the policy might take could have
been logged; SNIPS is biased by O(1 / n), but does not change its mind when a constant is added to all
rewards; DR is as unbiased as IPS whatever the predictions `q` are, and the better they are the less it
varies. The standard errors hold for decisions that are independent given their contexts, of a policy
that does not learn; rewards fed back into the logging policy only make their propensities change,
which the weights account for.
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
from .policies.policy import Policy

__all__ = [
    "Estimate",
    "LoggedDecisions",
    "OffPolicyValue",
    "PolicyChoices",
    "choice_probabilities",
    "off_policy_value",
]

# Probabilities that were estimated, or kept in float32, sum to one no closer than this.
_SUM_TOLERANCE = 1e-3


class LoggedDecisions(NamedTuple):
    """What was decided and what came of it.

    Attributes:
        contexts: (n, d), or (n, K, d) with a row for each action; None where nobody needs them.
        actions: (n,) the actions taken.
        rewards: (n,) what they brought.
        propensities: (n,) the probability with which each action was taken; None where nobody said.
        ids: (n,) what the decisions are called by the `Agent` that made them; see `Agent.log`.
    """

    contexts: Any
    actions: Any
    rewards: Any
    propensities: Any
    ids: Any = None


class Estimate(NamedTuple):
    """The mean reward of a policy, and how well it is known."""

    value: float
    standard_error: float


class OffPolicyValue(NamedTuple):
    """Three estimates of a policy's mean reward, and how much of the log speaks for it.

    Attributes:
        ips: inverse propensity scores.
        snips: the same, self-normalised.
        doubly_robust: with predicted rewards; None without them.
        effective_sample_size: `(sum w)^2 / sum w^2`: how many rewards logged by the policy itself the
            weighted ones are worth. Far below n, the estimates hang on a few decisions.
        largest_weight: the largest `w_t`, before clipping.
        clipped: how many weights were cut; where it is not zero, all estimates are biased.
    """

    ips: Estimate
    snips: Estimate
    doubly_robust: Estimate | None
    effective_sample_size: float
    largest_weight: float
    clipped: int


def off_policy_value(
    log: LoggedDecisions, probabilities: Any, *, predictions: Any = None, clip: float | None = None
) -> OffPolicyValue:
    """Estimates of the mean reward of the policy that chooses with the given probabilities.

    Args:
        log: what was decided, what came of it, and how probable it was.
        probabilities: (n, K) how the policy to be judged chooses in each context, see
            `choice_probabilities`; or (n,) the probabilities of the logged actions, or the actions
            that it takes for certain as whole numbers.
        predictions: (n, K) predicted mean rewards, for the doubly robust estimate, such as
            `contexts @ backend.posterior(state).mean["action"].T`; needs (n, K) probabilities, or
            actions.
        clip: cut weights at this number, which trades variance for bias.
    """
    actions, rewards, propensities = _checked_log(log)
    chosen, every = _checked_probabilities(probabilities, actions)
    q = None if predictions is None else _checked_predictions(predictions, actions, every)
    weights = chosen / propensities
    largest = float(weights.max())
    clipped = 0
    if clip is not None:
        if not (isinstance(clip, int | float) and 0 < clip < np.inf):
            raise ValueError(
                f"clip is {clip!r}; expected a positive number, or None for no clipping"
            )
        clipped = int((weights > clip).sum())
        weights = np.minimum(weights, clip)
    robust = None
    if q is not None and every is not None:
        own = q[np.arange(len(actions)), actions]
        robust = _mean(weights * (rewards - own) + (every * q).sum(1))
    total, squares = weights.sum(), np.square(weights).sum()
    return OffPolicyValue(
        ips=_mean(weights * rewards),
        snips=_ratio(weights, rewards),
        doubly_robust=robust,
        effective_sample_size=float(total**2 / squares) if squares > 0 else 0.0,
        largest_weight=largest,
        clipped=clipped,
    )


class PolicyChoices(NamedTuple):
    """How probable each action is in each context.

    Attributes:
        probabilities: (n, K) the share of draws in which a policy took the action.
        standard_error: (n, K) `sqrt(p (1 - p) / draws)`, with p no closer to zero or one than
            `1 / (draws + 2)`, so that an action never drawn does not look impossible for certain.
    """

    probabilities: np.ndarray
    standard_error: np.ndarray


def choice_probabilities(
    policy: Policy, state: Any, contexts: Any, *, draws: int = 1000, key: Any = 0
) -> PolicyChoices:
    """How a policy with a fixed state chooses, by Monte Carlo: `draws` calls of `act` per context.

    The state is not changed: this is the policy as it stands, not as it would go on learning. Costs
    `n * draws` calls of `act` in one compiled program, and memory for `draws` of them.
    """
    if not isinstance(policy, Policy):
        raise TypeError(
            f"policy is {policy!r}; expected a policy, such as ThompsonSampling(backend)"
        )
    draws = as_count(draws, "draws")
    contexts = jnp.asarray(contexts, float)
    if contexts.ndim not in (2, 3):
        raise ValueError(
            f"contexts have shape {contexts.shape}; expected (n, d), or (n, K, d) with a row for "
            "each action"
        )
    K = policy.problem.num_actions
    counts = np.asarray(_count_choices(policy, state, contexts, fused_key(key), draws, K))
    p = counts / draws
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
    n = len(terms)
    error = terms.std(ddof=1) / np.sqrt(n) if n > 1 else np.nan
    return Estimate(float(terms.mean()), float(error))


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
            "log: there are no propensities; expected the probability with which each action was taken, "
            "which an Agent logs if it is made with propensity_draws"
        )
    actions, rewards = np.asarray(log.actions), np.asarray(log.rewards)
    propensities = np.asarray(log.propensities)
    n = len(actions) if actions.ndim == 1 else 0
    for name, column in (("rewards", rewards), ("propensities", propensities)):
        if actions.ndim != 1 or column.shape != (n,) or n == 0:
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
            "(0, 1]: what was taken had some probability. Leave out decisions without a propensity"
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
