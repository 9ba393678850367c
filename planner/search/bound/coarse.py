"""A bound begun on fewer values: of those that are alike, the cheapest stands for all.

Most tilings of a tensor or op are others in another order of cuts. Merged, they are a quarter as many, their tables
a thirteenth as large, and passes over them as much faster; what they cost is no more than before, so a bound of the
merged sum is one of the sum. What its passes have given to each variable is given to all values that were merged, and
passes over the whole sum go on from there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from planner.search.bound.dual import Dual, Floats
from planner.search.effort import BOUND_PASSES
from planner.stop import Stop

Groups = NDArray[np.int64]
"""The number of each value's group, from 0."""


def begin_coarsely(
    dual: Dual, groups: Sequence[Groups], cap: float, rounds: int, least_gain: float, stop: Stop | None = None
) -> list[int]:
    """Passes over the merged values until that brings little, and gives the bound what they have found.

    Args:
        dual: not passed over yet.
        groups: by variable.
        cap: what the best assignment known costs.
        rounds: of passes, at most.
        least_gain: a round that closes a smaller share of what is missing is the last.
        stop: asked between passes whether the search is to end; None: it is not.

    Returns:
        By variable a group: the cheapest assignment of groups that the passes proposed.
    """
    merged = Dual(
        [_merged(costs, group, 0) for costs, group in zip(dual.own, groups, strict=True)], _merged_pairs(dual, groups)
    )
    best, least = [int(costs.argmin()) for costs in merged.own], np.inf
    for _ in range(rounds):
        before = merged.lower
        for _ in range(BOUND_PASSES):
            if stop is not None and stop.is_due():
                break
            guess = merged.forward()
            cost = merged.cost(guess)
            if cost < least:
                best, least = guess, cost
            merged.backward()
        if merged.lower - before < least_gain * (cap - merged.lower):
            break
    for pair, coarse in zip(dual.pairs, merged.pairs, strict=True):
        pair.to_first = coarse.to_first[groups[pair.first]]
        pair.to_second = coarse.to_second[groups[pair.second]]
    dual.lower = merged.lower
    return best


def _merged_pairs(dual: Dual, groups: Sequence[Groups]) -> list[tuple[int, int, Floats]]:
    tables: dict[tuple[int, int, int], Floats] = {}
    pairs = []
    for pair in dual.pairs:
        first, second = groups[pair.first], groups[pair.second]
        key = (id(pair.table), id(first), id(second))
        if key not in tables:
            tables[key] = _merged(_merged(pair.table, first, 0), second, 1)
        pairs.append((pair.first, pair.second, tables[key]))
    return pairs


def _merged(costs: Floats, group: Groups, axis: int) -> Floats:
    """The least of each group, along an axis."""
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(group.max() + 1))
    least: Floats = np.minimum.reduceat(np.take(costs, order, axis=axis), starts, axis=axis)
    return least
