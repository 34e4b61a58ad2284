"""Compiled programs on disk: taken from there by a second process, and no trace in settings."""

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import pytest

from mixts.inference import program_cache
from mixts.inference.program_cache import VARIABLE, cache_folder, compile_cache, compile_or_take

FOLDER = "jax_compilation_cache_dir"
SECONDS = "jax_persistent_cache_min_compile_time_secs"

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


def play(folder: Path) -> dict:
    """What a process of its own compiled and found."""
    settings = {**os.environ, VARIABLE: str(folder), "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", PLAY], env=settings, capture_output=True, text=True, check=False
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


@pytest.fixture(autouse=True)
def settings():
    """JAX's own settings, as they were."""
    before = {name: getattr(jax.config, name) for name in (FOLDER, SECONDS)}
    yield before
    for name, value in before.items():
        jax.config.update(name, value)


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


COMPILED = object.__new__(jax.stages.Compiled)


class Slow(jax.stages.Lowered):
    """A program that counts how many threads compile it at the same time."""

    def __init__(self, text: str, together: threading.Barrier):
        self.text, self.together, self.now, self.most = text, together, 0, 0

    def as_text(self):
        return self.text

    def compile(self, compiler_options):
        self.now += 1
        self.most = max(self.most, self.now)
        self.together.wait(timeout=60)
        self.now -= 1
        return COMPILED


def test_the_same_program_is_compiled_by_one_thread_at_a_time(tmp_path, monkeypatch):
    """Else one could read what another is writing; different programs are compiled side by side."""
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    together = threading.Barrier(2)  # it opens if two threads are at it
    one, other = Slow("one", together), Slow("another", together)
    with compile_cache(), ThreadPoolExecutor(4) as pool:
        done = list(pool.map(compile_or_take, (one, one, other, other), [{}] * 4))
    assert all(each is COMPILED for each in done)
    assert one.most == other.most == 1
    # With nothing on disk there is nothing to be read too early.
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(compile_or_take, (one, one), ({}, {})))
    assert one.most == 2


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


def test_what_was_kept_longest_ago_makes_room(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setattr(program_cache, "MOST_BYTES", 250)
    for name, age in (("new", 1), ("oldest", 3), ("old", 2), ("newest", 0)):
        file = tmp_path / f"{name}-cache"
        file.write_bytes(bytes(100))
        os.utime(file, (1e9 - age, 1e9 - age))
    (tmp_path / "notes").write_bytes(bytes(1000))  # somebody else's
    (tmp_path / "gone-cache").symlink_to(tmp_path / "nowhere")
    with compile_cache():
        left = {path.name for path in tmp_path.iterdir()}
    assert left == {"new-cache", "newest-cache", "notes", "gone-cache"}


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
