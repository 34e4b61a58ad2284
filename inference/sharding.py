"""`over_devices`: a backend and its state with the actions spread over many devices."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..models.messages import short
from .backend import Backend
from .gaussian.closed_form import ClosedForm
from .gaussian.drift import drifts_above
from .gaussian.messages import GaussianState
from .gaussian.sharded_messages import (
    AXIS,
    ShardedMessages,
    split_first,
    split_levels,
    split_state,
)

__all__ = ["over_devices"]


def over_devices(
    backend: Any, state: Any = None, mesh: Any = None
) -> tuple[ClosedForm, GaussianState]:
    """The same backend and state with the actions spread over devices, K / devices on each.

    The levels above the actions are copied to every device. Decisions are those of one device: random
    numbers and posteriors are the same, bit for bit; only a score may be rounded otherwise in its last
    bit, as the compiler merges multiplications and additions in another order.

    A decision sends two numbers between devices and an `update` those of one action, O(d^2), however
    many actions there are. `condition` is one `update` after the other; everything else works as well,
    and may send more.

    With several processes (`jax.distributed`) each makes the same calls, and holds what its own devices
    do; leave `state` out, and the prior is made where it belongs.

    Args:
        backend: a `ClosedForm`.
        state: its state; the prior by default.
        mesh: devices, with an axis called 'actions' whose size divides K; by default all of
            `jax.devices()`.

    Example:
        >>> from mixts.inference import ClosedForm, over_devices
        >>> from mixts.models import linear
        >>> backend, state = over_devices(ClosedForm(linear([[1.0], [0.5]], dim=1)))
        >>> state = backend.update(state, context=[1.0], action=0, reward=3.0)
        >>> float(backend.posterior(state).mean["action"][0, 0])
        2.0
    """
    _check_backend(backend)
    K = backend.hierarchy.num_actions
    mesh = _checked_mesh(mesh, K)
    place = _Placing(mesh)
    levels = place(backend.levels, split_levels(backend.levels))
    hierarchy = place(backend.hierarchy, split_first(backend.hierarchy, K))
    placed = eqx.tree_at(
        lambda b: (b.hierarchy, b.messages, b.levels),
        backend,
        (hierarchy, ShardedMessages(mesh), levels),
    )
    if state is None:
        return placed, placed.init()
    _check_state(state, K)
    return placed, place(state, split_state(state))


class _Placing:
    """Puts arrays on the devices of a mesh; one that is met again is not copied again."""

    def __init__(self, mesh: Mesh):
        self.mesh = mesh
        self.placed: dict[tuple[int, PartitionSpec], Array] = {}

    def __call__(self, tree: Any, splits: Any) -> Any:
        return jax.tree.map(self._one, tree, splits)

    def _one(self, x: Any, split: PartitionSpec) -> Array:
        known = id(x), split
        if known not in self.placed:
            self.placed[known] = _put(x, NamedSharding(self.mesh, split))
        return self.placed[known]


def _put(x: Any, sharding: NamedSharding) -> Array:
    if isinstance(x, Array) and not x.is_fully_addressable:
        return jax.device_put(x, sharding)
    # Not `device_put`, which compares the whole array between processes. Shares are copies: a device of
    # the host would use a view as it is, and keep the whole alive.
    whole = np.asarray(x)
    return jax.make_array_from_callback(whole.shape, sharding, lambda share: whole[share].copy())


def _check_backend(backend: Any) -> None:
    if isinstance(backend, ClosedForm):
        if drifts_above(backend.hierarchy):
            raise ValueError(
                "over_devices: a level above the actions drifts, and all vectors are kept jointly, the "
                "actions too, so that none can be held apart; declare drift for the actions alone"
            )
        return
    if isinstance(backend, Backend):
        raise TypeError(
            f"over_devices: {type(backend).__name__} cannot be spread over devices: only ClosedForm "
            "keeps a posterior for each action that a reward of another leaves alone"
        )
    raise TypeError(
        f"over_devices: got {short(backend)}; expected a backend, ClosedForm(hierarchy). A policy takes "
        "the backend that this returns: ThompsonSampling(backend)"
    )


def _check_state(state: Any, K: int) -> None:
    if not isinstance(state, GaussianState):
        raise TypeError(
            f"over_devices: state is {short(state)}; expected a state of the backend, as init, update "
            "and condition return it, or None for the prior"
        )
    known = state.actions.center.shape[-1]
    if known != K:
        raise ValueError(
            f"over_devices: state is of {known:,} actions and the backend of {K:,}; expected a state of "
            "this backend"
        )


def _checked_mesh(mesh: Any, K: int) -> Mesh:
    if mesh is None:
        mesh = Mesh(np.array(jax.devices()), (AXIS,))
    if not isinstance(mesh, Mesh):
        raise TypeError(
            f"over_devices: mesh is {short(mesh)}; expected a jax.sharding.Mesh: write "
            f"jax.make_mesh(({jax.device_count()},), ('{AXIS}',))"
        )
    if AXIS not in mesh.shape:
        raise ValueError(
            f"over_devices: mesh has the axes {mesh.axis_names}; expected one called '{AXIS}', which "
            f"actions are spread over: write jax.make_mesh(({mesh.size},), ('{AXIS}',))"
        )
    devices = mesh.shape[AXIS]
    if devices > K:
        raise ValueError(
            f"over_devices: {K:,} actions cannot be spread over {devices} devices, more than there are "
            "actions; use a smaller mesh, or none"
        )
    if K % devices:
        fewer = max(n for n in range(1, devices) if K % n == 0)
        raise ValueError(
            f"over_devices: {K:,} actions cannot be shared out equally among {devices} devices; use "
            f"{fewer}, or declare {K - K % -devices:,} actions, of which the last are never allowed"
        )
    # Whichever types the axes have, the compiler spreads what follows from arrays that are spread.
    return Mesh(mesh.devices, mesh.axis_names)
