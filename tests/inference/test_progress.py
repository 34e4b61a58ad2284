"""What takes long says what it does, on stderr; what is short says nothing."""

import contextlib
import io
import sys
import threading
import time

import jax
import jax.numpy as jnp
import pytest

from mixts.bandit import Agent, ThompsonSampling
from mixts.bandit.agent.programs import programs_for
from mixts.inference import ClosedForm, empirical_bayes, progress
from mixts.inference.progress import reported, task
from mixts.models import Data, Gaussian, linear


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    monkeypatch.setattr(progress, "BEAT", 0.01)
    monkeypatch.delenv(progress.VARIABLE, raising=False)
    until(lambda: not progress._watch.some.is_set())  # it no longer sleeps for as long as before


def until(condition) -> None:
    """Wait for it; five seconds at most."""
    for _ in range(500):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come to that in five seconds")


def wait() -> None:
    time.sleep(0.3)


def test_what_takes_long_is_named(capsys):
    with task("counting", total=4, unit="sheep") as bar:
        bar.advance(2)
        assert "2/4" in wait_for("counting:  50%", capsys)
        bar.say("sleeping")
        wait_for("sleeping:  50%", capsys)
        bar.advance(2)
    last = capsys.readouterr().err.splitlines()[-1]
    assert "sleeping: 100%" in last
    assert "sheep" in last


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
        wait_for("comparing (Nuts.init): 00:0", capsys)


def test_compiling_is_said(capsys):
    """JAX reports that a program was lowered before it compiles it, and that it was compiled after."""

    class Slow:
        @reported
        def fit(self, x):
            progress._watch.hear("/jax/core/compile/jaxpr_to_mlir_module_duration", 0.1)
            wait_for("Slow.fit (compiling): 00:0", capsys)
            return jax.jit(lambda x: x + 1)(x)

    assert Slow().fit(jnp.ones(())) == 2
    with task("running") as bar:
        jax.jit(lambda x: x + 2)(jnp.ones(()))
        assert not bar.compiling


def test_on_a_terminal_one_line_is_drawn_over_and_over(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    with task("drawing", total=2) as bar:
        until(lambda: sys.stderr.getvalue().count("\r") > 2)
        bar.advance(2)
    drawn = sys.stderr.getvalue()
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


def interrupted_at(call: int) -> bool:
    """Whether Control-C came, at this many calls of functions from the start of a task."""

    def trace(frame, event, _):
        nonlocal call
        call -= frame.f_code.co_filename in (progress.__file__, contextlib.__file__)
        if call == 0:
            call -= 1
            raise KeyboardInterrupt

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with task("interrupted", shown=False), task("a part", shown=True):
            pass
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_interrupt_at_any_moment_ends_the_task(capsys):
    call = 0
    while interrupted_at(call := call + 1):
        assert not progress._watch.tasks
        with task("after it"):
            wait_for("after it", capsys)
    assert call > 10


def test_an_interrupt_whose_traceback_is_kept_ends_the_task_too(capsys):
    """As where it lies in a cycle of objects that the garbage collector was told to leave alone."""
    kept = []

    def work():
        progress._watch.leave = interrupt
        with task("interrupted", shown=False), task("a part", shown=True):
            pass

    def interrupt(here):
        del progress._watch.leave
        raise KeyboardInterrupt

    try:
        work()
    except KeyboardInterrupt as error:
        kept.append(error)
    assert not progress._watch.tasks
    with task("after it"):
        wait_for("after it", capsys)
    assert "a part" not in capsys.readouterr().err


def test_a_task_of_another_thread_is_shown(capsys):
    """Its function is looked for among the calls of its own thread."""

    def work():
        with task("in a thread"):
            wait_for("in a thread", capsys)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert not progress._watch.tasks


def wait_for(words: str, capsys) -> str:
    """What was said until a line began with these words; five seconds at most."""
    said = []

    def is_said() -> bool:
        said.extend(capsys.readouterr().err.splitlines())
        return any(line.startswith(words) for line in said)

    until(is_said)
    return "\n".join(said)


@pytest.fixture
def said(monkeypatch) -> list[str]:
    """What tasks say, however short they are: a program may be on the disk already."""
    words: list[str] = []
    say = progress.Task.say

    def heard(self, what: str) -> None:
        words.append(what)
        say(self, what)

    monkeypatch.setattr(progress.Task, "say", heard)
    programs_for.cache_clear()  # so that agents have no programs yet
    return words


def test_empirical_bayes_and_agents_say_what_they_wait_for(said):
    hierarchy = linear([[1.0], [0.5]], dim=1)
    empirical_bayes(hierarchy, Data([[1.0], [1.0], [2.0]], [0, 0, 1], [1.0, 0.5, 2.0]))
    assert "empirical_bayes: maximising the evidence" in said
    agent = Agent(ThompsonSampling(ClosedForm(hierarchy)))
    agent.act([1.0])
    assert any(words.startswith("Agent: scores") for words in said)
    said.clear()
    agent.act([1.0])
    assert not said


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda agent: agent.warm_up(), "Agent.warm_up"),
        (lambda agent: agent.migrate(other(agent)), "Agent.migrate"),
        (lambda agent: agent.update([[1.0]] * 40, [0] * 40, [1.0] * 40), "Agent: 40 observations"),
        (lambda agent: agent.reserve(actions=30), "Agent: room for 32 actions"),
        (lambda agent: agent.add_actions([[0.7]]), "Agent.add_actions"),
        (lambda agent: agent.act_many([[1.0]] * 3), "Agent: scores_many"),
    ],
    ids=["warm_up", "migrate", "update", "growth", "add_actions", "act_many"],
)
def test_whatever_an_agent_may_take_long_for_is_named(said, call, words):
    agent = Agent(ThompsonSampling(ClosedForm(linear([[1.0], [0.5]], dim=1))))
    said.clear()
    call(agent)
    assert any(one.startswith(words) for one in said)


def other(agent: Agent) -> ThompsonSampling:
    return ThompsonSampling(ClosedForm(agent.policy.problem.remade(reward=Gaussian(2.0))))


def test_an_agent_that_makes_changes_again_says_so(said, tmp_path):
    policy = ThompsonSampling(ClosedForm(linear([[1.0], [0.5]], dim=1)))
    with Agent.open(tmp_path, policy) as agent:
        for _ in range(20):
            agent.update([1.0], 0, 1.0)
    said.clear()
    with Agent.open(tmp_path, policy):
        assert "Agent.open: changes since the snapshot" in said
