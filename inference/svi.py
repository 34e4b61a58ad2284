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
from numpyro.distributions import (
    Distribution,
    LowRankMultivariateNormal,
    Normal,
)
from numpyro.optim import Adam

from ..models import Hierarchy
from ..models.arrays import as_count
from ..models.pytrees import register_declaration
from .backend import Backend, Posterior
from .buffer import Buffer, empty, record, reserve
from .natural_gradient import RootNormal, climb, lower_bound
from .observation import as_context, many_observations
from .target import Position, Target, as_target

__all__ = ["Svi", "SviState", "SviStatus"]

# The guides, each with its learning rate.
GUIDES = {"full_rank": 0.5, "low_rank": 0.05, "mean_field": 0.05}


class SviStatus(Enum):
    """How the last fit looks; the value says it in words."""

    OK = "the evidence lower bound is finite and has stopped rising"
    RISING = "the evidence lower bound is still rising: more steps would help"
    NOISY = "the evidence lower bound is too noisy to tell: lower learning_rate, or more particles"
    DIVERGED = "the evidence lower bound is not finite: check the program, or lower learning_rate"


class SviState(NamedTuple):
    """The guide and the observations it is fitted to.

    Attributes:
        fit: the guide as its optimiser keeps it: a `RootNormal`, or the state of NumPyro's `Adam`.
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
        if self.guide not in GUIDES:
            raise ValueError(f"Svi guide is {self.guide!r}; expected one of {', '.join(GUIDES)}")
        for name in ("rank", "steps", "fit_steps", "particles", "samples", "capacity"):
            object.__setattr__(self, name, as_count(getattr(self, name), f"Svi {name}"))
        if not _rate(self) > 0.0:
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
        return _init(self, key, capacity=max(self.capacity, room))

    def update(self, state: SviState, context: Any, action: Any, reward: Any) -> SviState:
        """One observation, and `steps` steps from where the guide stands."""
        seen = self.target.one_observation(context, action, reward)
        state = self.reserve(state, 1)
        return _observe(
            self, state, *(part[None] for part in seen), steps=self.steps, is_whole=False
        )

    def condition(self, state: SviState, contexts: Any, actions: Any, rewards: Any) -> SviState:
        """Many observations, and `fit_steps` steps from where the guide stands."""
        seen = many_observations(self.target, contexts, actions, rewards)
        state = self.reserve(state, len(seen.contexts))
        rows = seen.contexts, seen.actions, seen.rewards
        return _observe(self, state, *rows, steps=self.fit_steps, is_whole=True)

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


def _rate(backend: Svi) -> float:
    given = backend.learning_rate
    return GUIDES[backend.guide] if given is None else given


def _is_natural(backend: Svi) -> bool:
    """Whether the guide follows natural gradients rather than Adam's."""
    return backend.guide == "full_rank"


def _guide(parameters: dict[str, Array]) -> Distribution:
    """The law that Adam fits, of the vector of all unknowns."""
    loc, scale = parameters["loc"], jnp.exp(parameters["log_scale"])
    if "factor" in parameters:
        return LowRankMultivariateNormal(loc, parameters["factor"] * scale[:, None], scale**2)
    return Normal(loc, scale).to_event(1)


def _start(backend: Svi, key: Array, loc: Float[Array, " N"]) -> Any:
    """A narrow guide around `loc`, as its optimiser keeps it."""
    size = loc.shape[0]
    if _is_natural(backend):
        return RootNormal(loc, 0.3 * jnp.eye(size))
    parameters = {"loc": loc, "log_scale": jnp.full(size, jnp.log(0.3))}
    if backend.guide == "low_rank":
        parameters["factor"] = 0.1 * jax.random.normal(key, (size, min(backend.rank, size)))
    return _adam(backend, None).init(parameters)


def _position_like(backend: Svi, buffer: Buffer) -> Any:
    """From the vector of all unknowns to a position of the target."""
    blank = jax.eval_shape(lambda: backend.target.start(jax.random.key(0), buffer))
    return ravel_pytree(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), blank))[1]


def _fit(
    backend: Svi, begun: Any, buffer: Buffer, key: Array, steps: int, is_whole: bool
) -> tuple[Any, Float[Array, " steps"]]:
    """So many steps up the evidence lower bound; also its value at each of them.

    A whole fit comes to rest; the steps after one observation are to follow what is new in it.
    """
    to_position = _position_like(backend, buffer)

    def energy(unknowns: Float[Array, " N"]) -> Float[Array, ""]:
        return backend.target.potential(to_position(unknowns), buffer)

    fit = _fit_natural if _is_natural(backend) else _fit_adam
    return fit(backend, begun, energy, jax.random.split(key, steps), is_whole)


def _fit_natural(
    backend: Svi, begun: RootNormal, energy: Any, keys: Array, is_whole: bool
) -> tuple[RootNormal, Float[Array, " steps"]]:
    """Natural gradients, whose rate falls to a hundredth in a whole fit and else to a tenth."""
    steps, lowest = keys.shape[0], 0.01 if is_whole else 0.1
    rates = _rate(backend) * lowest ** (jnp.arange(steps) / steps)

    def step(law: RootNormal, now: tuple[Array, Array]) -> tuple[RootNormal, Array]:
        key, rate = now
        noise = jax.random.normal(key, (backend.particles, law.loc.shape[0]))
        energies, slopes = jax.vmap(jax.value_and_grad(energy))(law.loc + noise @ law.root.T)
        # One bad draw must not spoil the guide; a bad guide shows in the bound.
        return climb(law, noise, slopes, rate), lower_bound(law, noise, energies)

    return jax.lax.scan(step, begun, (keys, rates))


def _fit_adam(
    backend: Svi, begun: Any, energy: Any, keys: Array, is_whole: bool
) -> tuple[Any, Float[Array, " steps"]]:
    """Adam, begun anew in a whole fit and else going on from its moments."""
    optimiser = _adam(backend, keys.shape[0] if is_whole else None)
    if is_whole:
        begun = optimiser.init(optimiser.get_params(begun))

    def loss(parameters: dict[str, Array], key: Array) -> Array:
        law: Any = _guide(parameters)
        fixed = _guide(jax.lax.stop_gradient(parameters))
        unknowns = law.rsample(key, (backend.particles,))
        return jnp.mean(jax.vmap(energy)(unknowns) + fixed.log_prob(unknowns))

    def step(state: Any, key: Array) -> tuple[Any, Array]:
        value, slope = jax.value_and_grad(loss)(optimiser.get_params(state), key)
        # One bad draw must not spoil the guide; a bad guide shows in the bound.
        good = jnp.isfinite(value)
        slope = jax.tree.map(lambda leaf: jnp.where(good & jnp.isfinite(leaf), leaf, 0.0), slope)
        return optimiser.update(slope, state), -value

    return jax.lax.scan(step, begun, keys)


def _adam(backend: Svi, falling_over: int | None) -> Adam:
    """Adam with a step size that falls to a hundredth, or stays at a tenth."""

    def rate(step: Array) -> Array:
        if falling_over is None:
            return jnp.full((), 0.1 * _rate(backend))
        return _rate(backend) * 0.01 ** (step / falling_over)

    return Adam(rate)


def _after(state: SviState, fit: Any, elbos: Float[Array, " steps"], key: Array) -> SviState:
    quarter = max(elbos.shape[0] // 4, 1)
    before, last = elbos[-2 * quarter : -quarter], elbos[-quarter:]
    return state._replace(
        fit=fit,
        key=key,
        elbo=last.mean(),
        rise=last.mean() - before.mean(),
        noise=jnp.sqrt((before.var() + last.var()) / quarter),
    )


@partial(jax.jit, static_argnames="capacity")
def _init(backend: Svi, key: Array, *, capacity: int) -> SviState:
    buffer = empty(capacity, backend.target.dim)
    key, key_loc, key_start, key_fit = jax.random.split(key, 4)
    loc, _ = ravel_pytree(backend.target.start(key_loc, buffer))
    begun = _start(backend, key_start, 0.1 * loc)
    fitted, elbos = _fit(backend, begun, buffer, key_fit, backend.fit_steps, is_whole=True)
    zero = jnp.zeros(())
    state = SviState(fitted, buffer, key, zero, zero, zero, jnp.zeros((), jnp.int32))
    return _after(state, fitted, elbos, key)


@partial(jax.jit, static_argnames=("steps", "is_whole"))
def _observe(
    backend: Svi,
    state: SviState,
    contexts: Array,
    actions: Array,
    rewards: Array,
    *,
    steps: int,
    is_whole: bool,
) -> SviState:
    buffer, left_out = record(state.buffer, backend.target.num_actions, contexts, actions, rewards)
    state = state._replace(buffer=buffer, rejected=state.rejected + left_out)
    key, key_fit = jax.random.split(state.key)
    fitted, elbos = _fit(backend, state.fit, buffer, key_fit, steps, is_whole)
    return _after(state, fitted, elbos, key)


class _Factors(NamedTuple):
    """The guide as `N(loc, diag(scale)^2 + factor factor')`, whichever it is."""

    loc: Float[Array, " N"]
    scale: Float[Array, " N"]
    factor: Float[Array, "N r"]


def _factors(backend: Svi, state: SviState) -> _Factors:
    if _is_natural(backend):
        return _Factors(state.fit.loc, jnp.zeros_like(state.fit.loc), state.fit.root)
    parameters = _adam(backend, None).get_params(state.fit)
    loc, scale = parameters["loc"], jnp.exp(parameters["log_scale"])
    return _Factors(
        loc, scale, parameters.get("factor", jnp.zeros((loc.shape[0], 0))) * scale[:, None]
    )


def _draw(backend: Svi, key: Array, state: SviState) -> Position:
    loc, scale, factor = _factors(backend, state)
    key_own, key_shared = jax.random.split(key)
    own = scale * jax.random.normal(key_own, loc.shape)
    shared = factor @ jax.random.normal(key_shared, factor.shape[1:])
    return _position_like(backend, state.buffer)(loc + own + shared)


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
