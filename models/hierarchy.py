"""A hierarchy: levels from effects down to actions, and the reward of an action in a context."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jax import Array
from jaxtyping import Float
from numpyro import handlers

from .arrays import as_count
from .data import Observations, as_observations
from .describe import describe, why_not_exact
from .level import Level
from .program import latents, program
from .pytrees import register_declaration
from .rewards import Reward

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Hierarchy"]


@dataclass(frozen=True, eq=False, repr=False)
class Hierarchy:
    """Actions that share effects, declared level by level (Aouali et al. 2023, Eq. 1).

    A pytree: weights, means, covariances and noise are leaves and may be traced, names and sizes are
    structure. What is concrete is checked when it is declared.

    Args:
        levels: top to bottom; a level's parents stand before it and the last level holds the actions.
        reward: `Gaussian(noise)`, `Bernoulli()`, `Poisson()`, or another `Reward`.
        dim: the length of every vector and of a context.
    """

    levels: Sequence[Level]
    reward: Reward
    dim: int

    def __post_init__(self):
        object.__setattr__(self, "levels", _as_levels(self.levels))
        object.__setattr__(self, "dim", as_count(self.dim, "Hierarchy dim"))
        _check_reward(self.reward)
        _check_names(self.levels)
        _check_arrows(self.levels)
        sizes = {level.name: level.size for level in self.levels}
        for level in self.levels:
            level.check(sizes, self.dim)

    @property
    def actions(self) -> Level:
        """The last level: the actions."""
        return self.levels[-1]

    @property
    def num_actions(self) -> int:
        """`K`, how many actions there are."""
        return self.actions.size

    def __contains__(self, name: object) -> bool:
        return any(level.name == name for level in self.levels)

    def __getitem__(self, name: str) -> Level:
        for level in self.levels:
            if level.name == name:
                return level
        known = ", ".join(f"'{level.name}'" for level in self.levels)
        raise KeyError(f"no level '{name}'; this hierarchy has {known}")

    def program(self, contexts: Any, actions: Any, rewards: Any = None, mask: Any = None) -> Array:
        """The NumPyro program: a site per level, named after it, and the site `reward`.

        Hand it to NumPyro's own `MCMC`, `SVI`, `Predictive` or `render_model`. Without `rewards` it
        draws them. `mask` (n,) marks rows that count; the others are padding.
        """
        fitted = self.observations(contexts, actions, rewards, mask)
        return program(self, *fitted)

    def observations(
        self, contexts: Any, actions: Any, rewards: Any = None, mask: Any = None
    ) -> Observations:
        """Observations converted and checked against this hierarchy."""
        size, dim, reward = self.num_actions, self.dim, self.reward
        return as_observations(
            contexts, actions, rewards, mask, dim=dim, num_actions=size, reward=reward
        )

    def sample_prior(self, key: Array) -> dict[str, Float[Array, "size d"]]:
        """One joint draw of every level's vectors from the prior."""
        draw: Any = handlers.seed(latents, key)
        return draw(self)

    @property
    def why_not_exact(self) -> str | None:
        """None where the posterior is Gaussian in closed form, else what breaks it and what fits."""
        return why_not_exact(self.levels, self.reward)

    def render(self, path: Any = None) -> "Figure":
        """A picture of the graphical model; see `mixts.models.picture.render.render`."""
        from .picture.render import render

        return render(self, path)

    def __repr__(self) -> str:
        return describe(self)


register_declaration(Hierarchy, arrays=("levels", "reward"), static=("dim",))


def _as_levels(levels: Any) -> tuple[Level, ...]:
    if isinstance(levels, Level) or not isinstance(levels, Sequence) or not levels:
        raise TypeError(
            f"Hierarchy levels: got {levels!r}; expected a list of Level, top to bottom, the last of "
            "which holds the actions"
        )
    for level in levels:
        if not isinstance(level, Level):
            raise TypeError(f"Hierarchy levels: {level!r} is not a Level; write Level(name, size)")
    return tuple(levels)


def _check_reward(reward: Any) -> None:
    if isinstance(reward, Reward):
        return
    if isinstance(reward, type) and issubclass(reward, Reward):
        raise TypeError(
            f"Hierarchy reward is the class {reward.__name__}; write {reward.__name__}()"
        )
    raise TypeError(
        f"Hierarchy reward is {reward!r}; expected one of mixts's reward families, such as "
        "Gaussian(1.0), Bernoulli() or Poisson()"
    )


def _check_names(levels: Sequence[Level]) -> None:
    taken: dict[str, str] = {}
    for level in levels:
        for site in level.site_names():
            if site in taken:
                raise ValueError(
                    f"levels '{taken[site]}' and '{level.name}' both need the name '{site}'; every "
                    "level, learned scale and learned weight has a site of its own: rename one level"
                )
            taken[site] = level.name


def _check_arrows(levels: Sequence[Level]) -> None:
    names = [level.name for level in levels]
    for position, level in enumerate(levels):
        for parent in level.parents or {}:
            if parent not in names:
                known = ", ".join(f"'{name}'" for name in names[:position]) or "none"
                raise ValueError(
                    f"level '{level.name}' has the unknown parent '{parent}'; levels above it: {known}"
                )
            if names.index(parent) >= position:
                raise ValueError(
                    f"level '{level.name}' has the parent '{parent}', which does not stand above it; "
                    "list levels top to bottom, parents before children, without cycles"
                )
    used = {parent for level in levels for parent in level.parents or {}}
    for name in names[:-1]:
        if name not in used:
            raise ValueError(
                f"level '{name}' has no children, so rewards say nothing of it; name it in the "
                "parents of a level below, or leave it out"
            )
