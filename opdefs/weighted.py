"""Arguments of an attention: of each query, a weight for each key, and the sum of the values by these weights."""

from __future__ import annotations

from collections.abc import Callable

from planner.tdl.builder import Ix, Sum, Val, call, over


def weighted_sum(
    query: Callable[[Ix], Val], key: Callable[[Ix, Ix], Val], value: Callable[[Ix], Val], size: int | None = None
) -> Val:
    """Sum_{t} weight(Sum_{d} query(d) * key(t, d)) * value(t): the normalising of weights does not count beside it.

    Args:
        query: an element of a query, by its number in the head.
        key: an element of a key, by the key's position, which is an index by itself, and its number in the head.
        value: an element of a value, by the position of its key.
        size: elements of a head; None where their number is the index of a dim by itself.
    """
    extents = None if size is None else (size,)

    def term(t: Ix) -> Val:
        score = Sum(over(("d",), lambda d: query(d) * key(t, d)), extents=extents)
        return call("weight", score) * value(t)

    return Sum(over(("t",), term))
