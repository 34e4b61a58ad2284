"""Options of the compiler for large programs: used where they can be, and the user's choice stays."""

import jax
import jax.numpy as jnp
import pytest

from mixts.bandit import Agent, LinTS, ThompsonSampling
from mixts.inference import ClosedForm, Nuts, compiling
from mixts.inference.compiling import jit_loop, jit_once, loop_options, once_options
from mixts.models import linear


@pytest.fixture(autouse=True)
def _as_users_have_it(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    for options in (loop_options, once_options):
        options.cache_clear()
    yield
    for options in (loop_options, once_options):
        options.cache_clear()


def total(n, start):
    return jax.lax.fori_loop(0, n, lambda i, x: x + i, start)


def test_it_computes_what_jit_computes_wherever_it_is_called():
    looped, starts = jit_loop(total), jnp.arange(3)
    assert loop_options()
    assert int(looped(4, 1)) == int(jax.jit(looped)(4, 1)) == 7
    assert jax.vmap(looped, (None, 0))(4, starts).tolist() == [6, 7, 8]
    assert float(jax.grad(lambda x: jit_loop(jnp.square)(x))(3.0)) == 6.0


@pytest.mark.parametrize("flags", ["", "--xla_backend_optimization_level=2"])
def test_what_runs_once_is_the_same_without_optimisations(flags, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", flags)
    drawn = jit_once(lambda key: jax.random.normal(key, (3,)))
    expected = jax.random.normal(jax.random.key(0), (3,))
    options = once_options()
    assert options is not None
    assert ("xla_backend_optimization_level" in options) is (not flags)
    assert jnp.allclose(drawn(jax.random.key(0)), expected)
    assert jnp.allclose(jax.vmap(drawn)(jax.random.key(0)[None])[0], expected)


def test_arguments_that_are_all_known_do_not_hide_that_jit_is_around_it():
    known = jnp.asarray(1)
    assert jax.eval_shape(lambda: jit_loop(total)(4, known)).shape == ()


def test_static_arguments_are_handed_on():
    ones = jit_loop(jnp.ones, static_argnums=0)
    assert ones(3).tolist() == [1.0] * 3


def test_a_users_flag_stays(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=true")
    assert loop_options() is None
    assert int(jit_loop(total)(4, 1)) == 7


def test_an_option_that_xla_does_not_know_is_left_out(monkeypatch):
    monkeypatch.setattr(compiling, "_OPTION", "xla_of_another_time")
    assert loop_options() is None


def test_chains_are_compiled_with_them_and_passes_over_actions_without():
    hierarchy = linear([[1.0], [0.5]], dim=1)
    assert Nuts(hierarchy).compiler_options == loop_options()
    assert ClosedForm(hierarchy).compiler_options is None


@pytest.mark.slow
def test_an_agent_on_chains_is_compiled_with_them():
    hierarchy = linear([[1.0], [0.5]], dim=1)
    agent = Agent(ThompsonSampling(Nuts(hierarchy, warmup=5, samples=5, window=5)))
    agent.reward(agent.act([1.0]).id, 1.0)
    assert agent.counts["observations"] == 1
    Agent(LinTS(hierarchy)).act([1.0])
