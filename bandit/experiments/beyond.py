"""What the paper claims and does not plot, as figures."""

from dataclasses import replace

import jax
import jax.numpy as jnp

from ...inference import Factored
from ...models import Hierarchy, Level
from .. import HierTS, LinTS, ThompsonSampling
from ..policies.baselines import prior_moments
from .paper import ACTIONS, by_size, exact, factored, laplace, synthetic
from .record import Bound, Figure, Panel, lower

__all__ = ["beyond_figures"]

EFFECTS = (2, 3, 5, 10, 20)  # how many, in "factored"
ITEMS = 20


def without_link(hierarchy: Hierarchy) -> ThompsonSampling:
    """meTS-Lin where effects are not linear: actions' means are the weighted sums."""
    *above, actions = hierarchy.levels
    return exact(hierarchy.remade(levels=[*above, actions.remade(link=None)]))


def two_levels(hierarchy: Hierarchy) -> ThompsonSampling:
    """Items and actions alone: items are independent, with their marginal prior."""
    *_, items, actions = hierarchy.levels
    mean, cov = (moment[items.name] for moment in prior_moments(hierarchy))
    own = Level(items.name, items.size, mean=mean, cov=cov)
    return exact(hierarchy.remade(levels=[own, actions]))


def coarse(hierarchy: Hierarchy) -> ThompsonSampling:
    """One number for each matrix of weights, the mean of its diagonal."""
    effects, actions = hierarchy.levels
    maps = jnp.asarray((actions.parents or {})[effects.name])
    weights = jnp.trace(maps, axis1=-2, axis2=-1) / hierarchy.dim
    own = actions.remade(parents={effects.name: weights})
    return exact(hierarchy.remade(levels=[effects, own]))


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
BOUNDED = {"meTS-Lin": exact, "LinTS": LinTS}
# Contexts are in [-1, 1]^2.
BOUNDS = {"bound of meTS": Bound("mets", 2.0), "bound of LinTS": Bound("unstructured", 2.0)}
BOUND_CLAIMS = (
    *lower(("meTS-Lin",), ("LinTS", "bound of meTS")),
    *lower(("bound of meTS",), ("bound of LinTS",)),
)


def nonlinear() -> tuple[Panel, ...]:
    """Effects through a sigmoid; the posterior of the effects is found anew in every round."""
    claims = lower(("meTS-NonLin",), ("LinTS", "HierTS"))
    problem = {"link": jax.nn.sigmoid, "effect_cov": 9.0, "action_cov": 0.1}
    panels = by_size("nonlinear", NONLINEAR, claims, **problem)
    return tuple(replace(panel, round_seconds=2e-5) for panel in panels)


def many_effects(L: int) -> Panel:
    """Exact against factored effect posteriors (Appendix E.1)."""
    claims = lower(("meTS-Lin", "meTS-Lin-Fa"), ("LinTS",))
    like = synthetic(False, 100, 2, L)
    return replace(like, title=f"L = {L}", policies=FACTORED, claims=claims, value=L)


def bounded(K: int) -> Panel:
    """Regret and its bounds (Theorem 1, Section 4.2)."""
    about = {"policies": BOUNDED, "claims": BOUND_CLAIMS, "bounds": BOUNDS}
    return replace(synthetic(False, K, 2), title=f"K = {K}", **about)


def beyond_figures() -> tuple[Figure, ...]:
    """All of them."""
    three_claims = lower(("meTS, three levels",), ("meTS, two levels", "LinTS", "HierTS"))
    finer_claims = lower(("meTS, matrices",), ("meTS, numbers", "LinTS", "HierTS"))
    return (
        Figure(
            "nonlinear",
            "Effects through a sigmoid, L = 3, d = 2",
            nonlinear(),
            source="Appendix E.3",
            says="meTS extends to effects that are not linear, by Laplace's approximation.",
        ),
        Figure(
            "three-levels",
            f"Three levels: {ITEMS} items under L = 3 effects, d = 2",
            by_size("three levels", THREE, three_claims, num_items=ITEMS),
            source="Appendix E.4",
            says="A third level adds a term of its own to the regret bound, of the order of its size.",
            logarithmic=True,
        ),
        Figure(
            "finer",
            "Weights that are matrices, L = 3, d = 2",
            by_size("finer", FINER, finer_claims, matrix_weights=True),
            source="Appendix E.2",
            says="Algorithm and regret bound extend to matrix weights.",
        ),
        Figure(
            "factored",
            "Exact against factored effects, K = 100, d = 2",
            tuple(many_effects(L) for L in EFFECTS),
            columns=len(EFFECTS),
            source="Appendix E.1",
            says="Factored effect posteriors are cheaper by L^2 in time, with minimal impact on the "
            "regret; a higher L leads to a higher regret.",
            across="number of effects L",
        ),
        Figure(
            "bound",
            "Regret and its bounds, L = 3, d = 2",
            tuple(bounded(K) for K in ACTIONS),
            source="Theorem 1",
            says="Regret stays below its bound, and the bound of meTS below that of an agent without "
            "structure where K is larger than L.",
            logarithmic=True,
        ),
    )
