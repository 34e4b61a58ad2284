"""`Svi`: a Gaussian guide over all unknowns, fitted by stochastic gradients from round to round."""

from dataclasses import KW_ONLY, InitVar, dataclass, field
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from jaxtyping import Float, Int

from ...models import Hierarchy
from ...models.arrays import as_count
from ...models.pytrees import register_declaration
from ..backend import Backend, Posterior
from ..buffer import Buffer, empty, record, reserve
from ..observation import as_context, many_observations
from .guides import RATES, AdamGuide, Guide, GuideFactors, NaturalGuide
from .target import Position, Target, as_target

__all__ = ["Svi", "SviState", "SviStatus"]


class SviStatus(Enum):
    """How the last fit looks; the value says it in words."""

    OK = "the evidence lower bound is finite and has stopped rising"
    RISING = "the evidence lower bound is still rising: more steps would help"
    NOISY = "the evidence lower bound is too noisy to tell: lower learning_rate, or more particles"
    DIVERGED = "the evidence lower bound is not finite: check the program, or lower learning_rate"


class SviState(NamedTuple):
    """The guide and the observations it is fitted to.

    Attributes:
        fit: the guide as its optimiser keeps it; see `guides`.
        buffer: all observations.
        key: where the fit takes its randomness from.
        elbo: mean of the evidence lower bound over the last quarter of the latest steps.
        rise: by how much that exceeds its mean over the quarter before.
        noise: standard error of `rise`.
        rejected: observations ignored inside `jit`: out of range, not finite, or no room.
    """

    fit: Any
    buffer: Buffer
    key: Array
    elbo: Float[Array, ""]
    rise: Float[Array, ""]
    noise: Float[Array, ""]
    rejected: Int[Array, ""]


@dataclass(frozen=True, eq=False, repr=False)
class Svi(Backend[SviState]):
    """Variational inference on a hierarchy or on any NumPyro program, warm-started every round.

    All unknowns, unconstrained and in one vector, are Gaussian in the guide: with a full covariance,
    with a diagonal and `rank` further directions, or with a diagonal alone, which understates the
    spread of correlated unknowns. Gradients are those of the path only (Roeder et al. 2017): they have
    no noise where the guide is right, so that a Gaussian posterior is found exactly.

    A full covariance follows natural gradients, whose stable step is known for any number of unknowns
    (`natural_gradient.climb`). The other guides are fitted by Adam.

    Args:
        program: a `Hierarchy`, or a NumPyro program `program(contexts, actions, rewards)`.
        actions: for a program written by hand, the name of its action site.
        dim: for a program written by hand, the length of a context.
        guide: "full_rank", "low_rank" or "mean_field".
        rank: directions of the low-rank guide.
        steps: steps after an observation.
        fit_steps: steps of `init` and `condition`, whose step size falls to a hundredth on the way.
        particles: draws of the guide for a gradient.
        learning_rate: for a full-rank guide the share of the largest stable step, 0.5 by default; for
            others the step size of Adam, 0.05 by default.
        samples: draws of the guide for those moments of `posterior` that it does not have itself.
        capacity: room for observations at first; it doubles outside `jit`.
    """

    program: InitVar[Any]
    actions: str = "action"
    dim: int | None = None
    _: KW_ONLY
    guide: str = "full_rank"
    rank: int = 10
    steps: int = 20
    fit_steps: int = 3000
    particles: int = 8
    learning_rate: float | None = None
    samples: int = 4000
    capacity: int = 1024
    target: Target = field(init=False)

    def __post_init__(self, program: Any):
        target = as_target(program, self.actions, self.dim, "Svi")
        object.__setattr__(self, "target", target)
        if self.guide not in RATES:
            raise ValueError(f"Svi guide is {self.guide!r}; expected one of {', '.join(RATES)}")
        for name in ("rank", "steps", "fit_steps", "particles", "samples", "capacity"):
            object.__setattr__(self, name, as_count(getattr(self, name), f"Svi {name}"))
        if not _guide(self).rate > 0.0:
            raise ValueError(
                f"Svi learning_rate is {self.learning_rate}; expected a positive number"
            )

    @property
    def hierarchy(self) -> Hierarchy | None:
        """The hierarchy behind the program, or None for a program written by hand."""
        return self.target.hierarchy

    def init(self, key: Array | None = None, *, room: int = 0) -> SviState:
        """The guide fitted to the prior."""
        key = jax.random.key(0) if key is None else key
        begun = _start(self, key, capacity=max(self.capacity, room))
        return _climb(self, *begun, steps=self.fit_steps, is_whole=True)

    def update(self, state: SviState, context: Any, action: Any, reward: Any) -> SviState:
        """One observation, and `steps` steps from where the guide stands."""
        seen = self.target.one_observation(context, action, reward)
        begun = _take_in(self, self.reserve(state, 1), *(part[None] for part in seen))
        return _climb(self, *begun, steps=self.steps, is_whole=False)

    def condition(self, state: SviState, contexts: Any, actions: Any, rewards: Any) -> SviState:
        """Many observations, and `fit_steps` steps from where the guide stands."""
        seen = many_observations(self.target, contexts, actions, rewards)
        state = self.reserve(state, len(seen.contexts))
        begun = _take_in(self, state, seen.contexts, seen.actions, seen.rewards)
        return _climb(self, *begun, steps=self.fit_steps, is_whole=True)

    def reserve(self, state: SviState, more: int) -> SviState:
        """The same state with room for `more` observations; before a `lax.scan` do it once."""
        return state._replace(buffer=reserve(state.buffer, more))

    def sample(self, key: Array, state: SviState) -> dict[str, Float[Array, "_ d"]]:
        """One draw of the guide, as the vectors of every level."""
        return _sample(self, key, state)

    def sample_scores(self, key: Array, state: SviState, context: Any) -> Float[Array, " K"]:
        """`x' theta_i` for every action, of one draw of the guide."""
        context = as_context(self.target, context)
        theta = self.sample(key, state)[self.target.action_site]
        return jnp.sum(theta * context, axis=-1)

    def posterior(self, state: SviState) -> Posterior:
        """Moments of the guide: its own where a level's vectors are unknowns, else of `samples` draws.

        A level's vectors are unknowns of the guide themselves unless it is not centred, or its law
        does not cover all vectors.
        """
        mean, cov = _posterior(self, state)
        return Posterior(mean, cov, None, self, state)

    def draws(self, key: Array, state: SviState, n: int) -> dict[str, Float[Array, "n ..."]]:
        """`n` draws of the guide, as every site: levels, learned scales and weights, noise."""
        return _unknowns(self, jax.random.split(key, n), state)

    def status(self, state: SviState) -> SviStatus:
        """How the last fit looks."""
        if not (np.isfinite(float(state.elbo)) and np.isfinite(float(state.noise))):
            return SviStatus.DIVERGED
        if state.rise > 4 * state.noise + 0.1:
            return SviStatus.RISING
        # A guide that fits has a noise of about one nat for each unknown and draw, or less.
        unknowns = _factors(self, state).loc.shape[0]
        return SviStatus.NOISY if state.noise > np.sqrt(unknowns) else SviStatus.OK

    def troubles(self, state: SviState) -> dict[str, Int[Array, ""]]:
        """Observations that were ignored, and whether the evidence lower bound is not finite."""
        diverged = ~(jnp.isfinite(state.elbo) & jnp.isfinite(state.noise))
        return {"rejected": state.rejected, "diverged": diverged.astype(jnp.int32)}

    def __repr__(self) -> str:
        what = self.target.hierarchy or self.target.function
        return f"Svi({what!r}, guide={self.guide!r})"


register_declaration(
    Svi,
    arrays=("target",),
    static=(
        "actions",
        "dim",
        "guide",
        "rank",
        "steps",
        "fit_steps",
        "particles",
        "learning_rate",
        "samples",
        "capacity",
    ),
)


def _guide(backend: Svi) -> Guide:
    rate = RATES[backend.guide] if backend.learning_rate is None else backend.learning_rate
    if backend.guide == "full_rank":
        return NaturalGuide(rate, backend.particles)
    return AdamGuide(rate, backend.particles, backend.rank if backend.guide == "low_rank" else 0)


def _position_like(backend: Svi, buffer: Buffer) -> Any:
    """From the vector of all unknowns to a position of the target."""
    blank = jax.eval_shape(lambda: backend.target.start(jax.random.key(0), buffer))
    return ravel_pytree(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), blank))[1]


@partial(jax.jit, static_argnames="capacity")
def _start(backend: Svi, key: Array, *, capacity: int) -> tuple[SviState, Array]:
    """A narrow guide that has seen nothing, and the key to fit it with."""
    buffer = empty(capacity, backend.target.dim)
    key, key_loc, key_start, key_fit = jax.random.split(key, 4)
    loc, _ = ravel_pytree(backend.target.start(key_loc, buffer))
    begun = _guide(backend).start(key_start, 0.1 * loc)
    zero = jnp.zeros(())
    return SviState(begun, buffer, key, zero, zero, zero, jnp.zeros((), jnp.int32)), key_fit


@jax.jit
def _take_in(
    backend: Svi, state: SviState, contexts: Array, actions: Array, rewards: Array
) -> tuple[SviState, Array]:
    """The state with more observations, and the key to fit it to them with."""
    buffer, left_out = record(state.buffer, backend.target.num_actions, contexts, actions, rewards)
    key, key_fit = jax.random.split(state.key)
    return state._replace(buffer=buffer, key=key, rejected=state.rejected + left_out), key_fit


@partial(jax.jit, static_argnames=("steps", "is_whole"))
def _climb(backend: Svi, state: SviState, key: Array, *, steps: int, is_whole: bool) -> SviState:
    """So many steps up the evidence lower bound, compiled once for `init` and `condition`."""
    to_position = _position_like(backend, state.buffer)

    def energy(unknowns: Float[Array, " N"]) -> Float[Array, ""]:
        return backend.target.potential(to_position(unknowns), state.buffer)

    fit, elbos = _guide(backend).fit(state.fit, energy, jax.random.split(key, steps), is_whole)
    quarter = max(steps // 4, 1)
    before, last = elbos[-2 * quarter : -quarter], elbos[-quarter:]
    return state._replace(
        fit=fit,
        elbo=last.mean(),
        rise=last.mean() - before.mean(),
        noise=jnp.sqrt((before.var() + last.var()) / quarter),
    )


def _factors(backend: Svi, state: SviState) -> GuideFactors:
    return _guide(backend).factors(state.fit)


def _draw(backend: Svi, key: Array, state: SviState) -> Position:
    return _position_like(backend, state.buffer)(_factors(backend, state).draw(key))


@jax.jit
def _sample(backend: Svi, key: Array, state: SviState) -> dict[str, Array]:
    return backend.target.vectors(_draw(backend, key, state), state.buffer)


@jax.jit
def _unknowns(backend: Svi, keys: Array, state: SviState) -> dict[str, Array]:
    def one(key: Array) -> dict[str, Array]:
        return backend.target.unknowns(_draw(backend, key, state), state.buffer)

    return jax.lax.map(one, keys, batch_size=64)


@jax.jit
def _posterior(backend: Svi, state: SviState) -> tuple[dict[str, Array], dict[str, Array]]:
    mean, cov = _own_moments(backend, state)
    if set(mean) == set(backend.target.levels):
        return mean, cov
    keys = jax.random.split(state.key, backend.samples)
    positions = jax.vmap(lambda key: _draw(backend, key, state))(keys)
    drawn_mean, drawn_cov = backend.target.moments(positions, state.buffer)
    return drawn_mean | mean, drawn_cov | cov


def _own_moments(backend: Svi, state: SviState) -> tuple[dict[str, Array], dict[str, Array]]:
    """The guide's moments of the levels whose vectors are unknowns themselves, without any draws."""
    to_position = _position_like(backend, state.buffer)
    loc, scale, factor = _factors(backend, state)
    mean, spread = to_position(loc), to_position(scale)
    columns = jax.vmap(to_position)(factor.T)  # each (r, size, d)
    names = backend.target.plain_levels(state.buffer)
    cov = {
        name: jnp.einsum("rkd,rke->kde", columns[name], columns[name])
        + jax.vmap(jnp.diag)(spread[name] ** 2)
        for name in names
    }
    return {name: mean[name] for name in names}, cov
