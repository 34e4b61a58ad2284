"""An agent in one file: everything it knows, so that it continues exactly as it would have.

The header holds the declaration of the policy (`declaration`) and the counts and settings; the arrays
are those of the policy, of its posterior, and of the log of decisions. See `file` for the format.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ....inference.buffer import buffers_in
from ....inference.random import fused_key, plain_key
from ....models.labels import as_labels
from ....models.messages import short
from ...policies.policy import Policy
from ..decisions import DecisionLog
from ..node_names import Names, NodeNames
from ..observations import ObservationLog
from ..ring import Ring
from ..state import COUNTED, AgentState, checked_settings
from .declaration import decode, encode, fingerprint, foreign_parts, named_arrays, rebuild
from .file import AgentFileError, read, write

__all__ = ["from_file", "read_state", "to_file", "write_state"]

_KIND = "agent"
_OBSERVED = "observed."  # how the names of the columns of the log of observations begin


def write_state(path: Any, state: AgentState) -> None:
    """Write an agent's state; a file of that name is replaced whole or not at all."""
    write(path, *to_file(state))


def read_state(path: Any, policy: Policy | None = None) -> AgentState:
    """What `write_state` wrote, bit for bit.

    Args:
        path: the file.
        policy: the policy that the agent was made with. Needed only where it has parts that a file
            cannot hold, such as a link of the user's own; a file made with another one is refused.
    """
    return from_file(*read(path), str(path), policy)


def to_file(state: AgentState) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays of an agent's file."""
    decisions, observations = state.decisions, state.observations
    header = {
        "kind": _KIND,
        "precision": decisions.contexts.dtype.name,
        "made_with": state.made_with,
        "policy": encode(state.policy, ".policy"),
        "room": max((buffer.capacity for buffer in buffers_in(state.posterior)), default=0),
        "labels": _encoded_labels(state.labels),
        "nodes": {
            name: {"size": known.size, "labels": _encoded_labels(known.labels)}
            for name, known in state.nodes.items()
        },
        "counts": state.counts,
        "settings": encode(state.settings._asdict()),
        "made": decisions.made,
        "observed": observations.made,
        "from_prior": observations.from_prior,
        "discounted_until": encode(state.discounted_until),
    }
    arrays = {
        path + name: _plain(array)
        for path, tree in ((".policy", state.policy), (".posterior", state.posterior))
        for name, array in named_arrays(tree).items()
    }
    arrays |= {"key": state.key, "is_open": state.is_open, **decisions.columns}
    observed = observations.columns | {"times": np.array(observations.times, np.int64)}
    return header, arrays | {_OBSERVED + name: array for name, array in observed.items()}


def _encoded_labels(labels: Any) -> Any:
    """Labels in JSON, refused where a file cannot hold one."""
    for label in labels or ():
        if foreign_parts(encode(label)):
            raise TypeError(
                f"the label {short(label)} cannot be written to a file; expected strings, numbers, "
                "None, or tuples of these: make the agent with such labels"
            )
    return encode(labels)


def _plain(array: Any) -> np.ndarray:
    """An array as NumPy's: a random key as its words."""
    array = jnp.asarray(array)
    is_key = jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(array) if is_key else array)


def from_file(
    header: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    name: str,
    policy: Policy | None = None,
) -> AgentState:
    """The state that a file's header and arrays hold; `name` is what errors call the file."""
    if header.get("kind") != _KIND:
        raise AgentFileError(f"{name} holds no agent, but {header.get('kind')!r}")
    here, there = jnp.result_type(float).name, header.get("precision")
    if here != there:
        raise AgentFileError(
            f"{name} was written in {there}, and JAX now computes in {here}: set "
            f"jax.config.update('jax_enable_x64', {there == 'float64'}) before anything is computed"
        )
    if policy is not None and fingerprint(policy) != header.get("made_with"):
        raise AgentFileError(
            f"{name} is the file of an agent with another policy or hierarchy than the one handed in; "
            "hand in the one it was made with, or none"
        )
    try:
        return _state(header, arrays, policy)
    except AgentFileError as error:
        raise AgentFileError(f"{name}: {error}") from error
    except Exception as error:
        raise AgentFileError(
            f"{name} was not written by mixts, though its checksum is right: {error}"
        ) from error


def _state(
    header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], donor: Policy | None
) -> AgentState:
    policy = _filled(rebuild(header["policy"], arrays, donor), arrays, ".policy")
    room = _count(header["room"])
    prior = jax.eval_shape(lambda: policy.init(fused_key(0), room=room))
    settings = checked_settings(**decode(header["settings"], {}))
    is_open = _checked(arrays["is_open"], (-1,), bool, "is_open")
    K, dim, dtype = len(is_open), policy.problem.dim, jnp.result_type(float)
    empty = DecisionLog.empty(settings.keep, dim, dtype)
    decisions = replace(empty, **_columns(arrays, empty, K), made=_count(header["made"]))
    nothing = ObservationLog.empty(settings.keep, dim, K, dtype)
    observations = replace(
        nothing,
        **_columns(arrays, nothing, K, _OBSERVED),
        times=_checked(arrays[f"{_OBSERVED}times"], (K,), np.int64, "times").tolist(),
        made=_count(header["observed"]),
        from_prior=header["from_prior"] is True,
    )
    if policy.problem.num_actions < K or not any(is_open):
        raise ValueError("actions are not as many as they should be")
    labels = decode(header["labels"], {})
    if labels is not None:
        labels = as_labels(labels, K, "the agent", "action")
    return AgentState(
        key=_checked(arrays["key"], (2,), np.uint32, "key"),
        policy=policy,
        posterior=_filled(prior, arrays, ".posterior"),
        labels=labels,
        nodes=_nodes(header["nodes"], policy.problem),
        is_open=is_open,
        decisions=decisions,
        observations=observations,
        counts={name: _count(header["counts"][name]) for name in COUNTED},
        settings=settings,
        made_with=str(header["made_with"]),
        discounted_until=_time(header["discounted_until"]),
    )


def _nodes(found: Mapping[str, Any], problem: Any) -> dict[str, Names]:
    """The nodes above the actions, of every level that a policy has."""
    there, nodes = NodeNames.declared(problem), {}
    for name, known in found.items():
        size, labels = _count(known["size"]), decode(known["labels"], {})
        if labels is not None:
            labels = as_labels(labels, size, f"level '{name}'")
        nodes[name] = Names(size, labels)
    if nodes.keys() != there.keys() or any(nodes[n].size > there[n].size for n in there):
        raise ValueError("nodes are not as many as they should be")
    return {name: nodes[name] for name in there}


def _columns(
    arrays: Mapping[str, np.ndarray], like: Ring, K: int, prefix: str = ""
) -> dict[str, np.ndarray]:
    """The columns of a log of K actions, of the types and widths that an empty one has."""
    rows = len(arrays[f"{prefix}actions"])
    if not 0 < rows <= like.keep:
        raise ValueError("the rows of a log are not as many as they should be")
    columns = {
        name: _checked(arrays[prefix + name], (rows, *own.shape[1:]), own.dtype, prefix + name)
        for name, own in like.columns.items()
    }
    if not np.isfinite(columns["contexts"]).all():
        raise ValueError("a row of a log has a context that is not finite")
    if not ((columns["actions"] >= 0) & (columns["actions"] < K)).all():
        raise ValueError("a row of a log is for an action that there is not")
    return columns


def _filled(shapes: Any, arrays: Mapping[str, np.ndarray], path: str) -> Any:
    """A pytree of shapes with the arrays of a file in their places."""

    def fill(where: Any, shape: Any) -> Any:
        name = path + jax.tree_util.keystr(where)
        if not jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
            return jnp.asarray(_checked(arrays[name], shape.shape, shape.dtype, name))
        words = _checked(arrays[name], (*shape.shape, 2), np.uint32, name)
        kinds = {key.dtype: key for key in (fused_key(0), plain_key(fused_key(0)))}
        impl = jax.random.key_impl(kinds[shape.dtype])
        return jax.random.wrap_key_data(jnp.asarray(words), impl=impl)

    return jax.tree_util.tree_map_with_path(fill, shapes)


def _checked(array: np.ndarray, shape: tuple[int, ...], dtype: Any, name: str) -> np.ndarray:
    """An array of the given type and shape, of which -1 is any length."""
    fits = len(shape) == array.ndim and all(
        want in (-1, found) for want, found in zip(shape, array.shape, strict=True)
    )
    if not fits or array.dtype != np.dtype(dtype):
        raise ValueError(
            f"array '{name}' is {array.dtype} of shape {array.shape}; expected {np.dtype(dtype)} of "
            f"shape {shape}"
        )
    return array


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"{value!r} is no count")
    return value


def _time(node: Any) -> float | None:
    value = decode(node, {})
    if value is not None and not (isinstance(value, float) and np.isfinite(value)):
        raise ValueError(f"{value!r} is no time")
    return value
