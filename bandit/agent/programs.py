"""The compiled functions of an agent: scores of actions, and posterior updates.

Policy and state are arguments in few arrays (`packing`), everything else is one array of 32-bit words,
and random keys are made inside: so calls are short. The best score is found outside, which NumPy does
before XLA would have begun. States are donated, so an update changes them in place. Agents with policies
and states of the same structure share their programs.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from struct import Struct
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float

from ...inference.gaussian.new_actions import action_axes, carry_over
from ...inference.random import fused_key
from ...models import Hierarchy
from ..policies.policy import Policy
from .packing import Packing, packing_of

__all__ = [
    "Packed",
    "Programs",
    "packed_observation",
    "packed_request",
    "pad",
    "padded_size",
    "programs_for",
]

Packed = tuple[Array, ...]

# A decision uses the first few children of its key; those from here on estimate probabilities.
_FIRST_FURTHER_DRAW = 1 << 31

# Scores are computed for a few rows at a time, which fit a core's cache.
_MAX_ROWS, _MAX_SCORES = 128, 1 << 13


# What precedes the context, by the bytes of a number: joining bytes is faster than filling an array.
_REQUEST = {4: Struct("<III"), 8: Struct("<I4xI4xI4x")}
_OBSERVATION = {4: Struct("<IIf"), 8: Struct("<I4xI4xd")}
_HEAD = 3  # numbers before the context


def packed_request(key: tuple[int, int], number: int, context: np.ndarray) -> np.ndarray:
    """An agent's key, the number of a decision and its context in one array of words."""
    head = _REQUEST[context.itemsize].pack(*key, number & 0xFFFFFFFF)
    return np.frombuffer(head + context.tobytes(), np.uint32)


def packed_observation(number: int, action: int, reward: float, context: np.ndarray) -> np.ndarray:
    """The number of an observation, its action, reward and context in one array of words."""
    head = _OBSERVATION[context.itemsize].pack(number & 0xFFFFFFFF, action, reward)
    return np.frombuffer(head + context.tobytes(), np.uint32)


class Programs:
    """Compiled functions for policies and states of one structure.

    A packed state that goes through `update` or `update_many` cannot be used afterwards. Before every
    `forget_every`-th observation all evidence is multiplied by `forget`, unless that is None.
    """

    def __init__(self, policy: Packing, state: Packing, forget: float | None, forget_every: int):
        self.policy, self.state = policy, state
        self.forget, self.forget_every = forget, forget_every
        problem = jax.tree.unflatten(policy.structure, policy.shapes).problem
        self.num_actions, self.dim = problem.num_actions, problem.dim
        self.dtype = jnp.result_type(float)
        self.pack_policy, self.pack_state = jax.jit(policy.pack), jax.jit(state.pack)
        self.scores = jax.jit(self._scores)
        self.scores_many = jax.jit(self._scores_many)
        self.scores_of_draws = jax.jit(self._scores_of_draws)
        self.update = jax.jit(self._update, donate_argnums=1)
        self.update_many = jax.jit(self._update_many, donate_argnums=1)
        self._extensions: dict[Packing, Callable[..., Any]] = {}

    def _unpack(self, policy: Packed, state: Packed) -> tuple[Policy, Any]:
        return self.policy.unpack(policy), self.state.unpack(state)

    def _read(self, words: Array) -> tuple[Array, Array]:
        """The entries of an array of words, as whole numbers and as floating-point numbers."""
        entries = words.reshape(-1, jnp.dtype(self.dtype).itemsize // 4)
        numbers = entries[:, 0] if entries.shape[1] == 1 else entries
        return entries[:, 0], jax.lax.bitcast_convert_type(numbers, self.dtype)

    def _request(self, words: Array) -> tuple[Array, Array]:
        """The key of a decision and its context, (d,) or (K, d), from a `packed_request`."""
        whole, numbers = self._read(words)
        key, context = jax.random.fold_in(fused_key(whole[:2]), whole[2]), numbers[_HEAD:]
        shape = (self.dim,) if context.size == self.dim else (self.num_actions, self.dim)
        return key, context.reshape(shape)

    def _scores(self, policy, state, words, allowed) -> Float[Array, " K"]:
        """Scores of one draw for a `packed_request`; minus infinity where not allowed."""
        (unpacked, known), (key, context) = self._unpack(policy, state), self._request(words)
        return _masked(unpacked.scores(key, known, context), allowed)

    def _scores_many(self, policy, state, key, numbers, contexts, allowed) -> Float[Array, "n K"]:
        """Scores for decisions in n contexts, a power of two, each with a draw of its own."""
        (unpacked, known), root = self._unpack(policy, state), fused_key(key)

        def score(row: tuple[Array, Array]) -> Float[Array, " K"]:
            own = jax.random.fold_in(root, row[0])
            return _masked(unpacked.scores(own, known, row[1]), allowed)

        return _in_chunks(score, (numbers, contexts), self.num_actions)

    def _scores_of_draws(self, policy, state, words, allowed, draws) -> Float[Array, "n K"]:
        """Scores for one `packed_request` in n draws, a power of two, that decide nothing."""
        (unpacked, known), (key, context) = self._unpack(policy, state), self._request(words)

        def score(draw: Array) -> Float[Array, " K"]:
            own = jax.random.fold_in(key, jnp.uint32(_FIRST_FURTHER_DRAW) + draw)
            return _masked(unpacked.scores(own, known, context), allowed)

        return _in_chunks(score, draws, self.num_actions)

    def _update(self, policy: Packed, state: Packed, words: Array) -> Packed:
        """The state after a `packed_observation`."""
        unpacked, known = self._unpack(policy, state)
        whole, numbers = self._read(words)
        known = self._forget(unpacked, known, whole[0])
        action = whole[1].astype(jnp.int32)
        return self.state.pack(unpacked.update(known, numbers[_HEAD:], action, numbers[2]))

    def _update_many(
        self, policy: Packed, state: Packed, first, n, contexts, actions, rewards
    ) -> Packed:
        """The state after the first `n` observations of padded arrays, one after the other."""
        unpacked, before = self._unpack(policy, state)

        def one(i: Array, known: Any) -> Any:
            known = self._forget(unpacked, known, first + i.astype(jnp.uint32))
            return unpacked.update(known, contexts[i], actions[i], rewards[i])

        return self.state.pack(jax.lax.fori_loop(0, n, one, before))

    def _forget(self, policy: Policy, state: Any, number: Array) -> Any:
        """The state in which observation `number` is added: with the evidence so far discounted."""
        if self.forget is None:
            return state
        factor = jnp.asarray(self.forget, self.dtype)
        if self.forget_every == 1:
            return policy.forget(state, factor)
        is_due = number % self.forget_every == 0
        return jax.lax.cond(is_due, lambda s: policy.forget(s, factor), lambda s: s, state)

    def extend(
        self, policy: Packed, state: Packed, hierarchy: Hierarchy, is_new: Bool[np.ndarray, " K"]
    ) -> tuple[Policy, Any]:
        """Policy and state for a hierarchy in which some actions are new; the others do not change.

        Compiled once for each number of actions that the hierarchy has room for.
        """
        form = packing_of(hierarchy)
        if form not in self._extensions:
            self._extensions[form] = self._extension(self.policy.unpack(policy), hierarchy)
        return self._extensions[form](policy, state, hierarchy, is_new)

    def _extension(self, policy: Policy, hierarchy: Hierarchy) -> Callable[..., Any]:
        def prior(policy: Policy, hierarchy: Hierarchy) -> tuple[Policy, Any]:
            extended = policy.with_hierarchy(hierarchy)
            # Policies that can be extended draw nothing here.
            return extended, extended.init(jax.random.key(0))

        axes = action_axes(partial(prior, policy), hierarchy)

        def extended(policy: Packed, state: Packed, hierarchy: Hierarchy, is_new: Array) -> Any:
            unpacked = self._unpack(policy, state)
            return carry_over(unpacked, prior(unpacked[0], hierarchy), axes, is_new)

        return jax.jit(extended)


def _masked(scores: Float[Array, " K"], allowed: Bool[Array, " K"]) -> Float[Array, " K"]:
    """Scores of which the best is always allowed, even where scores are not numbers."""
    worst = jnp.finfo(scores.dtype).min
    return jnp.where(allowed, jnp.where(jnp.isnan(scores), worst, scores), -jnp.inf)


def _in_chunks(
    score: Callable[[Any], Float[Array, " K"]], rows: Any, K: int
) -> Float[Array, "n K"]:
    """The scores of each of `n` rows, a power of two, computed for a few rows at a time."""
    n = len(jax.tree.leaves(rows)[0])
    few = max(1, min(n, _MAX_ROWS, _MAX_SCORES // K))
    few = 1 << (few.bit_length() - 1)
    split = jax.tree.map(lambda column: column.reshape(-1, few, *column.shape[1:]), rows)
    return jax.lax.map(jax.vmap(score), split).reshape(n, K)


def padded_size(n: int) -> int:
    """The next power of two, so that many sizes share one program."""
    return 1 << (n - 1).bit_length()


def pad(rows: np.ndarray) -> np.ndarray:
    """Rows (n, ...) followed by zeros, in a new array whose length is a power of two.

    A compiled call may read its arguments after it has returned, when the caller has changed the rows.
    """
    full = np.zeros((padded_size(len(rows)), *rows.shape[1:]), rows.dtype)
    full[: len(rows)] = rows
    return full


# The programs for a structure, made once.
programs_for = lru_cache(maxsize=64)(Programs)
