"""How close two computations of the same number should be, in one place for the whole suite."""

import jax.numpy as jnp

# Relative and absolute, for well-conditioned problems of moderate size.
_TOLERANCES = {
    "float32": (1e-4, 1e-5),
    "float64": (1e-9, 1e-10),
}


def tolerance(loosen: float = 1.0) -> dict[str, float]:
    """`rtol` and `atol` for `numpy.testing.assert_allclose` in JAX's current precision.

    This is for rounding error: a statistical test derives its tolerance from Monte Carlo error. A
    test that multiplies it by `loosen` says why.
    """
    relative, absolute = _TOLERANCES[jnp.result_type(float).name]
    return {"rtol": loosen * relative, "atol": loosen * absolute}
