"""An experiment as data: a figure is a few panels, a panel a problem and the policies that play it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from ...models.arrays import as_count
from ..bound import Kind
from ..policies.policy import Policy
from ..problems.environment import Problem
from ..simulation.run import Maker

__all__ = ["Bound", "Claim", "Figure", "OfProblem", "Panel", "Size", "lower"]


class OfProblem(NamedTuple):
    """A policy that is made from the problem, and not from the hierarchy of an instance.

    Example:
        >>> from mixts.bandit import LinTS
        >>> from mixts.bandit.experiments import OfProblem
        >>> OfProblem(lambda problem: LinTS(problem.unstructured)).make.__name__
        '<lambda>'
    """

    make: Callable[[Any], Policy[Any]]


class Bound(NamedTuple):
    """A line that is computed and not played: the regret bound of an agent, averaged over runs.

    Attributes:
        agent: the agent, as in `regret_bound`.
        kappa_x: an upper bound of the squared norms of contexts.

    Example:
        >>> from mixts.bandit.experiments import Bound
        >>> Bound("mets", kappa_x=2.0)
        Bound(agent='mets', kappa_x=2.0)
    """

    agent: Kind
    kappa_x: float


class Claim(NamedTuple):
    """The claim that one policy has less regret than another, or than so many times as much as another.

    Example:
        >>> from mixts.bandit.experiments import Claim
        >>> Claim("meTS", "LinTS").higher, Claim("fast", "exact", times=1.05).limit
        ('LinTS', '1.05 times exact')
    """

    lower: str
    higher: str
    times: float = 1.0

    @property
    def limit(self) -> str:
        """What the regret is claimed to be below, in words."""
        return self.higher if self.times == 1 else f"{self.times:g} times {self.higher}"


def lower(better: Iterable[str], worse: Iterable[str]) -> tuple[Claim, ...]:
    """The claims that each of the first has less regret than each of the second.

    Example:
        >>> from mixts.bandit.experiments import lower
        >>> [claim.higher for claim in lower(["meTS"], ["LinTS", "HierTS"])]
        ['LinTS', 'HierTS']
    """
    return tuple(Claim(low, high) for low, high in product(better, worse))


@dataclass(frozen=True)
class Panel:
    """Policies on one problem.

    Args:
        name: of the problem, and different for every other, of any figure: "linear K=100 L=3 d=2". A policy
            that two panels of one name share is played once.
        title: the heading of the panel.
        problem: makes the problem, in the process that plays it.
        policies: name -> function from an instance's hierarchy to a policy, as in `simulate`, or
            `OfProblem`.
        claims: orderings of policies, which are compared with the results.
        bounds: name -> a bound to draw beside the results.
        value: the position of the panel on the axis of `Figure.across`.
        data: a file that the problem reads; results with another content are not used.
        version: raise it when the panel plays something else although no name or argument of its problem
            and policies has changed, because the code of a function has; older results are not used.
        round_seconds: about how long a round of a run takes; used to estimate the time left.

    Example:
        >>> from functools import partial
        >>> from mixts.bandit import LinTS, SyntheticProblem, UniformRandom
        >>> from mixts.bandit.experiments import Panel, lower
        >>> policies = {"LinTS": LinTS, "chance": UniformRandom}
        >>> claims = lower(["LinTS"], ["chance"])
        >>> panel = Panel("small", "K = 3", partial(SyntheticProblem, 3), policies, claims=claims)
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
    version: int = 1
    round_seconds: float = 1.5e-6

    def __post_init__(self):
        lines = {*self.policies, *self.bounds}
        unknown = [name for claim in self.claims for name in claim[:2] if name not in lines]
        if unknown:
            raise ValueError(
                f"panel '{self.name}': a claim names '{unknown[0]}'; expected one of its policies and "
                f"bounds, {sorted(lines)}"
            )
        if not self.policies:
            raise ValueError(f"panel '{self.name}' has no policies; expected one at least")

    def maker(self, policy: str, problem: Problem) -> Maker:
        """The policy of that name as `simulate` needs it."""
        maker = self.policies[policy]
        return (lambda _: maker.make(problem)) if isinstance(maker, OfProblem) else maker


@dataclass(frozen=True)
class Figure:
    """Panels in rows, and what the paper claims about them.

    Args:
        name: as on the command line, and of the folder of its files.
        title: the heading of the figure.
        panels: row by row.
        columns: panels in a row.
        source: the figure of the paper, or the section that makes the claim.
        says: the claim, in a sentence or two.
        across: the label of an axis. The figure then shows total regret against the panels' values in one
            picture, instead of regret over rounds in each panel.
        logarithmic: whether regret is drawn on a logarithmic axis.

    Example:
        >>> from functools import partial
        >>> from mixts.bandit import SyntheticProblem, UniformRandom
        >>> from mixts.bandit.experiments import Figure, Panel
        >>> panel = Panel("small", "K = 3", partial(SyntheticProblem, 3), {"chance": UniformRandom})
        >>> Figure("chance", "Random actions", (panel,), source="Section 5", says="Nothing.").columns
        3
    """

    name: str
    title: str
    panels: tuple[Panel, ...]
    _: KW_ONLY
    columns: int = 3
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
                "expected Panel(..., value=<its position on that axis>) for each"
            )
        lines = [{*panel.policies, *panel.bounds} for panel in self.panels]
        if self.across and any(names != lines[0] for names in lines):
            raise ValueError(
                f"figure '{self.name}' is drawn across '{self.across}'; expected the same policies in each "
                "panel"
            )


class Size(NamedTuple):
    """How much is played; by default as much as in the paper.

    Example:
        >>> from mixts.bandit.experiments import Size
        >>> Size(runs=4, horizon=300)
        Size(runs=4, horizon=300, seed=0)
    """

    runs: int = 50
    horizon: int = 5000
    seed: int = 0
