"""The part of an agent that computes: a policy and its state, packed for compiled calls."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ...inference.gaussian.new_actions import extend
from ...models import Level
from ..policies.policy import Policy
from .packing import packing_of
from .programs import (
    Packed,
    packed_observation,
    packed_request,
    pad,
    padded_size,
    programs_for,
)
from .state import AgentSettings
from .storage.snapshot import buffers_in

__all__ = ["Engine"]

# So many scores are computed in one call, at 4 or 8 bytes each.
_MAX_SCORES = 1 << 22


class Engine:
    """Chooses actions by their numbers and updates the posterior; arguments are checked before.

    Args:
        key: (2,) the words of the random key that decisions draw from.
        policy: the policy.
        posterior: its state.
        settings: whether probabilities are estimated, and whether evidence is forgotten.
    """

    def __init__(self, key: np.ndarray, policy: Policy, posterior: Any, settings: AgentSettings):
        self.key = jnp.asarray(key)
        self._key_words = int(key[0]), int(key[1])
        self._draws = settings.propensity_draws or 0
        self._forgetting = settings.forget, settings.forget_every
        self.install(policy, posterior)

    def install(self, policy: Policy, posterior: Any) -> None:
        """Continue with another policy and state."""
        programs = programs_for(packing_of(policy), packing_of(posterior), *self._forgetting)
        packed, packed_state = programs.pack_policy(policy), [programs.pack_state(posterior)]
        free = [buffer.capacity - int(buffer.num_observations) for buffer in buffers_in(posterior)]
        room, rows = min(free, default=None), _MAX_SCORES // padded_size(programs.num_actions)
        # Without a call in between, where an interrupt could leave half of them changed.
        self._programs, self._policy, self._packed_state = programs, packed, packed_state
        self._room, self._max_rows = room, rows or 1

    @property
    def policy(self) -> Policy:
        """The policy."""
        return self._programs.policy.unpack(self._policy)

    @property
    def packed_state(self) -> Packed:
        """The packed state: another object after every update."""
        return self._packed_state[0]

    def posterior(self) -> Any:
        """A copy of the policy's state: the next update changes the engine's in place."""
        return self._programs.state.unpack(tuple(jnp.copy(part) for part in self.packed_state))

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
        index = int(self._scores(number, context, allowed).argmax())
        if not self._draws:
            return index, None
        return index, float(self._estimated(number, context, allowed, np.array([index]))[0])

    def choose_slate(
        self, number: int, context: np.ndarray, allowed: Any, size: int
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """(size,) the best actions of one draw, the best first, and the probability of each there."""
        chosen = _best(self._scores(number, context, allowed)[None], size)[0]
        estimate = self._estimated if self._draws else lambda *_: None
        return chosen, estimate(number, context, allowed, chosen)

    def choose_many(
        self, first: int, contexts: np.ndarray, allowed: Any
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """(n,) the best action in each of n contexts, for decisions from `first` on."""
        chosen, numbers = np.zeros(len(contexts), np.int32), first + np.arange(len(contexts))
        for i in range(0, len(contexts), self._max_rows):
            rows = slice(i, i + self._max_rows)
            scores = self._programs.scores_many(
                self._policy,
                self.packed_state,
                self.key,
                pad(numbers[rows].astype(np.uint32)),
                pad(contexts[rows]),
                allowed,
            )
            chosen[rows] = np.asarray(scores)[: len(chosen[rows])].argmax(1)
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
            scores = self._programs.scores_of_draws(
                self._policy, self.packed_state, request, allowed, further
            )
            np.add.at(counts, (np.arange(top), _best(np.asarray(scores)[:n], top)), 1)
        return counts

    def _scores(self, number: int, context: np.ndarray, allowed: Any) -> np.ndarray:
        request = packed_request(self._key_words, number, context)
        return np.asarray(self._programs.scores(self._policy, self.packed_state, request, allowed))

    def _estimated(
        self, number: int, context: np.ndarray, allowed: Any, chosen: np.ndarray
    ) -> np.ndarray:
        """The probabilities of actions in their places, from further draws and the one that decided."""
        top = len(chosen)
        counts = self.tally(number, context, allowed, self._draws, top)
        return (counts[np.arange(top), chosen] + 1) / (self._draws + 1)

    # Updates. The old state is gone when a program has begun, so an interrupt such as Control-C must
    # not come between the call and keeping its result: assigning a `map` is one step of the interpreter.

    def learn_one(self, number: int, context: np.ndarray, action: int, reward: float) -> None:
        """Update with observation `number`: a context (d,), an action and a reward; see `reserve`."""
        words = packed_observation(number, action, reward, context)
        self._packed_state[:] = map(
            self._programs.update, (self._policy,), self._packed_state, (words,)
        )

    def learn(
        self, first: int, contexts: np.ndarray, actions: np.ndarray, rewards: np.ndarray
    ) -> None:
        """Update with observations (n, d), (n,), (n,) in one call; see `reserve`."""
        sizes = np.uint32(first & 0xFFFFFFFF), np.int32(len(rewards))
        rows = zip((*sizes, pad(contexts), pad(actions), pad(rewards)))
        self._packed_state[:] = map(
            self._programs.update_many, (self._policy,), self._packed_state, *rows
        )

    def reserve(self, n: int) -> None:
        """Make room for the next `n` observations, where the policy keeps them: it doubles when full."""
        if self._room is not None:
            if self._room < n:
                policy = self.policy
                self.install(policy, policy.reserve(self.posterior(), n))
            self._room -= n

    def extended(self, level: Level, start: int) -> tuple[Policy, Any]:
        """Policy and state with the actions of `level` from `start` on, for `install`.

        Capacity doubles when it is exceeded, which happens at once.
        """
        capacity = self.capacity
        while capacity < start + level.size:
            capacity *= 2
        if capacity > self.capacity:
            self.install(*self._with_actions(None, start, capacity))
        return self._with_actions(level, start, capacity)

    def _with_actions(self, level: Level | None, start: int, capacity: int) -> tuple[Policy, Any]:
        hierarchy = extend(self.policy.problem, level, start, capacity)
        is_new = np.arange(capacity) >= start
        return self._programs.extend(self._policy, self.packed_state, hierarchy, is_new)


def _best(scores: np.ndarray, top: int) -> np.ndarray:
    """(n, top) the actions with the best scores (n, K), the best first; of equals, the first."""
    if top == 1:
        return scores.argmax(1)[:, None].astype(np.int32)
    return np.argsort(-scores, axis=1, kind="stable")[:, :top].astype(np.int32)
