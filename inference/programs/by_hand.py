"""Programs written by hand: what a NumPyro function must be, and what is known of one."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int
from numpyro import handlers
from numpyro.distributions import Distribution

from ...models import Gaussian, Reward
from ...models.arrays import as_count
from ...models.data import Observations, as_observations
from ...models.declaration import Declaration
from ...models.messages import short
from ...models.rewards import is_one, takes

__all__ = ["Program", "Site", "is_latent"]

_KNOWN = ("contexts", "actions", "rewards", "exposure")


class Site(NamedTuple):
    """A site of shape (size, dim): what a level is to a hierarchy."""

    name: str
    size: int
    dim: int

    @property
    def labels(self) -> None:
        """Its vectors have no names of their own."""

    @property
    def coordinates(self) -> list[int]:
        """Positions in the place of labels."""
        return list(range(self.size))

    def label_of(self, position: int) -> str:
        """The name of one of its vectors."""
        return f"{self.name} {position}"


class Program(Declaration):
    """A NumPyro program written by hand, wherever a hierarchy is taken that need not be declared.

    `Nuts`, `Svi`, `best_backend`, `compare`, `calibrate` and `ProgramProblem` take it.

    The function's arguments are matched by name. `actions` (n,) are positions and `rewards` (n,) are
    observed by the site `reward`, one law for each. Any further argument without a default is a column
    (n,): the context ends with its numbers, in the order of the function's arguments. `contexts`
    (n, features) is what stands before them, and may be left out. A function with an argument `exposure`
    (n,) is told how many rewards each row stands for; see `Data`. All unknowns must be continuous.

    An action is scored by `x' theta_i`, where `theta` is a site of shape (K, features), sampled or
    deterministic. Where scores are another function of the unknowns, a deterministic site (n,) holds
    the score of each observation: the function is then run with a row for each action.

    Args:
        function: the program.
        dim: the length of a context, columns included.
        action_site: the site of shape (K, features) that holds the actions.
        scores: the site of shape (n,) that holds scores, or None for `x' theta_i`.
        num_actions: `K`, where no site of shape (K, features) tells.

    Example:
        >>> import jax.numpy as jnp, numpyro, numpyro.distributions as dist
        >>> from mixts.inference import Program
        >>> def seasons(actions, month, rewards=None):
        ...     level = numpyro.sample("level", dist.Normal(0.0, 1.0).expand([3, 2]).to_event(2))
        ...     wave = jnp.stack([jnp.ones_like(month), jnp.cos(month * jnp.pi / 6)], -1)
        ...     score = numpyro.deterministic("score", jnp.sum(level[actions] * wave, -1))
        ...     numpyro.sample("reward", dist.Normal(score, 1.0), obs=rewards)
        >>> program = Program(seasons, dim=1, scores="score", num_actions=3)
        >>> program
        Program(seasons(month), 3 actions, level (3, 2))
    """

    function: Callable[..., Any] = eqx.field(static=True)
    dim: int = eqx.field(static=True)
    _: KW_ONLY
    action_site: str = eqx.field(default="action", static=True)
    scores: str | None = eqx.field(default=None, static=True)
    num_actions: int = eqx.field(default=0, static=True)
    columns: tuple[str, ...] = eqx.field(init=False, static=True)
    levels: tuple[Site, ...] = eqx.field(init=False, static=True)
    unknowns: tuple[str, ...] = eqx.field(init=False, static=True)

    def __post_init__(self):
        if not callable(self.function):
            raise TypeError(
                f"Program: got {short(self.function)}; expected a NumPyro program "
                "program(contexts, actions, rewards)"
            )
        self.function = _plain(self.function)
        self.dim = as_count(self.dim, "Program dim")
        self.columns = _columns(self.function, self.dim)
        trace = _abstract_trace(self)
        _check_reward(trace)
        _check_continuous(trace)
        shapes = {name: jnp.shape(site["value"]) for name, site in trace.items()}
        shapes.pop("reward")
        if self.scores is None:
            self.levels = self._around_actions(shapes)
            self.num_actions = self.levels[-1].size
        else:
            self._check_scores(shapes)
            self.num_actions = as_count(self.num_actions, "Program num_actions")
            self.levels = tuple(Site(n, s[0], s[1]) for n, s in shapes.items() if len(s) == 2)
        self.unknowns = tuple(name for name, site in trace.items() if is_latent(site))

    def _around_actions(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Site, ...]:
        """The sites of vectors as long as the actions' own, which come last."""
        actions, features = self.action_site, self.num_features
        if actions not in shapes or len(shapes[actions]) != 2 or shapes[actions][1] != features:
            raise ValueError(
                f"the program has no site '{actions}' of shape (K, {features}); it has "
                f"{dict(shapes)}. Name the action site, or a site of scores with "
                "Program(..., scores=..., num_actions=...)"
            )
        alike = [n for n, s in shapes.items() if len(s) == 2 and s[1] == features and n != actions]
        return tuple(Site(n, shapes[n][0], features) for n in (*alike, actions))

    def _check_scores(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        found = shapes.get(str(self.scores))
        if found != (2,):
            name = short(self.scores)
            held = "no such site" if found is None else f"one of shape {found}"
            raise ValueError(
                f"Program scores is {name}; on 2 observations the program has {held}; expected "
                f"shape (2,), a score for each: numpyro.deterministic({name}, <score>)"
            )
        if self.num_actions == 0:
            raise ValueError(
                "Program: with a site of scores it cannot be seen how many actions there are: give "
                "num_actions=<K>"
            )

    @property
    def num_features(self) -> int:
        """The length of a row of `contexts`: of a context without its columns."""
        return self.dim - len(self.columns)

    @property
    def components(self) -> tuple[Any, ...] | None:
        """Names of the numbers of a context where some are columns: the others are 0, 1, ..."""
        return (*range(self.num_features), *self.columns) if self.columns else None

    @property
    def actions(self) -> Site:
        """The actions: their site, or without one of their own only their number."""
        own = [
            level for level in self.levels if self.scores is None and level.name == self.action_site
        ]
        return own[0] if own else Site(self.action_site, self.num_actions, 0)

    @property
    def reward(self) -> Reward:
        """The family that rewards are checked against: any number."""
        return Gaussian(1.0)

    @property
    def shapes(self) -> dict[str, tuple[int, int]]:
        """The shape of every level."""
        return {level.name: (level.size, level.dim) for level in self.levels}

    @property
    def takes_exposure(self) -> bool:
        """Whether a row may stand for several rewards: the function has an argument `exposure`."""
        return takes(self.function, "exposure")

    def program(
        self, contexts: Any, actions: Any, rewards: Any = None, exposure: Any = None
    ) -> Any:
        """The function on contexts (n, dim) with their columns, as NumPyro's own tools take it."""
        given = {"actions": actions, "rewards": rewards}
        if self.takes_exposure:
            given["exposure"] = jnp.ones(contexts.shape[0]) if exposure is None else exposure
        return self.function(**self._named(contexts) | given)

    def _named(self, contexts: Float[Array, "n dim"]) -> dict[str, Array]:
        """What `contexts` hold, by the names of the function's arguments."""
        named = {name: contexts[:, self.num_features + i] for i, name in enumerate(self.columns)}
        return named | ({"contexts": contexts[:, : self.num_features]} if self.num_features else {})

    def observations(
        self, contexts: Any, actions: Any, rewards: Any = None, exposure: Any = None
    ) -> Observations:
        """Observations converted and checked."""
        if not (is_one(exposure) or self.takes_exposure):
            raise ValueError(
                f"exposure: got one, and {self!r} has none; give its function an argument `exposure` "
                "(n,), how many rewards each row stands for"
            )
        fit = {"dim": self.dim, "num_actions": self.num_actions, "reward": self.reward}
        return as_observations(contexts, actions, rewards, exposure, **fit)

    def sample_prior(self, key: Array) -> dict[str, Array]:
        """One joint draw of every unknown from the prior."""
        blank = jnp.ones((1, self.dim)), jnp.zeros(1, jnp.int32), jnp.zeros(1)
        trace = handlers.trace(handlers.seed(self.program, key)).get_trace(*blank)
        return {name: site["value"] for name, site in trace.items() if is_latent(site)}

    def scores_of(self, unknowns: dict[str, Array], context: Array) -> Float[Array, " K"]:
        """The score of every action in a context, given all unknowns."""
        K = self.num_actions
        rows = jnp.broadcast_to(context, (K, self.dim))
        sites = self._at(unknowns, rows, jnp.arange(K))
        if self.scores is not None:
            return sites[self.scores]["value"]
        theta = sites[self.action_site]["value"]
        return jnp.sum(theta * rows[:, : self.num_features], axis=-1)

    def reward_law(
        self,
        unknowns: dict[str, Array],
        contexts: Float[Array, "n dim"],
        actions: Int[Array, " n"],
        exposure: Float[Array, " n"] | None = None,
    ) -> Distribution:
        """The law of rewards given all unknowns."""
        law = self._at(unknowns, contexts, actions, exposure)["reward"]["fn"]
        return law.expand((contexts.shape[0],)) if not law.batch_shape else law

    def _at(
        self,
        unknowns: dict[str, Array],
        contexts: Array,
        actions: Array,
        exposure: Array | None = None,
    ) -> dict[str, Any]:
        """The sites on these rows, given all unknowns."""
        # Deterministic sites are computed anew: they may have been those of other rows.
        given = {name: unknowns[name] for name in self.unknowns}
        run = handlers.substitute(handlers.seed(self.program, jax.random.key(0)), data=given)
        return handlers.trace(run).get_trace(
            contexts, actions, jnp.zeros(contexts.shape[0]), exposure
        )

    def __repr__(self) -> str:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        sites = "".join(f", {site.name} ({site.size}, {site.dim})" for site in self.levels)
        return f"Program({name}({', '.join(self.columns)}), {self.num_actions} actions{sites})"


def is_latent(site: dict[str, Any]) -> bool:
    """Whether a site of a trace is an unknown."""
    return site["type"] == "sample" and not site["is_observed"]


def _plain(program: Any) -> Callable[..., Any]:
    """The program as a function that can be a static field, also where it is a method of a pytree."""
    if not isinstance(program, eqx.Module):
        return program
    method: Any = program

    def function(**rows: Any) -> Any:
        return method(**rows)

    function.__module__, function.__qualname__ = method.__module__, method.__qualname__
    function.__dict__["__signature__"] = inspect.signature(method)
    return function


def _columns(function: Callable[..., Any], dim: int) -> tuple[str, ...]:
    """The function's arguments that are columns of a context; its others must be the known ones."""
    arguments = inspect.signature(function).parameters
    named = {
        n: a for n, a in arguments.items() if a.kind in (a.POSITIONAL_OR_KEYWORD, a.KEYWORD_ONLY)
    }
    asked = [n for n, a in arguments.items() if n in named and a.default is a.empty]
    columns = tuple(name for name in asked if name not in _KNOWN)
    written = f"{getattr(function, '__name__', 'program')}({', '.join(map(str, arguments))})"
    expected = (
        "expected arguments named contexts, actions, rewards, and one for each further column of a "
        "context, such as program(contexts, actions, day, rewards=None)"
    )
    if not {"actions", "rewards"} <= set(named):
        raise TypeError(f"Program: got {written}; {expected}")
    if len(columns) > dim or (len(columns) < dim and "contexts" not in named):
        has = f"the columns {', '.join(columns)}" if columns else "no columns"
        rest = "contexts for the other numbers" if len(columns) < dim else "a longer context"
        raise ValueError(
            f"Program: {written} has {has}, and a context has dim={dim} numbers; {expected}; here it needs "
            f"{rest}"
        )
    if len(columns) == dim and "contexts" in asked:
        raise ValueError(
            f"Program: {written} takes all dim={dim} numbers of a context as columns "
            f"({', '.join(columns)}), and nothing is left for contexts: leave it out, or raise dim"
        )
    return columns


def _abstract_trace(program: Program) -> dict[str, Any]:
    """A program's sites with their shapes, found by running it abstractly on two blank observations."""
    found: dict[str, Any] = {}

    def run(key: Array) -> None:
        blank = jnp.ones((2, program.dim)), jnp.zeros(2, jnp.int32), jnp.zeros(2)
        trace = handlers.trace(handlers.seed(program.program, key)).get_trace(*blank)
        kinds = ("sample", "deterministic")
        found.update({name: site for name, site in trace.items() if site["type"] in kinds})

    try:
        jax.eval_shape(run, jax.random.key(0))
    except Exception as error:
        columns = "".join(f", {name} (n,)" for name in program.columns)
        rows = f"contexts (n, {program.num_features}), " if program.num_features else ""
        raise ValueError(
            f"program({rows}actions (n,){columns}, rewards (n,)) fails: {error}"
        ) from error
    return found


def _check_reward(trace: dict[str, Any]) -> None:
    """The site must observe the rewards, one law for each, or it cannot be masked row by row."""
    if "reward" not in trace:
        raise ValueError(f"the program has no site 'reward'; it has {sorted(trace)}")
    site = trace["reward"]
    if site["type"] != "sample" or not site["is_observed"]:
        raise ValueError(
            "the program's site 'reward' is not observed; expected "
            "numpyro.sample('reward', <law>, obs=rewards)"
        )
    law = site["fn"]
    if law.event_shape or len(law.batch_shape) > 1:
        raise ValueError(
            "on 2 observations the program's site 'reward' has a law of batch shape "
            f"{law.batch_shape} and event shape {law.event_shape}; expected one law for "
            "each observation, batch shape (2,) and event shape (): leave out to_event"
        )


def _check_continuous(trace: dict[str, Any]) -> None:
    for name, site in trace.items():
        if is_latent(site) and site["fn"].support.is_discrete:
            raise ValueError(
                f"the program's site '{name}' is discrete; expected unknowns with "
                "gradients: sum it out, for instance with numpyro.distributions.Mixture"
            )
