"""Every public class and function has an example in its docstring, and it runs."""

import doctest
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from sampling import unoptimised

PACKAGES = ("mixts.models", "mixts.inference", "mixts.bandit", "mixts.bandit.experiments")
# An exception is met, not called.
NO_EXAMPLE_NEEDED = (Exception,)


def public() -> Iterator[tuple[str, object]]:
    seen = set()
    for package in map(importlib.import_module, PACKAGES):
        for name in package.__all__:
            value = getattr(package, name)
            is_error = inspect.isclass(value) and issubclass(value, NO_EXAMPLE_NEEDED)
            if callable(value) and not is_error and id(value) not in seen:
                seen.add(id(value))
                yield f"{package.__name__}.{name}", value


# Examples leave out the imports of public names, and of what everybody imports.
NAMES = {name.rsplit(".", 1)[1]: value for name, value in public()}
NAMES |= {"jax": jax, "jnp": jnp, "np": np, "dist": dist}

PUBLIC = [pytest.param(value, id=name) for name, value in public()]


@pytest.mark.parametrize("value", PUBLIC)
def test_the_example_runs(value, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    docstring = inspect.getdoc(value) or ""
    example = doctest.DocTestParser().get_doctest(
        docstring, dict(NAMES), value.__name__, None, None
    )
    lines = sum(len((part.source + part.want).splitlines()) for part in example.examples)
    assert 2 <= lines <= 12
    output: list[str] = []
    with unoptimised():
        doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=output.append)
    assert not output, "".join(output)
