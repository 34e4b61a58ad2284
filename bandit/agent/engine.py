"""A policy and what it knows, packed for compiled calls: the part of an agent that computes."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from ...inference.gaussian.new_actions import extend
from ...models import Level
from ..policies.policy import Policy
from .packing import packing_of
from .programs import (
    Buffers,
    Forgetting,
    Programs,
    lesson,
    pad,
    padded,
    programs_for,
    question,
    room_in,
)
from .state import AgentSettings

__all__ = ["Engine"]

# So many scores are made in one call, at 4 or 8 bytes each.
_MOST_SCORES = 1 << 22


class Engine:
    """Chooses and learns; it knows actions by number only, and believes what it is told.

    Args:
        key: (2,) the words of the random key that decisions draw from.
        policy: the policy.
        posterior: its state.
        settings: whether probabilities are estimated, and whether evidence is forgotten.
    """

    def __init__(self, key: np.ndarray, policy: Policy, posterior: Any, settings: AgentSettings):
        self.key = jnp.asarray(key)
        self._key_words = int(key[0]), int(key[1])
        self.draws = settings.propensity_draws or 0
        self._forgetting = None
        if settings.forget is not None:
            self._forgetting = Forgetting(settings.forget, settings.forget_every)
        self._install(policy, posterior)

    def _install(self, policy: Policy, posterior: Any) -> None:
        """Pack a policy and its state, and take the programs for them."""
        programs = programs_for(packing_of(policy), packing_of(posterior), self._forgetting)
        packed, held = programs.pack_policy(policy), [programs.pack_state(posterior)]
        room, rows = room_in(posterior), max(1, _MOST_SCORES // padded(programs.num_actions))
        # With no call in between, which is where an interrupt could come.
        self._programs: Programs = programs
        self._policy, self._held = packed, held
        self._room, self._rows = room, rows

    @property
    def policy(self) -> Policy:
        """The policy."""
        return self._programs.policy.unpack(self._policy)

    @property
    def held(self) -> Buffers:
        """The state as it is packed: another object whenever something has been learned."""
        return self._held[0]

    def _advance(self, program: Callable[..., Buffers], *arguments: tuple[Any]) -> None:
        """Put what a program makes of the state, and of arguments in tuples of one, in its place.

        The old state is gone when the program has begun, so whatever interrupts the interpreter, such
        as Control-C, must not come between the call and keeping its result: they are one step of it.
        """
        self._held[:] = map(program, (self._policy,), self._held, *arguments)

    def posterior(self) -> Any:
        """The policy's state, in arrays of its own: the next update changes the engine's in place."""
        return self._programs.state.unpack(tuple(jnp.copy(part) for part in self.held))

    @property
    def places(self) -> int:
        """How many actions there is room for."""
        return self._programs.num_actions

    @property
    def dtype(self) -> np.dtype:
        """The precision of contexts and rewards."""
        return np.dtype(self._programs.dtype)

    def decide(self, number: int, context: np.ndarray, allowed: Any) -> int:
        """The best action of one draw.

        Args:
            number: the number of the decision.
            context: (d,), or (places, d).
            allowed: (places,) which actions may be chosen.
        """
        return int(self._scores(number, context, allowed).argmax())

    def slate(self, number: int, context: np.ndarray, allowed: Any, size: int) -> np.ndarray:
        """(size,) the best actions of one draw, the best first."""
        return _best(self._scores(number, context, allowed)[None], size)[0]

    def _scores(self, number: int, context: np.ndarray, allowed: Any) -> np.ndarray:
        asked = question(self._key_words, number, context)
        return np.asarray(self._programs.scores(self._policy, self.held, asked, allowed))

    def decide_many(self, first: int, contexts: np.ndarray, allowed: Any) -> np.ndarray:
        """(n,) the best action in each of n contexts, for decisions from `first` on."""
        n, rows = len(contexts), self._rows
        parts = [
            self._decide_some(first + i, contexts[i : i + rows], allowed) for i in range(0, n, rows)
        ]
        return np.concatenate(parts)

    def _decide_some(self, first: int, contexts: np.ndarray, allowed: Any) -> np.ndarray:
        n = len(contexts)
        numbers = (first + np.arange(padded(n))).astype(np.uint32)
        scores = self._programs.scores_many(
            self._policy, self.held, self.key, numbers, pad(contexts), allowed
        )
        return _best(np.asarray(scores)[:n], 1)[:, 0]

    def tally(
        self, number: int, context: np.ndarray, allowed: Any, draws: int, top: int = 1
    ) -> np.ndarray:
        """(top, places) how many of further draws would have chosen each action in each place."""
        counts = np.zeros((top, self.places), np.int64)
        asked = question(self._key_words, number, context), allowed
        for start in range(0, draws, self._rows):
            n = min(self._rows, draws - start)
            again = (start + np.arange(padded(n))).astype(np.uint32)
            scores = self._programs.scores_again(self._policy, self.held, *asked, again)
            chosen = _best(np.asarray(scores)[:n], top)
            np.add.at(counts, (np.arange(top), chosen), 1)
        return counts

    def chances(
        self, number: int, context: np.ndarray, allowed: Any, chosen: np.ndarray
    ) -> np.ndarray:
        """(top,) how likely the actions were to be chosen in their places, from `self.draws` draws.

        The draw that chose them is counted in, so that none has probability zero.
        """
        top = len(chosen)
        counts = self.tally(number, context, allowed, self.draws, top)
        return (counts[np.arange(top), chosen] + 1) / (self.draws + 1)

    def learn_one(self, number: int, context: np.ndarray, action: int, reward: float) -> None:
        """Take in one observation, by its number, context (d,), action and reward; see `make_room`."""
        seen = lesson(number, action, reward, context)
        self._advance(self._programs.update, (seen,))

    def learn(
        self, first: int, contexts: np.ndarray, actions: np.ndarray, rewards: np.ndarray
    ) -> None:
        """Take in observations (n, d), (n,), (n,), one after the other in one call; see `make_room`."""
        seen = pad(contexts), pad(actions), pad(rewards)
        count = np.uint32(first & 0xFFFFFFFF), np.int32(len(rewards))
        self._advance(self._programs.update_many, *zip(count + seen))

    def make_room(self, n: int) -> None:
        """Room for the next `n` observations, where the policy keeps them: it doubles when it is full."""
        if self._room is None:
            return
        if self._room < n:
            policy = self.policy
            self._install(policy, policy.reserve(self.posterior(), n))
        self._room -= n

    def make_places(self, start: int, needed: int) -> None:
        """Places for `needed` actions, of which there are `start`: they double until there are."""
        places = self.places
        while places < needed:
            places *= 2
        if places > self.places:
            self._install(*self.admitted(None, start, places))

    def admitted(self, level: Level | None, start: int, places: int) -> tuple[Policy, Any]:
        """Policy and state with the actions of `level` from `start` on, in so many places."""
        extended = extend(self.policy.problem, level, start, places)
        return self._programs.admit(self._policy, self.held, extended, np.arange(places) >= start)

    def admit(self, admitted: tuple[Policy, Any]) -> None:
        """Go on with policy and state that `admitted` gave."""
        self._install(*admitted)


def _best(scores: np.ndarray, top: int) -> np.ndarray:
    """(n, top) the actions with the best scores (n, K), the best first; of equals, the first."""
    if top == 1:
        return scores.argmax(1)[:, None].astype(np.int32)
    return np.argsort(-scores, axis=1, kind="stable")[:, :top].astype(np.int32)
