"""What moves between tilings, as a table that remembers nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.algebra import movements
from planner.algebra.counts import Counts
from planner.algebra.divisions import Divisions
from planner.algebra.tiling import Tiling
from planner.algebra.ways import Ways


def redistribution_table(made: Sequence[Tiling], owned: Sequence[Tiling], shape: tuple[int, ...]) -> np.ndarray:
    """``movements.made`` of a tensor of this shape."""
    divisions = Divisions(shape, Counts(Ways(made[0].ways)))
    [table] = movements.counted([movements.made(divisions, divisions.numbers(owned), divisions.numbers(made))])
    return table
