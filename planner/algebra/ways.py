"""The ways in which dims are divided among workers, numbered, and what two ways of a dim have in common."""

from __future__ import annotations

from collections.abc import Hashable
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.algebra.room import enlarged
from planner.algebra.tiling import Piece, piece_of, pieces

Ints: TypeAlias = NDArray[np.int64]

_ROOM = 256
"""Ways that there is room for at first."""
_FEW = 1 << 14
"""Numbers up to which it takes longer to find equal ways than to count them again."""


class Ways:
    """The ways in which the same cuts divide dims of any extent. Those of dims of different extents are different.

    Attributes:
        of_cuts: how many groups each cut makes, outermost first.
        workers: how many.
        is_regular: whether all cuts make as many.
        is_whole: by way, whether it gives all of a dim to every worker.
        lengths: by way that is known by its cuts, how long each worker's piece is; 0 if they are not of one length.
        cuts: by way the cuts on whose groups it depends which part a worker has, -1 behind them: those along the dim,
            outermost first, where a way is known by its cuts.
        knows_cuts: by way, whether these are known.
    """

    def __init__(self, of_cuts: tuple[int, ...]) -> None:
        self.of_cuts = of_cuts
        self.workers = prod(of_cuts)
        self.is_regular = len(set(of_cuts)) == 1
        self.is_whole = np.zeros(0, dtype=np.bool_)
        self.lengths = np.zeros(0, dtype=np.int64)
        self.cuts = np.zeros((0, len(of_cuts)), dtype=np.int64)
        self.knows_cuts = np.zeros(0, dtype=np.bool_)
        self._count = 0
        self._lo = self._hi = np.zeros((0, self.workers), dtype=np.int64)
        self._by_ends: dict[tuple[int, bytes], int] = {}
        self._by_cuts: dict[Hashable, int] = {}
        self._whole: dict[int, int] = {}

    def whole(self, extent: int) -> int:
        """The number of the way in which every worker has all of a dim."""
        number = self._whole.get(extent)
        if number is None:
            lo, hi = np.zeros(self.workers, dtype=np.int64), np.full(self.workers, extent, dtype=np.int64)
            number = self._whole[extent] = self.number_of(extent, lo, hi, ())
            self.is_whole[number], self.lengths[number], self.cuts[number] = True, extent, -1
        return number

    def number_of_cuts(self, extent: int, cuts: tuple[int, ...], how: tuple[Piece, ...]) -> int:
        """The number of the way of these cuts, as ``cuts_along`` gives them."""
        key = (extent, cuts, how)
        number = self._by_cuts.get(key)
        if number is None:
            (starts, ends), piece = pieces(extent, how), piece_of(self.of_cuts, cuts)
            number = self._by_cuts[key] = self.number_of(extent, starts[piece], ends[piece], cuts)
            lengths = ends - starts
            if (lengths == lengths[0]).all():
                self.lengths[number] = lengths[0]
                self.cuts[number] = (*cuts, *[-1] * (len(self.of_cuts) - len(cuts)))
        return number

    def number_of(self, extent: int, lo: Ints, hi: Ints, cuts: tuple[int, ...] | None = None) -> int:
        """The number of the way with these ends, each of shape [workers], that depend on the groups of these cuts."""
        number = self._by_ends.setdefault((extent, lo.tobytes() + hi.tobytes()), self._count)
        if number == self._count:
            if self._count == len(self._lo):
                self._grow()
            self._lo[number], self._hi[number] = lo, hi
            self._count += 1
        if cuts is not None and not self.knows_cuts[number]:
            self.knows_cuts[number] = True
            self.cuts[number, : len(cuts)] = cuts
        return number

    def _grow(self) -> None:
        """Makes room for as many again."""
        room = max(_ROOM, 2 * self._count)
        self._lo, self._hi = enlarged(self._lo, room), enlarged(self._hi, room)
        self.lengths, self.is_whole = enlarged(self.lengths, room), enlarged(self.is_whole, room)
        self.knows_cuts, self.cuts = enlarged(self.knows_cuts, room), enlarged(self.cuts, room)
        self.cuts[self._count :] = -1

    def overlaps(self, mine: Ints, theirs: Ints) -> Ints:
        """What workers have in common along a dim, with its ways in any order; shape [mine, theirs, workers]."""
        if len(mine) * len(theirs) * self.workers <= _FEW:
            return self._in_both(mine[:, None], theirs)
        different, which = _different(mine)
        others, other = _different(theirs)
        along = self._in_both(different[:, None], others)
        if len(different) in (1, len(which)):  # numbered as they come
            return along if len(others) in (1, len(other)) else along[:, other]
        return along[which] if len(others) in (1, len(other)) else along[which[:, None], other]

    def overlap(self, mine: Ints, theirs: Ints) -> Ints:
        """The same pair by pair; shape [pairs, workers]."""
        return self._in_both(mine, theirs)

    def overlap_at(self, mine: Ints, theirs: Ints, workers: Ints) -> Ints:
        """The same of some workers, shape [pairs, ...]."""
        return self._in_both((mine[:, None], workers), (theirs[:, None], workers))

    def _in_both(self, mine: Ints | tuple[Ints, Ints], theirs: Ints | tuple[Ints, Ints]) -> Ints:
        """What parts have in common: of ways, or of ways and workers, which go together as numpy broadcasts them."""
        along: Ints = np.minimum(self._hi[mine], self._hi[theirs])
        along -= np.maximum(self._lo[mine], self._lo[theirs])
        return np.maximum(along, 0, out=along)


def _different(values: Ints) -> tuple[Ints, Ints]:
    """The different ones of a few numbers, and for each of all which one it is."""
    numbers: dict[int, int] = {}
    which = [numbers.setdefault(value, len(numbers)) for value in values.tolist()]
    return np.array(list(numbers), dtype=np.int64), np.array(which, dtype=np.int64)
