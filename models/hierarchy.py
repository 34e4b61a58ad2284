"""A hierarchy: levels from effects down to actions, and the reward of an action in a context."""

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
from jax import Array
from jaxtyping import Float
from numpyro import handlers

from .arrays import as_count
from .components import as_contexts, in_order
from .data import Observations, as_observations
from .declaration import Declaration
from .exactness import NotExact, find_obstacle
from .labels import as_labels
from .level import Level
from .messages import listed, short
from .program import latents, program
from .random_walk import as_rounds, sample_step
from .rewards import Reward
from .unknowns import Unknowns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Hierarchy"]


class Hierarchy(Declaration):
    """Actions that share effects, declared level by level (Aouali et al. 2023, Eq. 1).

    A pytree: weights, means, covariances and noise are leaves and may be traced, names and sizes are
    structure. What is concrete is checked when it is declared.

    Args:
        levels: top to bottom; a level's parents stand before it and the last level holds the actions.
        reward: `Gaussian(noise)`, `Bernoulli()`, `Poisson()`, or another `Reward`.
        dim: the length of every vector and of a context.
        components: names of the `dim` numbers of a context, such as `["one", "age"]`. A context with
            names (a dict, a pandas `Series`, a table) is matched by name, and refused where names are not
            the same; without them only plain arrays are taken.

    Example:
        >>> from mixts.models import Bernoulli, Level
        >>> movie = Level("movie", 3, parents={"genre": [[1, 0], [0.5, 0.5], [0, 1]]}, cov=0.1)
        >>> hierarchy = Hierarchy([Level("genre", 2), movie], reward=Bernoulli(), dim=4)
        >>> hierarchy["movie"], "genre" in hierarchy, hierarchy.num_actions
        (Level('movie', 3, parents=['genre']), True, 3)
    """

    levels: Sequence[Level]
    reward: Reward
    dim: int = eqx.field(static=True)
    components: Sequence[Hashable] | None = eqx.field(default=None, static=True)

    def __post_init__(self):
        self.levels = _as_levels(self.levels)
        self.dim = as_count(self.dim, "Hierarchy dim")
        if self.components is not None:
            here, each = "Hierarchy components", "number of a context"
            self.components = as_labels(self.components, self.dim, here, each)
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
        """`K`, the number of actions."""
        return self.actions.size

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """The shape of every level's vectors, (size, d)."""
        return {level.name: (level.size, self.dim) for level in self.levels}

    def __contains__(self, name: object) -> bool:
        return any(level.name == name for level in self.levels)

    def __getitem__(self, name: str) -> Level:
        for level in self.levels:
            if level.name == name:
                return level
        known = listed(level.name for level in self.levels)
        raise KeyError(f"no level {short(name)}; this hierarchy has {known}")

    def program(
        self,
        contexts: Any,
        actions: Any,
        rewards: Any = None,
        exposure: Any = None,
        *,
        mask: Any = None,
        rounds: Any = None,
    ) -> Array:
        """The NumPyro program: a site per level, named after it, and the site `reward`.

        Hand it to NumPyro's own `MCMC`, `SVI`, `Predictive` or `render_model`. Without `rewards` it
        draws them. `exposure` (n,) is how many rewards each row stands for, as in `Data`. `mask` (n,)
        marks rows that count; the others are padding. `rounds` (n,) is in which round each row was seen,
        where levels drift: whole numbers, with vectors in round 0 what their sites say, and their steps
        in sites `<level>_steps`. Without it all rows are of one moment.
        """
        seen = self.observations(contexts, actions, rewards, exposure, mask=mask)
        return program(
            self, *seen, rounds=None if rounds is None else as_rounds(rounds, len(seen[1]))
        )

    @property
    def takes_exposure(self) -> bool:
        """Whether a row may stand for several rewards."""
        return self.reward.takes_exposure

    def observations(
        self,
        contexts: Any,
        actions: Any,
        rewards: Any = None,
        exposure: Any = None,
        *,
        mask: Any = None,
    ) -> Observations:
        """Observations converted and checked against this hierarchy."""
        contexts = in_order(contexts, self.components, "contexts")
        fit = {"dim": self.dim, "num_actions": self.num_actions, "reward": self.reward}
        return as_observations(contexts, actions, rewards, exposure, mask, **fit)

    def contexts(self, given: Any) -> Array:
        """Contexts as an array, with named components in the order of `components`, as `Data` needs.

        Example:
            >>> hierarchy = Hierarchy([Level("action", 2)], Gaussian(), 2, components=["one", "age"])
            >>> hierarchy.contexts([{"age": 30.0, "one": 1.0}]).tolist()
            [[1.0, 30.0]]
        """
        return as_contexts(given, self.components, "contexts")

    def sample_prior(self, key: Array) -> dict[str, Float[Array, "size d"]]:
        """One joint draw of every level's vectors from the prior."""
        draw: Any = handlers.seed(latents, key)
        return draw(self)

    @property
    def drifts(self) -> bool:
        """Whether some level is a random walk."""
        return any(level.drift is not None for level in self.levels)

    def without_drift(self) -> "Hierarchy":
        """The same levels as they are at first, of which none drifts.

        Example:
            >>> walk = Hierarchy([Level("action", 2, drift=0.1)], Gaussian(), dim=1)
            >>> walk.drifts, walk.without_drift().drifts
            (True, False)
        """
        if not self.drifts:
            return self
        return self.remade(levels=[level.remade(drift=None) for level in self.levels])

    def sample_step(
        self, key: Array, values: Mapping[str, Array], rounds: Any = 1.0
    ) -> dict[str, Float[Array, "size d"]]:
        """Every level's vectors so many rounds later, drawn given what they are now.

        A level's vectors keep what they differ by from the weighted sums of their parents, but for steps
        of their own where the level drifts; so they follow parents that drift.

        Example:
            >>> import jax
            >>> walk = Hierarchy([Level("action", 2, drift=0.1)], Gaussian(), dim=1)
            >>> now = walk.sample_prior(jax.random.key(0))
            >>> walk.sample_step(jax.random.key(1), now)["action"].shape
            (2, 1)
        """
        return sample_step(self, key, values, rounds)

    @property
    def unknowns(self) -> Unknowns:
        """What is unknown besides vectors: learned scales, weights and noise."""
        return Unknowns(self)

    @property
    def why_not_exact(self) -> NotExact | None:
        """None where the posterior has a closed form, else what prevents it and which backends fit."""
        return find_obstacle(self.levels, self.reward)

    def render(self, path: Any = None) -> "Figure":
        """A picture of the graphical model; see `mixts.models.picture.render.render`."""
        from .picture.render import render

        return render(self, path)

    def __repr__(self) -> str:
        sizes = {level.name: level.size for level in self.levels}
        names, counts = max(map(len, [*sizes, "reward"])), max(len(str(n)) for n in sizes.values())
        lines = [f"Hierarchy of {len(sizes)} level{'s' if len(sizes) > 1 else ''}, dim {self.dim}"]
        for level in self.levels:
            law = level.describe(sizes)
            lines.append(f"  {level.name:<{names}}  {level.size:>{counts}} x  {law}")
        lines.append(f"  {'reward':<{names}}  {self.reward!r} of context . {self.actions.name}")
        return "\n".join(lines)


def _as_levels(levels: Any) -> tuple[Level, ...]:
    if isinstance(levels, Level) or not isinstance(levels, Sequence) or not levels:
        raise TypeError(
            f"Hierarchy levels: got {short(levels)}; expected a list of Level, top to bottom, the last of "
            "which holds the actions"
        )
    for level in levels:
        if not isinstance(level, Level):
            raise TypeError(
                f"Hierarchy levels: {short(level)} is not a Level; write Level(name, size)"
            )
    return tuple(levels)


def _check_reward(reward: Any) -> None:
    if isinstance(reward, Reward):
        return
    if isinstance(reward, type) and issubclass(reward, Reward):
        raise TypeError(
            f"Hierarchy reward is the class {reward.__name__}; write {reward.__name__}()"
        )
    raise TypeError(
        f"Hierarchy reward is {short(reward)}; expected one of mixts's reward families, such as "
        "Gaussian(1.0), Bernoulli() or Poisson()"
    )


def _check_names(levels: Sequence[Level]) -> None:
    owners: dict[str, str] = {}
    for level in levels:
        for site in level.site_names():
            if site in owners:
                raise ValueError(
                    f"levels '{owners[site]}' and '{level.name}' both need the name '{site}'; every "
                    "level, learned scale and learned weight has a site of its own: rename one level"
                )
            owners[site] = level.name


def _check_arrows(levels: Sequence[Level]) -> None:
    names = [level.name for level in levels]
    for position, level in enumerate(levels):
        for parent in level.parents or {}:
            if parent not in names:
                known = listed(names[:position]) or "none"
                raise ValueError(
                    f"level '{level.name}' has the unknown parent {short(parent)}; levels above it: {known}"
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
