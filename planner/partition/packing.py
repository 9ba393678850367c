"""Packing: offsets of buffers with known lifetimes in one small block of memory.

The least that a block can be is what is needed at the same time at most. It is mostly reached: by placing buffers one
after the other, each into the smallest gap that holds it between those that are needed at the same time, in several
orders; and, where none of these does, by placing again, those earlier that lay too high (Joslin and Clements,
"Squeaky Wheel Optimization", 1999).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, TypeAlias

import numpy as np

from planner.counted import counted

ALIGNMENT: Final = 64
"""Bytes; a cache line. Kernels that peel unaligned elements would give other bits at other addresses."""

Span: TypeAlias = tuple[int, int, int]
"""A buffer's size in bytes, and the first and the last step, counted from 0, in which it is needed."""
Packed: TypeAlias = tuple[tuple[int, ...], int]
"""The offset of each buffer, and the size of the block; both in bytes."""

_NEAR: Final = 1024
"""An arena that is larger than the least by at most 1/1024 of it is small enough, unless a limit says otherwise."""
_MOST_PLACED: Final = 40_000
"""Buffers that are placed again at most, in all rounds together: seconds at worst."""
_MOST_ROUNDS: Final = 120
_MOST_IDLE: Final = 3
"""Rounds that lead to nothing better, one after the other, where the arena is above a limit."""
_MOST_SEARCHED: Final = 120_000
"""Buffers that are placed again at most where a limit asks for it: some seconds at worst."""
_MOST_MOVED: Final = 6
"""Buffers that are placed earlier at a time, at most."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """Buffers placed in an order."""

    packed: Packed
    order: list[int]
    is_lowest: bool
    """Whether each buffer goes to the lowest gap that is large enough; otherwise it goes to the smallest such gap."""

    @property
    def size_bytes(self) -> int:
        return self.packed[1]

    def again(self, spans: Sequence[Span], order: list[int]) -> _Attempt:
        """The same in another order."""
        return _Attempt(_placed(spans, order, is_lowest=self.is_lowest), order, self.is_lowest)


def best_fit(spans: Sequence[Span], enough_bytes: int = 0, limit_bytes: int = 0) -> Packed:
    """Offsets of buffers in one arena, and the arena's size; both in bytes.

    What is needed all the time lies at the bottom, which costs nothing: no gap between two such buffers could be more
    than a gap above them.

    Args:
        spans: of each buffer.
        enough_bytes: an arena that takes no more need not be smaller.
        limit_bytes: if the arena takes more and need not, a smaller one is looked for for longer.
    """
    stop = max((last for _, _, last in spans), default=0)
    offsets, total, passing = [0] * len(spans), 0, []
    for index, (size, first, last) in enumerate(spans):
        if first > 0 or last < stop:
            passing.append(index)
        else:
            offsets[index] = total
            total += _aligned(size)
    within, size = _best_above([spans[index] for index in passing], total, enough_bytes, limit_bytes)
    for index, offset in zip(passing, within, strict=True):
        offsets[index] = total + offset
    return tuple(offsets), total + size


def _best_above(spans: Sequence[Span], below: int, enough_bytes: int, limit_bytes: int) -> Packed:
    """Offsets of buffers, and the size of what they take, above so many bytes that are taken.

    Args:
        spans: of each buffer.
        below: bytes.
        enough_bytes: an arena that takes no more need not be smaller.
        limit_bytes: if the arena takes more and need not, a smaller one is looked for for longer.

    Orders: those that are needed when the most is, the largest first, the longest-lived first, the largest product of
    both, and the earliest (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020,
    section 5); the largest first into the lowest gap, too. O(n^2) in NumPy for each order, and for each round of
    placing again. Above a limit, rounds that lead to nothing better wait until another search has failed; they end
    above one that no arena keeps to.
    """
    least = least_bytes(spans)
    near = least + (below + least) // _NEAR
    if limit_bytes > 0:
        limit_bytes = max(1, limit_bytes - below)
        near = min(near, limit_bytes)
    enough = max(least, enough_bytes - below, near)
    attempts: list[_Attempt] = []
    for key, is_lowest in ((_fullest_first(spans), False), *((key, False) for key in _ORDERS), (_ORDERS[0], True)):
        order = sorted(range(len(spans)), key=lambda index: (*key(spans[index]), index))
        attempts.append(_Attempt(_placed(spans, order, is_lowest=is_lowest), order, is_lowest))
        if attempts[-1].size_bytes <= enough:
            return attempts[-1].packed
    best, by_size = min(attempts, key=lambda attempt: attempt.size_bytes), attempts[-1]
    idle, is_searched = 0, False
    rounds = range(min(_MOST_ROUNDS, _MOST_PLACED // max(1, len(spans))) // len(attempts))
    for _ in counted(rounds, "placing buffers: round", len(spans)):
        idle += 1
        for number, previous in enumerate(attempts):
            attempts[number] = previous.again(spans, _earlier(spans, previous, least))
            if attempts[number].size_bytes < best.size_bytes:
                best, idle = attempts[number], 0
            if best.size_bytes <= enough:
                return best.packed
        # Drawing lots takes long: once only, if rounds lead to nothing, and never below what every arena takes.
        if 0 < limit_bytes < best.size_bytes and idle >= _MOST_IDLE and not is_searched:
            if least > limit_bytes:
                break
            best = min(best, _searched(spans, by_size, least, limit_bytes), key=lambda attempt: attempt.size_bytes)
            is_searched = True
            if best.size_bytes <= limit_bytes:
                break
    if least <= limit_bytes < best.size_bytes and not is_searched:
        best = min(best, _searched(spans, by_size, least, limit_bytes), key=lambda attempt: attempt.size_bytes)
    return best.packed


def _searched(spans: Sequence[Span], best: _Attempt, least: int, limit_bytes: int) -> _Attempt:
    """A smaller arena: what lies too high lacks a gap when it is tight, and larger buffers around then may make one.

    A few of these, which begin or end at a tight step of one that lies too high, are drawn by lot and placed earlier;
    what is not worse is gone on from. The lots are the same each time.
    """
    lots = np.random.default_rng(0).random
    needed = _needed(spans)

    def drawn(among: Sequence[int]) -> int:
        return among[int(lots() * len(among))]

    def too_high(trial: _Attempt) -> list[int]:
        return [index for index in trial.order if trial.packed[0][index] + spans[index][0] > least]

    def overflow(trial: _Attempt) -> tuple[int, int]:
        return trial.size_bytes, sum(trial.packed[0][index] + spans[index][0] - least for index in too_high(trial))

    trials = range(_MOST_SEARCHED // len(spans))
    for _ in counted(trials, "placing buffers: trial", len(spans)):
        if best.size_bytes <= limit_bytes:
            break
        size, first, last = spans[drawn(too_high(best))]
        tight = max(range(first, last + 1), key=lambda step: (needed[step], lots()))
        near = [
            index
            for index, (peer_size, start, stop) in enumerate(spans)
            if peer_size >= 2 * size and (abs(start - tight) <= 1 or abs(stop - tight) <= 1)
        ]
        place = {index: float(position) for position, index in enumerate(best.order)}
        for _ in range(drawn(range(1, 1 + _MOST_MOVED)) if near else 0):
            moved = drawn(near)
            # Half of them before all others.
            place[moved] = place[moved] * lots() - drawn((0, 1))
        tried = best.again(spans, sorted(best.order, key=place.__getitem__))
        if overflow(tried) <= overflow(best):
            best = tried
    return best


def least_bytes(spans: Sequence[Span]) -> int:
    """The bytes that are needed at the same time, at most: no arena can be smaller."""
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


def _earlier(spans: Sequence[Span], attempt: _Attempt, least: int) -> list[int]:
    """An order in which what did not lie within the least is placed earlier: before half of what was before it."""
    offsets, _ = attempt.packed
    place = {index: float(position) for position, index in enumerate(attempt.order)}
    for index in attempt.order:
        if offsets[index] + spans[index][0] > least:
            place[index] = place[index] / 2 - 0.5
    return sorted(attempt.order, key=place.__getitem__)


def _placed(spans: Sequence[Span], order: Sequence[int], *, is_lowest: bool = False) -> Packed:
    """Each buffer in the smallest gap that holds it, or in the lowest, between those that were placed before."""
    count = len(spans)
    firsts, lasts = np.zeros((2, count), np.int32)
    starts, stops = np.zeros((2, count), np.int64)
    """Of those that are placed, in the order in which they were."""
    ends = np.zeros(count + 1, np.int64)
    offsets = [0] * count
    total = 0
    for placed, index in enumerate(order):
        size, first, last = spans[index]
        size = _aligned(size)
        among = ((firsts[:placed] <= last) & (lasts[:placed] >= first)).nonzero()[0]
        among = among[starts[among].argsort(kind="stable")]
        np.maximum.accumulate(stops[among], out=ends[1 : len(among) + 1])
        gaps = starts[among] - ends[: len(among)]
        fitting = (gaps >= size).nonzero()[0]
        chosen = len(among)
        if fitting.size:
            chosen = fitting[0 if is_lowest else gaps[fitting].argmin()]
        start = int(ends[chosen])
        firsts[placed], lasts[placed], starts[placed], stops[placed] = first, last, start, start + size
        offsets[index] = start
        total = max(total, start + size)
    return tuple(offsets), total


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
