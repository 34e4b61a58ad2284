"""The posterior that `Nuts` and `Svi` approximate, of a hierarchy or of a program written by hand."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float
from numpyro import handlers
from numpyro.distributions.transforms import IdentityTransform, IndependentTransform, biject_to
from numpyro.infer.util import constrain_fn, potential_energy, unconstrain_fn
from numpyro.primitives import Messenger

from ...models import Hierarchy, Reward
from ...models.arrays import as_count
from ...models.data import Observations
from ...models.declaration import Declaration
from ...models.messages import short
from ..buffer import Buffer
from .by_hand import Program, is_latent

__all__ = ["Position", "Target", "as_target"]

Position = dict[str, Array]


class Target(Declaration):
    """The NumPyro program of a hierarchy, or one written by hand, on a buffer of observations.

    Attributes:
        hierarchy: the declaration, or None for a program written by hand.
        program: that program, or None for a hierarchy.
    """

    hierarchy: Hierarchy | None = None
    program: Program | None = None

    @property
    def source(self) -> Hierarchy | Program:
        """The hierarchy, or the program written by hand."""
        source = self.hierarchy or self.program
        assert source is not None
        return source

    @property
    def function(self) -> Callable[..., Any]:
        """The program, as a function of contexts, actions and rewards; a site of scores is left out.

        It has a number for each row, and is no unknown.
        """
        rows = None if self.program is None else self.program.scores
        run = self.source.program
        return run if rows is None else handlers.block(run, hide=[rows])

    @property
    def has_own_scores(self) -> bool:
        """Whether scores are a site of the program, and not `x' theta`."""
        return self.program is not None and self.program.scores is not None

    @property
    def action_site(self) -> str:
        """The site of shape (K, d) that holds the actions."""
        return self.source.actions.name

    @property
    def levels(self) -> tuple[str, ...]:
        """The sites of vectors: the actions, last, and those above them."""
        return tuple(level.name for level in self.source.levels)

    @property
    def num_actions(self) -> int:
        """`K`."""
        return self.source.num_actions

    @property
    def dim(self) -> int:
        """The length of a context."""
        return self.source.dim

    @property
    def reward(self) -> Reward:
        """The family that rewards are checked against; a program by hand may have any number."""
        return self.source.reward

    @property
    def takes_exposure(self) -> bool:
        """Whether a row may stand for several rewards."""
        return self.source.takes_exposure

    @property
    def components(self) -> Any:
        """The names of the components of a context that the hierarchy declares, or None."""
        return getattr(self.source, "components", None)

    def model(self, buffer: Buffer) -> None:
        """The program on the observations of a buffer; blank rows add nothing."""
        mask = buffer.actions >= 0
        actions = jnp.where(mask, buffer.actions, 0)
        # A NaN in a blank row would reach the gradient through its mask. A program that takes the
        # logarithm of a context, or divides by its length, would turn zeros into NaN: hence ones.
        contexts = jnp.where(mask[:, None], buffer.contexts, 1.0)
        rewards = jnp.where(mask, buffer.rewards, 0.0)
        exposure = () if buffer.exposure is None else (buffer.exposure,)
        with _MaskReward(mask):
            self.function(contexts, actions, rewards, *exposure)

    def potential(self, position: Position, buffer: Buffer) -> Float[Array, ""]:
        """Minus the log density of the unconstrained `position` and the observations."""
        return jnp.asarray(potential_energy(self.model, (buffer,), {}, position))

    def start(self, key: Array, buffer: Buffer) -> Position:
        """An unconstrained position drawn from the prior."""
        trace = handlers.trace(handlers.seed(self.model, key)).get_trace(buffer)
        values = {name: site["value"] for name, site in trace.items() if is_latent(site)}
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
        latents = {name: site["fn"].support for name, site in trace.items() if is_latent(site)}
        return tuple(n for n in self.levels if n in latents and _is_plain(latents[n]))

    def scores(
        self, position: Position, context: Float[Array, "*K d"], buffer: Buffer
    ) -> Float[Array, " K"]:
        """The score of every action in a context: `x' theta_i`, or what a program's site of scores says."""
        if self.hierarchy is not None:
            return jnp.sum(self.vectors(position, buffer)[self.action_site] * context, axis=-1)
        assert self.program is not None
        return self.program.scores_of(self.sites(position, buffer), context)

    def observations(
        self, contexts: Any, actions: Any, rewards: Any, exposure: Any = None
    ) -> Observations:
        """Observations converted and checked."""
        return self.source.observations(contexts, actions, rewards, exposure)

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
    """The target of a hierarchy, of a `Program`, or of a function that `actions` and `dim` make one of."""
    if isinstance(program, Target):
        return program
    if isinstance(program, Hierarchy):
        return Target(hierarchy=program)
    if isinstance(program, Program):
        return Target(program=program)
    if not callable(program):
        raise TypeError(
            f"{backend}: got {short(program)}; expected a Hierarchy, a Program, or a NumPyro program "
            "program(contexts, actions, rewards)"
        )
    if dim is None:
        raise ValueError(
            f"{backend}: a program written by hand needs dim=<length of a context>, such as "
            f"{backend}(program, dim=2, actions='movie')"
        )
    dim = as_count(dim, f"{backend} dim")
    try:
        return Target(program=Program(program, dim, action_site=actions))
    except (TypeError, ValueError) as error:
        raise type(error)(f"{backend}: {error}") from error.__cause__


def _is_plain(support: Any) -> bool:
    """Whether all numbers are allowed, so that the unconstrained value is the value."""
    transform: Any = biject_to(support)
    while isinstance(transform, IndependentTransform):
        transform = transform.base_transform
    return isinstance(transform, IdentityTransform)
