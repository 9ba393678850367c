"""Divisions of one index space among workers, numbered.

What moves between two divisions is what workers need less what they have of it: one subtraction, once the common
elements are known (``planner.algebra.counts``).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from math import prod

import numpy as np

from planner.algebra.counts import UNKNOWN, Counts
from planner.algebra.delivery import reduction, shared_along
from planner.algebra.region import Boxes, index_space
from planner.algebra.tiling import Along, Partial, Piece, Tiling, cuts_along
from planner.algebra.ways import Ints


class Divisions:
    """The divisions of an index space, by the same cuts, that were asked for so far.

    Their numbers are those of ``Counts``: other index spaces have others.
    """

    def __init__(self, shape: tuple[int, ...], counts: Counts) -> None:
        """Knows none yet.

        Args:
            shape: of the tensor whose index space it is.
            counts: of the cuts, shared with other index spaces; every division has a region for each worker.
        """
        self._shape = index_space(shape)
        self._elements = prod(self._shape)
        self.counts = counts
        self._ways = counts.ways
        self._space = counts.add_space()
        self._whole_ways = [self._ways.whole_way(extent) for extent in self._shape]
        self._numbers: dict[Hashable, int] = {}
        self._tilings: dict[int, Tiling] = {}
        self._partial: set[int] = set()
        """The tilings that have contributions."""
        self._middles: dict[tuple[int, int], int] = {}
        self._of_tiles: dict[tuple[Tiling, tuple[int, ...]], int] = {}
        """The division for the tiles in which partial results are reduced, and the cuts that share these."""

    def numbers(self, tilings: Sequence[Tiling]) -> list[int]:
        """The numbers of divisions that are tilings."""
        return [self._number_of(tiling) for tiling in tilings]

    def tiling(self, number: int) -> Tiling:
        """The tiling of such a number."""
        return self._tilings[number]

    def has_partial(self, numbers: Iterable[int]) -> bool:
        """True if some of these tilings have contributions."""
        return not self._partial.isdisjoint(numbers)

    def number_of(self, boxes: Boxes) -> int:
        """The number of a division that need not be a tiling."""
        ends = zip(np.ascontiguousarray(boxes.lo.T), np.ascontiguousarray(boxes.hi.T), strict=True)
        return self.number_of_ways(tuple([self.way(dim, lo, hi) for dim, (lo, hi) in enumerate(ends)]))

    def number_of_ways(self, ways: tuple[int, ...]) -> int:
        """The number of the division in which each dim is divided in one of its ways."""
        number = self._numbers.get(ways)
        if number is None:
            number = self._numbers[ways] = self.counts.add(self._space, ways, UNKNOWN, 0)
        return number

    def way(self, dim: int, lo: Ints, hi: Ints, cuts: tuple[int, ...] | None = None) -> int:
        """The number of the way in which a dim has these parts: see ``Ways.number_of``."""
        return self._ways.number_of(self._shape[dim], lo, hi, cuts)

    def way_of_cuts(self, dim: int, along: tuple[tuple[int, ...], tuple[Piece, ...]] | None) -> int:
        """The number of the way in which cuts divide a dim, or that of none."""
        return self._whole_ways[dim] if along is None else self._ways.number_of_cuts(self._shape[dim], *along)

    def middle(self, source: int, owned: int) -> int:
        """The number of the division in which partial results are reduced on their way, both being tilings."""
        number = self._middles.get((source, owned))
        if number is None:
            tiles = reduction(self._tilings[source], self._tilings[owned])
            number = self._of_tiles.get(tiles)
            if number is None:
                along = shared_along(*tiles, self._shape)
                ways = self._ways_of(along)
                number = self._numbers.get(ways)
                if number is None:
                    held = self._held(along, self._ways.of_cuts)
                    number = self._numbers[ways] = self.counts.add(self._space, ways, held, 0)
                self._of_tiles[tiles] = number
            self._middles[source, owned] = number
        return number

    def _number_of(self, tiling: Tiling) -> int:
        number = self._numbers.get(tiling)
        if number is None:
            along = cuts_along(tiling)
            held, contributions = self._held(along, tiling.ways), _partial_groups(tiling)
            # Tilings that give equal regions are apart: partial results may come to them by other ways.
            number = self._numbers[tiling] = self.counts.add(self._space, self._ways_of(along), held, contributions)
            self._tilings[number] = tiling
            if contributions:
                self._partial.add(number)
        return number

    def _ways_of(self, along: Along) -> tuple[int, ...]:
        """The way in which each dim is divided by cuts along it."""
        ways = list(self._whole_ways)
        for dim, cuts, how in along:
            ways[dim] = self._ways.number_of_cuts(self._shape[dim], cuts, how)
        return tuple(ways)

    def _held(self, along: Along, ways: tuple[int, ...]) -> int:
        """Elements that all workers have together: each cut divides what there is, or repeats it."""
        dividing = {cut for _, cuts, _ in along for cut in cuts}
        return self._elements * prod([count for cut, count in enumerate(ways) if cut not in dividing])


def _partial_groups(source: Tiling) -> int:
    """The number of partial results of each element, in workers that do not repeat one another's work; 0 if the tiling
    has none.
    """
    if not source.has_partial:
        return 0
    pairs = zip(source.placements, source.ways, strict=True)
    return prod([ways for placement, ways in pairs if isinstance(placement, Partial)])
