"""What it costs not to know the scales: they are learned from rewards, known, or wrong."""

from functools import partial

import numpyro.distributions as dist

from ...inference import Collapsed
from ...models import Gaussian, Hierarchy
from ..policies.policy import ThompsonSampling
from ..problems.synthetic import SyntheticProblem
from .paper import exact
from .record import Claim, Figure, Panel, lower

__all__ = ["scales_learned", "scales_times", "unknown_scales"]

ACTIONS = (20, 100)
PARTICLES = 128
WRONG = 3.0  # times the standard deviations
WITHIN = 0.05  # of the regret of those who know them


def scales_learned(hierarchy: Hierarchy) -> ThompsonSampling:
    """The scale of every level and the noise unknown, with wide priors."""
    levels = [
        level.remade(scale=dist.HalfNormal(3.0), cov=1.0, centered=None)
        for level in hierarchy.levels
    ]
    learned = hierarchy.remade(levels=levels, reward=Gaussian(dist.HalfNormal(3.0)))
    return ThompsonSampling(Collapsed(learned, particles=PARTICLES))


def scales_times(factor: float, hierarchy: Hierarchy) -> ThompsonSampling:
    """The scales of all levels wrong by a factor; the noise is known."""
    levels = [level.remade(cov=factor**2 * level.cov) for level in hierarchy.levels]
    return exact(hierarchy.remade(levels=levels))


POLICIES = {
    "meTS, scales learned": scales_learned,
    "meTS, scales known": exact,
    "meTS, scales x 3": partial(scales_times, WRONG),
    "meTS, scales / 3": partial(scales_times, 1 / WRONG),
}


def unknown_scales() -> Figure:
    """Regret with scales and noise learned, beside scales that are known, or wrong."""
    learned, known, *wrong = POLICIES
    claims = (*lower((learned,), wrong), Claim(learned, known, times=1 + WITHIN))
    panels = [
        Panel(
            f"unknown scales K={K}",
            f"K = {K}",
            partial(SyntheticProblem, K, 3, 2),
            POLICIES,
            claims=claims,
            round_seconds=4e-5,
        )
        for K in ACTIONS
    ]
    return Figure(
        "unknown-scales",
        "Scales and noise unknown, L = 3, d = 2",
        tuple(panels),
        columns=len(ACTIONS),
        source="Appendix F.3",
        says="The paper gives agents wrong hyper-parameters. Scales and noise that an agent learns while "
        "it plays cost hardly more regret than those it knows.",
    )
