"""The posterior that `Nuts` and `Svi` approximate, of a hierarchy or of a program written by hand."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float
from numpyro import handlers
from numpyro.distributions.transforms import IdentityTransform, IndependentTransform, biject_to
from numpyro.infer.util import constrain_fn, potential_energy, unconstrain_fn
from numpyro.primitives import Messenger

from ...models import Gaussian, Hierarchy, Reward
from ...models.arrays import as_count
from ...models.data import Observations, as_observations
from ...models.declaration import Declaration
from ...models.messages import short
from ..buffer import Buffer

__all__ = ["Position", "Target", "as_target"]

Position = dict[str, Array]


class Target(Declaration):
    """A NumPyro program, with the names and shapes of its sites.

    Attributes:
        hierarchy: the declaration, or None for a program written by hand.
        function: that program, or None for a hierarchy.
        action_site: the site of shape (K, d) that holds the actions.
        levels: the sites of shape (size, d): the action site and those above it.
        num_actions: `K`.
        dim: `d`.
    """

    hierarchy: Hierarchy | None
    function: Callable[..., Any] | None = eqx.field(static=True)
    action_site: str = eqx.field(static=True)
    levels: tuple[str, ...] = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    dim: int = eqx.field(static=True)

    @property
    def reward(self) -> Reward:
        """The family that rewards are checked against; a program by hand may have any number."""
        return Gaussian(1.0) if self.hierarchy is None else self.hierarchy.reward

    @property
    def components(self) -> Any:
        """The names of the components of a context that the hierarchy declares, or None."""
        return None if self.hierarchy is None else self.hierarchy.components

    @property
    def source(self) -> Any:
        """The hierarchy, or the program written by hand."""
        return self.hierarchy or self.function

    def model(self, buffer: Buffer) -> None:
        """The program on the observations of a buffer; blank rows add nothing."""
        mask = buffer.actions >= 0
        actions = jnp.where(mask, buffer.actions, 0)
        # A NaN in a blank row would reach the gradient through its mask. A program that takes the
        # logarithm of a context, or divides by its length, would turn zeros into NaN: hence ones.
        contexts = jnp.where(mask[:, None], buffer.contexts, 1.0)
        rewards = jnp.where(mask, buffer.rewards, 0.0)
        program = self.function if self.hierarchy is None else self.hierarchy.program
        assert program is not None
        with _MaskReward(mask):
            program(contexts, actions, rewards)

    def potential(self, position: Position, buffer: Buffer) -> Float[Array, ""]:
        """Minus the log density of the unconstrained `position` and the observations."""
        return jnp.asarray(potential_energy(self.model, (buffer,), {}, position))

    def start(self, key: Array, buffer: Buffer) -> Position:
        """An unconstrained position drawn from the prior."""
        trace = handlers.trace(handlers.seed(self.model, key)).get_trace(buffer)
        values = {name: site["value"] for name, site in trace.items() if _is_latent(site)}
        return unconstrain_fn(self.model, (buffer,), {}, values)

    def sites(self, position: Position, buffer: Buffer) -> dict[str, Array]:
        """Every latent and deterministic site at an unconstrained position."""
        return constrain_fn(self.model, (buffer,), {}, position, return_deterministic=True)

    def vectors(self, position: Position, buffer: Buffer) -> dict[str, Float[Array, "_ d"]]:
        """The vectors of every level at an unconstrained position."""
        sites = self.sites(position, buffer)
        return {name: sites[name] for name in self.levels}

    def unknowns(self, position: Position, buffer: Buffer) -> dict[str, Array]:
        """Every site by the name a user knows: levels, and scales, weights and noise that are learned.

        Left out are the standard normals behind levels of a hierarchy that are not centred.
        """
        sites = self.sites(position, buffer)
        levels = () if self.hierarchy is None else self.levels
        return {k: v for k, v in sites.items() if k not in {f"{name}_base" for name in levels}}

    def plain_levels(self, buffer: Buffer) -> tuple[str, ...]:
        """The levels whose vectors are themselves unconstrained positions."""
        trace = handlers.trace(handlers.seed(self.model, jax.random.key(0))).get_trace(buffer)
        latents = {name: site["fn"].support for name, site in trace.items() if _is_latent(site)}
        return tuple(n for n in self.levels if n in latents and _is_plain(latents[n]))

    def observations(self, contexts: Any, actions: Any, rewards: Any) -> Observations:
        """Observations converted and checked."""
        K, d = self.num_actions, self.dim
        return as_observations(contexts, actions, rewards, dim=d, num_actions=K, reward=self.reward)

    @jax.jit
    def moments(
        self, positions: dict[str, Array], buffer: Buffer
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Means (size, d) and covariances (size, d, d) of every level over many positions."""
        draws = jax.lax.map(lambda z: self.vectors(z, buffer), positions, batch_size=64)
        mean = jax.tree.map(lambda leaf: leaf.mean(0), draws)
        return mean, jax.tree.map(_covariances, draws)


def _covariances(draws: Float[Array, "n size d"]) -> Float[Array, "size d d"]:
    centred = draws - draws.mean(0)
    return jnp.einsum("nkd,nke->kde", centred, centred) / (draws.shape[0] - 1)


class _MaskReward(Messenger):
    """Leave masked rows out of the `reward` site of any program."""

    def __init__(self, mask: Array):
        super().__init__(None)
        self.mask = mask

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "sample" and msg["name"] == "reward":
            msg["fn"] = msg["fn"].mask(self.mask)


def as_target(program: Any, actions: str, dim: int | None, backend: str) -> Target:
    """The target of a hierarchy, or of a NumPyro program `program(contexts, actions, rewards)`.

    A program written by hand must have a site named `actions`, sampled or deterministic, of shape
    (K, dim), and an observed site `reward` with a law for each observation. Its unknowns must be
    continuous.
    """
    if isinstance(program, Target):
        return program
    if isinstance(program, Hierarchy):
        levels = tuple(level.name for level in program.levels)
        return Target(program, None, levels[-1], levels, program.num_actions, program.dim)
    if not callable(program):
        raise TypeError(
            f"{backend}: got {short(program)}; expected a Hierarchy, or a NumPyro program "
            "program(contexts, actions, rewards)"
        )
    if dim is None:
        raise ValueError(
            f"{backend}: a program written by hand needs dim=<length of a context>, such as "
            f"{backend}(program, dim=2, actions='movie')"
        )
    trace = _abstract_trace(program, as_count(dim, f"{backend} dim"), backend)
    _check_reward(trace, backend)
    _check_continuous(trace, backend)
    sites = {name: jnp.shape(site["value"]) for name, site in trace.items()}
    if actions not in sites or len(sites[actions]) != 2 or sites[actions][1] != dim:
        raise ValueError(
            f"{backend}: the program has no site '{actions}' of shape (K, {dim}); it has "
            f"{ {name: shape for name, shape in sites.items() if name != 'reward'} }. "
            "Name the action site with actions=..."
        )
    levels = tuple(n for n, s in sites.items() if len(s) == 2 and s[1] == dim and n != actions)
    return Target(None, _plain(program), actions, (*levels, actions), sites[actions][0], dim)


def _plain(program: Any) -> Callable[..., Any]:
    """The program as a function that can be a static field, also where it is a method of a pytree."""
    if not isinstance(program, eqx.Module):
        return program
    method: Any = program

    def function(*rows: Any) -> Any:
        return method(*rows)

    function.__module__, function.__qualname__ = method.__module__, method.__qualname__
    return function


def _is_latent(site: dict[str, Any]) -> bool:
    return site["type"] == "sample" and not site["is_observed"]


def _is_plain(support: Any) -> bool:
    """Whether all numbers are allowed, so that the unconstrained value is the value."""
    transform: Any = biject_to(support)
    while isinstance(transform, IndependentTransform):
        transform = transform.base_transform
    return isinstance(transform, IdentityTransform)


def _check_reward(trace: dict[str, Any], backend: str) -> None:
    """The site must observe the rewards, one law for each, or it cannot be masked row by row."""
    if "reward" not in trace:
        raise ValueError(f"{backend}: the program has no site 'reward'; it has {sorted(trace)}")
    site = trace["reward"]
    if site["type"] != "sample" or not site["is_observed"]:
        raise ValueError(
            f"{backend}: the program's site 'reward' is not observed; expected "
            "numpyro.sample('reward', <law>, obs=rewards)"
        )
    law = site["fn"]
    if law.event_shape or len(law.batch_shape) > 1:
        raise ValueError(
            f"{backend}: on 2 observations the program's site 'reward' has a law of batch shape "
            f"{law.batch_shape} and event shape {law.event_shape}; expected one law for "
            "each observation, batch shape (2,) and event shape (): leave out to_event"
        )


def _check_continuous(trace: dict[str, Any], backend: str) -> None:
    for name, site in trace.items():
        if _is_latent(site) and site["fn"].support.is_discrete:
            raise ValueError(
                f"{backend}: the program's site '{name}' is discrete; expected unknowns with "
                "gradients: sum it out, for instance with numpyro.distributions.Mixture"
            )


def _abstract_trace(program: Callable[..., Any], dim: int, backend: str) -> dict[str, Any]:
    """A program's sites with their shapes, found by running it abstractly on two blank observations."""
    found: dict[str, Any] = {}

    def run(key: Array) -> None:
        blank = jnp.ones((2, dim)), jnp.zeros(2, jnp.int32), jnp.zeros(2)
        trace = handlers.trace(handlers.seed(program, key)).get_trace(*blank)
        kinds = ("sample", "deterministic")
        found.update({name: site for name, site in trace.items() if site["type"] in kinds})

    try:
        jax.eval_shape(run, jax.random.key(0))
    except Exception as error:
        raise ValueError(
            f"{backend}: program(contexts (n, {dim}), actions (n,), rewards (n,)) fails: {error}"
        ) from error
    return found
