"""More room for rewards, actions and nodes: other programs, and policy and state in their shapes.

Programs are compiled for the room there is, which doubles when it runs out. That takes seconds, so it is
done in a thread of its own (`Preparation`), if possible beforehand, while the old programs serve; what is
left to do is to copy arrays into larger ones.
"""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import jax
import numpy as np
from jax import Array
from jaxtyping import Bool

from ...inference.buffer import is_buffer, widen
from ...inference.gaussian.block_levels import BlockLevels
from ...inference.gaussian.new_vectors import (
    NewVectors,
    Rows,
    alone,
    carry_over,
    extend,
    first_of,
    rows_of,
)
from ...inference.gaussian.places import level_axes, place
from ...inference.progress import task
from ...models import Hierarchy, Level
from ..policies.policy import Policy
from .packing import Packing, packing_of
from .programs import Packed, Programs, programs_for
from .requests import padded_size

__all__ = [
    "Growth",
    "Preparation",
    "RoomNotReadyError",
    "add",
    "compile_add",
    "extension",
    "levels_that_grow",
    "more_places",
    "more_rewards",
    "patiently",
]

T = TypeVar("T")


class Growth(NamedTuple):
    """What it takes to go on with more room.

    Attributes:
        programs: for the shapes there will be.
        move: from policy and state, packed, to the same in those shapes.
        compile: compiles all that was compiled so far for what will be; else each is when it is needed.
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
        grown.compile(tuple(programs.compiled))
        for name, known in tuple(_adders.get(programs, {}).items()):
            ours = _adders.setdefault(grown, {})
            ours.setdefault(name, known.with_programs(grown)).compile()

    return Growth(grown, lambda policy, state: (policy, moved(state)), compile_all)


def levels_that_grow(policy: Policy) -> list[str]:
    """The levels above the actions that can take in new nodes, as the actions' own level can.

    A backend has to keep them in blocks: in a joint covariance a new node would go into every row. A
    policy that has no backend knows nothing of the levels above.
    """
    backend = getattr(policy, "backend", None)
    if backend is None:
        *above, _ = policy.problem.levels
        return [each.name for each in above if not each.is_joint(policy.problem.dim)]
    levels, names = getattr(backend, "levels", None), []
    while isinstance(levels, BlockLevels):
        names.append(levels.name)
        levels = levels.above
    return names


def _prior(policy: Policy, hierarchy: Hierarchy) -> tuple[Policy, Any]:
    """Policy and state for another hierarchy, before any data."""
    extended = policy.with_hierarchy(hierarchy)
    # Policies that can be extended draw nothing here.
    return extended, extended.init(jax.random.key(0))


class _Carrier:
    """From policies and states of one structure to those of a hierarchy with levels of other sizes."""

    def __init__(
        self,
        programs: Programs,
        form: Packing,
        policy: Policy,
        hierarchy: Hierarchy,
        names: tuple[str, ...],
    ):
        self.prior = jax.jit(_prior)
        by_name = [level_axes(partial(_prior, policy), hierarchy, name) for name in names]
        axes = [
            {name: axis for name, axis in zip(names, own, strict=True) if axis is not None}
            for own in zip(*by_name, strict=True)
        ]

        def carried(policy: Packed, state: Packed, fresh: Any, is_new: Any) -> Any:
            old = programs.policy.unpack(policy), programs.state.unpack(state)
            new_policy, new_state = carry_over(old, fresh, axes, is_new)
            return new_policy, new_policy.rebuilt(new_state)

        fresh = jax.eval_shape(_prior, programs.policy.tree, form.tree)
        packed = programs.policy.packed(), programs.state.packed()
        is_new = {name: jax.ShapeDtypeStruct((hierarchy[name].size,), bool) for name in names}
        after = jax.eval_shape(carried, *packed, fresh, is_new)
        forms = packing_of(after[0]), packing_of(after[1])
        self.programs = programs_for(*forms, programs.forget, programs.forget_every)

        def moved(policy: Packed, state: Packed, fresh: Any, is_new: Any) -> tuple[Packed, Packed]:
            new_policy, new_state = carried(policy, state, fresh, is_new)
            return self.programs.policy.pack(new_policy), self.programs.state.pack(new_state)

        self.moved = jax.jit(moved)

        def compile_all() -> None:
            self.moved.lower(*packed, fresh, is_new).compile()
            self.programs.compile(tuple(programs.compiled))

        self.compile = compile_all


_carriers: WeakKeyDictionary[Programs, dict[Any, _Carrier]] = WeakKeyDictionary()


def extension(
    programs: Programs,
    policy: Packed,
    hierarchy: Hierarchy,
    is_new: Mapping[str, Bool[np.ndarray, " _"]],
) -> Growth:
    """Room for the vectors of a hierarchy, of which some are new; the others do not change.

    Compiled once for each number of vectors that there is room for.

    Args:
        programs: those so far.
        policy: the policy so far.
        hierarchy: what to go on with.
        is_new: level's name -> which of its vectors are new, of every level whose size changes.
    """
    unpacked, form = programs.unpack_policy(policy), packing_of(hierarchy)
    known, names = _carriers.setdefault(programs, {}), tuple(sorted(is_new))
    if (form, names) not in known:
        known[form, names] = _Carrier(programs, form, unpacked, hierarchy, names)
    carrier = known[form, names]
    fresh = carrier.prior(unpacked, hierarchy)
    move = lambda policy, state: carrier.moved(policy, state, fresh, dict(is_new))  # noqa: E731
    return Growth(carrier.programs, move, carrier.compile)


def more_places(programs: Programs, policy: Packed, sizes: Mapping[str, int]) -> Growth:
    """Room for so many vectors of some levels, and what adds one to them, or one action."""
    unpacked = programs.unpack_policy(policy)
    problem = unpacked.problem
    hierarchy = extend(problem, sizes)
    is_new = {name: np.arange(size) >= problem[name].size for name, size in sizes.items()}
    growth = extension(programs, policy, hierarchy, is_new)

    def compile_all() -> None:
        growth.compile()
        extended = unpacked.with_hierarchy(hierarchy)
        for name in {problem.actions.name, *sizes}:
            _adder(growth.programs, extended, hierarchy, name).compile()

    return growth._replace(compile=compile_all)


class _Adder:
    """Puts new vectors into spare places of a level, in policies and states of one structure.

    Args:
        programs: of that structure.
        name: of the level.
        axes: of every array, which axis goes over the level; see `level_axes`.
        example: what is declared of one vector.
        of_newcomers: what makes a hierarchy of newcomers alone.
    """

    def __init__(
        self,
        programs: Programs,
        name: str,
        axes: list[int | None],
        example: Rows,
        of_newcomers: Callable[[Hierarchy, Level], Hierarchy],
    ):
        self._made_with = name, axes, example, of_newcomers

        def added(policy: Packed, states: tuple[Packed, ...], rows: Rows, places: Array) -> Any:
            unpacked = programs.policy.unpack(policy)
            level = rows.declared(unpacked.problem[name], len(places))
            new_policy, fresh = _prior(unpacked, of_newcomers(unpacked.problem, level))
            known = [programs.state.unpack(state) for state in states]
            of_policy = len(jax.tree.leaves(unpacked))
            new_policy = place(unpacked, new_policy, axes[:of_policy], places)
            new_states = [
                new_policy.rebuilt(place(state, fresh, axes[of_policy:], places)) for state in known
            ]
            packed = tuple(programs.state.pack(state) for state in new_states)
            return programs.policy.pack(new_policy), packed

        self.program = jax.jit(added)

        def compile_one() -> None:
            policy, state = programs.policy.packed(), programs.state.packed()
            self.program.lower(policy, (state, state), example, np.zeros(1, np.int32)).compile()

        self.compile = compile_one

    def rehearse(self, policy: Packed, states: tuple[Packed, Packed], capacity: int) -> None:
        """Run it once, with a place past the end, where nothing is put."""
        _, _, example, _ = self._made_with
        self.program(policy, states, example, np.full(1, capacity, np.int32))

    def with_programs(self, programs: Programs) -> "_Adder":
        """The same for programs with room for other numbers of rewards."""
        return _Adder(programs, *self._made_with)


_adders: WeakKeyDictionary[Programs, dict[str, _Adder]] = WeakKeyDictionary()


def _adder(programs: Programs, policy: Policy, hierarchy: Hierarchy, name: str) -> _Adder:
    known = _adders.setdefault(programs, {})
    if name not in known:
        axes = level_axes(partial(_prior, policy), hierarchy, name)
        example = rows_of(hierarchy, first_of(hierarchy, name), 1)
        assert example is not None, "the first vector is declared as all are"
        known[name] = _Adder(programs, name, axes, example, alone(hierarchy, name))
    return known[name]


def add(
    programs: Programs, policy: Packed, hierarchy: Hierarchy, new: NewVectors, start: int
) -> Callable[[Packed, tuple[Packed, Packed]], tuple[Packed, tuple[Packed, Packed]]] | None:
    """What puts new vectors into spare places from `start` on, where that needs no other shapes.

    It takes the policy and two states of it, such as the present one and the last sound one. It costs
    what the new vectors cost, whatever others there are; numbers of them with the same next power of
    two share a program. None where they are declared otherwise than the others so far, such
    as with the first covariance of its own.
    """
    rows = rows_of(hierarchy, new, padded_size(new.size))
    if rows is None:
        return None
    if new.name not in _adders.get(programs, {}):
        _adder(programs, programs.unpack_policy(policy), hierarchy, new.name)
    program = _adders[programs][new.name].program
    # Rows beyond the new vectors go to a place past the end, where they are left out.
    places = np.full(padded_size(new.size), hierarchy[new.name].size, np.int32)
    places[: new.size] = start + np.arange(new.size)
    return lambda policy, states: program(policy, states, rows, places)


def compile_add(
    programs: Programs, policy: Packed, states: tuple[Packed, Packed], hierarchy: Hierarchy
) -> None:
    """Compile what puts one new action into a spare place, and run it without putting one anywhere."""
    actions = hierarchy.actions
    adder = _adder(programs, programs.unpack_policy(policy), hierarchy, actions.name)
    adder.compile()
    adder.rehearse(policy, states, actions.size)


# Made ahead of time: one at a time, for all agents of the process.
_pool: list[ThreadPoolExecutor] = []


class Preparation:
    """More room that is being made in the background, with the programs for it compiled.

    Args:
        words: what room is for.
        make: what makes it.
    """

    def __init__(self, words: str, make: Callable[[], Growth]):
        self._words, self._make, self._lock = words, make, threading.Lock()
        self._growth: Growth | None = None
        self.is_ready = self.is_given_up = False
        if not _pool:
            _pool.append(ThreadPoolExecutor(1, "mixts-growth"))
        _pool[0].submit(self._prepare)

    def wait(self) -> None:
        """Come back when it is ready, or given up; made by the caller, if it was not begun yet."""
        with task(f"Agent: room for {self._words}"):
            self._prepare()

    def result(self) -> Growth:
        """The room, once it is ready; an error if it cannot be made."""
        return self._growth or self._make()

    def give_up(self) -> None:
        """It is needed no more, since policy and state have other shapes now."""
        self.is_given_up = True

    def _prepare(self) -> None:
        with self._lock:
            if self.is_ready or self.is_given_up:
                return
            with suppress(Exception):  # `result` raises it, to whoever needs the room
                growth = self._make()
                growth.compile()
                self._growth = growth
            self.is_ready = True


class RoomNotReadyError(Exception):
    """A call needs room that is not ready yet. Nothing has changed: it can be made again when it is.

    Whoever waits does so without the agent's lock, so that other calls go on with the room there is.
    """

    def __init__(self, preparation: Preparation):
        super().__init__("room is being made")
        self.preparation = preparation


def patiently(call: Callable[[], T]) -> T:
    """What a call returns when it has room."""
    while True:
        try:
            return call()
        except RoomNotReadyError as missing:
            preparation = missing.preparation
        preparation.wait()
