"""What is counted of divisions: their elements, and what two of one index space have in common.

A training graph asks for the same pairs again and again, for every tensor of a shape and every op that reads it or
makes it; here each pair is counted once. There are hundreds of index spaces, and a few new pairs in each at a time, so
what is known of all is in one array: then a question about pairs of many index spaces is one question.
"""

from __future__ import annotations

import numpy as np

from planner.algebra.overlaps import elements_in_common
from planner.algebra.room import enlarged
from planner.algebra.ways import Ints, Ways

UNKNOWN = -1
"""In the place of a number of elements that is not known."""
_ROOM = 32
"""Divisions of an index space that there is room for at first."""
_AT_ONCE = 1 << 20
"""Numbers that are counted at once; of more, some after the others, so that they take little memory."""
_PAIRS = 1 << 16
"""Pairs of a large table that are counted at once."""
_FEW_WORKERS = 128
"""Workers up to which it takes less time to count a large table worker by worker, than pair by pair."""


class Counts:
    """Of divisions of index spaces, all by the same cuts.

    A division is kept dim by dim, as the number of the *way* in which the dim is divided: the ends of every worker's
    piece. There are far fewer ways than divisions.
    """

    def __init__(self, ways: Ways) -> None:
        """Knows none yet.

        Args:
            ways: of the cuts; every division has a region for each worker.
        """
        self.ways = ways
        self._extents: list[int] = []
        """By index space, how many divisions of it there are."""
        self._count = 0
        self._new: list[tuple[int, int, int, int]] = []
        """Of the divisions that are not taken in, the columns of what is known of each."""
        self._new_ways: list[tuple[int, ...]] = []
        self._ways = np.zeros((0, 0), dtype=np.int64)
        """By dim and division. Index spaces of fewer dims are as if they had more, of extent 1."""
        self._space = np.zeros(0, dtype=np.int64)
        self._place = np.zeros(0, dtype=np.int64)
        """Of each division, among those of its index space."""
        self._elements = np.zeros(0, dtype=np.int64)
        self._contributions = np.zeros(0, dtype=np.int64)
        self._uncounted: list[int] = []
        """Divisions whose elements are not known."""
        self._common = np.zeros(0, dtype=np.int64)
        """One more than what two divisions have in common; 0 where it is not known, so that room takes no memory. Of
        each index space a square, one after the other."""
        self._used = 0
        self._first = np.zeros(0, dtype=np.int64)
        self._width = np.zeros(0, dtype=np.int64)
        """By index space, where its square begins, and how wide it is."""

    def add_space(self) -> int:
        """The number of a new index space."""
        self._extents.append(0)
        return len(self._extents) - 1

    def add(self, space: int, ways: tuple[int, ...], held: int, contributions: int) -> int:
        """The number of a new division; it has to be taken in before anything is asked about it.

        Args:
            space: the number of its index space.
            ways: of each dim, the number of its way.
            held: elements that all workers have together; ``UNKNOWN``: they are to be counted.
            contributions: how many partial results of each element there are; 0 where it is no partial result.
        """
        self._new.append((space, self._extents[space], held, contributions))
        self._new_ways.append(ways)
        self._extents[space] += 1
        self._count += 1
        return self._count - 1

    def take_in(self) -> None:
        """Takes in the divisions that were added since it was done last."""
        if not self._new:
            return
        self._make_room()
        here = slice(self._count - len(self._new), self._count)
        self._space[here], self._place[here], self._elements[here], self._contributions[here] = zip(
            *self._new, strict=True
        )
        rank, alone = len(self._ways), (self.ways.whole(1),)
        self._ways[:, here] = np.array([ways + alone * (rank - len(ways)) for ways in self._new_ways]).T
        self._uncounted += [number for number, (_, _, held, _) in enumerate(self._new, here.start) if held == UNKNOWN]
        self._new.clear()
        self._new_ways.clear()

    def elements(self, numbers: Ints) -> Ints:
        """Elements of divisions, over all workers, once they are counted."""
        found: Ints = self._elements[numbers]
        return found

    def contributions(self, numbers: Ints) -> Ints:
        """How many partial results of each element there are; 0 where it is no partial result."""
        found: Ints = self._contributions[numbers]
        return found

    def in_common(self, some: Ints, others: Ints) -> Ints:
        """Elements that workers have in both of each pair, over all workers, once they are counted."""
        found: Ints = self._common[self._places(some, others)] - 1
        return found

    def count(self, some: Ints, others: Ints) -> None:
        """Counts what is not known of these pairs, each of one index space, and of single divisions."""
        places = self._places(some, others)
        is_unknown = np.flatnonzero(self._common[places] == 0)
        _, first = np.unique(places[is_unknown], return_index=True)
        new, alone = is_unknown[first], self._no_longer_uncounted()
        self._count_pairs(np.concatenate([alone, some[new]]), np.concatenate([alone, others[new]]))

    def count_table(self, rows: Ints, columns: Ints) -> None:
        """The same of a large table: rows, shape [rows, 1], against columns, all of one index space."""
        alone = self._no_longer_uncounted()
        self._count_pairs(alone, alone)
        if self.ways.workers <= _FEW_WORKERS:
            self._count_by_worker(rows, columns)
        else:
            self._count_by_pair(rows, columns)

    def _no_longer_uncounted(self) -> Ints:
        """The divisions whose elements are not known; they are about to be counted."""
        alone = np.array(self._uncounted, dtype=np.int64)
        self._uncounted.clear()
        return alone

    def _places(self, some: Ints, others: Ints) -> Ints:
        """Where pairs are, as numpy broadcasts them."""
        space = self._space[some]
        places: Ints = self._first[space] + self._place[some] * self._width[space] + self._place[others]
        return places

    def _count_pairs(self, some: Ints, others: Ints) -> None:
        """Counts what pairs have in common; with itself, that is the elements of a division."""
        if not len(some):
            return
        common = elements_in_common(self.ways, self._ways[:, some], self._ways[:, others])
        self._common[self._places(some, others)] = self._common[self._places(others, some)] = common + 1
        itself = some == others
        self._elements[some[itself]] = common[itself]

    def _make_room(self) -> None:
        """Makes room for the divisions that are not taken in, and for pairs of them."""
        if self._count > len(self._elements):
            room = max(_ROOM, 2 * self._count)
            self._space, self._place = enlarged(self._space, room), enlarged(self._place, room)
            self._elements, self._contributions = enlarged(self._elements, room), enlarged(self._contributions, room)
            self._ways = enlarged(self._ways.T, room).T
        rank = max(map(len, self._new_ways))
        if rank > len(self._ways):
            before = len(self._ways)
            self._ways = enlarged(self._ways, rank)
            self._ways[before:] = self.ways.whole(1)
        if len(self._extents) > len(self._first):
            room = max(_ROOM, 2 * len(self._extents))
            self._first, self._width = enlarged(self._first, room), enlarged(self._width, room)
        for space in {space for space, *_ in self._new}:
            if self._extents[space] > self._width[space]:
                self._widen(space)

    def _widen(self, space: int) -> None:
        """Makes a larger square for an index space: for all, and for twice as many as there was room for."""
        first, before = int(self._first[space]), int(self._width[space])
        width = max(before + _ROOM, 2 * before, self._extents[space])
        stop = self._used + width * width
        if stop > len(self._common):
            self._common = enlarged(self._common, max(2 * len(self._common), stop))
        known = self._common[first : first + before * before].reshape(before, before)
        self._common[self._used : stop].reshape(width, width)[:before, :before] = known
        self._first[space], self._width[space], self._used = self._used, width, stop

    def _count_by_worker(self, rows: Ints, columns: Ints) -> None:
        """Counts what rows, shape [rows, 1], and columns have in common, worker by worker."""
        is_known = (self._common[self._places(rows, columns)] > 0).all(axis=0)
        if not is_known.all():
            new, others = np.unique(columns[~is_known]), np.unique(rows)
            common = self._overlaps(others, new) + 1
            self._common[self._places(others[:, None], new)] = common
            self._common[self._places(new[:, None], others)] = common.T

    def _count_by_pair(self, rows: Ints, columns: Ints) -> None:
        """The same pair by pair, for some rows after the others."""
        most = max(1, _PAIRS // len(columns))
        for start in range(0, len(rows), most):
            some = rows[start : start + most]
            row, column = np.nonzero(self._common[self._places(some, columns)] == 0)
            self._count_pairs(some[row, 0], columns[column])

    def _overlaps(self, rows: Ints, columns: Ints) -> Ints:
        most = max(1, _AT_ONCE // (len(columns) * self.ways.workers))
        if len(rows) > most:
            parts = [self._overlaps(rows[start : start + most], columns) for start in range(0, len(rows), most)]
            return np.concatenate(parts)
        total: Ints | int = 1
        for mine, theirs in zip(self._ways[:, rows], self._ways[:, columns], strict=True):
            is_whole = bool(self.ways.is_whole[mine].all() and self.ways.is_whole[theirs].all())
            total = total * (int(self.ways.lengths[mine[0]]) if is_whole else self.ways.overlaps(mine, theirs))
        shape = (len(rows), len(columns), self.ways.workers)
        summed: Ints = np.broadcast_to(total, shape).sum(axis=2)
        return summed
