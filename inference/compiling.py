"""How large programs are compiled: options of XLA for those that consist of loops of small steps.

A transition of NUTS is some 7,000 operations on a few hundred numbers each. XLA's fusion emitters for CPUs,
which are the default, take a third of the time that compiling it takes, and make it slower. In CPU seconds:

| actions, dimensions | compiling with them | without | transitions | with them | without |
| --- | --- | --- | --- | --- | --- |
| 20, 2 | 7.6 | 5.1 | 200 | 0.77 | 0.35 |
| 500, 5 | 6.4 | 4.4 | 20 | 0.55 | 0.33 |

The one pass over K d^2 numbers that a Gaussian backend makes is faster with them. So they are left out of
programs with chains alone, and flags that a user has set stay as they are. Half of the rest is LLVM's
optimisation, which is worth it wherever a program runs for longer than a moment: without it 3,000 steps of
`Svi` take 2.0 s in place of 0.3.
"""

import os
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
from jax.core import eval_context
from jax.extend.core import get_opaque_trace_state

__all__ = ["jit_loop", "jit_once", "loop_options", "once_options"]

P = ParamSpec("P")
R = TypeVar("R")

_OPTION = "xla_cpu_use_fusion_emitters"
_FLAGS = "XLA_FLAGS"
_UNOPTIMISED = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@cache
def loop_options() -> dict[str, Any] | None:
    """Options to compile loops of small steps with; None if the user has chosen, or XLA knows none.

    Example:
        >>> double = jax.jit(lambda x: 2 * x, compiler_options=loop_options())
        >>> float(double(1.5))
        3.0
    """
    if _OPTION in os.environ.get(_FLAGS, ""):
        return None
    options = {_OPTION: False}
    try:
        with eval_context():
            jax.jit(jnp.negative, compiler_options=options).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:  # an XLA that has no such option
        return None
    return options


def jit_loop(function: Callable[P, R], **settings: Any) -> Callable[P, R]:
    """`jax.jit` with the options for loops of small steps, where it is the outermost.

    JAX takes options for the outermost function alone: inside another, that one's options hold.

    Args:
        function: what to compile.
        settings: further arguments of `jax.jit`.

    Example:
        >>> count = jit_loop(lambda n: jax.lax.fori_loop(0, n, lambda i, x: x + i, 0))
        >>> int(count(5)), int(jax.jit(count)(5))
        (10, 10)
    """
    return _jit_with(loop_options, function, settings)


def jit_once(function: Callable[P, R], **settings: Any) -> Callable[P, R]:
    """`jax.jit` of what runs once and for a moment, such as a draw of the prior to start from.

    It is compiled without optimisations, in a quarter of the time, where it is the outermost.

    Example:
        >>> int(jit_once(lambda x: x + 1)(2))
        3
    """
    return _jit_with(once_options, function, settings)


@cache
def once_options() -> dict[str, Any] | None:
    """Options to compile without optimisations; those of loops where the user has chosen.

    Example:
        >>> float(jax.jit(lambda x: 2 * x, compiler_options=once_options())(1.5))
        3.0
    """
    loops = loop_options()
    if loops is None or any(option in os.environ.get(_FLAGS, "") for option in _UNOPTIMISED):
        return loops
    return loops | _UNOPTIMISED


def _jit_with(
    options: Callable[[], Any], function: Callable[P, R], settings: dict[str, Any]
) -> Callable[P, R]:
    """`jax.jit` with options of the compiler where it is the outermost."""
    inside = jax.jit(function, **settings)
    outermost = cache(lambda: jax.jit(function, **settings, compiler_options=options()))

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        compiled = outermost() if get_opaque_trace_state() == _no_trace() else inside
        return compiled(*args, **kwargs)

    return call


@cache
def _no_trace() -> Any:
    with eval_context():
        return get_opaque_trace_state()
