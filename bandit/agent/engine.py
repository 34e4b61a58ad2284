"""The part of an agent that computes: a policy and its state, packed for compiled calls."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import isnan
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...inference import Status, Trouble
from ...inference.buffer import buffers_in
from ...inference.gaussian.new_vectors import NewVectors, extend
from ...inference.observation import PADDING
from ...inference.program_cache import keep_programs
from ...inference.progress import task
from ...models import Hierarchy
from ..policies.policy import Policy
from . import growth
from .decisions import AgentError
from .evidence_clock import in_steps
from .health import Health
from .packing import packing_of
from .programs import SERVING, Call, Packed, Programs, programs_for
from .requests import (
    best_of,
    packed_observation,
    packed_observations,
    packed_request,
    pad,
    padded_size,
)
from .state import AgentSettings

__all__ = ["Engine"]

# So many scores are computed in one call, at 4 or 8 bytes each.
_MAX_SCORES = 1 << 22

# From so many observations on, and for one in so many places that are kept, conditioning on all at
# once is faster than one after the other.
_MANY, _PLACES = 32, 256

# The state is looked at after 1, 2, 4, ... observations, and then after so many.
_LOOK_EVERY = 1024

# Room is for rewards or for the vectors of a level, by its name, which is never empty.
_REWARDS = ""

_SCORES, _OWN_SCORES, _UPDATE = Call("scores"), Call("scores", own=True), Call("update")
_LOOKING = Call("copy_state"), Call("status")
_DISCOUNT = Call("discount")


class Engine:
    """Chooses actions by their numbers and updates the posterior; arguments are checked before.

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
        self._key_words = int(key[0]), int(key[1])
        self._draws = settings.propensity_draws or 0
        self._has_half_life = settings.half_life is not None
        self.health, self.left_out = Health(), left_out
        forgetting = settings.forget, settings.forget_every
        programs = programs_for(packing_of(policy), packing_of(posterior), *forgetting)
        buffers = buffers_in(posterior)
        self._places = max((buffer.capacity for buffer in buffers), default=0)
        taken = (int(buffer.num_observations) for buffer in buffers)
        self._room, self.keeps_rewards = (
            (self._places - max(taken), True) if buffers else (0, False)
        )
        self._continue(programs, programs.pack_policy(policy), programs.pack_state(posterior))

    def _continue(self, programs: Programs, policy: Packed, state: Packed) -> None:
        """Continue with other programs, and policy and state in their shapes."""
        problem = programs.unpack_policy(policy).problem
        rows = _MAX_SCORES // padded_size(programs.num_actions) or 1
        everything, nothing_begun, none_since = jnp.ones(programs.num_actions, bool), {}, []
        good, packed_state = programs.copy_state(state), [state]
        is_compiled = programs.compiled.issuperset(SERVING)
        # Without a call in between, where an interrupt could leave half of them changed.
        self._programs, self._policy, self._packed_state = programs, policy, packed_state
        self._good, self._since, self._everything = good, none_since, everything
        self._max_rows, self._begun, self.problem = rows, nothing_begun, problem
        self._is_compiled = is_compiled

    @property
    def policy(self) -> Policy:
        """The policy."""
        return self._programs.unpack_policy(self._policy)

    @property
    def packed_state(self) -> Packed:
        """The packed state: another object after every update."""
        return self._packed_state[0]

    def posterior(self, factor: float = 1.0) -> Any:
        """A copy of the policy's state: the next update changes the engine's in place.

        With all evidence multiplied by a factor, where there is one.
        """
        self.look()
        state = self.packed_state
        if factor != 1:
            copy, discount = self._programs.copy_state(state), self._discount_by(factor)
            state = self._programs.discount(self._policy, copy, *discount)
        return self._programs.unpack_state(state)

    def status(self) -> Status:
        """The policy's status, and how many observations were left out."""
        found = self._look()
        broken = found.get(Trouble.NOT_FINITE, 0) + self.left_out
        return Status(found | ({Trouble.NOT_FINITE: broken} if self.left_out else {}))

    @property
    def capacity(self) -> int:
        """How many actions there is room for."""
        return self._programs.num_actions

    @property
    def dtype(self) -> np.dtype:
        """The precision of contexts and rewards."""
        return np.dtype(self._programs.dtype)

    # Decisions: `context` is (d,) or (capacity, d), `allowed` (capacity,). Probabilities are None
    # unless they are logged; the draw that decides counts as one, so that none is zero.

    def choose(self, number: int, context: np.ndarray, allowed: Any) -> tuple[int, float | None]:
        """The best action of the draw for decision `number`, and its probability."""
        scores = self._scores(number, context, allowed)
        index = int(scores.argmax())
        if isnan(scores[index]):  # the first one that is no number counts as the best
            scores = self._sound(partial(self._scores, number, context, allowed))
            index = int(scores.argmax())
        if not self._draws:
            return index, None
        return index, float(self._estimated(number, context, allowed, np.array([index]))[0])

    def choose_slate(
        self, number: int, context: np.ndarray, allowed: Any, size: int
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """(size,) the best actions of one draw, the best first, and the probability of each there."""
        scores = self._sound(partial(self._scores, number, context, allowed))
        chosen = best_of(scores[None], size)[0]
        estimate = self._estimated if self._draws else lambda *_: None
        return chosen, estimate(number, context, allowed, chosen)

    def choose_many(
        self, first: int, contexts: np.ndarray, allowed: Any
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """(n,) the best action in each of n contexts, for decisions from `first` on."""
        chosen, numbers = np.zeros(len(contexts), np.int32), first + np.arange(len(contexts))
        for i in range(0, len(contexts), self._max_rows):
            rows = slice(i, i + self._max_rows)
            some = pad(numbers[rows].astype(np.uint32)), pad(contexts[rows])
            self._compile([Call("scores_many", len(some[0]), contexts.ndim == 3)])
            scores = self._sound(partial(self._scores_many, *some, allowed))
            chosen[rows] = scores[: len(chosen[rows])].argmax(1)
        if not self._draws:
            return chosen, None
        each = zip(numbers.tolist(), contexts, chosen[:, None], strict=True)
        return chosen, np.concatenate([self._estimated(t, x, allowed, i) for t, x, i in each])

    def tally(
        self, number: int, context: np.ndarray, allowed: Any, draws: int, top: int = 1
    ) -> np.ndarray:
        """(top, capacity) how many of `draws` further draws put each action in each place."""
        counts = np.zeros((top, self.capacity), np.int64)
        request = packed_request(self._key_words, number, context)
        for start in range(0, draws, self._max_rows):
            n = min(self._max_rows, draws - start)
            further = (start + np.arange(padded_size(n))).astype(np.uint32)
            self._compile([Call("scores_of_draws", len(further), context.ndim == 2)])
            scores = self._sound(partial(self._scores_of_draws, request, allowed, further))
            np.add.at(counts, (np.arange(top), best_of(scores[:n], top)), 1)
        return counts

    def _scores(self, number: int, context: np.ndarray, allowed: Any) -> np.ndarray:
        if not self._is_compiled or context.ndim == 2:
            self._compile([_SCORES if context.ndim == 1 else _OWN_SCORES])
        request = packed_request(self._key_words, number, context)
        known = self._policy, self._packed_state[0]
        return np.asarray(self._programs.scores(*known, request, allowed))

    def _scores_many(self, *request: Any) -> np.ndarray:
        known = self._policy, self.packed_state, self.key
        return np.asarray(self._programs.scores_many(*known, *request))

    def _scores_of_draws(self, *request: Any) -> np.ndarray:
        known = self._policy, self.packed_state
        return np.asarray(self._programs.scores_of_draws(*known, *request))

    def _sound(self, scores: Callable[[], np.ndarray]) -> np.ndarray:
        """Scores that are numbers: of the last sound posterior, where those of the present are not."""
        found = scores()
        if np.isnan(found.max()):
            self._recover()
            found = scores()
        if np.isnan(found.max()):
            raise AgentError(
                "scores are not numbers, whatever was observed: check the prior and the context, such "
                "as variances or entries so large or so small that their squares are not finite"
            )
        return found

    def _estimated(
        self, number: int, context: np.ndarray, allowed: Any, chosen: np.ndarray
    ) -> np.ndarray:
        """The probabilities of actions in their places, from further draws and the one that decided."""
        top = len(chosen)
        counts = self.tally(number, context, allowed, self._draws, top)
        return (counts[np.arange(top), chosen] + 1) / (self._draws + 1)

    # Updates. The old state is gone when a program has begun, so an interrupt such as Control-C must
    # not come between the call and keeping its result: assigning a `map` is one step of the interpreter.

    def learn_one(
        self, number: int, context: np.ndarray, action: int, reward: float, exposure: float
    ) -> None:
        """Update with observation `number`: a context (d,), an action and a reward; see `reserve`."""
        if not self._is_compiled:
            self._compile([_UPDATE])
            self._is_compiled = _SCORES in self._programs.compiled
        words = packed_observation(number, action, reward, exposure, context)
        self._packed_state[:] = map(
            self._programs.update, (self._policy,), self._packed_state, (words,)
        )
        since, after = self._since, number + 1
        since.append(words)
        if len(since) >= _LOOK_EVERY or (after < _LOOK_EVERY and after & number == 0):
            self.look()

    def learn(
        self,
        first: int,
        contexts: np.ndarray,
        actions: np.ndarray,
        rewards: np.ndarray,
        exposure: np.ndarray,
    ) -> None:
        """Update with observations (n, d), (n,), (n,), (n,) in one call; see `reserve`.

        Many are conditioned on at once, unless evidence is forgotten in between.
        """
        n, programs = len(rewards), self._programs
        is_at_once = n >= max(_MANY, self._places // _PLACES) and programs.forget is None
        name = "condition" if is_at_once else "update_many"
        if is_at_once:
            rows = zip((pad(contexts), pad(actions, PADDING), pad(rewards), pad(exposure, 1)))
        else:
            sizes = np.uint32(first & 0xFFFFFFFF), np.int32(n)
            rows = zip((*sizes, pad(contexts), pad(actions), pad(rewards), pad(exposure, 1)))
        with task(f"Agent: {n:,} observations"):
            self._compile([Call(name, padded_size(n))])
            self._packed_state[:] = map(
                getattr(programs, name), (self._policy,), self._packed_state, *rows
            )
            jax.block_until_ready(self.packed_state)
            if self._is_sound():
                self.look()
            else:
                self._recover(packed_observations(first, contexts, actions, rewards, exposure))

    def discount(self, factor: float) -> None:
        """Multiply all evidence by a factor."""
        if factor == 1:
            return
        self.look()  # the observations since the last sound state came before the discount
        discount = zip(self._discount_by(factor))
        self._packed_state[:] = map(
            self._programs.discount, (self._policy,), self._packed_state, *discount
        )
        if self._is_sound():
            self._good = self._programs.copy_state(self.packed_state)
        else:
            self._recover()

    def _discount_by(self, factor: float) -> tuple[np.ndarray, np.int32]:
        """What the program that discounts is called with, which is compiled if it was not."""
        self._compile([_DISCOUNT])
        each, steps = in_steps(factor)
        return np.asarray(each, self.dtype), np.int32(steps)

    # Whether the state is sound.

    def look(self) -> None:
        """Keep a copy of the state if it is sound, mend it if it is not, and warn of any trouble."""
        self.health.tell(self._look())

    def _look(self) -> dict[str, Any]:
        """Look at the state; how often each kind of trouble has occurred."""
        self._compile(_LOOKING)
        if not self._is_sound():
            self._recover()
        elif self._since:
            good, none_since = self._programs.copy_state(self.packed_state), []
            self._good, self._since = good, none_since
        return jax.device_get(self._programs.status(self._policy, self.packed_state))

    def _is_sound(self) -> bool:
        ones = np.ones(self._programs.dim, self.dtype)
        return not np.isnan(self._scores(0, ones, self._everything).max())

    def _recover(self, *many: np.ndarray) -> None:
        """The last sound state, and of the observations since, and these, all that leave it sound."""
        recent = [words[None] for words in self._since]
        good, left_out = self._good, 0
        if recent or many:
            rows = np.concatenate([*recent, *many])
            self._compile([Call("update_while_sound", padded_size(len(rows)))])
            good, left_out = self._programs.update_while_sound(
                self._policy, good, np.int32(len(rows)), pad(rows)
            )
        self._good, self._since = self._programs.copy_state(good), []
        self._packed_state[:] = (self._programs.copy_state(good),)
        self.left_out += int(left_out)
        if left_out:
            self.health.tell_left_out(self.left_out)

    # Programs, and room.

    def _compile(self, calls: Iterable[Call]) -> None:
        """Compile calls that were not compiled yet, and say so to whoever waits for them."""
        missing = [call for call in calls if call not in self._programs.compiled]
        if missing:
            with task(f"Agent: {', '.join(dict.fromkeys(call.program for call in missing))}"):
                self._programs.compile(missing)

    def reserve(self, n: int) -> None:
        """Make room for the next `n` observations, where the policy keeps them: it doubles when full.

        The programs for twice the room are compiled in the background when half of it is left.
        """
        if self.keeps_rewards:
            if self._room < n:
                self.make_room(n)
            self._room -= n
            if 2 * self._room < self._places:
                self._begin(_REWARDS, 2 * self._places)

    def make_room(self, n: int) -> None:
        """Room for `n` more observations, where the policy keeps them."""
        places = self._places
        if not self.keeps_rewards or self._room >= n:
            return
        while self._room + places - self._places < n:
            places *= 2
        self._grow({_REWARDS: places})
        self._room, self._places = self._room + places - self._places, places

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

        That is what `install` takes. Levels come top to bottom. Room doubles when it is exceeded,
        which happens at once; the programs for that are compiled in the background when three quarters
        are taken.
        """
        taken = {level.name: start + level.size for level, start in new}
        self.make_places(taken)
        for name, size in taken.items():
            if 4 * size > 3 * self.places[name]:
                self._begin(name, 2 * self.places[name])
        new = [(level.on_parents(self.places), start) for level, start in new]
        policy, state, good = self._policy, self.packed_state, self._good
        adding = [growth.add(self._programs, policy, self.problem, *each) for each in new]
        fitting = [add for add in adding if add is not None]
        if len(fitting) == len(new):
            for add in fitting:
                policy, (state, good) = add(policy, (state, good))
            return self._programs, policy, state, good
        self.look()
        sizes = {name: self.places[name] for name in taken}
        joining = {level.name: (level, start) for level, start in new}
        hierarchy = extend(self.policy.problem, sizes, joining)
        is_new = {level.name: np.arange(sizes[level.name]) >= start for level, start in new}
        larger = growth.extension(self._programs, self._policy, hierarchy, is_new)
        policy, state = larger.move(self._policy, self.packed_state)
        return larger.programs, policy, state, state

    def install(self, programs: Programs, policy: Packed, state: Packed, good: Packed) -> None:
        """Continue with another policy and state, and with the same observations since it was sound."""
        if programs is not self._programs:
            self._continue(programs, policy, state)
        else:
            packed_state = [state]
            self._policy, self._packed_state, self._good = policy, packed_state, good

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
        if self._draws:
            calls.append(Call("scores_of_draws", padded_size(min(self._draws, self._max_rows))))
        with task("Agent.warm_up"):
            calls += [_DISCOUNT] * self._has_half_life
            self._compile((*SERVING, *calls))
            self._is_compiled = True
            self._rehearse()
            self._begin_all()
            with task("programs for twice the room"):
                for _, begun in self._begun.values():
                    begun.result()

    def _rehearse(self) -> None:
        """Run once what a reward runs, on a copy: JAX's first call of a program takes longer."""
        self.look()
        copy, context = self._programs.copy_state(self.packed_state), np.zeros(self._programs.dim)
        words = packed_observation(0, 0, 0.0, 1.0, context.astype(self.dtype))
        self._programs.update(self._policy, copy, words)

    def _begin_all(self) -> None:
        if self.keeps_rewards:
            self._begin(_REWARDS, 2 * self._places)
        if isinstance(self.problem, Hierarchy) and self._can_be_extended():
            states = self.packed_state, self._good
            growth.compile_add(self._programs, self._policy, states, self.problem)
            self._begin(self.problem.actions.name, 2 * self.capacity)

    def _can_be_extended(self) -> bool:
        try:
            self.policy.with_hierarchy(self.problem)
        except TypeError:
            return False
        return True

    def _begin(self, what: str, size: int) -> None:
        """Begin to compile the programs for more room in the background."""
        if what not in self._begun:
            self._begun[what] = size, growth.begin(self._maker({what: size}))

    def _grow(self, sizes: dict[str, int]) -> None:
        """Go on with more room, for which programs begun in the background are ready or nearly."""
        what = ", ".join(f"{size:,} {self._called(kind)}" for kind, size in sizes.items())
        prepared = {kind: self._begun[kind] for kind in sizes if kind in self._begun}
        is_all = {kind: size for kind, (size, _) in prepared.items()} == sizes and len(sizes) == 1
        begun = next(iter(prepared.values()))[1] if is_all else None
        others = {kind: there for kind, (there, _) in self._begun.items() if kind not in sizes}
        with task(f"Agent: room for {what}"):
            larger = growth.finished(begun, self._maker(sizes))
            self.look()
            self._continue(larger.programs, *larger.move(self._policy, self.packed_state))
        for kind, there in others.items():  # what was prepared was for the shapes before
            self._begin(kind, there)

    def _called(self, kind: str) -> str:
        """What room is for, in words."""
        if kind == _REWARDS:
            return "rewards"
        return "actions" if kind == self.problem.actions.name else f"nodes of level '{kind}'"

    def _maker(self, sizes: dict[str, int]) -> Callable[[], growth.Growth]:
        if _REWARDS in sizes:
            return partial(growth.more_rewards, self._programs, sizes[_REWARDS])
        return partial(growth.more_places, self._programs, self._policy, sizes)
