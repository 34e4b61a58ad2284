"""The part of an agent that computes: it chooses actions by their numbers, and learns from rewards."""

from collections.abc import Callable
from functools import partial
from math import isnan
from typing import Any

import jax
import numpy as np

from ...inference.observation import PADDING
from ...inference.progress import task
from .decisions import AgentError
from .posterior_keeper import PosteriorKeeper
from .programs import Call
from .requests import (
    best_of,
    packed_observation,
    packed_observations,
    packed_request,
    pad,
    padded_size,
)

__all__ = ["Engine"]

# From so many observations on, and for one in so many places that are kept, conditioning on all at
# once is faster than one after the other.
_MANY, _PLACES = 32, 256

# The state is looked at after 1, 2, 4, ... observations, and then after so many.
_LOOK_EVERY = 1024

_SCORES, _UPDATE = Call("scores"), Call("update")


class Engine(PosteriorKeeper):
    """Chooses actions by their numbers and updates the posterior; arguments are checked before."""

    # Decisions: `context` is (d,) or (capacity, d), `allowed` (capacity,). Probabilities are None
    # unless they are logged; the draw that decides counts as one, so that none is zero.

    def choose(self, number: int, context: np.ndarray, allowed: Any) -> tuple[int, float | None]:
        """The best action of the draw for decision `number`, and its probability."""
        scores = self.scores(number, context, allowed)
        index = int(scores.argmax())
        if isnan(scores[index]):  # the first one that is no number counts as the best
            scores = self._sound(partial(self.scores, number, context, allowed))
            index = int(scores.argmax())
        if not self.draws:
            return index, None
        return index, float(self._estimated(number, context, allowed, np.array([index]))[0])

    def choose_slate(
        self, number: int, context: np.ndarray, allowed: Any, size: int
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """(size,) the best actions of one draw, the best first, and the probability of each there."""
        scores = self._sound(partial(self.scores, number, context, allowed))
        chosen = best_of(scores[None], size)[0]
        estimate = self._estimated if self.draws else lambda *_: None
        return chosen, estimate(number, context, allowed, chosen)

    def choose_many(
        self, first: int, contexts: np.ndarray, allowed: Any
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """(n,) the best action in each of n contexts, for decisions from `first` on."""
        chosen, numbers = np.zeros(len(contexts), np.int32), first + np.arange(len(contexts))
        for i in range(0, len(contexts), self.max_rows):
            rows = slice(i, i + self.max_rows)
            some = pad(numbers[rows].astype(np.uint32)), pad(contexts[rows])
            self.compile_missing([Call("scores_many", len(some[0]), contexts.ndim == 3)])
            scores = self._sound(partial(self._scores_many, *some, allowed))
            chosen[rows] = scores[: len(chosen[rows])].argmax(1)
        if not self.draws:
            return chosen, None
        each = zip(numbers.tolist(), contexts, chosen[:, None], strict=True)
        return chosen, np.concatenate([self._estimated(t, x, allowed, i) for t, x, i in each])

    def tally(
        self, number: int, context: np.ndarray, allowed: Any, draws: int, top: int = 1
    ) -> np.ndarray:
        """(top, capacity) how many of `draws` further draws put each action in each place."""
        counts = np.zeros((top, self.capacity), np.int64)
        request = packed_request(self.key_words, number, context)
        for start in range(0, draws, self.max_rows):
            n = min(self.max_rows, draws - start)
            further = (start + np.arange(padded_size(n))).astype(np.uint32)
            self.compile_missing([Call("scores_of_draws", len(further), context.ndim == 2)])
            scores = self._sound(partial(self._scores_of_draws, request, allowed, further))
            np.add.at(counts, (np.arange(top), best_of(scores[:n], top)), 1)
        return counts

    def _scores_many(self, *request: Any) -> np.ndarray:
        known = self.packed_policy, self.packed_state, self.key
        return np.asarray(self.programs.scores_many(*known, *request))

    def _scores_of_draws(self, *request: Any) -> np.ndarray:
        known = self.packed_policy, self.packed_state
        return np.asarray(self.programs.scores_of_draws(*known, *request))

    def _sound(self, scores: Callable[[], np.ndarray]) -> np.ndarray:
        """Scores that are numbers: of the last sound posterior, where those of the present are not."""
        found = scores()
        if np.isnan(found.max()):
            self.recover()
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
        counts = self.tally(number, context, allowed, self.draws, top)
        return (counts[np.arange(top), chosen] + 1) / (self.draws + 1)

    # Updates. The old state is gone when a program has begun, so an interrupt such as Control-C must
    # not come between the call and keeping its result: assigning a `map` is one step of the interpreter.

    def learn_one(
        self, number: int, context: np.ndarray, action: int, reward: float, exposure: float
    ) -> None:
        """Update with observation `number`: a context (d,), an action and a reward; see `reserve`."""
        if not self.is_compiled:
            self.compile_missing([_UPDATE])
            self.is_compiled = _SCORES in self.programs.compiled
        words = packed_observation(number, action, reward, exposure, context)
        self.held_state[:] = map(
            self.programs.update, (self.packed_policy,), self.held_state, (words,)
        )
        since, after = self.since, number + 1
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

        Many are conditioned on at once, unless evidence is forgotten or levels drift in between.
        """
        n, programs = len(rewards), self.programs
        in_order = programs.forget is not None or programs.ages
        is_at_once = n >= max(_MANY, self.places_for_rewards // _PLACES) and not in_order
        name = "condition" if is_at_once else "update_many"
        if is_at_once:
            rows = zip((pad(contexts), pad(actions, PADDING), pad(rewards), pad(exposure, 1)))
        else:
            sizes = np.uint32(first & 0xFFFFFFFF), np.int32(n)
            rows = zip((*sizes, pad(contexts), pad(actions), pad(rewards), pad(exposure, 1)))
        with task(f"Agent: {n:,} observations"):
            self.compile_missing([Call(name, padded_size(n))])
            self.held_state[:] = map(
                getattr(programs, name), (self.packed_policy,), self.held_state, *rows
            )
            jax.block_until_ready(self.packed_state)
            if self.is_sound():
                self.look()
            else:
                self.recover(packed_observations(first, contexts, actions, rewards, exposure))

    def discount(self, factor: float) -> None:
        """Multiply all evidence by a factor."""
        if factor == 1:
            return
        self.look()  # the observations since the last sound state came before the discount
        discount = zip(self.discount_by(factor))
        self.held_state[:] = map(
            self.programs.discount, (self.packed_policy,), self.held_state, *discount
        )
        if self.is_sound():
            self.good = self.programs.copy_state(self.packed_state)
        else:
            self.recover()
