"""Backends are pure functions of pytrees: they run inside jit, scan and vmap, and compile once."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from backends import make
from gaussian_models import rows
from mixts.inference import ClosedForm, Factored
from mixts.models import Sparse, linear, three_level
from tolerance import tolerance

RUNS, ROUNDS = 3, 6


@contextlib.contextmanager
def compilations():
    """The list of compilations inside the block."""
    found = []

    def listen(event, *args, **kwargs):
        if event.endswith("backend_compile_duration"):
            found.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def play(backend, key):
    """A run of Thompson sampling: every function of a backend, inside one scan."""

    def round_(state, key):
        context_key, score_key, noise_key = jax.random.split(key, 3)
        context = jax.random.normal(context_key, (backend.hierarchy.dim,))
        action = jnp.argmax(backend.sample_scores(score_key, state, context))
        return backend.update(state, context, action, jax.random.normal(noise_key)), action

    first, rest = jax.random.split(key)
    state, actions = jax.lax.scan(round_, backend.init(first), jax.random.split(rest, ROUNDS))
    contexts = jnp.ones((2, backend.hierarchy.dim))
    state = backend.condition(state, contexts, actions[:2], jnp.ones(2))
    return state, backend.posterior(state), backend.sample(key, state)


@pytest.mark.parametrize("declare", [ClosedForm, Factored])
def test_backends_built_and_run_under_vmap(declare, x64):
    """Each run has weights of its own, which are traced; together they are the runs one by one."""
    rng = np.random.default_rng(0)
    weights, keys = rng.normal(size=(RUNS, 5, 2)), jax.random.split(jax.random.key(1), RUNS)

    def run(w, key):
        return play(declare(linear(w, 2, effect_cov=3.0)), key)

    together = jax.jit(jax.vmap(run))(weights, keys)
    one_run = jax.jit(run)
    for i in range(RUNS):
        alone = one_run(weights[i], keys[i])
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            if not jnp.issubdtype(b.dtype, jax.dtypes.prng_key):
                np.testing.assert_allclose(a[i], b, **tolerance(loosen=10))
    state = together[0]
    np.testing.assert_array_equal(state.info.observed, ROUNDS + 2)
    means = together[1].mean["effect"]
    assert np.ptp(np.asarray(means), axis=0).min() > 1e-3, "runs must differ"


def test_init_under_vmap_alone():
    """Without jit: everything that is checked when declared must let tracers pass."""
    rng = np.random.default_rng(2)
    weights = rng.normal(size=(RUNS, 5, 2))
    states = jax.vmap(lambda w: ClosedForm(linear(w, 2)).init())(weights)
    assert states.effects.root.shape == (RUNS, 4, 4)
    items, actions = rng.normal(size=(RUNS, 3, 2)), rng.normal(size=(RUNS, 5, 3))
    states = jax.vmap(lambda v, w: ClosedForm(three_level(v, w, 2)).init())(items, actions)
    np.testing.assert_allclose(states.effects.root[1, 4, 0], items[1, 0, 0], rtol=1e-6)


def test_sparse_indices_may_be_traced():
    """Pattern and values of sparse weights both differ from run to run."""
    rng = np.random.default_rng(3)
    indices = np.array([[rng.permutation(4)[:2] for _ in range(5)] for _ in range(RUNS)])
    values = rng.normal(size=(RUNS, 5, 2))

    def means(indices, values):
        backend = ClosedForm(linear(Sparse(indices, values, num_parents=4), 2))
        return backend.posterior(backend.update(backend.init(), jnp.ones(2), 3, 1.0)).mean

    together = jax.vmap(means)(indices, values)
    for i in range(RUNS):
        alone = means(indices[i], values[i])
        for name in alone:
            np.testing.assert_allclose(together[name][i], alone[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["closed form", "decoupled"])
def test_nothing_recompiles_when_values_change(name):
    """Other data, keys, weights and even other backends of the same shape reuse what was compiled."""
    model, backend = make(name)
    rng = np.random.default_rng(4)

    def use(backend, seen, key):
        state = backend.condition(backend.init(), *seen)
        for context, action, reward in zip(*seen, strict=True):
            state = backend.update(state, context, int(action), float(reward))
        backend.sample_scores(key, state, seen.contexts[0])
        backend.sample(key, state)
        backend.posterior(state).draw(key, 2)

    use(backend, rows(model, 3, rng), jax.random.key(0))
    with compilations() as first:
        jax.jit(lambda x: 3 * x - 7)(1.0)
    assert first, "the listener must see compilations"
    others = [jax.tree.map(lambda x: x, backend), _scaled(backend)]
    fresh = [rows(model, 3, rng) for _ in others]
    keys = [jax.random.key(k) for k in (1, 2)]
    with compilations() as again:
        for other, seen, key in zip(others, fresh, keys, strict=True):
            use(other, seen, key)
    assert not again


def _scaled(backend):
    """A backend of the same shape with other numbers."""
    scale = lambda x: x * 1.1 if jnp.issubdtype(x.dtype, jnp.floating) else x  # noqa: E731
    return jax.tree.map(scale, backend)


def test_a_backend_declared_anew_does_not_recompile():
    """Fresh weights in Python code, as in a service that reloads its model."""
    rng = np.random.default_rng(5)

    def use(weights):
        backend = ClosedForm(linear(weights, 2, effect_cov=2.0, noise=0.5))
        state = backend.update(backend.init(), rng.normal(size=2), 1, 0.5)
        return backend.posterior(state).mean["effect"]

    one = use(rng.normal(size=(4, 3)))
    with compilations() as found:
        other = use(rng.normal(size=(4, 3)))
    assert not found
    assert not np.allclose(one, other)


def test_states_and_posteriors_are_pytrees():
    model, backend = make("closed form")
    state = backend.condition(backend.init(), *rows(model, 5, np.random.default_rng(6)))

    @jax.jit
    def through(posterior):
        return posterior

    posterior = through(backend.posterior(state))
    key = jax.random.key(7)
    np.testing.assert_array_equal(
        posterior.draw(key, 3)["item"], backend.posterior(state).draw(key, 3)["item"]
    )
    averaged = jax.tree.map(lambda *x: x[0], state, state)
    assert jax.tree.structure(averaged) == jax.tree.structure(state)


def test_gradients_of_the_evidence(x64):
    """The evidence may be differentiated with respect to what was declared."""
    rng = np.random.default_rng(8)
    weights = rng.normal(size=(4, 2))
    seen = rng.normal(size=(12, 2)), rng.integers(0, 4, 12), rng.normal(size=12)

    @jax.jit
    def evidence(effect_cov):
        backend = ClosedForm(linear(weights, 2, effect_cov=effect_cov))
        return backend.condition(backend.init(), *seen).log_evidence

    step = 1e-5
    slope = (evidence(2.0 + step) - evidence(2.0 - step)) / (2 * step)
    np.testing.assert_allclose(jax.grad(evidence)(2.0), slope, rtol=1e-7)
