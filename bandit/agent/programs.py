"""The compiled functions of an agent: scores of actions, and posterior updates.

Policy and state are arguments in few arrays (`packing`), everything else is one array of 32-bit words,
and random keys are made inside: so calls are short. The best score is found outside, which NumPy does
before XLA would have begun. States are donated, so an update changes them in place. Agents with policies
and states of the same structure share their programs.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from ...inference.random import fused_key
from ..policies.policy import Policy
from .packing import Packing
from .requests import HEAD, OBSERVED, padded_size

__all__ = ["SERVING", "Call", "Packed", "Programs", "programs_for"]

Packed = tuple[Array, ...]

# A decision uses the first few children of its key; those from here on estimate probabilities.
_FIRST_FURTHER_DRAW = 1 << 31

# Scores are computed for a few rows at a time, which fit a core's cache.
_MAX_ROWS, _MAX_SCORES = 128, 1 << 13


class Call(NamedTuple):
    """A program with the sizes of its arguments, which decide what is compiled.

    Attributes:
        program: the name of a method of `Programs`.
        rows: how many decisions, draws or observations, a power of two; of some programs.
        own: whether every action has a context of its own.
    """

    program: str
    rows: int = 1
    own: bool = False


# What an agent needs to make one decision at a time, to learn one reward, and to see that all is well.
SERVING = tuple(map(Call, ("scores", "update", "copy_state", "status")))


class Programs:
    """Compiled functions for policies and states of one structure.

    A packed state that goes through `update`, `update_many` or `discount` cannot be used afterwards. Before
    every `forget_every`-th observation all evidence is multiplied by `forget`, unless that is None.

    Attributes:
        ages: whether what the policy knows changes with each round, which an observation is.
        compiled: what was compiled so far.
    """

    def __init__(self, policy: Packing, state: Packing, forget: float | None, forget_every: int):
        self.policy, self.state = policy, state
        self.forget, self.forget_every = forget, forget_every
        unpacked = jax.tree.unflatten(policy.structure, policy.shapes)
        self.num_actions, self.dim = unpacked.problem.num_actions, unpacked.problem.dim
        self.takes_exposure, self.ages = unpacked.takes_exposure, unpacked.ages
        backend = getattr(unpacked, "backend", None)
        options = None if backend is None else backend.compiler_options
        jit = partial(jax.jit, compiler_options=options)
        self.dtype = jnp.result_type(float)
        self.compiled: set[Call] = set()
        self.pack_policy, self.pack_state = jax.jit(policy.pack), jax.jit(state.pack)
        self.unpack_policy = jax.jit(policy.unpack)
        # Copies, which later updates leave alone.
        self.unpack_state = jax.jit(lambda state: self.state.unpack(_copied(state)))
        self.copy_state = jax.jit(_copied)
        self.status = jit(self._status)
        self.scores = jit(self._scores)
        self.scores_many = jit(self._scores_many)
        self.scores_of_draws = jit(self._scores_of_draws)
        self.update = jit(self._update, donate_argnums=1)
        self.update_many = jit(self._update_many, donate_argnums=1)
        self.condition = jit(self._condition)
        self.discount = jit(self._discount, donate_argnums=1)
        self.update_while_sound = jit(self._update_while_sound)

    def compile(self, calls: Iterable[Call] = SERVING) -> None:
        """Compile calls that were not compiled yet, and what unpacks a policy, without running them."""
        self.unpack_policy.lower(self.policy.packed()).compile()
        for call in calls:
            if call not in self.compiled:
                getattr(self, call.program).lower(*self._arguments(call)).compile()
                self.compiled.add(call)

    def _arguments(self, call: Call) -> tuple[Any, ...]:
        """The shapes and types of what a program is called with."""
        K, d, n = self.num_actions, self.dim, call.rows
        policy, state = self.policy.packed(), self.state.packed()
        width = jnp.dtype(self.dtype).itemsize // 4

        def array(*shape: int, dtype: Any = self.dtype) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(shape, dtype)

        words = array((HEAD + (K * d if call.own else d)) * width, dtype=jnp.uint32)
        row = array((OBSERVED + d) * width, dtype=jnp.uint32)
        key, counts = array(2, dtype=jnp.uint32), array(n, dtype=jnp.uint32)
        allowed, context = array(K, dtype=bool), (K, d) if call.own else (d,)
        rows = array(n, d), array(n, dtype=jnp.int32), array(n), array(n)
        one = array(dtype=jnp.uint32), array(dtype=jnp.int32)
        if call.program == "copy_state":
            return (state,)
        return {
            "status": (policy, state),
            "scores": (policy, state, words, allowed),
            "scores_many": (policy, state, key, counts, array(n, *context), allowed),
            "scores_of_draws": (policy, state, words, allowed, counts),
            "update": (policy, state, row),
            "update_many": (policy, state, *one, *rows),
            "condition": (policy, state, *rows),
            "discount": (policy, state, array(), one[1]),
            "update_while_sound": (policy, state, one[1], array(n, *row.shape, dtype=jnp.uint32)),
        }[call.program]

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
        key, context = jax.random.fold_in(fused_key(whole[:2]), whole[2]), numbers[HEAD:]
        shape = (self.dim,) if context.size == self.dim else (self.num_actions, self.dim)
        return key, context.reshape(shape)

    def _status(self, policy: Packed, state: Packed) -> dict[str, Int[Array, ""]]:
        """How often each kind of trouble has occurred."""
        unpacked, known = self._unpack(policy, state)
        return unpacked.status(known).counts

    def _scores(self, policy, state, words, allowed) -> Float[Array, " K"]:
        """Scores of one draw for a `packed_request`; minus infinity where not allowed."""
        (unpacked, known), (key, context) = self._unpack(policy, state), self._request(words)
        return unpacked.scores_of(key, known, context, allowed)

    def _scores_many(self, policy, state, key, numbers, contexts, allowed) -> Float[Array, "n K"]:
        """Scores for decisions in n contexts, a power of two, each with a draw of its own."""
        (unpacked, known), root = self._unpack(policy, state), fused_key(key)

        def score(row: tuple[Array, Array]) -> Float[Array, " K"]:
            own = jax.random.fold_in(root, row[0])
            return unpacked.scores_of(own, known, row[1], allowed)

        return _in_chunks(score, (numbers, contexts), self.num_actions)

    def _scores_of_draws(self, policy, state, words, allowed, draws) -> Float[Array, "n K"]:
        """Scores for one `packed_request` in n draws, a power of two, that decide nothing."""
        (unpacked, known), (key, context) = self._unpack(policy, state), self._request(words)

        def score(draw: Array) -> Float[Array, " K"]:
            own = jax.random.fold_in(key, jnp.uint32(_FIRST_FURTHER_DRAW) + draw)
            return unpacked.scores_of(own, known, context, allowed)

        return _in_chunks(score, draws, self.num_actions)

    def _update(self, policy: Packed, state: Packed, words: Array) -> Packed:
        """The state after a `packed_observation`."""
        unpacked, known = self._unpack(policy, state)
        return self.state.pack(self._after(unpacked, known, words))

    def _after(self, policy: Policy, state: Any, words: Array) -> Any:
        whole, numbers = self._read(words)
        known = self._forget(policy, state, whole[0])
        seen = numbers[OBSERVED:], whole[1].astype(jnp.int32), numbers[2]
        return self._later(policy, policy.update(known, *seen, *self._exposed(numbers[3])))

    @staticmethod
    def _later(policy: Policy, state: Any) -> Any:
        """The state in the next round, where a policy's knowledge ages: an observation is a round."""
        return policy.advance(state) if policy.ages else state

    def _exposed(self, exposure: Array) -> tuple[Array, ...]:
        """What an observation is learned with besides: its exposure, where the policy takes one."""
        return (exposure,) if self.takes_exposure else ()

    def _update_many(
        self, policy: Packed, state: Packed, first, n, contexts, actions, rewards, exposure
    ) -> Packed:
        """The state after the first `n` observations of padded arrays, one after the other."""
        unpacked, before = self._unpack(policy, state)

        def one(i: Array, known: Any) -> Any:
            known = self._forget(unpacked, known, first + i.astype(jnp.uint32))
            seen = contexts[i], actions[i], rewards[i], *self._exposed(exposure[i])
            return self._later(unpacked, unpacked.update(known, *seen))

        return self.state.pack(jax.lax.fori_loop(0, n, one, before))

    def _condition(
        self, policy: Packed, state: Packed, contexts, actions, rewards, exposure
    ) -> Packed:
        """The state after many observations at once, some of which may be padding."""
        unpacked, before = self._unpack(policy, state)
        rows = contexts, actions, rewards, *self._exposed(exposure)
        return self.state.pack(unpacked.condition(before, *rows))

    def _update_while_sound(
        self, policy: Packed, state: Packed, n: Array, rows: Array
    ) -> tuple[Packed, Int[Array, ""]]:
        """The state after those of the first `n` rows of `packed_observation` that leave it sound.

        That is, with scores that are numbers. Also how many do not, and are left out.
        """
        unpacked, before = self._unpack(policy, state)

        def one(i: Array, carry: tuple[Any, Array]) -> tuple[Any, Array]:
            known, left_out = carry
            after = self._after(unpacked, known, rows[i])
            probe = jnp.ones(self.dim, self.dtype)
            is_sound = ~jnp.isnan(unpacked.scores(fused_key(0), after, probe)).any()
            kept = jax.tree.map(lambda new, old: jax.lax.select(is_sound, new, old), after, known)
            return kept, left_out + ~is_sound

        known, left_out = jax.lax.fori_loop(0, n, one, (before, jnp.int32(0)))
        return self.state.pack(known), left_out

    def _discount(self, policy: Packed, state: Packed, factor: Array, steps: Array) -> Packed:
        """The state with all evidence multiplied by a factor, so many times."""
        unpacked, before = self._unpack(policy, state)
        after = jax.lax.fori_loop(0, steps, lambda _, s: unpacked.forget(s, factor), before)
        return self.state.pack(after)

    def _forget(self, policy: Policy, state: Any, number: Array) -> Any:
        """The state in which observation `number` is added: with the evidence so far discounted."""
        if self.forget is None:
            return state
        factor = jnp.asarray(self.forget, self.dtype)
        if self.forget_every == 1:
            return policy.forget(state, factor)
        is_due = number % self.forget_every == 0
        return jax.lax.cond(is_due, lambda s: policy.forget(s, factor), lambda s: s, state)


def _copied(packed: Packed) -> Packed:
    return tuple(jnp.copy(part) for part in packed)


def _in_chunks(
    score: Callable[[Any], Float[Array, " K"]], rows: Any, K: int
) -> Float[Array, "n K"]:
    """The scores of each of `n` rows, a power of two, computed for a few rows at a time."""
    n = len(jax.tree.leaves(rows)[0])
    few = max(1, min(n, _MAX_ROWS, _MAX_SCORES // K))
    few = padded_size(few + 1) // 2
    split = jax.tree.map(lambda column: column.reshape(-1, few, *column.shape[1:]), rows)
    return jax.lax.map(jax.vmap(score), split).reshape(n, K)


# The programs for a structure, made once.
programs_for = lru_cache(maxsize=64)(Programs)
