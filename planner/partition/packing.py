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


def best_fit(spans: Sequence[Span]) -> Packed:
    """Offsets of buffers in one arena, and the arena's size; both in bytes.

    Orders: the largest first, the longest-lived first, the largest product of both, the earliest, and those that are
    needed when the most is (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020,
    section 5). O(n^2) in NumPy for each order, and for each round of placing again.
    """
    least = least_bytes(spans)
    found: list[tuple[Packed, list[int]]] = []
    for key in (*_ORDERS, _fullest_first(spans)):
        order = sorted(range(len(spans)), key=lambda index: (*key(spans[index]), index))
        found.append((_placed(spans, order), order))
        if found[-1][0][1] == least:
            return found[-1][0]
    best = min((packed for packed, _ in found), key=lambda packed: packed[1])
    for _ in range(min(_MOST_ROUNDS, _MOST_PLACED // max(1, len(spans))) // len(found)):
        for number, (packed, order) in enumerate(found):
            again = _earlier(spans, packed, order, least)
            found[number] = (_placed(spans, again), again)
            best = min(best, found[number][0], key=lambda packed: packed[1])
            if best[1] == least:
                return best
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


def _placed(spans: Sequence[Span], order: Sequence[int]) -> Packed:
    count = len(spans)
    firsts, lasts, starts, stops = (np.zeros(count, np.int64) for _ in range(4))
    offsets = [0] * count
    total = 0
    for placed, index in enumerate(order):
        size, first, last = spans[index]
        size = _aligned(size)
        among = np.nonzero((firsts[:placed] <= last) & (lasts[:placed] >= first))[0]
        lows, highs = starts[among], stops[among]
        by_place = np.argsort(lows, kind="stable")
        ends = np.maximum.accumulate(np.concatenate([np.zeros(1, np.int64), highs[by_place]]))
        gaps = lows[by_place] - ends[:-1]
        fitting = np.nonzero(gaps >= size)[0]
        start = int(ends[fitting[gaps[fitting].argmin()]]) if fitting.size else int(ends[-1])
        firsts[placed], lasts[placed], starts[placed], stops[placed] = first, last, start, start + size
        offsets[index] = start
        total = max(total, start + size)
    return tuple(offsets), total


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
