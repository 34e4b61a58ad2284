"""What takes long says what it does, on stderr; what is short says nothing."""

import io
import sys
import time

import jax
import jax.numpy as jnp
import pytest

from mixts.inference import progress
from mixts.inference.progress import reported, task


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    monkeypatch.setattr(progress, "BEAT", 0.01)
    monkeypatch.delenv(progress.VARIABLE, raising=False)


def wait() -> None:
    time.sleep(0.3)


def test_what_takes_long_is_named(capsys):
    with task("counting", total=4, unit="sheep") as bar:
        bar.advance(2)
        wait()
        bar.say("sleeping")
        wait()
        bar.advance(2)
    lines = capsys.readouterr().err.splitlines()
    assert "counting:  50%" in lines[0]
    assert "2/4" in lines[0]
    assert "sleeping:  50%" in lines[1]
    assert "sleeping: 100%" in lines[-1]
    assert "sheep" in lines[-1]


def test_what_is_short_is_not(capsys):
    with task("blinking"):
        pass
    wait()
    assert capsys.readouterr().err == ""


def test_it_can_be_asked_for_and_switched_off(capsys, monkeypatch):
    with task("short", total=1, shown=True) as bar:
        bar.advance()
    assert "short: 100%" in capsys.readouterr().err
    with task("hidden", shown=False), task("inside of it"):
        wait()
    monkeypatch.setenv(progress.VARIABLE, "0")
    with task("in a service"):
        wait()
    assert capsys.readouterr().err == ""
    with task("asked for", shown=True):
        pass
    assert "asked for" in capsys.readouterr().err


def test_a_task_inside_another_is_a_detail_of_it(capsys):
    with task("comparing"), task("Nuts.init"):
        wait()
    assert "comparing (Nuts.init): 00:00" in capsys.readouterr().err


def test_compiling_is_said(capsys):
    """JAX reports that a program was lowered before it compiles it, and that it was compiled after."""

    class Slow:
        @reported
        def fit(self, x):
            progress._watch.hear("/jax/core/compile/jaxpr_to_mlir_module_duration", 0.1)
            wait()
            return jax.jit(lambda x: x + 1)(x)

    assert Slow().fit(jnp.ones(())) == 2
    assert "Slow.fit (compiling): 00:00" in capsys.readouterr().err
    with task("running") as bar:
        jax.jit(lambda x: x + 2)(jnp.ones(()))
        assert not bar.compiling


def test_on_a_terminal_one_line_is_drawn_over_and_over(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    with task("drawing", total=2) as bar:
        wait()
        bar.advance(2)
    drawn = sys.stderr.getvalue()
    assert drawn.count("\r") > 2
    assert drawn.rstrip().rsplit("\r", 1)[-1].startswith("drawing: 100%")


def test_no_one_has_to_read(monkeypatch):
    closed = io.StringIO()
    closed.close()
    for stream in (closed, None):
        monkeypatch.setattr(sys, "stderr", stream)
        with task("unheard", total=1, shown=True):
            wait()


def test_an_error_ends_the_task(capsys):
    with pytest.raises(ZeroDivisionError), task("dividing", shown=True):
        print(1 / 0)
    assert not progress._watch.tasks
