"""The first Ctrl-C ends work with what it has, the next one at once."""

from __future__ import annotations

import signal

import pytest

from planner.commands.termination import interrupts_end
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
