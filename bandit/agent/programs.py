"""What an agent has compiled: scores of actions, and learning, each in one call.

A call is as cheap as JAX allows: the policy and its state in few buffers (`packing`), everything else
in one array of 32-bit words, random keys made inside. The best of the scores is looked for outside:
NumPy finds it in less time than XLA takes to begin. States are donated: an update changes them in place.
Programs are kept by the structure of policy and state, so agents alike share them.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from struct import Struct
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from ...inference.buffer import Buffer
from ...inference.gaussian.new_actions import action_axes, carry_over
from ...inference.random import fused_key
from ...models import Hierarchy
from ..policies.policy import Policy
from .packing import Packing, packing_of

__all__ = [
    "Buffers",
    "Forgetting",
    "Programs",
    "lesson",
    "pad",
    "padded",
    "programs_for",
    "question",
    "room_in",
]

Buffers = tuple[Array, ...]

# Children of a decision's key from here on draw probabilities; the decision itself uses the first few.
_FIRST_AGAIN = 1 << 31

# Scores are made for a few draws at a time, which fit a core's cache.
_FEW_ROWS, _FEW_NUMBERS = 128, 1 << 13


class Forgetting(NamedTuple):
    """Evidence counts for `factor` of what it did, with every `every`-th observation."""

    factor: float
    every: int


# What stands before the context in a message, by the bytes of a number: joining bytes is quicker than
# filling an array.
_QUESTION = {4: Struct("<III"), 8: Struct("<I4xI4xI4x")}
_LESSON = {4: Struct("<IIf"), 8: Struct("<I4xI4xd")}
_HEAD = 3  # places of numbers


def question(key: tuple[int, int], number: int, context: np.ndarray) -> np.ndarray:
    """An agent's key, the number of a decision and its context in one array of words."""
    head = _QUESTION[context.itemsize].pack(*key, number & 0xFFFFFFFF)
    return np.frombuffer(head + context.tobytes(), np.uint32)


def lesson(number: int, action: int, reward: float, context: np.ndarray) -> np.ndarray:
    """The number of an observation, its action, reward and context in one array of words."""
    head = _LESSON[context.itemsize].pack(number & 0xFFFFFFFF, action, reward)
    return np.frombuffer(head + context.tobytes(), np.uint32)


def _eligible(scores: Float[Array, " K"], allowed: Bool[Array, " K"]) -> Float[Array, " K"]:
    """Scores among which the best is always allowed, even where scores are not numbers."""
    worst = jnp.finfo(scores.dtype).min
    return jnp.where(allowed, jnp.where(jnp.isnan(scores), worst, scores), -jnp.inf)


def _scores_of_many(
    score: Callable[[Any], Float[Array, " K"]], rows: Any, K: int
) -> Float[Array, "n K"]:
    """The scores of each of `n` rows, a power of two, made for a few at a time."""
    n = len(jax.tree.leaves(rows)[0])
    few = max(1, min(n, _FEW_ROWS, _FEW_NUMBERS // K))
    few = 1 << (few.bit_length() - 1)
    split = jax.tree.map(lambda column: column.reshape(-1, few, *column.shape[1:]), rows)
    return jax.lax.map(jax.vmap(score), split).reshape(n, K)


class Programs:
    """Compiled calls for policies and states of one structure.

    Buffers of a state that goes through `update`, `update_many` or `forget` are gone afterwards.
    """

    def __init__(self, policy: Packing, state: Packing, forgetting: Forgetting | None):
        self.policy, self.state, self.forgetting = policy, state, forgetting
        problem = jax.tree.unflatten(policy.structure, policy.shapes).problem
        self.num_actions, self.dim = problem.num_actions, problem.dim
        self.dtype = jnp.result_type(float)
        self.pack_policy = jax.jit(policy.pack)
        self.pack_state = jax.jit(state.pack)
        self.scores = jax.jit(self._scores)
        self.scores_many = jax.jit(self._scores_many)
        self.scores_again = jax.jit(self._scores_again)
        self.update = jax.jit(self._update, donate_argnums=1)
        self.update_many = jax.jit(self._update_many, donate_argnums=1)
        self._admissions: dict[Packing, Callable[..., Any]] = {}

    def admit(
        self, policy: Buffers, state: Buffers, hierarchy: Hierarchy, is_new: Bool[np.ndarray, " K"]
    ) -> tuple[Policy, Any]:
        """Policy and state for a hierarchy in which some actions are new; the others stay as they are.

        Compiled once for each number of actions that the hierarchy has room for.
        """
        form = packing_of(hierarchy)
        if form not in self._admissions:
            self._admissions[form] = self._admission(self.policy.unpack(policy), hierarchy)
        return self._admissions[form](policy, state, hierarchy, is_new)

    def _admission(self, policy: Policy, hierarchy: Hierarchy) -> Callable[..., Any]:
        def begin(policy: Policy, hierarchy: Hierarchy) -> tuple[Policy, Any]:
            ready = policy.with_hierarchy(hierarchy)
            return ready, ready.init(
                jax.random.key(0)
            )  # where newcomers can join, nothing is drawn

        axes = action_axes(partial(begin, policy), hierarchy)

        def admit(policy: Buffers, state: Buffers, hierarchy: Hierarchy, is_new: Array) -> Any:
            opened = self._opened(policy, state)
            return carry_over(opened, begin(opened[0], hierarchy), axes, is_new)

        return jax.jit(admit)

    def _opened(self, policy: Buffers, state: Buffers) -> tuple[Policy, Any]:
        return self.policy.unpack(policy), self.state.unpack(state)

    def _read(self, words: Array) -> tuple[Array, Array]:
        """The places of a message, as words and as numbers."""
        places = words.reshape(-1, jnp.dtype(self.dtype).itemsize // 4)
        numbers = places[:, 0] if places.shape[1] == 1 else places
        return places[:, 0], jax.lax.bitcast_convert_type(numbers, self.dtype)

    def _asked(self, words: Array) -> tuple[Array, Array]:
        """A decision's key, and its context, (d,) or (K, d), from a `question`."""
        marks, numbers = self._read(words)
        key, context = jax.random.fold_in(fused_key(marks[:2]), marks[2]), numbers[_HEAD:]
        shape = (self.dim,) if context.size == self.dim else (self.num_actions, self.dim)
        return key, context.reshape(shape)

    def _scores(self, policy, state, words, allowed) -> Float[Array, " K"]:
        """Scores of one draw for a `question`; of actions that are not allowed, minus infinity."""
        opened, (own, context) = self._opened(policy, state), self._asked(words)
        return _eligible(opened[0].scores(own, opened[1], context), allowed)

    def _scores_many(self, policy, state, key, numbers, contexts, allowed) -> Float[Array, "n K"]:
        """Scores for decisions in n contexts, a power of two, each of a draw of its own."""
        opened, root = self._opened(policy, state), fused_key(key)

        def score(row: tuple[Array, Array]) -> Float[Array, " K"]:
            own = jax.random.fold_in(root, row[0])
            return _eligible(opened[0].scores(own, opened[1], row[1]), allowed)

        return _scores_of_many(score, (numbers, contexts), self.num_actions)

    def _scores_again(self, policy, state, words, allowed, draws) -> Float[Array, "n K"]:
        """Scores for one `question` in n draws, a power of two, that the decision does not use."""
        opened, (own, context) = self._opened(policy, state), self._asked(words)

        def score(draw: Array) -> Float[Array, " K"]:
            again = jax.random.fold_in(own, jnp.uint32(_FIRST_AGAIN) + draw)
            return _eligible(opened[0].scores(again, opened[1], context), allowed)

        return _scores_of_many(score, draws, self.num_actions)

    def _learn(self, policy: Policy, state: Any, context, action, reward, count) -> Any:
        """The state after one observation, the `count`-th."""
        rule = self.forgetting
        if rule is not None:
            factor = jnp.asarray(rule.factor, self.dtype)
            if rule.every == 1:
                state = policy.forget(state, factor)
            else:
                state = jax.lax.cond(
                    count % rule.every == 0,
                    lambda state: policy.forget(state, factor),
                    lambda state: state,
                    state,
                )
        return policy.update(state, context, action, reward)

    def _update(self, policy: Buffers, state: Buffers, words: Array) -> Buffers:
        """One observation, from a `lesson`."""
        opened = self._opened(policy, state)
        marks, numbers = self._read(words)
        action = marks[1].astype(jnp.int32)
        return self.state.pack(self._learn(*opened, numbers[_HEAD:], action, numbers[2], marks[0]))

    def _update_many(
        self, policy: Buffers, state: Buffers, first, n, contexts, actions, rewards
    ) -> Buffers:
        """The first `n` observations of padded arrays, one after the other."""
        opened, before = self._opened(policy, state)

        def one(i: Array, state: Any) -> Any:
            count = first + i.astype(jnp.uint32)
            return self._learn(opened, state, contexts[i], actions[i], rewards[i], count)

        return self.state.pack(jax.lax.fori_loop(0, n, one, before))


def padded(n: int) -> int:
    """The next power of two: many sizes share one program."""
    return 1 << (n - 1).bit_length()


def pad(rows: np.ndarray) -> np.ndarray:
    """Rows (n, ...) and as many of zeros as make their number a power of two.

    In an array of their own: a compiled call may read them after it has returned, when whoever handed
    them in has changed theirs.
    """
    full = np.zeros((padded(len(rows)), *rows.shape[1:]), rows.dtype)
    full[: len(rows)] = rows
    return full


def room_in(state: Any) -> int | None:
    """For how many more observations a state has room, where it keeps them."""
    parts = jax.tree.leaves(state, is_leaf=lambda part: isinstance(part, Buffer))
    rooms = [part.capacity - int(part.taken) for part in parts if isinstance(part, Buffer)]
    return min(rooms) if rooms else None


@lru_cache(maxsize=64)
def programs_for(policy: Packing, state: Packing, forgetting: Forgetting | None) -> Programs:
    """The programs for a structure, made once."""
    return Programs(policy, state, forgetting)
