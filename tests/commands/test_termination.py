"""The first Ctrl-C ends work with what it has, the next one at once; SIGTERM ends it wherever it comes."""

from __future__ import annotations

import contextlib
import gc
import signal
import time
import weakref
from collections.abc import Callable

import pytest

from planner.commands.termination import TerminationError, interrupts_end, termination_raised
from planner.stop import Interrupt


def test_the_second_interrupt_ends_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    stop = Interrupt()
    with interrupts_end(stop, "one more ends at once"):
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert not stop.is_interrupted, "there was nothing to keep"
        stop.can_end = True
        signal.raise_signal(signal.SIGINT)
        assert stop.is_interrupted
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert capfd.readouterr().err == "one more ends at once\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _in_a_finalizer() -> None:
    class Collected:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    Collected()


def _in_a_callback() -> None:
    def collected(_reference: object) -> None:
        signal.raise_signal(signal.SIGTERM)

    value = {1}
    reference = weakref.ref(value, collected)
    del value
    assert reference() is None


def _by_a_library() -> None:
    with contextlib.suppress(BaseException):
        signal.raise_signal(signal.SIGTERM)


def _go_on(swallow: Callable[[], None]) -> None:
    """What is to be ended, although it swallows the first error."""
    with termination_raised():
        swallow()
        time.sleep(60)


def _end_slowly(ended: list[str]) -> None:
    """Removes what is half written, while the signal comes once more and the timer looks after the error."""
    with termination_raised():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            gc.collect()
            signal.raise_signal(signal.SIGTERM)
            time.sleep(0.15)
            ended.append("in peace")


@pytest.mark.parametrize("swallow", [_in_a_finalizer, _in_a_callback, _by_a_library])
def test_a_termination_that_is_swallowed_is_raised_again(
    swallow: Callable[[], None], capfd: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TerminationError):
        _go_on(swallow)
    assert capfd.readouterr().err == ""
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGALRM)) == (signal.SIG_DFL, before)
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_while_a_command_ends_another_termination_changes_nothing() -> None:
    ended: list[str] = []
    with pytest.raises(TerminationError):
        _end_slowly(ended)
    assert ended == ["in peace"]
