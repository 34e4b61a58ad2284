"""Upper bounds of the Bayes regret: those of Aouali et al. 2023 for meTS and other agents.

One formula, the general version of Theorem 1 (Appendix D.4), of which Theorem 1 and
Proposition 4 are special cases. With the largest and smallest eigenvalues `lambda_{1,0}` and
`lambda_{d,0}` of the actions' covariances, the largest `lambda_{1,Psi}` of the effects', noise `sigma` and
contexts of squared norm at most `kappa_x`,

    BR(n) <= sqrt(2 n (R^A + R^E) log(1 / delta)) + c n delta,
    R^A = d K c_A log(1 + n kappa_x lambda_{1,0} / (sigma^2 d)),
    R^E = d L c_E log(1 + K kappa_b lambda_{1,Psi}
                      (1 / lambda_{d,0} - 1 / (lambda_{1,0}^2 (kappa_x n / sigma^2 + 1 / lambda_{d,0})))),
    c_A = kappa_x lambda_{1,0} / log(1 + kappa_x lambda_{1,0} / sigma^2),
    c_E = c_Psi (1 + kappa_x lambda_{1,0} / sigma^2) / log(1 + c_Psi / sigma^2),
    c_Psi = kappa_x kappa_b lambda_{1,Psi} lambda_{1,0}^2 / lambda_{d,0}^2,
    c = sqrt(2 / pi (kappa_x lambda_{1,0} + c_Psi)) K.

Proposition 4 states matrix weights for isotropic covariances only. The proof of the general version
uses the weights through `lambda_1(Gamma_i Gamma_i') <= kappa_b` alone, so it holds for them too, with
`kappa_c = max_i lambda_1(C_i C_i')` for `kappa_b`. Several crossed levels of effects are one `Psi`.
"""

from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ..models import Gaussian, Hierarchy
from ..models.arrays import as_count, as_positive, is_concrete
from ..models.messages import short
from .policies.baselines import check_hierarchy, prior_moments

__all__ = ["RegretBound", "regret_bound"]

Kind = Literal["mets", "unstructured", "known_effects", "no_action_noise"]


class RegretBound(NamedTuple):
    """An upper bound of the Bayes regret, and its parts.

    Attributes:
        total: `sqrt(2 n (R^A + R^E) log(1 / delta)) + c n delta`.
        action_term: `R^A`, of learning the actions given the effects.
        effect_term: `R^E`, of learning the effects.
        constant_term: `c n delta`, of the confidence intervals failing.
        delta: the probability of that, in the proof.
        kappa_b: `max_i |b_i|^2`, or `max_i lambda_1(C_i C_i')` for matrix weights: how strongly
            actions depend on effects.

    Example:
        >>> from mixts.bandit import regret_bound
        >>> from mixts.models import linear
        >>> bound = regret_bound(linear([[1.0, 0.0], [0.6, 0.8]], dim=2), horizon=100, kappa_x=1.0)
        >>> bool(bound.total > bound.constant_term), round(float(bound.kappa_b), 3)
        (True, 1.0)
    """

    total: Float[Array, ""]
    action_term: Float[Array, ""]
    effect_term: Float[Array, ""]
    constant_term: Float[Array, ""]
    delta: Float[Array, ""]
    kappa_b: Float[Array, ""]


def regret_bound(
    hierarchy: Hierarchy, horizon: int, kappa_x: Any, delta: Any = None, *, agent: Kind = "mets"
) -> RegretBound:
    """The Bayes regret bound of an agent after `horizon` rounds; works inside `jit` and `vmap`.

    The agents of Section 4.2:

    - `"mets"`: meTS, which knows the hierarchy.
    - `"unstructured"`: LinTS with the marginal prior. `R^E` is zero, and `lambda_{1,0}` the largest
      eigenvalue of `Sigma_{0,i} + Gamma_i Sigma_Psi Gamma_i'`. As in the paper, it bounds the regret
      where actions are independent with that prior, which is all that this agent knows.
    - `"known_effects"`: the limit `Sigma_Psi -> 0`. `R^E` and `c_Psi` vanish.
    - `"no_action_noise"`: the limit of `Sigma_{0,i} = sigma_0^2 I` as `sigma_0 -> 0`. `R^A` vanishes, and
      `R^E = d L c_E log(1 + K kappa_b lambda_{1,Psi} kappa_x n / sigma^2)`. Along other covariances that
      vanish, `lambda_{1,0} / lambda_{d,0} > 1` stays and the logarithm diverges: a weakness of the bound,
      not of the agent.

    The bound increases with `n`, `K`, `L`, `d`, `kappa_x` and `lambda_{1,Psi}`; known effects are always
    below meTS. In `sigma_0` it increases if `K sigma^2 > d L c_E`, about: with fewer actions, a smaller
    `sigma_0` may add more to `R^E` than it saves in `R^A`, which Eq. 12 without its logarithms hides.

    Args:
        hierarchy: linear-Gaussian, of two levels: effects without parents, and actions.
        horizon: `n`.
        kappa_x: an upper bound of the squared norms of contexts.
        delta: by default `1 / n`, with which the last term does not grow.
        agent: whose regret.

    Example:
        >>> from mixts.bandit import regret_bound
        >>> from mixts.models import linear
        >>> paper = linear([[1.0, 0.0], [0.6, 0.8]], dim=2, effect_cov=3.0)
        >>> bounds = [regret_bound(paper, 100, 2.0, agent=a).total for a in ("known_effects", "mets")]
        >>> bool(bounds[0] < bounds[1])
        True
    """
    _check_two_levels(hierarchy)
    n = as_count(horizon, "regret_bound horizon")
    kappa_x = as_positive(kappa_x, "regret_bound kappa_x")
    delta = _probability(1.0 / n if delta is None else delta, may_be_one=delta is None)
    if agent not in get_args(Kind):
        known = ", ".join(repr(name) for name in get_args(Kind))
        raise ValueError(f"regret_bound agent is {short(agent)}; expected one of {known}")

    K, d, actions = hierarchy.num_actions, hierarchy.dim, hierarchy.actions
    L = sum(level.size for level in hierarchy.levels[:-1])
    assert isinstance(hierarchy.reward, Gaussian), "checked by _check_two_levels"
    variance, kappa = jnp.square(hierarchy.reward.noise), _kappa(hierarchy)
    low, high = _eigenvalues(actions.covariance(d).matrices())
    above = [_eigenvalues(level.covariance(d).matrices())[1] for level in hierarchy.levels[:-1]]
    effect, zero = jnp.max(jnp.stack(above)), jnp.zeros_like(high)
    if agent == "unstructured":
        (low, high), effect = _eigenvalues(prior_moments(hierarchy).cov[actions.name]), zero
    elif agent == "known_effects":
        effect = zero
    elif agent == "no_action_noise":
        low = high = zero

    c_action = _over_log(kappa_x * high, variance)
    action_term = d * K * c_action * jnp.log1p(n * kappa_x * high / (variance * d))
    c_psi = kappa_x * kappa * effect * jnp.square(_ratio(high, low))
    c_effect = _over_log(c_psi, variance) * (1 + kappa_x * high / variance)
    seen = _most_seen(high, low, kappa_x * n / variance)
    effect_term = d * L * c_effect * jnp.log1p(K * kappa * effect * seen)
    c = K * jnp.sqrt(2 / jnp.pi * (kappa_x * high + c_psi))
    spent = jnp.sqrt(2 * n * (action_term + effect_term) * -jnp.log(delta))
    constant_term = c * n * delta
    return RegretBound(spent + constant_term, action_term, effect_term, constant_term, delta, kappa)


def _over_log(x: Array, variance: Array) -> Array:
    """`x / log(1 + x / variance)`, which tends to `variance` as `x` vanishes."""
    safe = jnp.where(x > 0, x, 1.0)
    return jnp.where(x > 0, safe / jnp.log1p(safe / variance), variance)


def _ratio(high: Array, low: Array) -> Array:
    """`lambda_{1,0} / lambda_{d,0}`, or one where both are zero: the limit of isotropic ones."""
    return jnp.where(low > 0, high / jnp.where(low > 0, low, 1.0), 1.0)


def _most_seen(high: Array, low: Array, precision: Array) -> Array:
    """`1 / low - 1 / (high^2 (precision + 1 / low))`, the most that an action tells about its effects.

    As a sum of two terms that are not negative, the second zero for isotropic covariances:
    `(precision + (high - low) (high + low) / (low high^2)) / (1 + low precision)`.
    """
    stretch = _ratio(high, low)
    unequal = jnp.where(low > 0, (1 - 1 / jnp.square(stretch)) / jnp.where(low > 0, low, 1.0), 0.0)
    return (precision + unequal) / (1 + low * precision)


def _eigenvalues(matrices: Float[Array, "*batch n n"]) -> tuple[Array, Array]:
    """The smallest and the largest eigenvalue of all matrices."""
    values = jnp.linalg.eigvalsh(matrices)
    return values.min(), values.max()


def _kappa(hierarchy: Hierarchy) -> Float[Array, ""]:
    """`max_i lambda_1(Gamma_i Gamma_i')`: squares of weights, added up over all effects."""
    d = hierarchy.dim

    def square(action: Array) -> Float[Array, "d d"]:
        total = jnp.zeros((d, d))
        for arrows in hierarchy.actions.arrows.values():
            parents = arrows.parents_of(action)
            weights = arrows.push(action, jnp.broadcast_to(jnp.eye(d), (len(parents), d, d)))
            # A parent named twice counts with the sum of its weights.
            same = (parents[:, None] == parents).astype(weights.dtype)
            total += jnp.einsum("mde,mfe->df", weights, jnp.einsum("mn,nde->mde", same, weights))
        return total

    squares = jax.lax.map(square, jnp.arange(hierarchy.num_actions), batch_size=1024)
    return jnp.linalg.eigvalsh(squares).max()


def _check_two_levels(hierarchy: Any) -> None:
    check_hierarchy(hierarchy, "regret_bound")
    if hierarchy.why_not_exact is not None:
        raise ValueError(
            f"regret_bound needs a linear-Gaussian hierarchy, for which the theorem is proved: "
            f"{hierarchy.why_not_exact}. Bound a linear-Gaussian one instead, such as "
            "linear(weights, dim)"
        )
    names = [level.name for level in hierarchy.levels]
    deep = [level.name for level in hierarchy.levels[:-1] if level.parents]
    if deep or not hierarchy.actions.parents:
        why = f"level '{deep[0]}' has parents" if deep else f"'{names[-1]}' has no parents"
        raise ValueError(
            f"regret_bound: got the levels {names}, and {why}; expected two levels, effects without "
            "parents and actions under them, for which the theorem is proved. Leave out or merge "
            "levels above, or declare effects"
        )


def _probability(value: Any, *, may_be_one: bool) -> Float[Array, ""]:
    delta = as_positive(value, "regret_bound delta")
    if is_concrete(delta) and float(delta) >= 1 and not may_be_one:
        raise ValueError(
            f"regret_bound delta is {float(delta):g}; expected a probability below 1, such as 1 / n"
        )
    return delta
