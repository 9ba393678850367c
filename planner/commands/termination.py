"""SIGTERM and Ctrl-C. SIGTERM ends a command at once: workers are ended, and what is half written is removed.

So does Ctrl-C, but for a search that has a plan already, and for a run that has begun its steps: those are asked to end
with what they have, and a second Ctrl-C ends them at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from planner.stop import Interrupt


class TerminationError(KeyboardInterrupt):
    """The system, or somebody, asked the process to end."""


@contextmanager
def termination_raised() -> Iterator[None]:
    """Has SIGTERM raise ``TerminationError``, once; while the process ends, another one changes nothing.

    Nothing is done outside of the main thread, or where somebody has said already what the signal means.
    """
    is_ours = (
        threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if not is_ours:
        yield
        return
    signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def interrupts_end(stop: Interrupt, saying: str = "") -> Iterator[None]:
    """Has the first Ctrl-C end work that has something to keep; any other one raises ``KeyboardInterrupt``, as usual.

    Nothing is done outside of the main thread, or where somebody has said already what the signal means.

    Args:
        stop: is asked whether there is something to keep, and told to end the work.
        saying: the line that the first Ctrl-C prints; "" for none.
    """
    is_usual = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if not is_usual:
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        if stop.can_end and not stop.is_interrupted:
            stop.interrupt()
            if saying:
                # Not by the stream: this may have come in the middle of a line that is being written to it.
                with contextlib.suppress(OSError):
                    os.write(2, f"{chr(10) if os.isatty(2) else ''}{saying}\n".encode())
        else:
            signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _raise(_number: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise TerminationError
