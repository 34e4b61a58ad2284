"""The log evidence of rewards that are not Gaussian, as expectation propagation has it, and its slope.

Where messages agree, the log evidence

    log Z = log of the integral of p(z) prod_i exp(b_i u_i - t_i u_i^2 / 2) dz + sum_i log (Z_i / N_i)

does not change, to first order, with the messages `(t_i, b_i)` nor with the cavities under which they were
matched (Minka 2001); `Z_i` is the normaliser of the tilted density, and `N_i` what the message has in its
place. So its slope in what is declared is the slope with messages and cavities held fixed:
of the first term that is the evidence of Gaussian rewards, which say what the messages do, and the second
depends on the law of rewards alone. Nothing is differentiated through a sweep.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from ...models import Hierarchy, Reward
from ..observation import can_be_used
from . import action_blocks
from .block_levels import tree_levels
from .evidence import gaussian_levels, log_density_of_rewards
from .expectation_propagation import ExpectationPropagation
from .messages import Seen
from .moment_matching import Matched, log_likelihood, log_normaliser
from .moment_messages import MomentMessages, log_density_of_messages
from .reduction import weighed_rows
from .sufficient_statistics import RewardStatistics, reward_statistics

__all__ = ["Agreed", "agreed_messages", "as_statistics", "log_shares", "propagated_log_evidence"]


class Agreed(NamedTuple):
    """Messages that agree, as Gaussian rewards, and the cavities they were matched under.

    Attributes:
        rewards: Gaussian rewards that say what the messages do.
        noise: the variances of their noise; below zero where a message takes certainty away.
        mean: of each predictor under all other messages.
        variance: of each predictor under all other messages.
        matched: the tilted densities under these.
        settled: whether the messages agree.
    """

    rewards: Float[Array, " n"]
    noise: Float[Array, " n"]
    mean: Float[Array, " n"]
    variance: Float[Array, " n"]
    matched: Matched
    settled: Array


@jax.jit
def agreed_messages(hierarchy: Hierarchy, seen: Seen) -> Agreed:
    """The messages of all rewards, swept until they agree."""
    backend = ExpectationPropagation(hierarchy)
    assert isinstance(backend.messages, MomentMessages)
    fit = backend.messages.agree(backend.levels, backend.init(), seen)
    return Agreed(*fit)


def as_statistics(
    agreed: Agreed, seen: Seen, num_actions: int
) -> tuple[RewardStatistics, Float[Array, ""]]:
    """What messages say as rewards of unit noise, and by how much their log density exceeds that of these.

    For laws that are log-concave, whose messages have positive precisions.
    """
    precision = jnp.where(seen.valid, 1 / agreed.noise, 0.0)
    rows, _ = weighed_rows(seen.context, seen.action, agreed.rewards, precision)
    scales = 0.5 * jnp.sum(jnp.where(seen.valid, jnp.log(jnp.abs(1 / agreed.noise)), 0.0))
    return reward_statistics(*rows, num_actions), scales


def log_shares(reward: Reward, agreed: Agreed, seen: Seen) -> Float[Array, ""]:
    """`sum_i log (Z_i / N_i)`, for cavities that are held fixed."""
    density = log_likelihood(reward, seen.reward, seen.exposure)
    log_z = log_normaliser(density, agreed.matched, agreed.mean, agreed.variance)
    in_place = log_density_of_messages(agreed.rewards, agreed.noise, agreed.mean, agreed.variance)
    return jnp.sum(jnp.where(seen.valid, log_z - in_place, 0.0))


def propagated_log_evidence(
    hierarchy: Hierarchy,
    contexts: Float[Array, "n d"],
    actions: Int[Array, " n"],
    rewards: Float[Array, " n"],
    exposure: Float[Array, " n"] | None,
) -> Float[Array, ""]:
    """The log evidence; NaN where no messages were found that agree.

    Its slope in the levels and in the law of rewards costs one fit and one evidence of Gaussian rewards.
    """
    K = hierarchy.num_actions
    valid = can_be_used(contexts, actions, rewards, K, exposure)
    seen = Seen(
        jnp.where(valid[:, None], contexts, 0.0),
        jnp.where(valid, actions, K),
        jnp.where(valid, rewards, 0.0),
        valid,
        None if exposure is None else jnp.where(valid, exposure, 1.0),
    )
    agreed = jax.lax.stop_gradient(agreed_messages(jax.lax.stop_gradient(hierarchy), seen))
    if hierarchy.reward.is_log_concave:
        statistics, scales = as_statistics(agreed, seen, K)
        unit = jnp.ones((), seen.reward.dtype)
        gaussian = scales + log_density_of_rewards(gaussian_levels(hierarchy), unit, statistics)
    else:
        gaussian = _one_after_the_other(hierarchy, agreed, seen)
    found = gaussian + log_shares(hierarchy.reward, agreed, seen)
    return jnp.where(agreed.settled, found, jnp.nan)


def _one_after_the_other(hierarchy: Hierarchy, agreed: Agreed, seen: Seen) -> Float[Array, ""]:
    """The log density of Gaussian rewards of which some take certainty away: those come last."""
    levels = tree_levels(hierarchy)
    order = jnp.argsort(agreed.noise < 0, stable=True)
    rows, noise = jax.tree.map(lambda part: part[order], (seen, agreed.noise))
    moved, innovations = action_blocks.condition_actions(
        levels.model,
        action_blocks.no_data(levels.model),
        rows.context,
        rows.action,
        agreed.rewards[order],
        noise,
    )
    _, outcome = levels.condition(levels.before_data(), innovations, moved)
    return jnp.asarray(outcome.log_density)
