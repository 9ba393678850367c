"""Time of the parts of a piece of work.

Whoever wants to know measures; the parts of the work name themselves, and need not know whether anybody measures.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, TypeAlias

Part: TypeAlias = Literal["reading", "search", "bound", "programs", "estimates", "comparison", "writing"]
"""Reading the model; searching for plans, and for what every plan costs at least; making workers' programs; estimating
how long these take; looking at other numbers of workers; writing files."""
PARTS: tuple[Part, ...] = ("reading", "search", "bound", "programs", "estimates", "comparison", "writing")

_spent: ContextVar[Spent | None] = ContextVar("_spent", default=None)


class Spent:
    """Seconds by part, by the clock; of a part within another one, they count for the inner one alone."""

    def __init__(self) -> None:
        self._seconds: dict[Part, float] = dict.fromkeys(PARTS, 0.0)
        self._inside: list[Part] = []
        self._since = 0.0

    @property
    def seconds(self) -> Mapping[Part, float]:
        """The time of each part so far."""
        return dict(self._seconds)

    def begin(self, part: Part) -> None:
        """A part begins, within the one that is under way."""
        self._count()
        self._inside.append(part)

    def end(self) -> None:
        """The innermost part ends."""
        self._count()
        self._inside.pop()

    def _count(self) -> None:
        instant = time.perf_counter()
        if self._inside:
            self._seconds[self._inside[-1]] += instant - self._since
        self._since = instant


@contextmanager
def measured() -> Iterator[Spent]:
    """Measures the parts of what is done within."""
    spent = Spent()
    before = _spent.set(spent)
    try:
        yield spent
    finally:
        _spent.reset(before)


@contextmanager
def part(name: Part) -> Iterator[None]:
    """Counts the time within as this part of the work.

    Args:
        name: of the part.
    """
    spent = _spent.get()
    if spent is None:
        yield
        return
    spent.begin(name)
    try:
        yield
    finally:
        spent.end()
