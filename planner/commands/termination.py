"""SIGTERM ends a command as Ctrl-C does: workers are ended, and what is half written is removed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


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


def _raise(_number: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise TerminationError
