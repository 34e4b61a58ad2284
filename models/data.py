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
from .rewards import Gaussian, Reward, is_one

__all__ = ["Data", "Observations", "as_observations"]


class Data(eqx.Module):
    """`n` observations, which unpack into the arguments of `hierarchy.program(*data)`.

    Attributes:
        contexts: (n, dim), the context of each round (of the chosen action, where they differ); where
            they have names, hand in `hierarchy.contexts(table)`.
        actions: (n,), the chosen actions as positions in the action level.
        rewards: (n,).
        exposure: None, where each row is one reward; or how many rewards each row stands for, (n,) or one
            number for all: impressions beside clicks, hours beside counts, the number of ratings beside
            their mean.

    Example:
        >>> data = Data(contexts=[[1.0, 0.5], [1.0, -0.5]], actions=[0, 2], rewards=[1.0, 0.0])
        >>> data, len(data)
        (Data(2 observations, dim=2), 2)
        >>> Data([[1.0]], [0], rewards=[12.0], exposure=[400])  # 12 clicks out of 400 impressions
        Data(1 observations, dim=1, with exposure)
    """

    contexts: Any
    actions: Any
    rewards: Any
    exposure: Any = None

    def __post_init__(self):
        self.contexts = as_contexts(self.contexts, None, "Data contexts")
        self.actions = as_integers(self.actions, "Data actions")
        self.rewards = as_numbers(self.rewards, "Data rewards")
        self.exposure = _as_exposure(self.exposure, self.rewards, "Data exposure")
        _check_lengths(self.contexts, self.actions, self.rewards, exposure=self.exposure)

    def __iter__(self) -> Iterator[Array]:
        rows = self.contexts, self.actions, self.rewards
        return iter(rows if self.exposure is None else (*rows, self.exposure))

    def __len__(self) -> int:
        return self.contexts.shape[0]

    def __repr__(self) -> str:
        n, dim = self.contexts.shape
        exposed = "" if self.exposure is None else ", with exposure"
        return f"Data({n} observations, dim={dim}{exposed})"


class Observations(NamedTuple):
    """Observations that fit a hierarchy; padded rows, where `mask` is False, hold zeros."""

    contexts: Float[Array, "n d"]
    actions: Int[Array, " n"]
    rewards: Float[Array, " n"] | None
    exposure: Float[Array, " n"] | None
    mask: Bool[Array, " n"] | None


def as_observations(
    contexts: Any,
    actions: Any,
    rewards: Any,
    exposure: Any = None,
    mask: Any = None,
    *,
    dim: int,
    num_actions: int,
    reward: Reward,
) -> Observations:
    """Convert observations and refuse what does not fit; values are checked where they are known.

    Rows outside `mask` may hold anything, so that a buffer filled with NaN can be padding. An exposure of
    one, written as a number, is none.
    """
    exposure = None if is_one(exposure) else exposure
    if exposure is not None:
        reward.check_takes_exposure()
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
        if exposure is not None and np.ndim(exposure):
            exposure = _blank_padding(exposure, mask, blank=1)
    contexts = as_numbers(contexts, "contexts")
    actions = as_integers(actions, "actions", below=num_actions)
    if rewards is not None:
        rewards = as_numbers(rewards, "rewards")
    exposure = _as_exposure(exposure, actions, "exposure")
    _check_lengths(contexts, actions, rewards, mask, exposure)
    if contexts.shape[1] != dim:
        raise ValueError(f"contexts have shape {contexts.shape}; expected (n, {dim})")
    if exposure is not None and reward.counts_trials and is_concrete(exposure):
        _check_whole(np.asarray(exposure), reward)
    if rewards is not None and is_concrete(rewards, exposure):
        _check_support(np.asarray(rewards), reward, exposure)
    return Observations(contexts, actions, rewards, exposure, mask)


def _as_exposure(exposure: Any, rows: Array, what: str) -> Array | None:
    """Exposures as positive numbers, one for each row."""
    if exposure is None:
        return None
    if np.dtype(getattr(exposure, "dtype", float)).kind == "b":
        raise TypeError(
            f"{what} is True and False; expected numbers: a mask goes by name, mask=..."
        )
    numbers = as_numbers(exposure, what)
    if is_concrete(numbers) and not (np.asarray(numbers) > 0).all():
        wrong = np.asarray(numbers)[~(np.asarray(numbers) > 0)].flat[0]
        raise ValueError(
            f"{what} holds {wrong:g}; expected positive numbers: how many rewards each row stands for"
        )
    return jnp.broadcast_to(numbers, rows.shape) if numbers.ndim == 0 else numbers


def _check_whole(exposure: np.ndarray, reward: Reward) -> None:
    broken = exposure[exposure != np.round(exposure)]
    if broken.size:
        raise ValueError(
            f"exposure holds {broken[0]:g}; of {short(reward)} rewards it is a number of trials: expected "
            "whole numbers"
        )


def _blank_padding(rows: Any, mask: Bool[Array, " n"], blank: int = 0) -> Any:
    # In NumPy where possible: JAX would wrap an action beyond 2^31 around before it is checked.
    numpy = np if is_concrete(rows, mask) else jnp
    rows = numpy.asarray(rows)
    if rows.shape[:1] != mask.shape:
        raise ValueError(f"mask has shape {mask.shape}; expected {rows.shape[:1]}, one per row")
    kept = numpy.asarray(mask).reshape(-1, *[1] * (rows.ndim - 1))
    return numpy.where(kept, rows, numpy.full_like(rows, blank))


def _check_lengths(
    contexts: Array,
    actions: Array,
    rewards: Array | None,
    mask: Array | None = None,
    exposure: Array | None = None,
) -> None:
    given = {"contexts": contexts, "actions": actions, "rewards": rewards}
    given |= {"exposure": exposure, "mask": mask}
    shapes = {name: value.shape for name, value in given.items() if value is not None}
    rows = {shape for name, shape in shapes.items() if name != "contexts"}
    if contexts.ndim != 2 or rows != {contexts.shape[:1]}:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(
            f"shapes do not fit: {listed}; expected contexts (n, dim), the others (n,)"
        )


def _check_support(rewards: np.ndarray, reward: Reward, exposure: Array | None) -> None:
    if not rewards.size or isinstance(reward, Gaussian):
        return
    with jax.ensure_compile_time_eval():
        support: Any = reward.support(exposure)
        inside = support(rewards)
    if not is_concrete(inside):
        return
    inside = np.broadcast_to(inside, rewards.shape)
    if not inside.all():
        exposed = "" if exposure is None else f" with exposure {exposure[~inside][0]:g}"
        raise ValueError(
            f"rewards hold {rewards[~inside][0]:g}{exposed}, which {short(reward)} rewards never are; "
            "check the rewards or declare another reward family"
        )
