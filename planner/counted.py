"""Counts of long work beside the search, told as it goes, and the stop that is asked for in between.

Making a program and placing its buffers takes seconds at real size. Whoever wants to hear how far that is says so; the
work counts itself, and need not know whether anybody hears (as parts of the work do that are timed, ``planner.spent``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

from planner.progress import Progress, silent
from planner.stop import Stop

_Item = TypeVar("_Item")

_PARTS: Final = 4096
"""Parts of items between two counts, about: so many take less than a second."""

_progress: ContextVar[Progress] = ContextVar("_progress", default=silent)
_stop: ContextVar[Stop | None] = ContextVar("_stop", default=None)


def counts_told(progress: Progress) -> AbstractContextManager[None]:
    """Counts of what is done within are told.

    Args:
        progress: told.
    """
    return _set(_progress, progress)


def may_stop(stop: Stop) -> AbstractContextManager[None]:
    """Marks work within as dispensable: it ends where the search is to end.

    Args:
        stop: asked at every count; raises ``StoppedError``.
    """
    return _set(_stop, stop)


@contextmanager
def _set(variable: ContextVar[_Item], value: _Item) -> Iterator[None]:
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)


def counted(items: Sequence[_Item], doing: str, parts: int) -> Iterator[_Item]:
    """The items, one after the other; now and then it is told how many of them are done: of few, never.

    Args:
        items: of the work.
        doing: what is done, and the noun of an item, such as ``making programs: op``.
        parts: of an item, about: an op has one on each worker, a worker one for each of its steps.

    Raises:
        StoppedError: the search is to end, and this can be done without.
    """
    progress, stop, every = _progress.get(), _stop.get(), max(1, _PARTS // max(1, parts))
    for number, item in enumerate(items):
        if number and number % every == 0:
            progress(f"{doing} {number:,} of {len(items):,}")
            if stop is not None:
                stop.check()
        yield item
