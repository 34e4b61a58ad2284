"""A policy and its posterior as an agent keeps them: packed, sound, and with room for what comes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...inference import Status, Trouble
from ...inference.buffer import buffers_in
from ...inference.gaussian.new_vectors import NewVectors, extend
from ...inference.program_cache import keep_programs
from ...inference.progress import task
from ...models import Hierarchy
from ..policies.policy import Policy
from . import growth
from .evidence_clock import in_steps
from .health import Health
from .packing import packing_of
from .programs import SERVING, Call, Packed, Programs, programs_for
from .requests import packed_observation, packed_request, pad, padded_size
from .state import AgentSettings

__all__ = ["PosteriorKeeper"]

# So many scores are computed in one call, at 4 or 8 bytes each.
_MAX_SCORES = 1 << 22

# Room is for rewards or for the vectors of a level, by its name, which is never empty.
_REWARDS = ""

_SCORES, _OWN_SCORES = Call("scores"), Call("scores", own=True)
_LOOKING = Call("copy_state"), Call("status")
_DISCOUNT = Call("discount")


class PosteriorKeeper:
    """The posterior of an agent, packed for compiled calls.

    It keeps a copy of the last state that was found to be sound, that is, with scores that are
    numbers, and all observations since: one that spoils the state is left out.

    Args:
        key: (2,) the words of the random key that decisions draw from.
        policy: the policy.
        posterior: its state.
        settings: whether probabilities are estimated, and whether evidence is forgotten.
        left_out: how many observations were left out so far, because they spoiled the state.

    Attributes:
        problem: the hierarchy, in which the newest vectors may be spare, or the target of a program.
        health: what there is to warn of.
        keeps_rewards: whether the state has a place for every reward, so that room can run out.
    """

    def __init__(
        self,
        key: np.ndarray,
        policy: Policy,
        posterior: Any,
        settings: AgentSettings,
        left_out: int = 0,
    ):
        keep_programs()
        self.key = jnp.asarray(key)
        self.key_words = int(key[0]), int(key[1])
        self.draws = settings.propensity_draws or 0
        self._has_half_life = settings.half_life is not None
        self.health, self.left_out = Health(), left_out
        self._begun: dict[tuple[tuple[str, int], ...], growth.Preparation] = {}
        self._is_ahead = False  # whether room for more is always prepared
        forgetting = settings.forget, settings.forget_every
        programs = programs_for(packing_of(policy), packing_of(posterior), *forgetting)
        buffers = buffers_in(posterior)
        self.places_for_rewards = max((buffer.capacity for buffer in buffers), default=0)
        taken = (int(buffer.num_observations) for buffer in buffers)
        self._room, self.keeps_rewards = (
            (self.places_for_rewards - max(taken), True) if buffers else (0, False)
        )
        self._continue(programs, programs.pack_policy(policy), programs.pack_state(posterior))

    def _continue(self, programs: Programs, policy: Packed, state: Packed) -> None:
        """Continue with other programs, and policy and state in their shapes."""
        problem = programs.unpack_policy(policy).problem
        rows = _MAX_SCORES // padded_size(programs.num_actions) or 1
        everything = jax.device_put(np.ones(programs.num_actions, bool))  # compiles nothing
        nothing_begun, none_since = {}, []
        good, packed_state = programs.copy_state(state), [state]
        is_compiled = programs.compiled.issuperset(SERVING)
        for preparation in self._begun.values():
            preparation.give_up()
        # Without a call in between, where an interrupt could leave half of them changed.
        self.programs, self.packed_policy, self.held_state = programs, policy, packed_state
        self.good, self.since, self._everything = good, none_since, everything
        self.max_rows, self._begun, self.problem = rows, nothing_begun, problem
        self.is_compiled = is_compiled

    @property
    def policy(self) -> Policy:
        """The policy."""
        return self.programs.unpack_policy(self.packed_policy)

    @property
    def packed_state(self) -> Packed:
        """The packed state: another object after every update."""
        return self.held_state[0]

    def posterior(self, factor: float = 1.0) -> Any:
        """A copy of the policy's state: the next update changes the engine's in place.

        With all evidence multiplied by a factor, where there is one.
        """
        self.look()
        state = self.packed_state
        if factor != 1:
            copy, discount = self.programs.copy_state(state), self.discount_by(factor)
            state = self.programs.discount(self.packed_policy, copy, *discount)
        return self.programs.unpack_state(state)

    def status(self) -> Status:
        """The policy's status, and how many observations were left out."""
        found = self._look()
        broken = found.get(Trouble.NOT_FINITE, 0) + self.left_out
        return Status(found | ({Trouble.NOT_FINITE: broken} if self.left_out else {}))

    @property
    def capacity(self) -> int:
        """How many actions there is room for."""
        return self.programs.num_actions

    @property
    def dtype(self) -> np.dtype:
        """The precision of contexts and rewards."""
        return np.dtype(self.programs.dtype)

    # Whether the state is sound.

    def look(self) -> None:
        """Keep a copy of the state if it is sound, mend it if it is not, and warn of any trouble."""
        self.health.tell(self._look())

    def _look(self) -> dict[str, Any]:
        """Look at the state; how often each kind of trouble has occurred."""
        self.compile_missing(_LOOKING)
        if not self.is_sound():
            self.recover()
        elif self.since:
            good, none_since = self.programs.copy_state(self.packed_state), []
            self.good, self.since = good, none_since
        return jax.device_get(self.programs.status(self.packed_policy, self.packed_state))

    def is_sound(self) -> bool:
        """Whether the scores of the present state are numbers."""
        ones = np.ones(self.programs.dim, self.dtype)
        return not np.isnan(self.scores(0, ones, self._everything).max())

    def recover(self, *many: np.ndarray) -> None:
        """The last sound state, and of the observations since, and these, all that leave it sound."""
        recent = [words[None] for words in self.since]
        good, left_out = self.good, 0
        if recent or many:
            rows = np.concatenate([*recent, *many])
            self.compile_missing([Call("update_while_sound", padded_size(len(rows)))])
            good, left_out = self.programs.update_while_sound(
                self.packed_policy, good, np.int32(len(rows)), pad(rows)
            )
        self.good, self.since = self.programs.copy_state(good), []
        self.held_state[:] = (self.programs.copy_state(good),)
        self.left_out += int(left_out)
        if left_out:
            self.health.tell_left_out(self.left_out)

    def scores(self, number: int, context: np.ndarray, allowed: Any) -> np.ndarray:
        """(capacity,) the scores of the draw for decision `number`."""
        if not self.is_compiled or context.ndim == 2:
            self.compile_missing([_SCORES if context.ndim == 1 else _OWN_SCORES])
        request = packed_request(self.key_words, number, context)
        known = self.packed_policy, self.held_state[0]
        return np.asarray(self.programs.scores(*known, request, allowed))

    def discount_by(self, factor: float) -> tuple[np.ndarray, np.int32]:
        """What the program that discounts is called with, which is compiled if it was not."""
        self.compile_missing([_DISCOUNT])
        each, steps = in_steps(factor)
        return np.asarray(each, self.dtype), np.int32(steps)

    # Programs, and room.

    def compile_missing(self, calls: Iterable[Call]) -> None:
        """Compile calls that were not compiled yet, and say so to whoever waits for them."""
        missing = [call for call in calls if call not in self.programs.compiled]
        if missing:
            with task(f"Agent: {', '.join(dict.fromkeys(call.program for call in missing))}"):
                self.programs.compile(missing)

    def reserve(self, n: int) -> None:
        """Take room for the next `n` observations, where the policy keeps them: it doubles when full.

        The programs for twice the room are compiled in the background when half of it is left, or from the
        beginning where an agent was warmed up.
        """
        if self.keeps_rewards:
            if self._room < n:
                self.make_room(n)
            self._room -= n
            if 2 * self._room < self.places_for_rewards:
                self._begin({_REWARDS: 2 * self.places_for_rewards})

    def make_room(self, n: int) -> None:
        """Room for `n` more observations, where the policy keeps them."""
        places = self.places_for_rewards
        if not self.keeps_rewards or self._room >= n:
            return
        while self._room + places - self.places_for_rewards < n:
            places *= 2
        self._grow({_REWARDS: places})
        self._room, self.places_for_rewards = self._room + places - self.places_for_rewards, places

    @property
    def places(self) -> dict[str, int]:
        """How many vectors of each level there is room for, where there are levels."""
        levels = self.problem.levels if isinstance(self.problem, Hierarchy) else ()
        return {level.name: level.size for level in levels}

    def levels_that_grow(self) -> list[str]:
        """The levels above the actions that can take in new nodes."""
        return growth.levels_that_grow(self.policy)

    def extended(
        self, new: Sequence[tuple[NewVectors, int]]
    ) -> tuple[Programs, Packed, Packed, Packed]:
        """Programs, policy, state and last sound state with new vectors, from a place on each.

        That is what `install` takes. Levels come top to bottom. Room doubles when it is exceeded; the
        programs for that are compiled in the background when three quarters are taken, or from the
        beginning where an agent was warmed up.
        """
        taken = {level.name: start + level.size for level, start in new}
        self.make_places(taken)
        for name, size in taken.items():
            if 4 * size > 3 * self.places[name]:
                self._begin({name: 2 * self.places[name]})
        new = [(level.on_parents(self.places), start) for level, start in new]
        policy, state, good = self.packed_policy, self.packed_state, self.good
        adding = [growth.add(self.programs, policy, self.problem, *each) for each in new]
        fitting = [add for add in adding if add is not None]
        if len(fitting) == len(new):
            for add in fitting:
                policy, (state, good) = add(policy, (state, good))
            return self.programs, policy, state, good
        self.look()
        sizes = {name: self.places[name] for name in taken}
        joining = {level.name: (level, start) for level, start in new}
        hierarchy = extend(self.policy.problem, sizes, joining)
        is_new = {level.name: np.arange(sizes[level.name]) >= start for level, start in new}
        larger = growth.extension(self.programs, self.packed_policy, hierarchy, is_new)
        policy, state = larger.move(self.packed_policy, self.packed_state)
        return larger.programs, policy, state, state

    def install(self, programs: Programs, policy: Packed, state: Packed, good: Packed) -> None:
        """Continue with another policy and state, and with the same observations since it was sound."""
        if programs is not self.programs:
            self._continue(programs, policy, state)
        else:
            packed_state = [state]
            self.packed_policy, self.held_state, self.good = policy, packed_state, good

    def make_places(self, needed: Mapping[str, int]) -> None:
        """Room for so many vectors in all of some levels."""
        places = self.places
        larger = {name: places[name] for name, size in needed.items() if places[name] < size}
        for name in larger:
            while larger[name] < needed[name]:
                larger[name] *= 2
        if larger:
            self._grow(larger)

    def compile(self, many: Iterable[int] = ()) -> None:
        """Compile what serving needs, with `act_many` of such sizes, and with twice the room."""
        calls = [Call("scores_many", padded_size(n)) for n in many]
        if self.draws:
            calls.append(Call("scores_of_draws", padded_size(min(self.draws, self.max_rows))))
        with task("Agent.warm_up"):
            calls += [_DISCOUNT] * self._has_half_life
            self.compile_missing((*SERVING, *calls))
            self.is_compiled = self._is_ahead = True
            self._rehearse()
            self._begin_all()
            with task("programs for twice the room"):
                for begun in self._begun.values():
                    begun.wait()

    def _rehearse(self) -> None:
        """Run once what a reward runs, on a copy: JAX's first call of a program takes longer."""
        self.look()
        copy, context = self.programs.copy_state(self.packed_state), np.zeros(self.programs.dim)
        words = packed_observation(0, 0, 0.0, 1.0, context.astype(self.dtype))
        self.programs.update(self.packed_policy, copy, words)

    def _begin_all(self) -> None:
        if self.keeps_rewards:
            self._begin({_REWARDS: 2 * self.places_for_rewards})
        if isinstance(self.problem, Hierarchy) and self._can_be_extended():
            states = self.packed_state, self.good
            growth.compile_add(self.programs, self.packed_policy, states, self.problem)
            self._begin({self.problem.actions.name: 2 * self.capacity})

    def _can_be_extended(self) -> bool:
        try:
            self.policy.with_hierarchy(self.problem)
        except TypeError:
            return False
        return True

    def _begin(self, sizes: Mapping[str, int]) -> growth.Preparation:
        """Begin to make more room in the background, unless that was begun."""
        known = tuple(sorted(sizes.items()))
        if known not in self._begun:
            what = ", ".join(f"{size:,} {self._called(kind)}" for kind, size in known)
            self._begun[known] = growth.Preparation(what, self._maker(sizes))
        return self._begun[known]

    def _grow(self, sizes: dict[str, int]) -> None:
        """Go on with more room, if it is ready; see `RoomNotReadyError`."""
        preparation = self._begin(sizes)
        if not preparation.is_ready:
            raise growth.RoomNotReadyError(preparation)
        larger = preparation.result()
        others = [begun for begun in map(dict, self._begun) if not begun.keys() & sizes.keys()]
        self.look()
        self._continue(larger.programs, *larger.move(self.packed_policy, self.packed_state))
        if self._is_ahead:
            others += [{kind: 2 * size} for kind, size in sizes.items()]
        for other in others:  # what was prepared was for the shapes before
            self._begin(other)

    def _called(self, kind: str) -> str:
        """What room is for, in words."""
        if kind == _REWARDS:
            return "rewards"
        return "actions" if kind == self.problem.actions.name else f"nodes of level '{kind}'"

    def _maker(self, sizes: Mapping[str, int]) -> Callable[[], growth.Growth]:
        if _REWARDS in sizes:
            return partial(growth.more_rewards, self.programs, sizes[_REWARDS])
        return partial(growth.more_places, self.programs, self.packed_policy, sizes)
