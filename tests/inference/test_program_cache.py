"""Compiled programs on disk: taken from there by a second process, and no trace in settings."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from mixts.inference import program_cache
from mixts.inference.program_cache import VARIABLE, cache_folder, compile_cache

FOLDER = "jax_compilation_cache_dir"
SECONDS = "jax_persistent_cache_min_compile_time_secs"
USUAL = {
    FOLDER: None,
    SECONDS: 1.0,
    "jax_compilation_cache_max_size": -1,
    "jax_persistent_cache_min_entry_size_bytes": 0,
}

# Everything that is compiled counts, however quickly, so that no clock has a say.
PLAY = """
import importlib, json
import jax

counts = {"hits": 0, "misses": 0}

def listen(event, **_):
    for name in counts:
        counts[name] += event == f"/jax/compilation_cache/cache_{name}"

jax.monitoring.register_event_listener(listen)
importlib.import_module("mixts.inference.program_cache").WORTH_KEEPING = 0
from mixts.bandit import SyntheticProblem, ThompsonSampling, UniformRandom, simulate
from mixts.inference import ClosedForm

makers = {"exact": lambda h: ThompsonSampling(ClosedForm(h)), "uniform": UniformRandom}
found = simulate(SyntheticProblem(3, 2, 2), makers, 4, 2, 0, progress=False)
regret = {name: values.tolist() for name, values in found.regret.items()}
print(json.dumps({"counts": counts, "regret": regret}))
"""


# An agent that learns, and a backend on its own.
SERVE = (
    PLAY.split("from mixts.bandit")[0]
    + """
from mixts.bandit import Agent, LinTS
from mixts.inference import ClosedForm
from mixts.models import linear

hierarchy = linear([[1.0], [0.5]], dim=1)
backend, agent = ClosedForm(hierarchy), Agent(LinTS(hierarchy))
backend.condition(backend.init(), [[1.0]], [0], [1.0])
agent.reward(agent.act([1.0]).id, 1.0)
print(json.dumps({"counts": counts}))
"""
)

# Chains on their own and behind an agent, and what judges posteriors.
JUDGE = (
    PLAY.split("from mixts.bandit")[0]
    + """
from mixts.bandit import Agent, ThompsonSampling
from mixts.inference import ClosedForm, Laplace, Nuts, calibrate, compare
from mixts.models import Data, linear

hierarchy, data = linear([[1.0], [0.5]], dim=1), Data([[1.0], [0.5]], [0, 1], [1.0, 0.0])
chains = Nuts(hierarchy, warmup=2, samples=4, window=4, capacity=4)
agent = Agent(ThompsonSampling(chains))
agent.reward(agent.act([1.0]).id, 1.0)
compare(hierarchy, data, {"laplace": Laplace, "nuts": chains}, draws=10, progress=False)
calibrate(hierarchy, ClosedForm, simulations=2, observations=2, draws=3, progress=False)
print(json.dumps({"counts": counts}))
"""
)


def play(folder: Path, script: str = PLAY) -> dict:
    """What a process of its own compiled and found."""
    settings = {**os.environ, VARIABLE: str(folder), "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", script], env=settings, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_a_second_process_does_not_compile_again(tmp_path):
    first = play(tmp_path / "cache")
    kept = sorted(path.name for path in (tmp_path / "cache").glob("*-cache"))
    assert first["counts"]["hits"] == 0
    assert first["counts"]["misses"] == len(kept) >= 4  # two halves of two policies
    second = play(tmp_path / "cache")
    assert second["counts"] == {"hits": len(kept), "misses": 0}
    assert sorted(path.name for path in (tmp_path / "cache").glob("*-cache")) == kept
    assert second["regret"] == first["regret"]


@pytest.mark.slow
def test_nor_do_backends_and_agents(tmp_path):
    first, second = play(tmp_path, SERVE), play(tmp_path, SERVE)
    assert second["counts"] == {"hits": sum(first["counts"].values()), "misses": 0}
    assert first["counts"]["misses"] > 4  # of the backend, and to choose, to learn and to look


@pytest.mark.slow
def test_nor_do_chains_nor_what_judges_posteriors(tmp_path):
    first, second = play(tmp_path, JUDGE), play(tmp_path, JUDGE)
    assert second["counts"] == {"hits": sum(first["counts"].values()), "misses": 0}
    assert first["counts"]["misses"] > 20


@pytest.fixture(autouse=True)
def settings(monkeypatch):
    """JAX's settings as a user finds them, here and in other processes, in place of those of the tests."""
    tests = {name: getattr(jax.config, name) for name in USUAL}
    for name, value in USUAL.items():
        monkeypatch.delenv(name.upper(), raising=False)
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield USUAL
    for name, value in tests.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def test_settings_hold_inside_only(tmp_path, monkeypatch, settings):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "here"))
    with compile_cache():
        assert getattr(jax.config, FOLDER) == str(tmp_path / "here")
        assert (tmp_path / "here").is_dir()
    assert {name: getattr(jax.config, name) for name in settings} == settings
    with pytest.raises(KeyboardInterrupt), compile_cache():
        raise KeyboardInterrupt
    assert {name: getattr(jax.config, name) for name in settings} == settings


def test_blocks_may_overlap(tmp_path, monkeypatch, settings):
    """As those of two threads do: the last to leave puts everything back."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "here"))
    first, second = compile_cache(), compile_cache()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert getattr(jax.config, FOLDER) == str(tmp_path / "here")
    second.__exit__(None, None, None)
    assert {name: getattr(jax.config, name) for name in settings} == settings


# Compiles one program in several threads at a time, each with a function of its own.
TOGETHER = """
import importlib, os, sys, warnings
from concurrent.futures import ThreadPoolExecutor
import jax
import jax.numpy as jnp

warnings.simplefilter("error")
cache = importlib.import_module("mixts.inference.program_cache")
cache.WORTH_KEEPING = 0

def run(i):
    program = jax.jit(lambda x: sum(jnp.sin(x + k) for k in range(40)))
    return float(program.lower(jnp.ones(3)).compile()(jnp.ones(3)).sum())

with cache.compile_cache(), ThreadPoolExecutor(4) as pool:
    found = list(pool.map(run, range(8)))
assert len(set(found)) == 1
"""


def test_threads_and_processes_may_write_the_same_entry(tmp_path):
    """None reads what another is still writing: that would be a warning, and here an error."""
    settings = {**os.environ, VARIABLE: str(tmp_path)}
    command = [sys.executable, "-c", TOGETHER]
    both = [subprocess.Popen(command, env=settings, stderr=subprocess.PIPE) for _ in range(2)]
    for process in both:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors.decode()
    assert list(tmp_path.glob("*-cache"))


def compiled_entry(folder: Path, monkeypatch, number: float = 3.0) -> Path:
    """Compile a program; its entry in the folder, which had none of it."""
    monkeypatch.setenv(VARIABLE, str(folder))
    monkeypatch.setattr(program_cache, "WORTH_KEEPING", 0)
    x, before = np.float32(2.0), set(folder.glob("*-cache"))
    with compile_cache():
        assert float(jax.jit(lambda x: number * x).lower(x).compile()(x)) == 2.0 * number
    (entry,) = set(folder.glob("*-cache")) - before
    return entry


@pytest.mark.parametrize("damage", ["empty", "cut off", "garbage"])
def test_a_damaged_entry_costs_only_the_time_to_compile(damage, tmp_path, monkeypatch):
    entry = compiled_entry(tmp_path, monkeypatch)
    content = entry.read_bytes()
    damaged = {"empty": b"", "cut off": content[: len(content) // 2], "garbage": bytes(1000)}
    entry.write_bytes(damaged[damage])
    jax.clear_caches()
    x = np.float32(2.0)
    with compile_cache(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert float(jax.jit(lambda x: 3.0 * x).lower(x).compile()(x)) == 6.0
    (warning,) = caught
    assert "Error reading persistent compilation cache" in str(warning.message)


def test_an_entry_without_a_time_does_not_keep_others_from_being_written(tmp_path, monkeypatch):
    """Such as one by a process that was killed, or by a JAX without a limit of size."""
    entry = compiled_entry(tmp_path, monkeypatch)
    entry.with_name(entry.name.replace("-cache", "-atime")).unlink()
    assert compiled_entry(tmp_path, monkeypatch, 5.0) != entry


def test_a_users_own_cache_stays(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "ours"))
    jax.config.update(FOLDER, str(tmp_path / "theirs"))
    seconds = getattr(jax.config, SECONDS)
    with compile_cache():
        assert getattr(jax.config, FOLDER) == str(tmp_path / "theirs")
        assert getattr(jax.config, SECONDS) == seconds
    assert getattr(jax.config, FOLDER) == str(tmp_path / "theirs")
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize("blocked", ["by a file", "by permission"])
def test_a_folder_that_cannot_be_written_to_is_harmless(blocked, tmp_path, monkeypatch, settings):
    folder = tmp_path / "cache"
    if blocked == "by a file":
        folder.write_text("in the way")
    else:
        monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setenv(VARIABLE, str(folder))
    with compile_cache():
        assert {name: getattr(jax.config, name) for name in settings} == settings
        assert int(jax.jit(lambda x: 3 * x)(2)) == 6
    assert {name: getattr(jax.config, name) for name in settings} == settings


def test_what_was_used_longest_ago_makes_room(tmp_path, monkeypatch):
    (tmp_path / "notes").write_bytes(bytes(1000))  # somebody else's
    oldest, old, new = (compiled_entry(tmp_path, monkeypatch, n) for n in (3.0, 5.0, 7.0))
    size = new.stat().st_size
    monkeypatch.setattr(program_cache, "MOST_BYTES", 2 * size + size // 2)
    newest = compiled_entry(tmp_path, monkeypatch, 9.0)
    assert set(tmp_path.glob("*-cache")) == {new, newest}
    assert not oldest.exists()
    assert not old.exists()
    assert (tmp_path / "notes").exists()


def test_where_programs_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "")
    assert cache_folder() is None
    with compile_cache():
        assert not getattr(jax.config, FOLDER)
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "mixts" / "compiled"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert cache_folder() == tmp_path / "home" / ".cache" / "mixts" / "compiled"


def test_a_user_without_a_home_keeps_nothing(monkeypatch):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv(VARIABLE)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    assert cache_folder() is None
    with compile_cache():
        assert not getattr(jax.config, FOLDER)
