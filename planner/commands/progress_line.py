"""The progress line on stderr: phase, elapsed time, the present work, and the best plan so far.

A time left is shown where something says it: the user (``--time``), or a tenth of counted items that are done.

On a terminal the line is written again in its place, and removed at the end. Elsewhere, and on a terminal that cannot
do that, a line is printed every ten seconds, and none in a shorter command.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil
from typing import Final, TextIO

import click

from planner.commands.streams import encodable, say
from planner.printable import printable

TICK_SECONDS: Final = 1.0
"""Between two looks at the clock on a terminal."""
EVERY_SECONDS: Final = 10.0
"""Between two lines where there is no terminal."""
_USUAL_COLUMNS: Final = 80
_LEAST_SHARE: Final = 0.1
"""Of counted items, those that tell how long the others take."""
_LEAST_LEFT: Final = 5.0
"""Seconds; less is not told."""
_START_OF_LINE: Final = "\r"
_ERASE: Final = "\x1b[K"


class ProgressLine:
    """The line that shows a command's progress (``planner.progress.PhasedProgress``).

    Attributes:
        is_in_place: the line is written again in its place.
    """

    def __init__(
        self,
        stream: TextIO | None,
        *,
        is_in_place: bool,
        how_much: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Tells nothing yet.

        Args:
            stream: where lines go; None: nowhere.
            is_in_place: the stream is a terminal that can erase a line.
            how_much: ``quiet``: nothing; ``verbose``: a line for everything that is done; None: as usual.
            clock: in seconds.
        """
        self.is_in_place = is_in_place and how_much is None
        self._stream = None if how_much == "quiet" else stream
        self._is_quiet = how_much == "quiet"
        self._every_seconds = 0.0 if how_much == "verbose" else EVERY_SECONDS
        self._clock = clock
        self._started = self._told_at = clock()
        self._doing = self._phase = ""
        self._phase_ends_at: float | None = None
        self._counted: tuple[str, int, int, float] = ("", 0, 0, 0.0)
        self._work_ends_at: float | None = None
        self._cost: int | None = None
        self._lower: int | None = None
        self._is_shown = False
        self._lock = threading.Lock()

    def __call__(self, doing: str, *, cost: int | None = None, lower: int | None = None) -> None:
        """See ``Progress``."""
        with self._lock:
            self._doing, self._cost, self._lower, self._work_ends_at = doing, cost, lower, None
        self.tick()

    def begin(self, phase: str, number: int, phases: int, ends_at: float | None) -> None:
        """See ``PhasedProgress``."""
        with self._lock:
            self._phase, self._phase_ends_at = f"[{number}/{phases} {phase}] ", ends_at
            self._doing, self._cost, self._work_ends_at = "", None, None

    def count(self, doing: str, done: int, items: int) -> None:
        """See ``PhasedProgress``; the pace is that since the first count of this work."""
        instant = self._clock()
        with self._lock:
            before, first, last, since = self._counted
            if doing != before or done <= last:
                first, since = done, instant
            self._counted = doing, first, done, since
            self._doing, self._cost, self._lower = f"{doing} {done:,} of {items:,}", None, None
            is_paced = done - first >= _LEAST_SHARE * items
            seconds = (instant - since) / (done - first) * (items - done) if is_paced else None
            self._work_ends_at = None if seconds is None else instant + seconds
        self.tick()

    def tick(self) -> None:
        """Shows the present work: at once where the line is in place, else when it is time for a line."""
        with self._lock:
            instant = self._clock()
            if not (self._doing or self._phase):
                return
            if self.is_in_place:
                self._write(_START_OF_LINE + _cut(self._text(instant), self._columns() - 1) + _ERASE)
                self._is_shown = True
            elif instant - self._told_at >= self._every_seconds:
                self._told_at = instant
                self._write(self._text(instant) + "\n")

    def note(self, text: str) -> None:
        """Prints a line that stays."""
        with self._lock:
            self._remove()
            self._told_at = self._clock()
            if not self._is_quiet:
                say(printable(text))

    def end(self) -> None:
        """Removes the line; nothing is shown any more."""
        with self._lock:
            self._doing = self._phase = ""
            self._remove()

    def _remove(self) -> None:
        if self._is_shown:
            self._write(_START_OF_LINE + _ERASE)
            self._is_shown = False

    def _text(self, instant: float) -> str:
        within = _left(", at most", self._phase_ends_at, instant)
        doing = self._doing + _left(", about", self._work_ends_at, instant)
        parts = [f"{self._phase}{_elapsed(instant - self._started)}{within}", doing]
        if self._cost is not None:
            # Imported where it is needed: --help needs no arithmetic of quantities.
            from planner.units import format_bytes, format_ratio

            parts.append(f"cost {format_bytes(self._cost)}")
            if self._lower is not None and 0 < self._lower <= self._cost:
                parts.append(f"gap {format_ratio(self._cost / self._lower - 1)}")
        return printable("  ".join(filter(None, parts)))

    def _columns(self) -> int:
        assert self._stream is not None, "where nothing is shown, nothing is in place"
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or _USUAL_COLUMNS
        except (OSError, ValueError):  # no file, or no terminal behind it
            return _USUAL_COLUMNS

    def _write(self, text: str) -> None:
        if self._stream is not None:
            with contextlib.suppress(OSError, ValueError):  # nobody reads any more; the result's stream says so
                self._stream.write(encodable(text, self._stream))
                self._stream.flush()


def _elapsed(seconds: float) -> str:
    """Seconds, or minutes with seconds.

    >>> _elapsed(7.9), _elapsed(75), _elapsed(3661)
    ('7 s', '1:15', '61:01')
    """
    total = int(seconds)
    return f"{total} s" if total < 60 else f"{total // 60}:{total % 60:02}"


def _left(words: str, ends_at: float | None, instant: float) -> str:
    """The time until an instant, rounded, with words before it; nothing where it is not known, or hardly any.

    >>> _left(", about", 131.0, 60.0), _left(", at most", 170.0, 60.0), _left(", about", 64.0, 60.0)
    (', about 80 s left', ', at most 2 min left', '')
    """
    seconds = 0.0 if ends_at is None else ends_at - instant
    if seconds < _LEAST_LEFT:
        return ""
    return f"{words} {round(seconds / 60)} min left" if seconds >= 90 else f"{words} {ceil(seconds / 10) * 10} s left"


def _cut(text: str, columns: int) -> str:
    """The beginning of a text that fits into so many columns, with a sign that it goes on."""
    widths = [2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text]
    if sum(widths) <= columns:
        return text
    length = 0
    while length < len(text) and sum(widths[: length + 1]) <= columns - 1:
        length += 1
    return f"{text[:length]}…"


def can_erase(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal on which a line is written again in its place."""
    return stream is not None and stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def how_much() -> str | None:
    """``quiet`` or ``verbose`` where the command line says so."""
    ctx = click.get_current_context(silent=True)
    wanted: str | None = None if ctx is None else ctx.find_root().obj
    return wanted


@contextmanager
def progress_line(beginning: str) -> Iterator[ProgressLine]:
    """Shows the present work of a command, and its time.

    Args:
        beginning: what is done first.
    """
    line = ProgressLine(sys.stderr, is_in_place=can_erase(sys.stderr), how_much=how_much())
    ended = threading.Event()

    def keep_time() -> None:
        while not ended.wait(TICK_SECONDS if line.is_in_place else EVERY_SECONDS):
            line.tick()

    line(beginning)
    ticking = threading.Thread(target=keep_time, name="progress", daemon=True)
    ticking.start()
    try:
        yield line
    finally:
        ended.set()
        line.end()
        ticking.join(TICK_SECONDS)
