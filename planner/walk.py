"""Walks through graphs of any kind."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

_Place = TypeVar("_Place", bound=Hashable)


def walk(starts: Iterable[_Place], following: Callable[[_Place], Iterable[_Place]]) -> Iterator[_Place]:
    """The places that some places lead to, and these, depth first, each once.

    >>> sorted(walk([3], lambda number: [number - 1, number // 2] if number else []))
    [0, 1, 2, 3]

    Args:
        starts: where it begins.
        following: the places behind one.
    """
    waiting = list(dict.fromkeys(starts))
    seen = set(waiting)
    while waiting:
        place = waiting.pop()
        yield place
        fresh = [item for item in dict.fromkeys(following(place)) if item not in seen]
        seen.update(fresh)
        waiting += fresh
