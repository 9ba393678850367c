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

    A way is known by the cuts on whose groups it depends which part a worker has, and by the part of each combination
    of their groups: mostly there are far fewer than workers.

    Attributes:
        of_cuts: how many groups each cut makes, outermost first.
        workers: how many.
        is_regular: whether all cuts make as many.
        is_whole: by way, whether it gives all of a dim to every worker.
        lengths: by way that is a tiling's, how long each worker's piece is; 0 if they are not of one length.
        cuts: by way the cuts on whose groups it depends which part a worker has, in the order in which they divide the
            dim, -1 behind them.
        knows_cuts: by way, whether these are known; else it is taken to depend on all.
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
        self._numbers: dict[tuple[int, tuple[int, ...] | None, bytes], int] = {}
        self._by_cuts: dict[Hashable, int] = {}
        self._whole_ways: dict[int, int] = {}
        # The parts of all ways, one way after the other; where a way's begin, and how far apart they are in it for
        # neighbouring groups of each cut.
        self._lo = self._hi = np.zeros(0, dtype=np.int64)
        self._used = 0
        self._first = np.zeros(0, dtype=np.int64)
        self._steps = np.zeros((0, len(of_cuts)), dtype=np.int64)
        # The parts worker by worker, row by row, of those ways of which they were asked for.
        self._row = np.zeros(0, dtype=np.int64)
        self._all_lo = self._all_hi = np.zeros((0, self.workers), dtype=np.int64)
        self._rows = 0

    def whole_way(self, extent: int) -> int:
        """The number of the way in which every worker has all of a dim."""
        number = self._whole_ways.get(extent)
        if number is None:
            lo, hi = np.zeros(1, dtype=np.int64), np.full(1, extent, dtype=np.int64)
            number = self._whole_ways[extent] = self.number_of(extent, lo, hi, ())
            self.is_whole[number], self.lengths[number] = True, extent
        return number

    def number_of_cuts(self, extent: int, cuts: tuple[int, ...], how: tuple[Piece, ...]) -> int:
        """The number of the way of these cuts, as ``cuts_along`` gives them."""
        key = (extent, cuts, how)
        number = self._by_cuts.get(key)
        if number is None:
            starts, ends = pieces(extent, how)
            number = self._by_cuts[key] = self.number_of(extent, starts, ends, cuts)
            lengths = ends - starts
            if (lengths == lengths[0]).all():
                self.lengths[number] = lengths[0]
        return number

    def number_of(self, extent: int, lo: Ints, hi: Ints, cuts: tuple[int, ...] | None = None) -> int:
        """The number of the way with these ends.

        Args:
            extent: of the dim.
            lo: where the part of each combination of the cuts' groups begins, the last cut's varying fastest.
            hi: where it ends.
            cuts: those on whose groups the part depends, in the order in which they divide the dim; None if they are
                not known, so that there is a part for each worker.
        """
        if cuts is not None and len(cuts) and not lo.any() and (hi == extent).all():
            return self.whole_way(extent)
        number = self._numbers.setdefault((extent, cuts, lo.tobytes() + hi.tobytes()), self._count)
        if number == self._count:
            if self._count == len(self._first):
                self._grow()
            self._count += 1
            stop = self._used + len(lo)
            if stop > len(self._lo):
                self._lo, self._hi = (enlarged(values, 2 * stop) for values in (self._lo, self._hi))
            self._lo[self._used : stop], self._hi[self._used : stop] = lo, hi
            self._first[number], self._used = self._used, stop
            self.knows_cuts[number] = cuts is not None
            along = range(len(self.of_cuts)) if cuts is None else cuts
            self.cuts[number, : len(along)] = along
            step = 1
            for cut in reversed(along):
                self._steps[number, cut], step = step, step * self.of_cuts[cut]
        return number

    def _grow(self) -> None:
        """Makes room for as many again."""
        room = max(_ROOM, 2 * self._count)
        self.lengths, self.is_whole = enlarged(self.lengths, room), enlarged(self.is_whole, room)
        self.knows_cuts, self.cuts = enlarged(self.knows_cuts, room), enlarged(self.cuts, room)
        self._first, self._steps = enlarged(self._first, room), enlarged(self._steps, room)
        self._row = enlarged(self._row, room)
        self.cuts[self._count :] = self._row[self._count :] = -1

    def _rows_of(self, numbers: Ints) -> Ints:
        """The rows in which the parts of ways are, worker by worker."""
        rows: Ints = self._row[numbers]
        if (rows < 0).any():
            for number in np.unique(numbers[rows < 0]).tolist():
                if self._rows == len(self._all_lo):
                    room = max(_ROOM, 2 * self._rows)
                    self._all_lo, self._all_hi = (enlarged(values, room) for values in (self._all_lo, self._all_hi))
                cuts = tuple(cut for cut in self.cuts[number].tolist() if cut >= 0)
                part = self._first[number] + piece_of(self.of_cuts, cuts)
                self._all_lo[self._rows], self._all_hi[self._rows] = self._lo[part], self._hi[part]
                self._row[number] = self._rows
                self._rows += 1
            rows = self._row[numbers]
        return rows

    def overlaps(self, mine: Ints, theirs: Ints) -> Ints:
        """The elements that workers have in common along a dim, with its ways in any order; shape [mine, theirs,
        workers].
        """
        if len(mine) * len(theirs) * self.workers <= _FEW:
            return self.overlap(mine[:, None], theirs)
        my_ways, my_index = _different(mine)
        their_ways, their_index = _different(theirs)
        along = self.overlap(my_ways[:, None], their_ways)
        if len(my_ways) in (1, len(my_index)):  # numbered as they come
            return along if len(their_ways) in (1, len(their_index)) else along[:, their_index]
        return along[my_index] if len(their_ways) in (1, len(their_index)) else along[my_index[:, None], their_index]

    def overlap(self, mine: Ints, theirs: Ints) -> Ints:
        """Elements in common along a dim, pair by pair, as numpy broadcasts them; shape [..., workers]."""
        my_rows, their_rows = self._rows_of(mine), self._rows_of(theirs)
        return _in_both(self._all_lo, self._all_hi, my_rows, their_rows)

    def overlap_at(self, mine: Ints, theirs: Ints, cuts: Ints, groups: Ints) -> Ints:
        """Elements in common by combination of groups of the cuts that divide the parts, shape [pairs, combinations].

        Args:
            mine: ways, shape [pairs].
            theirs: the others.
            cuts: of each pair, shape [pairs, cuts].
            groups: of each combination, shape [cuts, combinations].
        """
        my_parts, their_parts = (
            self._first[numbers][:, None] + np.take_along_axis(self._steps[numbers], cuts, axis=1) @ groups
            for numbers in (mine, theirs)
        )
        return _in_both(self._lo, self._hi, my_parts, their_parts)


def _in_both(lo: Ints, hi: Ints, mine: Ints, theirs: Ints) -> Ints:
    """The common elements of parts, by place."""
    along: Ints = np.minimum(hi[mine], hi[theirs])
    along -= np.maximum(lo[mine], lo[theirs])
    return np.maximum(along, 0, out=along)


def _different(values: Ints) -> tuple[Ints, Ints]:
    """The different ones of a few numbers, and for each of all which one it is."""
    numbers: dict[int, int] = {}
    inverse = [numbers.setdefault(value, len(numbers)) for value in values.tolist()]
    return np.array(list(numbers), dtype=np.int64), np.array(inverse, dtype=np.int64)
