"""SIGTERM and Ctrl-C. SIGTERM ends a command at once: workers are ended, and what is half written is removed.

So does Ctrl-C, but for a search that has a plan already, and for a run that has begun its steps: those are asked to end
with what they have, and a second Ctrl-C ends them at once.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from planner.stop import Interrupt

_LOOK_SECONDS: Final = 0.1
"""Between two looks at whether the end that was asked for is still on its way."""


class TerminationError(KeyboardInterrupt):
    """The system, or somebody, asked the process to end."""


class _Termination:
    """The handler of SIGTERM: raises ``TerminationError``, and raises it again where it was swallowed.

    Python drops what is raised while a finalizer or a callback runs, and a library may drop anything. An error that
    nobody has any more, while the command still runs, was dropped: so a timer goes on to look after it. As long as it
    is on its way, another signal changes nothing, and what is half written is removed in peace.
    """

    def __init__(self) -> None:
        self._raised: Callable[[], TerminationError | None] | None = None
        self._former_alarm: Any = None
        """What SIGALRM meant before, where it was taken for the timer."""
        self._former_hook = sys.unraisablehook

    def __enter__(self) -> None:
        signal.signal(signal.SIGTERM, self._on_signal)
        sys.unraisablehook = self._on_unraisable

    def __exit__(self, *_: object) -> None:
        if self._raised is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._former_alarm)
        sys.unraisablehook = self._former_hook
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._raised is None:
            self._former_alarm = signal.signal(signal.SIGALRM, self._on_signal)
            signal.setitimer(signal.ITIMER_REAL, _LOOK_SECONDS, _LOOK_SECONDS)
        elif self._raised() is not None:
            return
        raise self._error()

    def _error(self) -> TerminationError:
        """A new error, which no frame of its own traceback holds: it must not outlive its being dropped."""
        error = TerminationError()
        self._raised = weakref.ref(error)
        return error

    def _on_unraisable(self, unraisable: Any) -> None:
        """Nothing is said of an error that is raised again."""
        if not issubclass(unraisable.exc_type, TerminationError):
            self._former_hook(unraisable)


@contextmanager
def termination_raised() -> Iterator[None]:
    """Has SIGTERM raise ``TerminationError``; while the process ends, another one changes nothing.

    Nothing is done outside of the main thread, or where somebody has said already what the signal means.
    """
    is_ours = (
        threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    with _Termination() if is_ours else contextlib.nullcontext():
        yield


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
