"""What importing mixts does, and that the suite checks the shapes of what it runs."""

import importlib
import os
import pkgutil
import subprocess
import sys

import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError

PACKAGES = ["mixts.models", "mixts.inference", "mixts.bandit"]

PROBE = """
from jax import Array
from jaxtyping import Float

def scores(theta: Float[Array, "K d"], x: Float[Array, "d"], scale: float) -> Float[Array, "K"]:
    return scale * (theta @ x)

def not_scores(theta: Float[Array, "K d"]) -> Float[Array, "K"]:
    return theta
"""


def run_after_import(statement, folder):
    """Import all of mixts in a new process, then run `statement`.

    The home folder is empty, so that a warning shown once a day is shown now.
    """
    environment = {name: value for name, value in os.environ.items() if name[:4] != "JAX_"}
    environment |= {"HOME": str(folder), "XDG_CACHE_HOME": str(folder)}
    return subprocess.run(
        [sys.executable, "-I", "-c", f"import {', '.join(PACKAGES)}, jax; {statement}"],
        capture_output=True,
        check=False,
        cwd=folder,
        env=environment,
        text=True,
    )


def test_import_is_silent_and_leaves_the_precision_alone(tmp_path):
    process = run_after_import("print(jax.config.jax_enable_x64)", tmp_path)
    assert (process.returncode, process.stdout, process.stderr) == (0, "False\n", "")


def test_import_makes_no_array(tmp_path):
    """An array made on import is float32 for good, even if the user then asks for float64."""
    process = run_after_import("print(jax.live_arrays())", tmp_path)
    assert (process.returncode, process.stdout) == (0, "[]\n"), process.stderr


@pytest.fixture
def probe(request, tmp_path, monkeypatch):
    """A module imported as if it lay in the folder of the package `request.param`."""
    package = importlib.import_module(request.param)
    name = f"{package.__name__}.shape_probe"
    tmp_path.joinpath("shape_probe.py").write_text(PROBE)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    yield importlib.import_module(name)
    del sys.modules[name], package.shape_probe


@pytest.mark.parametrize("probe", PACKAGES, indirect=True)
def test_shapes_are_checked_at_run_time(probe):
    assert probe.scores(jnp.ones((3, 2)), jnp.ones(2), 1).shape == (3,)
    with pytest.raises(TypeCheckError, match="'x'"):
        probe.scores(jnp.ones((3, 2)), jnp.ones(3), 1.0)
    with pytest.raises(TypeCheckError, match="return value"):
        probe.not_scores(jnp.ones((3, 2)))


@pytest.mark.parametrize("name", PACKAGES)
def test_every_module_is_checked(name):
    """Each module imports, and none was imported before the hook that instruments it."""
    package = importlib.import_module(name)
    modules = [module.name for module in pkgutil.walk_packages(package.__path__, f"{name}.")]
    unchecked = [
        module
        for module in modules
        if type(importlib.import_module(module).__loader__).__module__ != "jaxtyping._import_hook"
    ]
    assert unchecked == []
