"""Observations: contexts, the actions chosen in them, and their rewards."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Bool, Float, Int

from .arrays import as_integers, as_numbers, is_concrete
from .components import as_contexts
from .messages import short
from .rewards import Gaussian, Reward

__all__ = ["Data", "Observations", "as_observations"]


class Data(eqx.Module):
    """`n` observations, which unpack into the arguments of `hierarchy.program(*data)`.

    Attributes:
        contexts: (n, dim), the context of each round (of the chosen action, where they differ); where
            they have names, hand in `hierarchy.contexts(table)`.
        actions: (n,), the chosen actions as positions in the action level.
        rewards: (n,).

    Example:
        >>> data = Data(contexts=[[1.0, 0.5], [1.0, -0.5]], actions=[0, 2], rewards=[1.0, 0.0])
        >>> data, len(data)
        (Data(2 observations, dim=2), 2)
    """

    contexts: Any
    actions: Any
    rewards: Any

    def __post_init__(self):
        self.contexts = as_contexts(self.contexts, None, "Data contexts")
        self.actions = as_integers(self.actions, "Data actions")
        self.rewards = as_numbers(self.rewards, "Data rewards")
        _check_lengths(self.contexts, self.actions, self.rewards)

    def __iter__(self) -> Iterator[Array]:
        return iter((self.contexts, self.actions, self.rewards))

    def __len__(self) -> int:
        return self.contexts.shape[0]

    def __repr__(self) -> str:
        return f"Data({self.contexts.shape[0]} observations, dim={self.contexts.shape[1]})"


class Observations(NamedTuple):
    """Observations that fit a hierarchy; padded rows, where `mask` is False, hold zeros."""

    contexts: Float[Array, "n d"]
    actions: Int[Array, " n"]
    rewards: Float[Array, " n"] | None
    mask: Bool[Array, " n"] | None


def as_observations(
    contexts: Any,
    actions: Any,
    rewards: Any,
    mask: Any = None,
    *,
    dim: int,
    num_actions: int,
    reward: Reward,
) -> Observations:
    """Convert observations and refuse what does not fit; values are checked where they are known.

    Rows outside `mask` may hold anything, so that a buffer filled with NaN can be padding.
    """
    if mask is not None:
        with jax.ensure_compile_time_eval():
            mask = jnp.asarray(mask)
        if mask.dtype != bool or mask.ndim != 1:
            raise TypeError(
                f"mask has shape {mask.shape} and type {mask.dtype}; expected (n,) of True and False"
            )
        contexts, actions, rewards = (
            None if rows is None else _blank_padding(rows, mask)
            for rows in (contexts, actions, rewards)
        )
    contexts = as_numbers(contexts, "contexts")
    actions = as_integers(actions, "actions", below=num_actions)
    if rewards is not None:
        rewards = as_numbers(rewards, "rewards")
    _check_lengths(contexts, actions, rewards, mask)
    if contexts.shape[1] != dim:
        raise ValueError(f"contexts have shape {contexts.shape}; expected (n, {dim})")
    if rewards is not None and is_concrete(rewards):
        _check_support(np.asarray(rewards), reward)
    return Observations(contexts, actions, rewards, mask)


def _blank_padding(rows: Any, mask: Bool[Array, " n"]) -> Any:
    # In NumPy where possible: JAX would wrap an action beyond 2^31 around before it is checked.
    numpy = np if is_concrete(rows, mask) else jnp
    rows = numpy.asarray(rows)
    if rows.shape[:1] != mask.shape:
        raise ValueError(f"mask has shape {mask.shape}; expected {rows.shape[:1]}, one per row")
    kept = numpy.asarray(mask).reshape(-1, *[1] * (rows.ndim - 1))
    return numpy.where(kept, rows, numpy.zeros_like(rows))


def _check_lengths(
    contexts: Array, actions: Array, rewards: Array | None, mask: Array | None = None
) -> None:
    given = {"contexts": contexts, "actions": actions, "rewards": rewards, "mask": mask}
    shapes = {name: value.shape for name, value in given.items() if value is not None}
    rows = {shape for name, shape in shapes.items() if name != "contexts"}
    if contexts.ndim != 2 or rows != {contexts.shape[:1]}:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(
            f"shapes do not fit: {listed}; expected contexts (n, dim), the others (n,)"
        )


def _check_support(rewards: np.ndarray, reward: Reward) -> None:
    if not rewards.size or isinstance(reward, Gaussian):
        return
    with jax.ensure_compile_time_eval():
        support: Any = reward.law(jnp.zeros(())).support
        inside = support(rewards)
    if not is_concrete(inside):
        return
    inside = np.broadcast_to(inside, rewards.shape)
    if not inside.all():
        raise ValueError(
            f"rewards hold {rewards[~inside][0]:g}, which {short(reward)} rewards never are; "
            "check the rewards or declare another reward family"
        )
