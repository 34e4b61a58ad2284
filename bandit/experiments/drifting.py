"""Worlds that change: effects or actions that drift, and three ways to treat what was seen long ago."""

from functools import partial

from ...inference import ClosedForm, ExpectationPropagation
from ...models import Bernoulli, Gaussian, Hierarchy
from ..policies.policy import ThompsonSampling
from ..problems.synthetic import SyntheticProblem
from .record import Figure, Panel, lower

__all__ = ["drifting"]

K, L, DIM = 20, 3, 2
HALF_LIVES = (100.0, 300.0)  # rounds


def walking(kind: type, hierarchy: Hierarchy) -> ThompsonSampling:
    """Knows which levels drift, and by how much."""
    return ThompsonSampling(kind(hierarchy))


def still(kind: type, half_life: float | None, hierarchy: Hierarchy) -> ThompsonSampling:
    """Takes the world to be as it was at first; evidence may count less as it gets old."""
    return ThompsonSampling(kind(hierarchy.without_drift()), half_life=half_life)


def panel(title: str, *, clicks: bool = False, **drifts: float) -> Panel:
    """One world, and policies on the exact posterior or, for clicks, on matched moments."""
    kind = ExpectationPropagation if clicks else ClosedForm
    reward = Bernoulli() if clicks else Gaussian(1.0)
    policies = {"random walk": partial(walking, kind)}
    policies |= {f"half-life {int(h)}": partial(still, kind, h) for h in HALF_LIVES}
    policies |= {"standing still": partial(still, kind, None)}
    named = " ".join(f"{name}={value}" for name, value in drifts.items())
    return Panel(
        f"drifting {'clicks' if clicks else 'linear'} {named}",
        title,
        partial(SyntheticProblem, K, L, DIM, reward=reward, **drifts),
        policies,
        claims=lower(("random walk",), tuple(name for name in policies if name != "random walk")),
        round_seconds=3e-5,
    )


def drifting() -> Figure:
    """Regret where the world changes from round to round."""
    return Figure(
        "drifting",
        f"Worlds that drift, K = {K}, L = {L}, d = {DIM}",
        (
            panel("effects drift by 0.01 a round", effect_drift=0.01),
            panel("actions drift by 0.03 a round", action_drift=0.03),
            panel("clicks, effects drift by 0.03", clicks=True, effect_drift=0.03),
        ),
        columns=3,
        source="not in the paper",
        says="An agent that declares how its world changes has less regret than one that discounts what it "
        "has seen, and that one less than an agent that believes in a world that stands still.",
    )
