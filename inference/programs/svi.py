"""`Svi`: a Gaussian guide over all unknowns, fitted by stochastic gradients round by round."""

from dataclasses import KW_ONLY
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree
from jaxtyping import Float, Int

from ...models.messages import short
from ..backend import Posterior
from ..buffer import Buffer, empty, record
from ..compiling import jit_once
from ..observation import many_observations, one_observation
from ..progress import reported
from ..status import Status, Trouble
from .backend import ProgramBackend
from .guides import RATES, AdamGuide, GuideFactors, NaturalGuide
from .target import Position

__all__ = ["Svi", "SviState"]


class SviState(NamedTuple):
    """The guide and the observations it is fitted to.

    Attributes:
        fit: the state of the guide's optimiser; see `guides`.
        buffer: all observations.
        key: the source of the fit's randomness.
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


class Svi(ProgramBackend[SviState]):
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

    Example:
        >>> from mixts.inference import Svi
        >>> from mixts.models import Bernoulli, Hierarchy, Level
        >>> backend = Svi(Hierarchy([Level("action", 2)], Bernoulli(), dim=1), fit_steps=100)
        >>> state = backend.condition(backend.init(), [[1.0], [1.0]], [0, 1], [1.0, 0.0])
        >>> {name: mean.shape for name, mean in backend.posterior(state).mean.items()}
        {'action': (2, 1)}
    """

    _: KW_ONLY
    guide: str = eqx.field(default="full_rank", static=True)
    rank: int = eqx.field(default=10, static=True)
    steps: int = eqx.field(default=20, static=True)
    fit_steps: int = eqx.field(default=3000, static=True)
    particles: int = eqx.field(default=8, static=True)
    learning_rate: float | None = eqx.field(default=None, static=True)
    samples: int = eqx.field(default=4000, static=True)
    capacity: int = eqx.field(default=1024, static=True)

    def __post_init__(self):
        super().__post_init__()
        if self.guide not in RATES:
            raise ValueError(
                f"Svi guide is {short(self.guide)}; expected one of {', '.join(RATES)}"
            )
        if not _guide(self).rate > 0.0:
            raise ValueError(
                f"Svi learning_rate is {self.learning_rate}; expected a positive number"
            )

    @reported
    def init(self, key: Array | None = None, *, room: int = 0) -> SviState:
        """The guide fitted to the prior."""
        key = jax.random.key(0) if key is None else key
        state, key_fit = _start(self, key, capacity=max(self.capacity, room))
        return _fit(self, state, key_fit, is_batch=True)

    @reported
    def update(
        self, state: SviState, context: Any, action: Any, reward: Any, exposure: Any = 1.0
    ) -> SviState:
        """One observation, and `steps` steps from the present guide."""
        seen = one_observation(self.target, context, action, reward, exposure)
        rows = jax.tree.map(lambda part: part[None], seen)
        return _fit(self, *_observe(self, self.reserve(state, 1), *rows), is_batch=False)

    @reported
    def condition(
        self, state: SviState, contexts: Any, actions: Any, rewards: Any, exposure: Any = None
    ) -> SviState:
        """Many observations, and `fit_steps` steps from the present guide."""
        rows = many_observations(self.target, contexts, actions, rewards, exposure)[:4]
        state = self.reserve(state, len(rows[0]))
        return _fit(self, *_observe(self, state, *rows), is_batch=True)

    def position(self, key: Array, state: SviState) -> Position:
        """One draw of the guide."""
        return _position_like(self, state.buffer)(_factors(self, state).draw(key))

    @reported
    def posterior(self, state: SviState) -> Posterior:
        """Moments of the guide: its own where a level's vectors are unknowns, else of `samples` draws.

        A level's vectors are unknowns of the guide themselves unless it is not centred, or its law
        does not cover all vectors.
        """
        mean, cov = _posterior(self, state)
        return Posterior(mean, cov, None, self, state)

    @partial(jax.jit, static_argnames="n")
    def draws(self, key: Array, state: SviState, n: int) -> dict[str, Float[Array, "n ..."]]:
        """`n` draws of the guide, as every site: levels, learned scales and weights, noise."""
        return self.sample_unknowns(key, state, n)

    def status(self, state: SviState) -> Status:
        """The number of rejected observations, and whether the last fit has converged."""
        finite = jnp.isfinite(state.elbo) & jnp.isfinite(state.noise)
        rising = finite & (state.rise > 4 * state.noise + 0.1)
        # A guide that fits has a noise of about one nat for each unknown and draw, or less.
        unknowns = _factors(self, state).loc.shape[0]
        noisy = finite & ~rising & (state.noise > np.sqrt(unknowns))
        return Status(
            {
                Trouble.REJECTED: state.rejected,
                Trouble.NOT_FINITE: ~finite,
                Trouble.RISING: rising,
                Trouble.NOISY: noisy,
            }
        )

    def __repr__(self) -> str:
        return f"Svi({self.target.source!r}, guide={self.guide!r})"


def _guide(backend: Svi) -> NaturalGuide | AdamGuide:
    rate = RATES[backend.guide] if backend.learning_rate is None else backend.learning_rate
    if backend.guide == "full_rank":
        return NaturalGuide(rate, backend.particles)
    return AdamGuide(rate, backend.particles, backend.rank if backend.guide == "low_rank" else 0)


def _position_like(backend: Svi, buffer: Buffer) -> Any:
    """From the vector of all unknowns to a position of the target."""
    blank = jax.eval_shape(lambda: backend.target.start(jax.random.key(0), buffer))
    return ravel_pytree(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), blank))[1]


@partial(jit_once, static_argnames="capacity")
def _start(backend: Svi, key: Array, *, capacity: int) -> tuple[SviState, Array]:
    """A narrow guide without observations, and the key to fit it with."""
    target = backend.target
    buffer = empty(capacity, target.dim, exposure=target.takes_exposure)
    key, key_loc, key_start, key_fit = jax.random.split(key, 4)
    loc, _ = ravel_pytree(backend.target.start(key_loc, buffer))
    fit = _guide(backend).start(key_start, 0.1 * loc)
    zero = jnp.zeros(())
    return SviState(fit, buffer, key, zero, zero, zero, jnp.zeros((), jnp.int32)), key_fit


@jax.jit
def _observe(backend: Svi, state: SviState, *rows: Any) -> tuple[SviState, Array]:
    """The state with more observations, and the key to fit it to them with."""
    buffer, rejected = record(state.buffer, backend.target.num_actions, *rows)
    key, key_fit = jax.random.split(state.key)
    return state._replace(buffer=buffer, key=key, rejected=state.rejected + rejected), key_fit


@partial(jax.jit, static_argnames="is_batch")
def _fit(backend: Svi, state: SviState, key: Array, *, is_batch: bool) -> SviState:
    """Steps up the evidence lower bound, compiled once for `init` and `condition`."""
    steps = backend.fit_steps if is_batch else backend.steps
    to_position = _position_like(backend, state.buffer)

    def energy(unknowns: Float[Array, " N"]) -> Float[Array, ""]:
        return backend.target.potential(to_position(unknowns), state.buffer)

    fit, elbos = _guide(backend).fit(state.fit, energy, jax.random.split(key, steps), is_batch)
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


@jax.jit
def _posterior(backend: Svi, state: SviState) -> tuple[dict[str, Array], dict[str, Array]]:
    mean, cov = _own_moments(backend, state)
    if set(mean) == set(backend.target.levels):
        return mean, cov
    keys = jax.random.split(state.key, backend.samples)
    positions = jax.vmap(lambda key: backend.position(key, state))(keys)
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
