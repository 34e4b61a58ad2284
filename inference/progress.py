"""What is being done, for whoever waits: a line on stderr for all that takes longer than two seconds."""

import inspect
import os
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import wraps
from types import FrameType
from typing import Any, ParamSpec, TypeVar

import jax

__all__ = ["Task", "reported", "task"]

P = ParamSpec("P")
R = TypeVar("R")

# MIXTS_PROGRESS=0 turns progress off in the whole process, except where progress=True asks for it.
VARIABLE = "MIXTS_PROGRESS"
PATIENCE = 2.0  # seconds before anything is shown
BEAT = 0.5  # seconds between two looks at the clock
WORDS = 60  # letters of what is being done
LINE = 100  # letters of a line in a file
LINES = 10.0  # seconds between two lines where they cannot be overwritten, as in a file


class Task:
    """Something that is under way, in words, and how much of it is done.

    A task inside another is shown as a detail of it, and so is that JAX compiles at the moment:
    `compare: NUTS (4 chains, compiling)`.

    Args:
        words: what is being done.
        total: how much there is to do; None if that is not known.
        unit: what is counted.
        shown: whether to show it from the start (True), never (False), or after two seconds (None).
        caller: the call of the function, on this thread, that does it.
    """

    def __init__(
        self,
        words: str,
        total: int | None,
        unit: str,
        shown: bool | None,
        caller: FrameType | None,
    ):
        self.total, self.unit, self.shown = total, unit, shown
        self._caller, self._thread = caller, threading.get_ident()
        self.say(words)
        self.done = 0
        self.compiling = False
        self.started = time.monotonic()
        self._counting = threading.Lock()
        self._bar: Any = None
        self._line: tuple[str, float] = ("", -LINES)  # the last one written, and when

    def say(self, words: str) -> None:
        """What is being done from now on."""
        self.words = words

    def advance(self, more: int = 1) -> None:
        """So much more is done; may be called from any thread."""
        with self._counting:
            self.done += more

    def is_under_way(self) -> bool:
        """Whether the function that does it still runs.

        An interrupt may come at any moment, also before a task could be closed; whoever caught it may
        keep its traceback, and so all its variables, for ever.
        """
        if self._caller is None:
            return False
        running = sys._current_frames().get(self._thread)
        while running is not None and running is not self._caller:
            running = running.f_back
        return running is not None

    def show(self, detail: str = "") -> None:
        """Draw it as it stands: over its last line where someone watches, else in a new one."""
        words = textwrap.shorten(self.words, WORDS, placeholder=" ...")
        words = f"{words} ({detail})" if detail else words
        if _is_watched():
            bar = self._opened()
            bar.set_description_str(words, refresh=False)
            bar.n = self.done
            bar.refresh()
            return
        now = time.monotonic()
        if words != self._line[0] or now - self._line[1] >= LINES:
            self._line = words, now
            print(self._meter(words), file=sys.stderr, flush=True)

    def close(self) -> None:
        """Leave the last line of a bar, and nothing of a task without one."""
        self._caller = None  # which refers to this object
        if self._bar is not None:
            self.show()
            self._bar.close()
        elif self._line[0] or (self.shown and not _is_watched()):
            print(self._meter(self.words), file=sys.stderr, flush=True)

    def _opened(self) -> Any:
        if self._bar is None:
            from tqdm.auto import tqdm

            self._bar = tqdm(total=self.total, leave=self.total is not None, **self._look())
            self._bar.start_t -= time.monotonic() - self.started
        return self._bar

    def _meter(self, words: str) -> str:
        from tqdm import tqdm

        elapsed = time.monotonic() - self.started
        if self.total is None:
            return f"{words}: {tqdm.format_interval(elapsed)}"
        return tqdm.format_meter(
            self.done, self.total, elapsed, prefix=words, ncols=LINE, **self._look()
        )

    def _look(self) -> dict[str, Any]:
        if self.total is None:
            return {"bar_format": "{desc}: {elapsed}"}
        return {"unit": f" {self.unit}", "unit_scale": self.total >= 10_000}


@contextmanager
def task(
    words: str, total: int | None = None, unit: str = "", shown: bool | None = None
) -> Iterator[Task]:
    """Meanwhile `words` are under way; see `Task`. What a task that is not shown contains is not either."""
    if sys.stderr is None or (shown is None and (_is_hidden() or os.environ.get(VARIABLE) == "0")):
        shown = False
    caller = inspect.currentframe()
    for _ in range(2):  # out of this generator, and out of contextlib
        caller = caller and caller.f_back
    here, around = Task(words, total, unit, shown, caller), _container()
    del caller
    try:
        _around.set(here)
        if shown is not False:
            _watch.enter(here)
        yield here
    finally:
        _around.set(around)
        _watch.leave(here)


def reported(method: Callable[P, R]) -> Callable[P, R]:
    """A method of a backend that says what it is, like `Nuts.init`, and ends when its work is done."""

    @wraps(method)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with task(f"{type(args[0]).__name__}.{method.__name__}"):
            return jax.block_until_ready(method(*args, **kwargs))

    return wrapped


# The task that contains what is done now.
_around: ContextVar[Task | None] = ContextVar("around", default=None)


def _container() -> Task | None:
    around = _around.get()
    return around if around is not None and around.is_under_way() else None


def _is_hidden() -> bool:
    container = _container()
    return container is not None and container.shown is False


class _Watch:
    """The tasks under way, and a thread that shows the oldest of them as time goes by.

    Compiling gives no sign of life by itself, so somebody else has to look at the clock.
    """

    def __init__(self):
        self._entered: list[Task] = []
        self.lock = threading.Lock()
        self.some = threading.Event()
        self.thread: threading.Thread | None = None

    @property
    def tasks(self) -> list[Task]:
        """The tasks under way, the oldest first."""
        return [here for here in self._entered if here.is_under_way()]

    def enter(self, here: Task) -> None:
        with self.lock:
            self._entered = [*self.tasks, here]
            if self.thread is None or not self.thread.is_alive():
                self.thread = threading.Thread(target=self._run, name="progress", daemon=True)
                self.thread.start()
            if here.shown and len(self._entered) == 1:
                self._look()
        self.some.set()

    def leave(self, here: Task) -> None:
        with self.lock:
            if here in self._entered:
                self._entered = [other for other in self._entered if other is not here]
                with suppress(Exception):  # such as that stderr is closed: work goes on
                    here.close()

    def _run(self) -> None:
        while True:
            self.some.wait()
            time.sleep(BEAT)
            with self.lock:
                if not self._look():
                    self.some.clear()

    def _look(self) -> bool:
        """Show what is under way, if it has taken long enough; whether anything is."""
        self._entered = tasks = self.tasks
        if not tasks:
            return False
        first, last = tasks[0], tasks[-1]
        if first.shown or time.monotonic() - first.started >= PATIENCE:
            details = [last.words] * (last is not first) + ["compiling"] * last.compiling
            with suppress(Exception):
                first.show(", ".join(details))
        return True

    def hear(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        """Of JAX: a program was traced or lowered, so that it is compiled now, or it was compiled."""
        tasks = self.tasks
        if tasks and event.startswith("/jax/core/compile/"):
            tasks[-1].compiling = not event.endswith("backend_compile_duration")


_watch = _Watch()
jax.monitoring.register_event_duration_secs_listener(_watch.hear)


def _is_watched() -> bool:
    """Whether a line can be overwritten: on a terminal or in a notebook."""
    shell = sys.modules.get("IPython") and sys.modules["IPython"].get_ipython()
    return sys.stderr.isatty() or bool(shell and hasattr(shell, "kernel"))
