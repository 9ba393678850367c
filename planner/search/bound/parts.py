"""A network of variables in parts that few variables join: the residual blocks of a deep network, forward and backward.

Variables are put in a row such that at every place few of those to the left have neighbours to the right. The row is
broken where these are fewest. A greedy rule suffices: a training graph is a chain of blocks, each densely joined inside
and to the next by an activation and its gradient, and a block that is begun is finished before the next one is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

_DIGITS = 6
"""Weights are compared to so many digits, so that the order of a sum does not decide."""


def in_parts(weights: Sequence[float], pairs: Sequence[tuple[int, int]], least: int, most: int) -> list[list[int]]:
    """Divides variables into parts that few variables join.

    Args:
        weights: of each variable, by which it counts where it joins parts.
        pairs: the neighbours.
        least: variables of a part, except where there are fewer.
        most: the same, at most.

    Returns:
        Parts in the order of the row, each in the order of the row; every variable is in one.
    """
    assert 1 <= least <= most
    row, fronts = _with_fronts(weights, pairs)
    parts = []
    start = 0
    while len(row) - start > most:
        ends = range(start + least, start + most + 1)
        end = min(ends, key=lambda place: (round(fronts[place - 1], _DIGITS), place))
        parts.append(row[start:end])
        start = end
    parts.append(row[start:])
    return parts


def in_a_row(weights: Sequence[float], pairs: Sequence[tuple[int, int]]) -> list[int]:
    """Variables in an order in which few of those before any place have neighbours behind it.

    Args:
        weights: of each variable, by which it counts there.
        pairs: the neighbours.
    """
    return _with_fronts(weights, pairs)[0]


def _with_fronts(weights: Sequence[float], pairs: Sequence[tuple[int, int]]) -> tuple[list[int], list[float]]:
    """The row, and after each place the weight of those to the left that have neighbours to the right."""
    near: list[list[int]] = [[] for _ in weights]
    for first, second in pairs:
        near[first].append(second)
        near[second].append(first)
    left = [len(others) for others in near]
    placed = [False] * len(near)
    row: list[int] = []
    fronts: list[float] = []
    front = 0.0

    def growth(variable: int) -> float:
        """By how much the front grows if this variable is next."""
        own = weights[variable] if left[variable] else 0.0
        return round(
            own - sum(weights[other] for other in near[variable] if placed[other] and left[other] == 1), _DIGITS
        )

    for root in range(len(near)):
        if placed[root]:
            continue
        reached = {_farthest(near, _farthest(near, root)): 0}
        while reached:
            variable = min(reached, key=lambda one: (growth(one), reached[one]))
            front += growth(variable)
            del reached[variable]
            placed[variable] = True
            row.append(variable)
            fronts.append(front)
            for other in near[variable]:
                left[other] -= 1
                if not placed[other]:
                    reached.setdefault(other, len(row) * len(near) + len(reached))
    return row, fronts


def _farthest(near: Sequence[Sequence[int]], start: int) -> int:
    """A variable that is the farthest from this one."""
    seen = {start}
    waiting = deque([start])
    last = start
    while waiting:
        last = waiting.popleft()
        for other in near[last]:
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return last
