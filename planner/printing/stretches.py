"""A long row of amounts for a drawing of few columns, which keeps the most of it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray


def fullest_moments(amounts: NDArray[np.int64], columns: int) -> list[int]:
    """The moment with the most, of each of so many stretches of equal length; each moment, where there are few.

    >>> fullest_moments(np.array([1, 5, 2, 2, 0, 3]), 3)
    [1, 2, 5]

    Args:
        amounts: by moment; at least one.
        columns: how many stretches there are at most.
    """
    count = len(amounts)
    edges = np.linspace(0, count, min(count, columns) + 1).astype(int)
    return [int(start + amounts[start:end].argmax()) for start, end in pairwise(edges.tolist())]


def binned_most(amounts: NDArray[np.int64], columns: int) -> list[int]:
    """The most of each stretch (``fullest_moments``)."""
    return [int(amounts[moment]) for moment in fullest_moments(amounts, columns)]
