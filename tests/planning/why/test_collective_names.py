"""Movements between tilings have the field's names."""

from __future__ import annotations

import numpy as np
import pytest

from planner.algebra.region import Boxes, Region
from planner.algebra.tiling import Tiling
from planner.planning.why.deliveries import collective

CASES = [
    ("P/4", "S(0)/4", "reduce-scatter"),
    ("P/4", "R/4", "all-reduce"),
    ("P/2 S(0)/2", "R/2 S(0)/2", "all-reduce"),
    ("P/2 S(0)/2", "S(1)/2 S(0)/2", "reduce-scatter"),
    ("P/2 P/2", "S(0)/2 R/2", "reduce-scatter"),
    ("S(0)/4", "R/4", "all-gather"),
    ("S(0)/2 S(0)/2", "S(0)/2 R/2", "all-gather"),
    ("S(0)/4", "S(1)/4", "all-to-all"),
    ("S(0)/2 R/2", "R/2 S(1)/2", "exchange"),
    ("S(1)/2 S(1)/2", "S(1)/2 R/2", "all-gather"),
    ("S(1)/4", "S(0)/2 R/2", "exchange"),
    ("S(0)/2 S(0)/2", "S(0)/2 S(1)/2", "all-to-all"),
    ("S(0)/2 S(1)/2", "S(1)/2 S(0)/2", "all-to-all"),
    ("S(0)/3 S(1)/2", "S(0)/2 S(1)/3", "exchange"),
    ("O(0)/2", "R/2", "broadcast"),
    ("S(0)/2", "O(0)/2", "broadcast"),
    ("S(0)/4", "O(0)/4", "exchange"),
    ("O(0)/2 R/2", "O(1)/2 S(0)/2", "exchange"),
    ("P/2", "O(0)/2", "reduce"),
]


def tiling(text: str) -> Tiling:
    return Tiling.parse(text, tuple(int(part.rpartition("/")[2]) for part in text.split()))


@pytest.mark.parametrize(("source", "target", "name"), CASES)
def test_from_one_tiling_to_another(source: str, target: str, name: str) -> None:
    have, need = (tiling(text).boxes((8, 8)) for text in (source, target))
    assert collective(need, have, is_partial="P" in source) == name


def test_a_border_around_a_shard_is_a_halo() -> None:
    tiles = tiling("S(0)/4").boxes((16, 3))
    regions = [Region((max(0, tile.lo[0] - 1), 0), (min(16, tile.hi[0] + 1), 3)) for tile in tiles]
    need = Boxes(np.array([region.lo for region in regions]), np.array([region.hi for region in regions]))
    assert collective(need, tiles, is_partial=False) == "halo exchange"
