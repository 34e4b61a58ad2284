"""Policies as data: a declaration in JSON, its arrays by name, and back.

Only classes and functions listed here are ever made from a file; fields are data, and constructors
check them as they check a user's. A part that a file cannot hold, such as a link written by the user, is
written as its name, and whoever reads the file must give a policy that has it.

An array's name is its path in the policy's pytree, such as `.backend.hierarchy.levels[1].cov`.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ....inference import (
    ClosedForm,
    Collapsed,
    ExpectationPropagation,
    Factored,
    Laplace,
    Mixture,
    Nuts,
    Program,
    Svi,
)
from ....inference.programs.target import Target
from ....models import (
    AR1,
    Bernoulli,
    Binomial,
    Gaussian,
    GaussianProcess,
    Graph,
    Hierarchy,
    Level,
    NegativeBinomial,
    Ordinal,
    Poisson,
    Probit,
    Relationship,
    Sparse,
    StudentT,
)
from ....models.declaration import Declaration
from ...policies.cost_aware import CostAware
from ...policies.glm_ucb import GLMUCB, UCBGLM
from ...policies.greedy import BayesUCB, EpsilonGreedy
from ...policies.information_directed import InformationDirected
from ...policies.lin_ucb import LinUCB
from ...policies.policy import Policy, ThompsonSampling, UniformRandom
from ...policies.top_two import TopTwo
from .file import AgentFileError
from .laws import decode_law, encode_law

__all__ = ["CLASSES", "decode", "encode", "fingerprint", "foreign_parts", "named_arrays", "rebuild"]

CLASSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        *(ThompsonSampling, UniformRandom, LinUCB, UCBGLM, GLMUCB),
        *(TopTwo, InformationDirected, BayesUCB, EpsilonGreedy, CostAware),
        *(Mixture, ClosedForm, Collapsed, ExpectationPropagation, Factored, Laplace),
        *(Nuts, Svi, Program, Target),
        *(Hierarchy, Level, Sparse, Gaussian, Bernoulli, Poisson),
        *(AR1, Graph, GaussianProcess, Relationship),
        *(Binomial, NegativeBinomial, StudentT, Probit, Ordinal),
    )
}

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "jax.nn.sigmoid": jax.nn.sigmoid,
    "jax.nn.softplus": jax.nn.softplus,
    "jax.nn.relu": jax.nn.relu,
    "jax.numpy.tanh": jnp.tanh,
    "jax.numpy.exp": jnp.exp,
    "jax.numpy.sin": jnp.sin,
    "jax.numpy.square": jnp.square,
}


def named_arrays(tree: Any) -> dict[str, Any]:
    """The arrays of a pytree by their paths."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def encode(value: Any, path: str = "") -> Any:
    """A declaration in JSON; arrays stand in it by their names in `named_arrays`, after `path`."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}  # bit for bit, and JSON has no infinity
    if isinstance(value, jax.Array | np.ndarray):
        return {"array": path}
    if isinstance(value, tuple | list):
        return {"list": [encode(part, f"{path}[{i}]") for i, part in enumerate(value)]}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {"dict": {key: encode(part, f"{path}[{key!r}]") for key, part in value.items()}}
    name = next((name for name, known in _FUNCTIONS.items() if known is value), None)
    if name is not None:
        return {"function": name}
    if isinstance(value, Declaration) and CLASSES.get(type(value).__name__) is type(value):
        parts = {n: encode(part, f"{path}.{n}") for n, part in value.arguments().items()}
        return {"class": type(value).__name__, "arguments": parts}
    law = encode_law(value)
    if law is not None:
        return {"distribution": law}
    # Its numbers can be written: a distribution of learned weights has some.
    numbers = [] if callable(value) else [path + name for name in named_arrays(value)]
    return {"foreign": _name(value), "arrays": numbers}


def _name(value: Any) -> str:
    """The name of a foreign part: a function's own, or that of the class."""
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"


def foreign_parts(node: Any) -> list[str]:
    """The names of what a file cannot hold."""
    return [inner["foreign"] for inner in _inner(node) if "foreign" in inner]


def _inner(node: Any) -> Iterator[dict[str, Any]]:
    """All objects in a description, itself included."""
    if isinstance(node, dict):
        yield node
    parts = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for part in parts:
        yield from _inner(part)


def fingerprint(policy: Policy) -> str:
    """A hash of everything declared: structure, names of foreign parts, shapes, types and values.

    What is derived from a declaration, such as the prior of all levels, is not included.
    """
    node, arrays = encode(policy), named_arrays(policy)
    digest = hashlib.blake2b(json.dumps(node, sort_keys=True).encode(), digest_size=16)
    for inner in _inner(node):
        names = [inner["array"]] if "array" in inner else inner.get("arrays", [])
        for name in names:
            array = np.asarray(arrays[name])
            digest.update(f"{array.dtype.str} {array.shape}".encode())
            digest.update(array.tobytes())
    return digest.hexdigest()


def rebuild(node: Any, arrays: Mapping[str, np.ndarray], donor: Policy | None = None) -> Any:
    """The policy's structure, with shapes and types in place of arrays, from its description.

    What is declared is checked by value; what is derived from it is evaluated in shapes only, so that a
    file that declares huge levels takes no memory.

    Args:
        node: what `encode` gave.
        arrays: the arrays by name, perhaps with others.
        donor: a policy that has what a file cannot hold.
    """
    missing = foreign_parts(node) if donor is None else []
    if missing:
        raise AgentFileError(
            f"the policy has parts that a file cannot hold: {', '.join(missing)}; hand in the policy "
            "that the agent was made with, policy=..."
        )
    try:
        for inner in _inner(node):
            if inner.get("class") == Hierarchy.__name__ and not foreign_parts(inner):
                decode(inner, arrays)
        return jax.eval_shape(lambda known: decode(node, known, donor), dict(arrays))
    except Exception as error:
        raise AgentFileError(f"the declaration in the file is not sound: {error}") from error


def decode(node: Any, arrays: Mapping[str, Any], donor: Any = None) -> Any:
    """What `encode` was given; `donor` is one that has what it could not hold."""
    if not isinstance(node, dict):
        if node is None or isinstance(node, bool | int | str):
            return node
        raise ValueError(f"{node!r} is no value")
    match node:
        case {"float": str(digits)}:
            return float.fromhex(digits)
        case {"array": str(name)}:
            return arrays[name]
        case {"list": list(parts)}:
            return tuple(decode(part, arrays, _at(donor, i)) for i, part in enumerate(parts))
        case {"dict": dict(parts)}:
            return {key: decode(part, arrays, _at(donor, key)) for key, part in parts.items()}
        case {"function": str(name)}:
            return _FUNCTIONS[name]
        case {"distribution": dict(law)}:
            return decode_law(law)
        case {"class": str(name), "arguments": dict(parts)}:
            known = donor.arguments() if type(donor).__name__ == name else {}
            arguments = {key: decode(part, arrays, known.get(key)) for key, part in parts.items()}
            return CLASSES[name](**arguments)
        case {"foreign": str(name)}:
            if donor is None or _name(donor) != name:
                raise ValueError(f"{name} is not where it was in the policy that was handed in")
            return donor
    raise ValueError(f"{sorted(node)} is nothing that mixts writes")


def _at(parts: Any, place: Any) -> Any:
    try:
        return parts[place]
    except (TypeError, KeyError, IndexError):
        return None
