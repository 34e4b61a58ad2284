"""Distributions of unknown numbers as data: their names and parameters, and back.

A level's `scale=dist.HalfNormal(1.0)` is a part of a declaration like any number. Distributions listed here
are written as their names with the parameters that NumPyro constrains; others stay what a file cannot
hold.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import Distribution, ExpandedDistribution, Independent

__all__ = ["decode_law", "encode_law"]

_LAWS: dict[str, type] = {
    law.__name__: law
    for law in (
        *(dist.HalfNormal, dist.HalfCauchy, dist.LogNormal, dist.Gamma, dist.InverseGamma),
        *(dist.Exponential, dist.Uniform, dist.Normal, dist.Cauchy, dist.StudentT, dist.Beta),
    )
}


def encode_law(law: Any) -> dict[str, Any] | None:
    """A distribution in JSON, or None where it has no such form."""
    if isinstance(law, ExpandedDistribution):
        base = encode_law(law.base_dist)
        return base and {"expanded": base, "batch": list(law.batch_shape)}
    if isinstance(law, Independent):
        base = encode_law(law.base_dist)
        return base and {"independent": base, "axes": law.reinterpreted_batch_ndims}
    if not isinstance(law, Distribution) or _LAWS.get(type(law).__name__) is not type(law):
        return None
    parameters = {name: _numbers(getattr(law, name)) for name in law.arg_constraints}
    return {"law": type(law).__name__, "parameters": parameters}


def decode_law(node: Any) -> Distribution:
    """What `encode_law` was given."""
    match node:
        case {"expanded": dict(base), "batch": list(batch)}:
            return decode_law(base).expand(tuple(map(int, batch)))
        case {"independent": dict(base), "axes": int(axes)}:
            return decode_law(base).to_event(axes)
        case {"law": str(name), "parameters": dict(parameters)}:
            known = {key: _value(each) for key, each in parameters.items()}
            return _LAWS[name](**known)
    raise ValueError(f"{node!r} is no distribution that mixts writes")


def _numbers(value: Any) -> dict[str, Any]:
    """Numbers bit for bit, with their shape; a plain number has none."""
    if isinstance(value, int | float):
        return {"numbers": [float(value).hex()]}
    array = np.asarray(value, np.float64)
    return {"numbers": [float(x).hex() for x in array.ravel()], "shape": list(array.shape)}


def _value(node: Any) -> Any:
    numbers = [float.fromhex(digits) for digits in node["numbers"]]
    if "shape" not in node:
        return numbers[0]
    return jnp.asarray(np.reshape(numbers, node["shape"]), jnp.result_type(float))
