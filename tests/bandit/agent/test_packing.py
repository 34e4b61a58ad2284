"""A pytree in few buffers comes out as it went in, bit for bit."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np

from mixts.bandit import ThompsonSampling
from mixts.bandit.agent.packing import packing_of
from mixts.inference import ClosedForm
from mixts.models import linear


def awkward() -> dict:
    """Whole numbers whose bits are no proper floating-point numbers, keys, nothing, and large arrays."""
    return {
        "whole": jnp.asarray([-1, 0, 1, 2**31 - 1, -(2**31), 0x7F800001], jnp.int32),
        "words": jnp.asarray([0xFFFFFFFF, 0x7FC00001, 5], jnp.uint32),
        "numbers": jnp.asarray([[0.1, -0.0], [np.inf, 1e-45]], jnp.float32),
        "mask": jnp.asarray([True, False]),
        "key": jax.random.key(3),
        "empty": jnp.zeros((0, 3)),
        "none": None,
        "large": jnp.arange(100_000.0).reshape(100, -1),
        "scalar": jnp.asarray(2.5),
    }


def check_same(one, other) -> None:
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_there_and_back(precision):
    tree = awkward()
    packing = packing_of(tree)
    buffers = jax.jit(packing.pack)(tree)
    check_same(packing.unpack(buffers), tree)
    check_same(jax.jit(packing.unpack)(buffers), tree)
    again = jax.jit(lambda buffers: packing.pack(packing.unpack(buffers)))(buffers)
    check_same(packing.unpack(again), tree)


def test_few_buffers():
    """Small arrays of 32 bits are one, whatever they hold; the key, the mask and the large stay alone."""
    tree = awkward()
    buffers = packing_of(tree).pack(tree)
    assert len(buffers) == 4
    policy = ThompsonSampling(ClosedForm(linear(np.ones((20, 3)), 2)))
    state = policy.init(jax.random.key(0))
    assert len(packing_of(policy).pack(policy)) == 1
    assert len(packing_of(state).pack(state)) == 1


def test_equal_structures_have_equal_packings():
    """So that agents alike share programs; another size is another packing."""
    make = lambda K: packing_of(ThompsonSampling(ClosedForm(linear(np.ones((K, 3)), 2))))  # noqa: E731
    assert make(4) == make(4)
    assert hash(make(4)) == hash(make(4))
    assert make(4) != make(5)


def test_numbers_of_python_are_in_the_precision_of_jax():
    """Such as the scale of a distribution: no warning of a float64 that is not switched on."""
    tree = {"python": 1.0, "numpy": np.float64(2.0), "array": np.ones(2), "count": 3}
    packing = packing_of(tree)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = packing.unpack(jax.jit(packing.pack)(tree))
    assert {name: value.tolist() for name, value in found.items()} == {
        "python": 1.0,
        "numpy": 2.0,
        "array": [1.0, 1.0],
        "count": 3,
    }
    assert found["python"].dtype == jnp.result_type(float)
