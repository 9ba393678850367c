"""Where buffers of known lifetimes lie in one block of memory, so that the block is small.

The least that a block can be is what is needed at the same time at most. It is mostly reached: by placing buffers one
after the other, each into the smallest gap that holds it between those that are needed at the same time, in several
orders; and, where none of these does, by placing again, those earlier that lay too high (Joslin and Clements,
"Squeaky Wheel Optimization", 1999).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final, TypeAlias

import numpy as np

ALIGNMENT: Final = 64
"""Bytes; a cache line. Kernels that peel unaligned elements would give other bits at other addresses."""

Span: TypeAlias = tuple[int, int, int]
"""A buffer's size in bytes, and the first and the last step, counted from 0, in which it is needed."""
Packed: TypeAlias = tuple[tuple[int, ...], int]
"""The offset of each buffer, and the size of the block; both in bytes."""

_MOST_PLACED: Final = 40_000
"""Buffers that are placed again at most, in all rounds together: seconds at worst."""
_MOST_ROUNDS: Final = 120
_MOST_IDLE: Final = 3
"""Rounds that lead to nothing better, one after the other."""


def best_fit(spans: Sequence[Span], enough_bytes: int = 0) -> Packed:
    """Offsets of buffers in one arena, and the arena's size; both in bytes.

    Args:
        spans: of each buffer.
        enough_bytes: an arena that takes no more need not be smaller.

    Orders: those that are needed when the most is, the largest first, the longest-lived first, the largest product of
    both, and the earliest (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020,
    section 5); the largest first into the lowest gap, too. O(n^2) in NumPy for each order, and for each round of
    placing again; rounds end when a few of them have led to nothing better.
    """
    least = least_bytes(spans)
    enough = max(least, enough_bytes)
    found: list[tuple[Packed, list[int], bool]] = []
    for key, is_lowest in ((_fullest_first(spans), False), *((key, False) for key in _ORDERS), (_ORDERS[0], True)):
        order = sorted(range(len(spans)), key=lambda index: (*key(spans[index]), index))
        found.append((_placed(spans, order, is_lowest=is_lowest), order, is_lowest))
        if found[-1][0][1] <= enough:
            return found[-1][0]
    best = min((packed for packed, _, _ in found), key=lambda packed: packed[1])
    idle = 0
    for _ in range(min(_MOST_ROUNDS, _MOST_PLACED // max(1, len(spans))) // len(found)):
        idle += 1
        for number, (packed, order, is_lowest) in enumerate(found):
            again = _earlier(spans, packed, order, least)
            found[number] = (_placed(spans, again, is_lowest=is_lowest), again, is_lowest)
            if found[number][0][1] < best[1]:
                best, idle = found[number][0], 0
            if best[1] <= enough:
                return best
        if idle == _MOST_IDLE:
            break
    return best


def least_bytes(spans: Sequence[Span]) -> int:
    """What is needed at the same time at most: no arena can be smaller."""
    return max(_needed(spans), default=0)


_ORDERS: Final[tuple[Callable[[Span], tuple[int, ...]], ...]] = (
    lambda span: (-span[0], span[1]),
    lambda span: (span[1] - span[2], -span[0]),
    lambda span: (-span[0] * (span[2] - span[1] + 1),),
    lambda span: (span[1], -span[0]),
)


def _fullest_first(spans: Sequence[Span]) -> Callable[[Span], tuple[int, ...]]:
    """The order in which those come first that are needed when the most is."""
    needed = np.array(_needed(spans), dtype=np.int64)
    return lambda span: (-int(needed[span[1] : span[2] + 1].max()), -span[0])


def _needed(spans: Sequence[Span]) -> list[int]:
    """Bytes that are needed at each step, each buffer aligned."""
    change = [0] * (2 + max((last for _, _, last in spans), default=-1))
    for size, first, last in spans:
        change[first] += _aligned(size)
        change[last + 1] -= _aligned(size)
    return list(accumulate(change))[:-1]


def _earlier(spans: Sequence[Span], packed: Packed, order: Sequence[int], least: int) -> list[int]:
    """An order in which what did not lie within the least is placed earlier: before half of what was before it."""
    offsets, _ = packed
    place = {index: float(position) for position, index in enumerate(order)}
    for index in order:
        if offsets[index] + spans[index][0] > least:
            place[index] = place[index] / 2 - 0.5
    return sorted(order, key=place.__getitem__)


def _placed(spans: Sequence[Span], order: Sequence[int], *, is_lowest: bool = False) -> Packed:
    """Each buffer in the smallest gap that holds it, or in the lowest, between those that were placed before."""
    count = len(spans)
    table = np.zeros((4, count), np.int64)
    firsts, lasts, starts, stops = table
    """Of those that are placed, by place."""
    ends = np.zeros(count + 1, np.int64)
    offsets = [0] * count
    total = 0
    for placed, index in enumerate(order):
        size, first, last = spans[index]
        size = _aligned(size)
        among = ((firsts[:placed] <= last) & (lasts[:placed] >= first)).nonzero()[0]
        np.maximum.accumulate(stops[among], out=ends[1 : len(among) + 1])
        gaps = starts[among] - ends[: len(among)]
        fitting = (gaps >= size).nonzero()[0]
        chosen = len(among)
        if fitting.size:
            chosen = fitting[0 if is_lowest else gaps[fitting].argmin()]
        start = int(ends[chosen])
        place = int(starts[:placed].searchsorted(start, "right"))
        table[:, place + 1 : placed + 1] = table[:, place:placed].copy()
        table[:, place] = first, last, start, start + size
        offsets[index] = start
        total = max(total, start + size)
    return tuple(offsets), total


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
