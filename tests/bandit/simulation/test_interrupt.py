"""Ctrl-C sets an event once, and then interrupts; nothing else about signals changes."""

import signal
import threading
import weakref

import pytest

from mixts.bandit.simulation.workers import interrupt_sets


@pytest.fixture(autouse=True)
def usual():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press():
    signal.raise_signal(signal.SIGINT)


def test_the_first_is_seen_and_the_second_interrupts():
    stop = threading.Event()
    with interrupt_sets(stop):
        assert not stop.is_set()
        press()
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            press()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_none_is_lost_where_python_drops_exceptions():
    class Thing:
        pass

    stop, thing = threading.Event(), Thing()
    watch = weakref.ref(thing, lambda _: press())
    with interrupt_sets(stop):
        del thing
    assert watch() is None
    assert stop.is_set()


def test_an_application_that_handles_it_goes_on_doing_so():
    seen, stop = [], threading.Event()
    own = lambda number, frame: seen.append(number)  # noqa: E731
    signal.signal(signal.SIGINT, own)
    with interrupt_sets(stop):
        press()
    assert seen == [signal.SIGINT]
    assert not stop.is_set()
    assert signal.getsignal(signal.SIGINT) is own


def test_other_threads_leave_signals_alone():
    found = []

    def look():
        with interrupt_sets(threading.Event()):
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [signal.default_int_handler]
