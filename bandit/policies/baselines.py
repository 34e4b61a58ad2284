"""The paper's Thompson sampling baselines and oracles: `ThompsonSampling` on a derived hierarchy.

Each is a function from the agent's hierarchy to a policy. What a baseline ignores, drift among it, is left
out of the hierarchy; the algebra is that of `mixts.inference` (Aouali et al. 2023, Sections 4.2 and 5.1).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ...inference import Backend, ClosedForm, Factored, Laplace
from ...models import Gaussian, Hierarchy, Level
from ...models.arrays import as_numbers
from ...models.exactness import Obstacle
from ...models.messages import short
from .policy import ThompsonSampling

__all__ = [
    "GLMTS",
    "HierTS",
    "KnownEffects",
    "LinTS",
    "NoActionNoise",
    "PriorMoments",
    "check_hierarchy",
    "prior_moments",
]

_PRIOR_DRAWS = 4096
_NEARLY_NOTHING = 1e-6


def LinTS(hierarchy: Hierarchy, *, noise: Any = None) -> ThompsonSampling:
    """Linear Thompson sampling that ignores the effects (Agrawal & Goyal 2013).

    Every action has a posterior of its own, from its marginal prior: in two levels
    `N(mu_i + Gamma_i mu_Psi, Sigma_{0,i} + Gamma_i Sigma_Psi Gamma_i')`, in any other hierarchy what
    `prior_moments` returns. Rewards are assumed Gaussian. A round costs O(K d^2).

    Args:
        hierarchy: the agent's model.
        noise: standard deviation of rewards; by default the hierarchy's, or 1 where its rewards are
            not Gaussian.

    Example:
        >>> from mixts.bandit import LinTS
        >>> from mixts.models import linear
        >>> policy = LinTS(linear([[1.0], [0.5]], dim=2))
        >>> policy.backend.hierarchy["action"].cov[:, 0, 0]
        Array([2.  , 1.25], dtype=float32)
    """
    check_hierarchy(hierarchy, "LinTS")
    reward = Gaussian(_known_noise(hierarchy, noise, "LinTS"))
    return ThompsonSampling(ClosedForm(_without_effects(hierarchy, reward)))


def GLMTS(hierarchy: Hierarchy) -> ThompsonSampling:
    """`LinTS` with the hierarchy's own rewards, by Laplace's approximation (Chapelle & Li 2011).

    Each action's posterior is Gaussian at its mode with the curvature there. For Gaussian rewards that
    is exact, and the policy is `LinTS`.

    Example:
        >>> from mixts.bandit import GLMTS
        >>> from mixts.models import glm
        >>> type(GLMTS(glm([[1.0], [0.5]], dim=2)).backend).__name__
        'Laplace'
    """
    check_hierarchy(hierarchy, "GLMTS")
    if isinstance(hierarchy.reward, Gaussian):
        _known_noise(hierarchy, None, "GLMTS")
    return ThompsonSampling(_backend(_without_effects(hierarchy, hierarchy.reward)))


def HierTS(hierarchy: Hierarchy) -> ThompsonSampling:
    """Hierarchical Thompson sampling with a single effect that all actions share (Hong et al. 2022).

    `theta_i | psi ~ N(mu_i + psi, Sigma_{0,i})`, with the actions' own `mu_i`, `Sigma_{0,i}` and link. The
    prior mean and covariance of `psi` are the averages of those of the actions' parents: `N(0, 3 I)`
    in Section 5.1.

    Example:
        >>> from mixts.bandit import HierTS
        >>> from mixts.models import linear
        >>> policy = HierTS(linear([[1.0, 0.0], [0.5, 0.5]], dim=2))
        >>> policy.backend.hierarchy["action_effect"].size
        1
    """
    check_hierarchy(hierarchy, "HierTS")
    hierarchy = hierarchy.without_drift()
    actions = hierarchy.actions
    _check_parents(actions, "HierTS")
    moments = prior_moments(hierarchy)
    parents = list(actions.parents or {})
    mean = jnp.concatenate([moments.mean[name] for name in parents]).mean(0)
    cov = jnp.concatenate([moments.cov[name] for name in parents]).mean(0)
    effect = Level(f"{actions.name}_effect", 1, mean=mean, cov=cov)
    shared = actions.remade(parents={effect.name: np.ones((actions.size, 1))})
    return ThompsonSampling(_backend(hierarchy.remade(levels=[effect, shared])))


def KnownEffects(hierarchy: Hierarchy, environment: Any) -> ThompsonSampling:
    """The oracle that knows the effects (Section 4.2, `sigma_Psi = 0`).

    What is left to learn is `theta_i ~ N(mu_i + Gamma_i z, Sigma_{0,i})`, each action on its own, with the
    true parents `z` of the actions. `simulate` calls it with the environment, for it sees the truth.

    Args:
        hierarchy: the agent's model.
        environment: what it plays in; `environment.levels` maps the name of a level to its true
            (size, dim) vectors.

    Example:
        >>> from mixts.bandit import KnownEffects, SyntheticProblem
        >>> hierarchy, environment = SyntheticProblem(5, 2, 3).sample(jax.random.key(0))
        >>> [level.name for level in KnownEffects(hierarchy, environment).backend.hierarchy.levels]
        ['action']
    """
    check_hierarchy(hierarchy, "KnownEffects")
    actions, d = hierarchy.actions, hierarchy.dim
    if actions.learned_weights or actions.learns_mean:
        why = (Obstacle.WEIGHTS if actions.learned_weights else Obstacle.MEAN).value
        raise ValueError(
            f"KnownEffects: level '{actions.name}' {why}, so the effects do not tell where its vectors "
            "are centred; declare known weights and a known mean"
        )
    center = jnp.broadcast_to(actions.mean, (actions.size, d))
    for parent, arrows in actions.arrows.items():
        vectors = _true_vectors(environment, parent, (hierarchy[parent].size, d))
        center = center + arrows.mix(vectors)
    if actions.link is not None:
        center = actions.link(center)
    own = actions.remade(parents=None, mean=center, link=None)
    return ThompsonSampling(_backend(hierarchy.remade(levels=[own])))


setattr(KnownEffects, "sees_truth", True)  # noqa: B010 (type checkers know no attribute of functions)


def NoActionNoise(hierarchy: Hierarchy) -> ThompsonSampling:
    """Actions that their parents determine (Section 4.2, `sigma_0 = 0`).

    An oracle if the environment has no action noise either, as the paper assumes; otherwise a policy
    that is too certain of the effects and cannot correct it.

    The covariances of the actions are divided by a million, not set to zero, so that the same algebra
    applies, in float32 too: square roots are never subtracted, and the factor cancels in the product
    `Lambda_0 S_i`. Where `sigma_0^2` is about the variance of a reward, an action needs a million
    rewards until they count for half of what is known of it.

    Example:
        >>> from mixts.bandit import NoActionNoise
        >>> from mixts.models import linear
        >>> policy = NoActionNoise(linear([[1.0], [0.5]], dim=2))
        >>> f"{float(policy.backend.hierarchy['action'].cov):.0e}"
        '1e-06'
    """
    check_hierarchy(hierarchy, "NoActionNoise")
    hierarchy = hierarchy.without_drift()
    actions = hierarchy.actions
    _check_parents(actions, "NoActionNoise")
    if actions.learns_spread:
        raise ValueError(
            f"NoActionNoise: level '{actions.name}' {actions.why_not_linear_gaussian}; declare a known "
            "cov, of which the oracle takes next to nothing"
        )
    exact = actions.remade(cov=actions.cov * _NEARLY_NOTHING)
    levels = [*hierarchy.levels[:-1], exact]
    return ThompsonSampling(_backend(hierarchy.remade(levels=levels)))


class PriorMoments(NamedTuple):
    """Mean and covariance of every vector under the prior, each vector on its own.

    Attributes:
        mean: level name -> (size, d).
        cov: level name -> (size, d, d).
    """

    mean: dict[str, Float[Array, "_ d"]]
    cov: dict[str, Float[Array, "_ d d"]]


def prior_moments(hierarchy: Hierarchy) -> PriorMoments:
    """Prior marginal moments of every level, whatever the rewards.

    Exact where all levels are linear and Gaussian: the moments of a posterior before any data
    (Lemma 3), by `Factored` where the vectors above the actions are independent, which needs no joint
    covariance, and by `ClosedForm` elsewhere. Where a level has a link, a family, or a learned scale or
    weight, they are Monte Carlo estimates from 4,096 prior draws with a fixed key: a standard error of
    1.6% of a standard deviation for a mean and, for light tails, about 2.2% for a variance. For a law
    without a variance (a HalfCauchy scale, say) they are the moments of those draws.
    """
    check_hierarchy(hierarchy, "prior_moments")
    if not all(level.is_linear_gaussian for level in hierarchy.levels):
        return _estimated_moments(hierarchy)
    levels, d = hierarchy.without_drift().levels, hierarchy.dim
    linear = Hierarchy(levels, Gaussian(1.0), d)
    independent = len(levels) > 1 and not any(
        level.parents or level.covariance(d).is_joint for level in levels[:-1]
    )
    backend = Factored(linear) if independent else ClosedForm(linear)
    posterior = backend.posterior(backend.init())
    return PriorMoments(posterior.mean, posterior.cov)


@jax.jit
def _estimated_moments(hierarchy: Hierarchy) -> PriorMoments:
    """Moments of prior draws, one after the other (Welford's recursion): no draw is kept."""

    def add(moments: PriorMoments, at: tuple[Array, Array]) -> tuple[PriorMoments, None]:
        (key, n), (means, squares) = at, moments
        draw = hierarchy.sample_prior(key)
        away = {name: draw[name] - mean for name, mean in means.items()}
        outer = {name: (1 - 1 / n) * a[:, :, None] * a[:, None, :] for name, a in away.items()}
        means = {name: mean + away[name] / n for name, mean in means.items()}
        return PriorMoments(means, jax.tree.map(jnp.add, squares, outer)), None

    d, dtype = hierarchy.dim, jnp.result_type(float)
    means = {level.name: jnp.zeros((level.size, d), dtype) for level in hierarchy.levels}
    squares = {name: jnp.zeros((*mean.shape, d), dtype) for name, mean in means.items()}
    keys = jax.random.split(jax.random.key(0), _PRIOR_DRAWS)
    counts = jnp.arange(1, _PRIOR_DRAWS + 1, dtype=dtype)
    total, _ = jax.lax.scan(add, PriorMoments(means, squares), (keys, counts))
    return total._replace(cov=jax.tree.map(lambda sum_: sum_ / (_PRIOR_DRAWS - 1), total.cov))


def _without_effects(hierarchy: Hierarchy, reward: Any) -> Hierarchy:
    """The actions alone, independent of one another, with their marginal prior."""
    actions, moments = hierarchy.actions, prior_moments(hierarchy)
    mean, cov, name = moments.mean, moments.cov, actions.name
    own = Level(name, actions.size, mean=mean[name], cov=cov[name], labels=actions.labels)
    return hierarchy.remade(levels=[own], reward=reward)


def _backend(hierarchy: Hierarchy) -> Backend[Any]:
    return ClosedForm(hierarchy) if hierarchy.why_not_exact is None else Laplace(hierarchy)


def _known_noise(hierarchy: Hierarchy, noise: Any, who: str) -> Any:
    """The noise of Gaussian rewards that a baseline assumes."""
    if noise is not None:
        return noise
    if not isinstance(hierarchy.reward, Gaussian):
        return 1.0
    if hierarchy.reward.is_learned:
        what = "pass noise=<standard deviation>" if who == "LinTS" else "declare Gaussian(<number>)"
        raise ValueError(
            f"{who}: the hierarchy's noise is learned ({short(hierarchy.reward)}), and this policy needs a "
            f"number; {what}"
        )
    return hierarchy.reward.noise


def _true_vectors(environment: Any, level: str, shape: tuple[int, int]) -> Float[Array, "size d"]:
    levels = getattr(environment, "levels", None)
    if not isinstance(levels, Mapping) or level not in levels:
        known = sorted(levels) if isinstance(levels, Mapping) else type(environment).__name__
        raise ValueError(
            f"KnownEffects: got {known} as the environment; expected one whose `levels` map "
            f"'{level}' to its true vectors"
        )
    vectors = as_numbers(levels[level], f"KnownEffects: environment.levels['{level}']")
    if vectors.shape != shape:
        raise ValueError(
            f"KnownEffects: environment.levels['{level}'] has shape {vectors.shape}; expected {shape}, "
            "as in the hierarchy"
        )
    return vectors


def check_hierarchy(hierarchy: Any, who: str) -> None:
    """Refuse anything but a `Hierarchy`."""
    if not isinstance(hierarchy, Hierarchy):
        raise TypeError(
            f"{who}: got {short(hierarchy)}; expected a Hierarchy, such as linear(weights, dim)"
        )


def _check_parents(actions: Level, who: str) -> None:
    if not actions.parents:
        raise ValueError(
            f"{who}: the actions '{actions.name}' have no parents, so there is no effect to share; "
            "use LinTS or GLMTS, or declare parents"
        )
