"""SIGTERM and Ctrl-C. SIGTERM ends a command at once: workers are ended, and what is half written is removed.

So does Ctrl-C, but for a search that has a plan already: that is asked to end, and a second Ctrl-C ends it at once.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from planner.stop import Stop


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
def interrupts_end(stop: Stop) -> Iterator[None]:
    """Has the first Ctrl-C end a search that has a plan; any other one raises ``KeyboardInterrupt``, as usual.

    Nothing is done outside of the main thread, or where somebody has said already what the signal means.

    Args:
        stop: is asked whether there is a plan, and told to end the search.
    """
    is_usual = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if not is_usual:
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        if stop.has_plan and not stop.is_interrupted:
            stop.interrupt()
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
