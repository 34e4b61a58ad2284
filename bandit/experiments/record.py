"""An experiment as data: a figure is a few panels, a panel a problem and the policies that play it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from ...models import Hierarchy
from ...models.arrays import as_count
from ..bound import Kind
from ..policies.policy import Policy
from ..problems.environment import Problem
from ..simulation.run import Maker

__all__ = ["Bound", "Claim", "Figure", "OfProblem", "Panel", "Size", "lower"]


class OfProblem(NamedTuple):
    """A policy that is made from the problem, and not from what an agent is told of an instance."""

    make: Callable[[Any], Policy[Any]]


class Bound(NamedTuple):
    """A line that is computed and not played: the regret bound of an agent, averaged over runs.

    Attributes:
        agent: whose, as `regret_bound` takes it.
        kappa_x: an upper bound of the squared norms of contexts.
    """

    agent: Kind
    kappa_x: float


class Claim(NamedTuple):
    """One policy is said to have less regret than another."""

    lower: str
    higher: str


def lower(better: Iterable[str], worse: Iterable[str]) -> tuple[Claim, ...]:
    """Each of the first is said to have less regret than each of the second."""
    return tuple(Claim(*pair) for pair in product(better, worse))


@dataclass(frozen=True)
class Panel:
    """Policies on one problem.

    Args:
        name: of the problem, and different for every other, of any figure: "linear K=100 L=3 d=2". A policy
            that two panels of one name share is played once.
        title: what stands over it.
        problem: makes the problem, in the process that plays it.
        policies: name -> function from the hierarchy that the agent is told to a policy, as `simulate`
            takes it, or `OfProblem`.
        claims: what is said of it, as orderings of policies that can be held against what was played.
        bounds: name -> a bound to draw beside what was played.
        value: where the panel stands on the axis of a figure that has one, see `Figure.across`.
        data: a file that the problem reads; what was played with another content does not count.
        round_seconds: what a round of a run costs, about; only the time left is estimated by it.
    """

    name: str
    title: str
    problem: Callable[[], Problem]
    policies: Mapping[str, Maker | OfProblem]
    _: KW_ONLY
    claims: tuple[Claim, ...] = ()
    bounds: Mapping[str, Bound] = field(default_factory=dict)
    value: float | None = None
    data: Path | None = None
    round_seconds: float = 1.5e-6

    def __post_init__(self):
        lines = {*self.policies, *self.bounds}
        for claim in self.claims:
            for name in claim:
                if name not in lines:
                    raise ValueError(
                        f"panel '{self.name}': a claim names '{name}'; expected one of its policies and "
                        f"bounds, {sorted(lines)}"
                    )
        if not self.policies:
            raise ValueError(f"panel '{self.name}' has no policies; expected one at least")

    def maker(self, policy: str, problem: Problem) -> Maker:
        """The policy of that name as `simulate` takes it."""
        maker = self.policies[policy]
        if not isinstance(maker, OfProblem):
            return maker

        def make(hierarchy: Hierarchy) -> Policy[Any]:
            return maker.make(problem)

        return make


@dataclass(frozen=True)
class Figure:
    """Panels in rows, and what is said of them.

    Args:
        name: as on the command line, and of the folder of its files.
        title: what stands over it.
        panels: row by row.
        columns: panels in a row.
        source: where it comes from: a label of the paper, or a section that claims what it shows.
        says: what is said of it there, in a sentence or two.
        across: what the axis means if the figure shows total regret against the panels' values, in one
            picture, instead of regret over rounds in each panel.
        logarithmic: whether regret is drawn on a logarithmic axis.
    """

    name: str
    title: str
    panels: tuple[Panel, ...]
    _: KW_ONLY
    columns: int
    source: str
    says: str
    across: str | None = None
    logarithmic: bool = False

    def __post_init__(self):
        if self.name in ("", "..", "pieces") or Path(self.name).name != self.name:
            raise ValueError(
                f"figure '{self.name}': its files go to a folder of that name; expected one that can be "
                "made beside the others, such as 'weak-effects'"
            )
        as_count(self.columns, f"figure '{self.name}' columns")
        titles = [panel.title for panel in self.panels]
        if not titles or len(set(titles)) < len(titles):
            raise ValueError(
                f"figure '{self.name}' has panels with the titles {titles}; expected one panel at least, "
                "and a different title for each"
            )
        if self.across and any(panel.value is None for panel in self.panels):
            raise ValueError(
                f"figure '{self.name}' is drawn across '{self.across}', and a panel has no value; "
                "expected Panel(..., value=<where it stands on that axis>) for each"
            )
        lines = [{*panel.policies, *panel.bounds} for panel in self.panels]
        if self.across and any(names != lines[0] for names in lines):
            raise ValueError(
                f"figure '{self.name}' is drawn across '{self.across}'; expected the same policies in each "
                "panel"
            )


class Size(NamedTuple):
    """How much is played: the paper's size unless said otherwise."""

    runs: int = 50
    horizon: int = 5000
    seed: int = 0
