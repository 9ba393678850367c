"""Rows of numbers told apart, in arrays."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.search.effort import COUNTING_SORT_RANGE

Ints: TypeAlias = NDArray[np.int64]


def distinct(numbers: Ints, below: int) -> tuple[Ints, Ints]:
    """The different ones of numbers from 0 to ``below``, exclusive, ascending: the first place of each, and each
    number's among them.
    """
    if below > COUNTING_SORT_RANGE * (1 + len(numbers)):
        _, first, group = np.unique(numbers, return_index=True, return_inverse=True)
        return first, group.astype(np.int64, copy=False)
    places = np.full(below, -1)
    places[numbers[::-1]] = np.arange(len(numbers) - 1, -1, -1)  # of equal indices the last one counts
    present = np.flatnonzero(places >= 0)
    first = places[present]
    places[present] = np.arange(len(present))
    return first, places[numbers]


def distinct_rows(rows: Ints, below: int) -> tuple[Ints, Ints]:
    """The different rows of a matrix of numbers from 0 to ``below``, exclusive: the first of each, and each row's."""
    keys, count = np.zeros(len(rows), dtype=np.int64), 1
    for column in rows.T:
        if count > (1 << 62) // max(1, below):
            different, keys = np.unique(keys, return_inverse=True)
            count = len(different)
        keys, count = keys * below + column, count * below
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    return first, group.astype(np.int64, copy=False)
