"""What a round costs with a backend, before any is played: memory of the state, and operations."""

from functools import partial, singledispatch
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .backend import Backend
from .buffer import empty
from .gaussian.backend import GaussianBackend
from .mixture.collapsed import Collapsed
from .programs.backend import ProgramBackend
from .programs.nuts import Nuts
from .programs.svi import Svi

__all__ = ["Cost", "round_cost"]

_NEWTON_STEPS = 10  # of a refit of one action's rewards
_GRADIENTS = 16  # of a NUTS transition, of up to 2^max_depth
_CHAIN = 12  # vectors of all unknowns in the state of a chain: positions, gradients, masses, ...


class Cost(NamedTuple):
    """What a round costs: one draw of all scores, and one update.

    Attributes:
        bytes: of the state, where `observations` have been seen.
        operations: multiplications and additions of a round, about; None for a backend that is not
            known to mixts.
        observations: how many rewards have been seen.

    Example:
        >>> from mixts.inference import Cost
        >>> print(Cost(bytes=3_000_000, operations=2_000_000, observations=1000))
        a state of 2.86 MiB after 1,000 rewards; 2 million operations a round, about 2 ms compiled
    """

    bytes: int
    operations: int | None
    observations: int

    def __str__(self) -> str:
        state = f"a state of {_binary(self.bytes)} after {self.observations:,} rewards"
        if self.operations is None:
            return state
        return f"{state}; {_many(self.operations)} a round, about {_time(self.operations)} compiled"


@singledispatch
def round_cost(backend: Backend[Any], observations: int) -> Cost:
    """What a round costs with a backend after so many observations; no state is made.

    Example:
        >>> from mixts.inference import ClosedForm
        >>> from mixts.inference.cost import round_cost
        >>> from mixts.models import linear
        >>> round_cost(ClosedForm(linear([[1.0], [1.0]], dim=1)), 1000).bytes < 200
        True
    """
    return Cost(_bytes(_state(backend, observations)), None, observations)


@round_cost.register
def _(backend: GaussianBackend, observations: int) -> Cost:
    """All actions given the levels above are read once, and all above is drawn and updated."""
    state = _state(backend, observations)
    hierarchy = backend.hierarchy
    work = 4 * _numbers(state.actions) + 4 * _numbers(state.effects)
    work += 2 * hierarchy.dim * _numbers(hierarchy.actions.parents)
    if state.memory is not None:
        rows = -(-observations // hierarchy.num_actions)
        work += 2 * _NEWTON_STEPS * rows * hierarchy.dim**2
    return Cost(_bytes(state), work, observations)


@round_cost.register
def _(backend: Collapsed, observations: int) -> Cost:
    """One draw given one particle, and an update of each; moves are few, and left out."""
    state = _state(backend, observations)
    actions, effects = state.particles.states.actions, state.particles.states.effects
    draw = 4 * (_numbers(actions) + _numbers(effects)) // backend.particles
    update = backend.particles * 4 * backend.hierarchy.dim**2 + 4 * _numbers(effects)
    return Cost(_bytes(state), draw + update, observations)


@round_cost.register
def _(backend: Nuts, observations: int) -> Cost:
    """Gradients over all observations; the state is largest where it holds the draws of `posterior`."""
    unknowns, gradient = _program(backend, observations)
    work = backend.chains * backend.steps * _GRADIENTS * gradient
    masses = unknowns if backend.dense_mass else 0
    numbers = backend.chains * unknowns * (backend.samples + _CHAIN + 2 * masses)
    return _with_rows(backend, numbers, work, observations)


@round_cost.register
def _(backend: Svi, observations: int) -> Cost:
    """Gradients over all observations; the guide is a matrix, or vectors with two moments of Adam."""
    unknowns, gradient = _program(backend, observations)
    vectors = {"full_rank": unknowns + 1, "low_rank": 3 * (backend.rank + 2), "mean_field": 6}
    numbers = unknowns * vectors[backend.guide]
    work = backend.steps * (backend.particles * (gradient + 2 * numbers) + 2 * numbers)
    return _with_rows(backend, numbers, work, observations)


def _program(backend: ProgramBackend[Any], observations: int) -> tuple[int, int]:
    """How many unknowns a program has, and the operations of a gradient over all rows."""
    target = backend.target
    start = jax.eval_shape(lambda: target.start(jax.random.key(0), empty(2, target.dim)))
    unknowns, rows = _numbers(start), _capacity(backend, observations)
    weights = 0 if target.hierarchy is None else _numbers(target.hierarchy)
    # Backwards costs twice as much as forwards.
    return unknowns, 3 * (2 * rows * target.dim + 2 * unknowns + 2 * target.dim * weights)


def _with_rows(backend: ProgramBackend[Any], numbers: int, work: int, observations: int) -> Cost:
    """With the buffer of all observations: contexts, actions, rewards and perhaps exposure."""
    columns = backend.target.dim + 2 + backend.target.takes_exposure
    numbers += _capacity(backend, observations) * columns
    return Cost(numbers * jnp.result_type(float).itemsize, work, observations)


def _capacity(backend: Any, observations: int) -> int:
    """The room that there is for observations, which doubles."""
    capacity = backend.capacity
    while capacity < observations:
        capacity *= 2
    return capacity


def _state(backend: Backend[Any], observations: int) -> Any:
    """The shapes of a state; none is made."""
    return jax.eval_shape(partial(backend.init, room=observations))


def _bytes(state: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


def _numbers(tree: Any) -> int:
    return sum(int(np.prod(np.shape(leaf))) for leaf in jax.tree.leaves(tree))


def _binary(n: float) -> str:
    return _in_units(n, 1024, ("bytes", "KiB", "MiB", "GiB"))


def _many(n: float) -> str:
    units = "operations", "thousand operations", "million operations", "billion operations"
    return _in_units(n, 1000, units)


def _in_units(n: float, step: int, units: tuple[str, ...]) -> str:
    """A number in the first unit in which it is below `step`, each so many times the one before."""
    *smaller, largest = units
    for unit in smaller:
        if n < step:
            return f"{n:.3g} {unit}"
        n /= step
    return f"{n:,.3g} {largest}"


def _time(operations: int) -> str:
    """At a billion a second, which is what one core does in the paper's setting."""
    seconds = operations / 1e9
    for unit, size in (("us", 1e-6), ("ms", 1e-3)):
        if seconds < 1000 * size:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds:,.2g} s"
