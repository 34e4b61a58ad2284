"""What a run is: an instance, a policy made for it, and rounds of Algorithm 1 in a compiled loop."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ...inference import Backend, Status
from ...inference.random import fused_key, plain_key
from ...models import Hierarchy
from ...models.messages import short
from ..policies.policy import Policy
from ..problems.environment import Environment, Instance, Problem

__all__ = ["Maker", "Run", "begin", "instance_of_run", "stretch", "told_truth"]

# From the hierarchy that an agent knows to its policy.
Maker = Callable[..., Policy[Any]]


_KEY_OF_EXPOSURE = 0xE
_KEY_OF_DRIFT = 0xD


class _ToldTruth(NamedTuple):
    """A maker that is called with the environment."""

    make: Maker
    sees_truth: bool = True

    def __call__(self, hierarchy: Hierarchy, environment: Environment) -> Policy[Any]:
        return _make(self.make, Instance(environment.hierarchy, environment))


def told_truth(make: Maker) -> Maker:
    """The same policy, made for the hierarchy that the environment was drawn from.

    Example:
        >>> from mixts.bandit import LinTS, SyntheticProblem, told_truth
        >>> problem = SyntheticProblem(5, 2, 2, misspecified=True)
        >>> hierarchy, environment = problem.sample(jax.random.key(0))
        >>> informed, misled = told_truth(LinTS)(hierarchy, environment), LinTS(hierarchy)
    """
    return _ToldTruth(make)


class _Round(NamedTuple):
    """What a round starts with."""

    context: Array
    key_act: Array
    key_reward: Array
    exposure: Array | None


def _round(environment: Environment, key: Array, t: Array) -> _Round:
    own = jax.random.fold_in(key, t)
    key_context, key_act, key_reward = jax.random.split(own, 3)
    # A child of its own: exposures change nothing else of a round.
    exposure = environment.draw_exposure(jax.random.fold_in(own, _KEY_OF_EXPOSURE))
    return _Round(environment.context(key_context), key_act, key_reward, exposure)


class Run(NamedTuple):
    """A run between two rounds."""

    policy: Policy[Any]
    environment: Environment
    state: Any
    key: Array
    next: _Round


def instance_of_run(problem: Problem, key: Any, run: Any) -> Instance:
    """The instance that every policy meets in run number `run` of `simulate` with that key.

    Example:
        >>> from mixts.bandit import SyntheticProblem, instance_of_run
        >>> instance = instance_of_run(SyntheticProblem(5, 2, 3), key=0, run=7)
        >>> instance.environment.theta.shape
        (5, 3)
    """
    key_instance, _, _ = _keys_of_run(jax.random.fold_in(fused_key(key), run))
    return problem.sample(key_instance)


def _keys_of_run(key: Array) -> Array:
    """For the instance, for the policy's state, for the rounds.

    JAX's own keys: with fused ones, a draw made only once would take longer to compile than to make.
    """
    return jax.random.split(plain_key(key), 3)


def begin(problem: Problem, make: Maker, room: int, key: Array) -> Run:
    """A run before its first round, with room for so many observations."""
    key_instance, key_policy, key_rounds = _keys_of_run(key)
    instance = problem.sample(key_instance)
    policy = _make(make, instance)
    if instance.environment.exposure is not None:
        policy.check_takes_exposure(instance.environment.exposure)
    state = policy.init(key_policy, room=room)
    first = _round(instance.environment, key_rounds, jnp.zeros((), jnp.uint32))
    first = first._replace(key_act=fused_key(first.key_act), key_reward=fused_key(first.key_reward))
    return Run(policy, instance.environment, state, fused_key(key_rounds), first)


def _make(make: Maker, instance: Instance) -> Policy[Any]:
    policy = make(*instance) if getattr(make, "sees_truth", False) else make(instance.hierarchy)
    if not isinstance(policy, Policy):
        hint = f": write ThompsonSampling({short(policy)})" if isinstance(policy, Backend) else ""
        raise TypeError(f"a policy of simulate is {short(policy)}; expected a Policy{hint}")
    return policy


def stretch(
    run: Run, start: Array, end: Array, rounds: int
) -> tuple[Run, tuple[Array, Array], Status]:
    """Rounds from `start` on, `rounds` of them but none from `end` on.

    Returns the run after them, regrets and actions, and the policy's status.
    """
    policy, world, key = run.policy, run.environment, run.key

    def play(i: Array, before: tuple[Any, _Round, Array, Array, Any]):
        state, now, regrets, actions, moved = before
        environment = world.with_levels(moved) if world.drifts else world
        action = policy.act(now.key_act, state, now.context)
        exposed = () if now.exposure is None else (now.exposure,)
        reward = environment.reward(now.key_reward, now.context, action, *exposed)
        state = policy.update(state, now.context, action, reward, *exposed)
        state = policy.advance(state) if policy.ages else state
        means = environment.mean_rewards(now.context)
        # The next round is drawn here and passed on: a context that XLA has to look up in a table of
        # all rounds would keep it from computing several actions at a time.
        following = _round(environment, key, start + i + 1)
        regret = means.max() - means[action]
        if world.drifts:
            own = jax.random.fold_in(jax.random.fold_in(key, start + i), _KEY_OF_DRIFT)
            moved = environment.after_a_round(own)
        return state, following, regrets.at[i].set(regret), actions.at[i].set(action), moved

    regrets = jnp.zeros(rounds, world.theta.dtype)
    # Vectors that stay are no part of what a round changes.
    hidden = world.levels if world.drifts else {}
    begun = run.state, run.next, regrets, jnp.zeros(rounds, jnp.int32), hidden
    count = jnp.minimum(jnp.uint32(rounds), end - start)
    state, now, regrets, actions, hidden = jax.lax.fori_loop(jnp.uint32(0), count, play, begun)
    environment = world.with_levels(hidden) if world.drifts else world
    later = run._replace(environment=environment, state=state, next=now)
    return later, (regrets, actions), policy.status(state)
