"""Phases and counts of long work, told as it goes, and the stop that is asked for in between.

Making a program and placing its buffers takes seconds at real size. Whoever wants to hear how far that is says so; the
work counts itself, and need not know whether anybody hears (as parts of the work do that are timed, ``planner.spent``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

from planner.progress import PhasedProgress, Progress, silent, tell_count
from planner.stop import Stop

_Item = TypeVar("_Item")

_PARTS: Final = 4096
"""Parts of items between two counts, about: so many take less than a second."""

_progress: ContextVar[Progress] = ContextVar("_progress", default=silent)
_stop: ContextVar[Stop | None] = ContextVar("_stop", default=None)
_begin: ContextVar[Callable[[str], None]] = ContextVar("_begin", default=lambda name: None)


def counts_told(progress: Progress) -> AbstractContextManager[None]:
    """Counts of what is done within are told.

    Args:
        progress: told.
    """
    return _set(_progress, progress)


def phases_told(
    names: Sequence[str], progress: Progress, ends_at: Mapping[str, float | None]
) -> AbstractContextManager[None]:
    """Phases of what is done within are told, to a listener that shows them.

    Args:
        names: of all phases, in their order.
        progress: told.
        ends_at: when a phase ends at the latest, by ``time.monotonic``, of those of which that may be known.
    """
    reached = 0

    def begin(name: str) -> None:
        nonlocal reached
        number = names.index(name) + 1 if name in names else 0
        # Work of an earlier phase that a later one does again is part of the later one.
        if number > reached and isinstance(progress, PhasedProgress):
            reached = number
            progress.begin(name, number, len(names), ends_at.get(name))

    return _set(_begin, begin)


def phase(name: str) -> None:
    """A phase of the work begins, if it is one of those that are told.

    Args:
        name: of the phase.
    """
    _begin.get()(name)


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
            tell_count(progress, doing, number, len(items))
            if stop is not None:
                stop.check()
        yield item
