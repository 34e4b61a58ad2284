"""What the paper claims and does not plot, as figures."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp

from ...inference import Factored
from ...models import Hierarchy, Level
from ..policies.baselines import HierTS, LinTS, prior_moments
from ..policies.policy import ThompsonSampling
from ..problems.synthetic import SyntheticProblem
from .paper import ACTIONS, LINEAR, exact, factored, laplace, synthetic
from .record import Bound, Figure, Panel, lower

__all__ = ["beyond_figures"]

EFFECTS = (2, 3, 5, 10, 20)  # how many, in "factored"
ITEMS = 20
# A round with a link: the posterior of the effects is found anew.
LINK_SECONDS = 2e-5


def without_link(hierarchy: Hierarchy) -> ThompsonSampling:
    """meTS-Lin where effects are not linear: it takes the weighted sum for the actions' means."""
    *above, actions = hierarchy.levels
    linear = Level(actions.name, actions.size, parents=actions.parents, cov=actions.cov)
    return exact(Hierarchy([*above, linear], hierarchy.reward, hierarchy.dim))


def two_levels(hierarchy: Hierarchy) -> ThompsonSampling:
    """Items and actions alone: items are independent, with their marginal prior."""
    *_, items, actions = hierarchy.levels
    moments = prior_moments(hierarchy)
    own = Level(items.name, items.size, mean=moments.mean[items.name], cov=moments.cov[items.name])
    return exact(Hierarchy([own, actions], hierarchy.reward, hierarchy.dim))


def coarse(hierarchy: Hierarchy) -> ThompsonSampling:
    """One number for each matrix of weights, the mean of its diagonal."""
    effects, actions = hierarchy.levels
    maps = jnp.asarray((actions.parents or {})[effects.name])
    weights = jnp.trace(maps, axis1=-2, axis2=-1) / hierarchy.dim
    own = Level(actions.name, actions.size, parents={effects.name: weights}, cov=actions.cov)
    return exact(Hierarchy([effects, own], hierarchy.reward, hierarchy.dim))


def factored_with_joint_means(hierarchy: Hierarchy) -> ThompsonSampling:
    """Factored covariances around the means of the joint posterior."""
    return ThompsonSampling(Factored(hierarchy, means="joint"))


NONLINEAR = {"meTS-NonLin": laplace, "meTS-Lin": without_link, "LinTS": LinTS, "HierTS": HierTS}
THREE = {
    "meTS, three levels": exact,
    "meTS, two levels": two_levels,
    "LinTS": LinTS,
    "HierTS": HierTS,
}
FINER = {"meTS, matrices": exact, "meTS, numbers": coarse, "LinTS": LinTS, "HierTS": HierTS}
FACTORED = {
    "meTS-Lin": exact,
    "meTS-Lin-Fa": factored,
    "meTS-Lin-Fa, joint means": factored_with_joint_means,
    "LinTS": LinTS,
}
BOUND = {name: LINEAR[name] for name in ("meTS-Lin", "LinTS")}


def nonlinear(K: int) -> Panel:
    """Effects through a sigmoid (Appendix E.3)."""
    return Panel(
        f"nonlinear K={K}",
        f"K = {K}",
        partial(SyntheticProblem, K, link=jax.nn.sigmoid, effect_cov=9.0, action_cov=0.1),
        NONLINEAR,
        claims=lower(("meTS-NonLin",), ("LinTS", "HierTS")),
        round_seconds=LINK_SECONDS,
    )


def three_levels(K: int) -> Panel:
    """Pages of movies of categories (Appendix E.4)."""
    return Panel(
        f"three levels K={K}",
        f"K = {K}",
        partial(SyntheticProblem, K, num_items=ITEMS),
        THREE,
        claims=lower(("meTS, three levels",), ("meTS, two levels", "LinTS", "HierTS")),
    )


def finer(K: int) -> Panel:
    """Weights that are matrices (Appendix E.2)."""
    return Panel(
        f"finer K={K}",
        f"K = {K}",
        partial(SyntheticProblem, K, matrix_weights=True),
        FINER,
        claims=lower(("meTS, matrices",), ("meTS, numbers", "LinTS", "HierTS")),
    )


def many_effects(L: int) -> Panel:
    """Exact against factored effect posteriors (Appendix E.1)."""
    return replace(
        synthetic(False, 100, 2, L),
        title=f"L = {L}",
        policies=FACTORED,
        claims=lower(("meTS-Lin", "meTS-Lin-Fa"), ("LinTS",)),
        value=L,
    )


def bounded(K: int) -> Panel:
    """Regret and its bounds (Theorem 1, Section 4.2); contexts are in [-1, 1]^2."""
    return replace(
        synthetic(False, K, 2),
        title=f"K = {K}",
        policies=BOUND,
        claims=lower(("meTS-Lin",), ("LinTS", "bound of meTS"))
        + lower(("bound of meTS",), ("bound of LinTS",)),
        bounds={"bound of meTS": Bound("mets", 2.0), "bound of LinTS": Bound("unstructured", 2.0)},
    )


def beyond_figures() -> tuple[Figure, ...]:
    """All of them."""
    return (
        Figure(
            "nonlinear",
            "Effects through a sigmoid, L = 3, d = 2",
            tuple(nonlinear(K) for K in ACTIONS),
            columns=3,
            source="subsec:non_linear_mixed_model",
            says="meTS extends to effects that are not linear, by Laplace's approximation.",
        ),
        Figure(
            "three-levels",
            f"Three levels: {ITEMS} items under L = 3 effects, d = 2",
            tuple(three_levels(K) for K in ACTIONS),
            columns=3,
            source="subsec:multi_level",
            says="A third level adds a term of its own to the regret bound, of the order of its size.",
            logarithmic=True,
        ),
        Figure(
            "finer",
            "Weights that are matrices, L = 3, d = 2",
            tuple(finer(K) for K in ACTIONS),
            columns=3,
            source="subsec:mixed_model",
            says="Algorithm and regret bound extend to matrix weights.",
        ),
        Figure(
            "factored",
            "Exact against factored effects, K = 100, d = 2",
            tuple(many_effects(L) for L in EFFECTS),
            columns=len(EFFECTS),
            source="app:posterior_approximation",
            says="Factored effect posteriors are cheaper by L^2 in time, with minimal impact on the "
            "regret; a higher L leads to a higher regret.",
            across="number of effects L",
        ),
        Figure(
            "bound",
            "Regret and its bounds, L = 3, d = 2",
            tuple(bounded(K) for K in ACTIONS),
            columns=3,
            source="thm:regret",
            says="Regret stays below its bound, and the bound of meTS below that of an agent without "
            "structure where K is larger than L.",
            logarithmic=True,
        ),
    )
