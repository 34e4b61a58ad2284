"""More room for rewards and for actions: other programs, and policy and state in their shapes.

Programs are compiled for the room there is, which doubles when it runs out. That takes seconds, so it is
done beforehand in a thread of its own (`begin`), while the old programs serve; what is left to do is to
copy arrays into larger ones.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache, partial
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from ...inference.buffer import is_buffer, widen
from ...inference.gaussian.new_actions import (
    action_axes,
    carry_over,
    extend,
    first_action,
    place,
    same_form,
)
from ...models import Hierarchy, Level
from ..policies.policy import Policy
from .packing import Packing, packing_of
from .programs import SERVING, Packed, Programs, programs_for
from .requests import padded_size

__all__ = [
    "Growth",
    "add",
    "begin",
    "compile_add",
    "extension",
    "finished",
    "more_actions",
    "more_rewards",
]


class Growth(NamedTuple):
    """What it takes to go on with more room.

    Attributes:
        programs: for the shapes there will be.
        move: from policy and state, packed, to the same in those shapes.
        compile: compiles all that serving needs then; else each is compiled when it is needed.
    """

    programs: Programs
    move: Callable[[Packed, Packed], tuple[Packed, Packed]]
    compile: Callable[[], None]


@lru_cache(maxsize=64)
def more_rewards(programs: Programs, capacity: int) -> Growth:
    """Room for `capacity` rewards."""

    def wide(state: Any) -> Any:
        widened = lambda part: widen(part, capacity) if is_buffer(part) else part  # noqa: E731
        return jax.tree.map(widened, state, is_leaf=is_buffer)

    grown = programs_for(
        programs.policy,
        packing_of(jax.eval_shape(wide, programs.state.tree)),
        programs.forget,
        programs.forget_every,
    )
    moved = jax.jit(lambda state: grown.state.pack(wide(programs.state.unpack(state))))

    def compile_all() -> None:
        moved.lower(programs.state.packed()).compile()
        grown.compile((*SERVING, *tuple(programs.compiled)))
        if programs in _adders:
            known = _adders[programs]
            _adders.setdefault(grown, _Adder(grown, known.axes, known.example)).compile()

    return Growth(grown, lambda policy, state: (policy, moved(state)), compile_all)


def _prior(policy: Policy, hierarchy: Hierarchy) -> tuple[Policy, Any]:
    """Policy and state for other actions, before any data."""
    extended = policy.with_hierarchy(hierarchy)
    # Policies that can be extended draw nothing here.
    return extended, extended.init(jax.random.key(0))


class _Carrier:
    """From policies and states of one structure to those of a hierarchy with other actions."""

    def __init__(self, programs: Programs, form: Packing, policy: Policy, hierarchy: Hierarchy):
        self.prior = jax.jit(_prior)
        axes = action_axes(partial(_prior, policy), hierarchy)

        def carried(policy: Packed, state: Packed, fresh: Any, is_new: Any) -> Any:
            old = programs.policy.unpack(policy), programs.state.unpack(state)
            return carry_over(old, fresh, axes, is_new)

        fresh = jax.eval_shape(_prior, programs.policy.tree, form.tree)
        packed = programs.policy.packed(), programs.state.packed()
        is_new = jax.ShapeDtypeStruct((hierarchy.num_actions,), bool)
        after = jax.eval_shape(carried, *packed, fresh, is_new)
        forms = packing_of(after[0]), packing_of(after[1])
        self.programs = programs_for(*forms, programs.forget, programs.forget_every)

        def moved(policy: Packed, state: Packed, fresh: Any, is_new: Any) -> tuple[Packed, Packed]:
            new_policy, new_state = carried(policy, state, fresh, is_new)
            return self.programs.policy.pack(new_policy), self.programs.state.pack(new_state)

        self.moved = jax.jit(moved)

        def compile_all() -> None:
            self.moved.lower(*packed, fresh, is_new).compile()
            self.programs.compile((*SERVING, *tuple(programs.compiled)))

        self.compile = compile_all


_carriers: WeakKeyDictionary[Programs, dict[Packing, _Carrier]] = WeakKeyDictionary()


def extension(
    programs: Programs, policy: Packed, hierarchy: Hierarchy, is_new: Bool[np.ndarray, " K"]
) -> Growth:
    """Room for the actions of a hierarchy, of which some are new; the others do not change.

    Compiled once for each number of actions that there is room for.
    """
    unpacked, form = programs.unpack_policy(policy), packing_of(hierarchy)
    known = _carriers.setdefault(programs, {})
    if form not in known:
        known[form] = _Carrier(programs, form, unpacked, hierarchy)
    carrier = known[form]
    fresh = carrier.prior(unpacked, hierarchy)
    move = lambda policy, state: carrier.moved(policy, state, fresh, is_new)  # noqa: E731
    return Growth(carrier.programs, move, carrier.compile)


def more_actions(programs: Programs, policy: Packed, capacity: int) -> Growth:
    """Room for `capacity` actions, and what adds one to them."""
    unpacked = programs.unpack_policy(policy)
    hierarchy = extend(unpacked.problem, None, programs.num_actions, capacity)
    growth = extension(programs, policy, hierarchy, np.arange(capacity) >= programs.num_actions)

    def compile_all() -> None:
        growth.compile()
        _adder(growth.programs, unpacked.with_hierarchy(hierarchy), hierarchy).compile()

    return growth._replace(compile=compile_all)


class _Adder:
    """Puts new actions into spare places of policies and states of one structure.

    Args:
        programs: of that structure.
        axes: of every array, which axis goes over actions; see `action_axes`.
        example: a newcomer.
    """

    def __init__(self, programs: Programs, axes: list[int | None], example: Level):
        self.axes, self.example = axes, example

        def added(policy: Packed, state: Packed, level: Level, start: Any, count: Any) -> Any:
            unpacked, known = programs.policy.unpack(policy), programs.state.unpack(state)
            above = unpacked.problem
            alone = above.remade(levels=[*above.levels[:-1], level])
            rows = jnp.arange(level.size)
            rows = jnp.where(rows < count, start + rows, programs.num_actions)
            new_policy, new_state = place((unpacked, known), _prior(unpacked, alone), axes, rows)
            return programs.policy.pack(new_policy), programs.state.pack(new_state)

        self.program = jax.jit(added)

        def compile_one() -> None:
            packed, number = (programs.policy.packed(), programs.state.packed()), np.int32(0)
            self.program.lower(*packed, example, number, number).compile()

        self.compile = compile_one


_adders: WeakKeyDictionary[Programs, _Adder] = WeakKeyDictionary()


def _adder(programs: Programs, policy: Policy, hierarchy: Hierarchy) -> _Adder:
    if programs not in _adders:
        axes = action_axes(partial(_prior, policy), hierarchy)
        _adders[programs] = _Adder(programs, axes, first_action(hierarchy))
    return _adders[programs]


def add(
    programs: Programs, policy: Packed, hierarchy: Hierarchy, level: Level
) -> Callable[[Packed, Packed, int], tuple[Packed, Packed]] | None:
    """What puts new actions into spare places from a number on, where that needs no other shapes.

    It costs what the new actions cost, whatever others there are; numbers of them with the same next
    power of two share a program. None where they are declared otherwise than the actions so far, such
    as with the first covariance of its own.
    """
    like = same_form(hierarchy, level, padded_size(level.size))
    if like is None:
        return None
    if programs not in _adders:
        _adder(programs, programs.unpack_policy(policy), hierarchy)
    program, count = _adders[programs].program, np.int32(level.size)
    return lambda policy, state, start: program(policy, state, like, np.int32(start), count)


def compile_add(programs: Programs, policy: Packed, hierarchy: Hierarchy) -> None:
    """Compile what puts one new action into a spare place."""
    _adder(programs, programs.unpack_policy(policy), hierarchy).compile()


# Made ahead of time: one at a time, for all agents of the process.
_pool: list[ThreadPoolExecutor] = []


def begin(make: Callable[[], Growth]) -> "Future[Growth]":
    """Begin to make more room in the background, with all programs for it compiled."""

    def prepared() -> Growth:
        growth = make()
        growth.compile()
        return growth

    if not _pool:
        _pool.append(ThreadPoolExecutor(1, "mixts-growth"))
    return _pool[0].submit(prepared)


def finished(begun: "Future[Growth] | None", make: Callable[[], Growth]) -> Growth:
    """What was begun in the background, when it is there; or made now, if it was not begun."""
    if begun is None or begun.cancel() or (begun.done() and begun.exception()):
        return make()
    return begun.result()
