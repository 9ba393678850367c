"""Counts of divisions: their elements, and what two of one index space have in common.

A training graph asks for the same pairs again and again, for every tensor of a shape and every op that reads it or
makes it; here each pair is counted once. There are hundreds of index spaces, and a few new pairs in each at a time, so
what is known of all is in one array: then a question about pairs of many index spaces is one question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from planner.algebra.overlaps import elements_in_common
from planner.algebra.room import enlarged
from planner.algebra.ways import Ints, Ways

UNKNOWN = -1
"""The mark of an unknown number of elements."""
_ROOM = 32
"""Divisions of an index space that there is room for at first."""
_AT_ONCE = 1 << 20
"""Numbers that are counted at once; of more, some after the others, so that they take little memory."""
_PAIRS = 1 << 16
"""Pairs of a large table that are counted at once."""
_FEW_WORKERS = 128
"""Workers up to which it takes less time to count a large table worker by worker, than pair by pair."""


class _Division(NamedTuple):
    """The facts of a division before it is taken in."""

    ways: tuple[int, ...]
    space: int
    place: int
    held: int
    contributions: int


class Counts:
    """Counts of divisions of index spaces, all by the same cuts.

    A division is kept dim by dim, as the number of the *way* in which the dim is divided: the ends of every worker's
    piece. There are far fewer ways than divisions.
    """

    def __init__(self, ways: Ways) -> None:
        """Knows none yet.

        Args:
            ways: of the cuts; every division has a region for each worker.
        """
        self.ways = ways
        self._sizes: list[int] = []
        """The number of divisions of each index space."""
        self._count = 0
        self._queue: list[_Division] = []
        """The divisions that are not taken in."""
        self._ways = np.zeros((0, 0), dtype=np.int64)
        """The ways of each dim and division. Index spaces of fewer dims are as if they had more, of extent 1."""
        self._space = np.zeros(0, dtype=np.int64)
        self._place = np.zeros(0, dtype=np.int64)
        """The place of each division among those of its index space."""
        self._elements = np.zeros(0, dtype=np.int64)
        self._contributions = np.zeros(0, dtype=np.int64)
        self._uncounted: list[int] = []
        """Divisions whose elements are not known."""
        self._common = np.zeros(0, dtype=np.int64)
        """The elements that both divisions of each pair in an index space have in common, plus 1; 0 where the number is
        not known yet. The pairs of one index space form a square, and the squares follow one another.
        """
        self._used = 0
        self._first = np.zeros(0, dtype=np.int64)
        self._width = np.zeros(0, dtype=np.int64)
        """The beginning and the width of each index space's square."""

    def add_space(self) -> int:
        """The number of a new index space."""
        self._sizes.append(0)
        return len(self._sizes) - 1

    def add(self, space: int, ways: tuple[int, ...], held: int, contributions: int) -> int:
        """The number of a new division; it has to be taken in before anything is asked about it.

        Args:
            space: the number of its index space.
            ways: of each dim, the number of its way.
            held: elements that all workers have together; ``UNKNOWN``: they are to be counted.
            contributions: how many partial results of each element there are; 0 where it is no partial result.
        """
        self._queue.append(_Division(ways, space, self._sizes[space], held, contributions))
        self._sizes[space] += 1
        self._count += 1
        return self._count - 1

    def take_in(self) -> None:
        """Takes in the divisions that were added since it was done last."""
        if not self._queue:
            return
        self._make_room()
        span = slice(self._count - len(self._queue), self._count)
        numbers = np.array([entry[1:] for entry in self._queue], dtype=np.int64).T
        self._space[span], self._place[span], self._elements[span], self._contributions[span] = numbers
        rank, alone = len(self._ways), (self.ways.whole_way(1),)
        self._ways[:, span] = np.array([entry.ways + alone * (rank - len(entry.ways)) for entry in self._queue]).T
        self._uncounted += [number for number, entry in enumerate(self._queue, span.start) if entry.held == UNKNOWN]
        self._queue.clear()

    def elements(self, numbers: Ints) -> Ints:
        """Elements of divisions, over all workers, once they are counted."""
        elements: Ints = self._elements[numbers]
        return elements

    def contributions(self, numbers: Ints) -> Ints:
        """The number of partial results of each element; 0 where it is no partial result."""
        contributions: Ints = self._contributions[numbers]
        return contributions

    def in_common(self, firsts: Ints, seconds: Ints) -> Ints:
        """Elements that workers have in both of each pair, over all workers, once they are counted."""
        common: Ints = self._common[self._places(firsts, seconds)] - 1
        return common

    def count(self, firsts: Ints, seconds: Ints) -> None:
        """Counts the unknown pairs among these, each of one index space, and unknown divisions."""
        places = self._places(firsts, seconds)
        is_unknown = np.flatnonzero(self._common[places] == 0)
        _, first = np.unique(places[is_unknown], return_index=True)
        uncounted, alone = is_unknown[first], self._take_uncounted()
        self._count_pairs(np.concatenate([alone, firsts[uncounted]]), np.concatenate([alone, seconds[uncounted]]))

    def table(self, rows: Ints, columns: Ints) -> Ints:
        """The elements that any of some divisions have in common with any of others, all of one index space; it is
        counted for that.

        Returns:
            Shape [rows, columns].
        """
        alone = self._take_uncounted()
        self._count_pairs(alone, alone)
        space = self._space[rows[0]]
        first, width = int(self._first[space]), int(self._width[space])
        square = self._common[first : first + width * width].reshape(width, width)
        if self.ways.workers <= _FEW_WORKERS:
            self._count_by_worker(square, rows, columns)
        else:
            self._count_by_pair(square, rows, columns)
        common: Ints = square[self._place[rows][:, None], self._place[columns]] - 1
        return common

    def forget_pairs(self) -> None:
        """Gives back the memory of what was counted of pairs; it is counted anew where it is asked for again."""
        self._common = np.zeros(len(self._common), dtype=np.int64)

    def _take_uncounted(self) -> Ints:
        """The divisions whose elements are not known, which are about to be counted."""
        alone = np.array(self._uncounted, dtype=np.int64)
        self._uncounted.clear()
        return alone

    def _places(self, firsts: Ints, seconds: Ints) -> Ints:
        """The places of pairs in ``_common``."""
        space = self._space[firsts]
        places: Ints = self._first[space] + self._place[firsts] * self._width[space] + self._place[seconds]
        return places

    def _count_pairs(self, firsts: Ints, seconds: Ints) -> None:
        """Counts the common elements of pairs; with itself, that is the elements of a division."""
        if not len(firsts):
            return
        common = elements_in_common(self.ways, self._ways[:, firsts], self._ways[:, seconds])
        self._common[self._places(firsts, seconds)] = self._common[self._places(seconds, firsts)] = common + 1
        itself = firsts == seconds
        self._elements[firsts[itself]] = common[itself]

    def _count_by_worker(self, square: Ints, rows: Ints, columns: Ints) -> None:
        """Counts the common elements of rows and columns, worker by worker."""
        is_known = (square[self._place[rows][:, None], self._place[columns]] > 0).all(axis=0)
        if not is_known.all():
            uncounted, distinct_rows = np.unique(columns[~is_known]), np.unique(rows)
            row_places, column_places = self._place[distinct_rows], self._place[uncounted]
            common = self._overlaps(distinct_rows, uncounted) + 1
            square[row_places[:, None], column_places], square[column_places[:, None], row_places] = common, common.T

    def _count_by_pair(self, square: Ints, rows: Ints, columns: Ints) -> None:
        """Counts the same pair by pair, for some rows after the others."""
        batch = max(1, _PAIRS // len(columns))
        for start in range(0, len(rows), batch):
            part = rows[start : start + batch]
            row, column = np.nonzero(square[self._place[part][:, None], self._place[columns]] == 0)
            self._count_pairs(part[row], columns[column])

    def _overlaps(self, rows: Ints, columns: Ints) -> Ints:
        """The common elements of rows and columns, over all workers, shape [rows, columns]."""
        batch = max(1, _AT_ONCE // (len(columns) * self.ways.workers))
        if len(rows) > batch:
            parts = [self._overlaps(rows[start : start + batch], columns) for start in range(0, len(rows), batch)]
            return np.concatenate(parts)
        total: Ints | int = 1
        for mine, theirs in zip(self._ways[:, rows], self._ways[:, columns], strict=True):
            is_whole = bool(self.ways.is_whole[mine].all() and self.ways.is_whole[theirs].all())
            total = total * (int(self.ways.lengths[mine[0]]) if is_whole else self.ways.overlaps(mine, theirs))
        shape = (len(rows), len(columns), self.ways.workers)
        summed: Ints = np.broadcast_to(total, shape).sum(axis=2)
        return summed

    def _make_room(self) -> None:
        """Makes room for the divisions that are not taken in, and for pairs of them."""
        if self._count > len(self._elements):
            room = max(_ROOM, 2 * self._count)
            self._space, self._place = enlarged(self._space, room), enlarged(self._place, room)
            self._elements, self._contributions = enlarged(self._elements, room), enlarged(self._contributions, room)
            self._ways = enlarged(self._ways.T, room).T
        rank = max([len(entry.ways) for entry in self._queue])
        if rank > len(self._ways):
            before = len(self._ways)
            self._ways = enlarged(self._ways, rank)
            self._ways[before:] = self.ways.whole_way(1)
        if len(self._sizes) > len(self._first):
            room = max(_ROOM, 2 * len(self._sizes))
            self._first, self._width = enlarged(self._first, room), enlarged(self._width, room)
        narrow = [
            space for space in sorted({entry.space for entry in self._queue}) if self._sizes[space] > self._width[space]
        ]
        if narrow:
            self._widen(narrow)

    def _widen(self, spaces: Sequence[int]) -> None:
        """Makes larger squares for index spaces: for all divisions, and for twice as many as there was room for.

        They are put behind the others. Where there is no room for that, all move to another array, close together, and
        of a square what is known of it: the rest of it is never written, and takes no memory.
        """
        widths = self._width.copy()
        for space in spaces:
            widths[space] = max(widths[space] + _ROOM, 2 * widths[space], self._sizes[space])
        areas, squares = widths * widths, self._common
        if self._used + int(areas[spaces].sum()) > len(squares):
            spaces = np.flatnonzero(widths).tolist()
            self._used, self._common = 0, np.zeros(2 * int(areas.sum()), dtype=np.int64)
        for space in spaces:
            first, before, width = int(self._first[space]), int(self._width[space]), int(widths[space])
            rows = min(before, self._sizes[space])
            old = squares[first : first + before * before].reshape(before, before)[:rows, :rows]
            self._common[self._used : self._used + width * width].reshape(width, width)[:rows, :rows] = old
            self._first[space] = self._used
            self._used += width * width
        self._width = widths
