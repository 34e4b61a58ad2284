"""Fixtures and settings shared by every test."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from jax.experimental.compilation_cache import compilation_cache
from threadpoolctl import threadpool_limits

# Tests run in as many processes as there are cores: one thread of linear algebra in each is quickest.
threadpool_limits(1)

# Figures are drawn without a display, here and in the processes that tests start.
os.environ["MPLBACKEND"] = "Agg"

# Nothing is kept in the user's cache of compiled programs, nor taken from it.
os.environ["MIXTS_CACHE"] = ""

# The same examples on every run and machine. An example may compile, which takes seconds. The
# fixtures below hold for all examples of a test alike, so there is no harm in their running once.
settings.register_profile(
    "mixts",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("mixts")


# Most of the time of `make test` would go into optimising programs that run for a millisecond. Without
# that they compile in a third of the time, and their arithmetic is the same. Slow tests, notebooks and
# benchmarks, which run for long, are compiled as users' programs are.
QUICK_TO_COMPILE = [
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_cpu_use_fusion_emitters=false",
]


# What remains of that time is spent once: compiled programs are kept between runs, and shared by the
# processes of one. JAX has no limit of their size that does not read the whole folder at every write.
PROGRAMS = {
    "jax_compilation_cache_dir": "",
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
    "jax_compilation_cache_max_size": -1,
}
MOST_BYTES = 2**30


def pytest_configure(config: pytest.Config) -> None:
    """Choose how programs are compiled and where they are kept, also in processes that tests start."""
    if config.getoption("markexpr") != "slow":
        os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *QUICK_TO_COMPILE])
    programs = config.cache.mkdir("programs")
    if not hasattr(config, "workerinput") and folder_size(programs) > MOST_BYTES:
        shutil.rmtree(programs)
    PROGRAMS["jax_compilation_cache_dir"] = str(programs)
    os.environ.update({name.upper(): str(value) for name, value in PROGRAMS.items()})
    keep_programs_here()


def folder_size(folder: Path) -> int:
    """Bytes of the files in a folder."""
    return sum(file.stat().st_size for file in folder.iterdir())


def keep_programs_here() -> None:
    """Let JAX keep compiled programs in the folder of the tests, in this process."""
    for name, value in PROGRAMS.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture(scope="module", autouse=True)
def few_programs_in_memory() -> Iterator[None]:
    """Let go of compiled programs before the process has more pieces of memory than Linux allows.

    Every program takes a few of 65,530, and XLA crashes when there are no more. Another folder for
    programs that a test has named is left as well: a process keeps to it otherwise.
    """
    yield
    keep_programs_here()
    pieces = Path("/proc/self/maps")
    if pieces.exists() and len(pieces.read_bytes().splitlines()) > 30_000:
        jax.clear_caches()


@pytest.fixture(params=["float32", "float64"])
def precision(request: pytest.FixtureRequest) -> Iterator[np.dtype]:
    """Run the test once in each precision; the value is the dtype of JAX's default floats.

    Arrays must be made inside the test: those made at the top of a module are always float32.
    """
    with jax.enable_x64(request.param == "float64"):
        yield np.dtype(request.param)


@pytest.fixture
def x64() -> Iterator[None]:
    """Run the test in float64 only."""
    with jax.enable_x64(True):
        yield
