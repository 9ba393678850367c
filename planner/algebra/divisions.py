"""Divisions of one index space among workers, numbered, and how many elements each two of them have in common.

What moves between two divisions is what workers need less what they have of it: one subtraction, once the common
elements are known. A training graph asks for the same pairs again and again, for every tensor of a shape and every op
that reads it or makes it; here each pair is counted once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from math import prod

import numpy as np

from planner.algebra.delivery import reduction, shared_along
from planner.algebra.overlaps import elements_in_common
from planner.algebra.region import Boxes, index_space
from planner.algebra.room import enlarged
from planner.algebra.tiling import Along, Partial, Piece, Tiling, cuts_along
from planner.algebra.ways import Ints, Ways

_UNKNOWN = -1
_ROOM = 32
"""Divisions that there is room for at first."""
_AT_ONCE = 1 << 20
"""Numbers that are counted at once; of more, some after the others, so that they take little memory."""
_PAIRS = 1 << 16
"""Pairs of a large table that are counted at once."""
_FEW_WORKERS = 128
"""Workers up to which it takes less time to count a large table worker by worker, than pair by pair."""


class Divisions:
    """The divisions of an index space, by the same cuts, that were asked for so far.

    A division is kept dim by dim, as the number of the *way* in which the dim is divided: the ends of every worker's
    piece. There are far fewer ways than divisions.
    """

    def __init__(self, shape: tuple[int, ...], ways: Ways) -> None:
        """Knows none yet.

        Args:
            shape: of the tensor whose index space it is.
            ways: of the cuts, shared with other index spaces; every division has a region for each worker.
        """
        self._shape = index_space(shape)
        self._all = prod(self._shape)
        self.ways = ways
        self._whole = [ways.whole(extent) for extent in self._shape]
        self._numbers: dict[Hashable, int] = {}
        self._count = 0
        self._new: list[tuple[tuple[int, ...], int]] = []
        self._ways = np.zeros((0, len(self._shape)), dtype=np.int64)
        self._elements = np.zeros(0, dtype=np.int64)
        self._contributions = np.zeros(0, dtype=np.int64)
        self._uncounted: list[int] = []
        """Divisions whose elements are not known."""
        self._common = np.zeros((0, 0), dtype=np.int64)
        """One more than what two divisions have in common; 0 where it is not known, so that room takes no memory."""
        self._tilings: dict[int, Tiling] = {}
        self._partial: set[int] = set()
        """The tilings that have contributions."""
        self._middles: dict[tuple[int, int], int] = {}
        self._of_tiles: dict[tuple[Tiling, tuple[int, ...]], int] = {}
        """By the tiles in which partial results are reduced, and the cuts that share these, the division."""

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
        number = self._numbers.setdefault(ways, self._count)
        if number == self._count:
            self._add(ways, _UNKNOWN)
        return number

    def way(self, dim: int, lo: Ints, hi: Ints, cuts: tuple[int, ...] | None = None) -> int:
        """The number of the way in which a dim has these parts: see ``Ways.number_of``."""
        return self.ways.number_of(self._shape[dim], lo, hi, cuts)

    def way_of_cuts(self, dim: int, along: tuple[tuple[int, ...], tuple[Piece, ...]] | None) -> int:
        """The number of the way in which cuts divide a dim, or that of none."""
        return self._whole[dim] if along is None else self.ways.number_of_cuts(self._shape[dim], *along)

    def middle(self, made: int, owned: int) -> int:
        """The number of the division in which partial results are reduced on their way, both being tilings."""
        number = self._middles.get((made, owned))
        if number is None:
            tiles = reduction(self._tilings[made], self._tilings[owned])
            number = self._of_tiles.get(tiles)
            if number is None:
                along = shared_along(*tiles, self._shape)
                ways = self._ways_of(along)
                number = self._of_tiles[tiles] = self._numbers.setdefault(ways, self._count)
                if number == self._count:
                    self._add(ways, self._held(along, self.ways.of_cuts))
            self._middles[made, owned] = number
        return number

    def _number_of(self, tiling: Tiling) -> int:
        number = self._numbers.get(tiling)
        if number is None:
            along = cuts_along(tiling)
            # Tilings that give equal regions are apart: partial results may come to them by other ways.
            number = self._numbers[tiling] = self._count
            self._tilings[number] = tiling
            if tiling.has_partial:
                self._partial.add(number)
            self._add(self._ways_of(along), self._held(along, tiling.ways))
        return number

    def _ways_of(self, along: Along) -> tuple[int, ...]:
        """The way in which each dim is divided by cuts along it."""
        found = list(self._whole)
        for dim, cuts, how in along:
            found[dim] = self.ways.number_of_cuts(self._shape[dim], cuts, how)
        return tuple(found)

    def _held(self, along: Along, ways: tuple[int, ...]) -> int:
        """Elements that all workers have together: each cut divides what there is, or repeats it."""
        dividing = {cut for _, cuts, _ in along for cut in cuts}
        return self._all * prod([count for cut, count in enumerate(ways) if cut not in dividing])

    def _add(self, ways: tuple[int, ...], held: int) -> None:
        self._new.append((ways, held))
        self._count += 1

    def take_in(self) -> None:
        """Takes in the divisions that were added since it was done last: before anything is asked about them."""
        if not self._new:
            return
        if self._count > len(self._elements):
            self._grow()
        first = self._count - len(self._new)
        self._ways[first : self._count] = [ways for ways, _ in self._new]
        self._elements[first : self._count] = [held for _, held in self._new]
        self._uncounted += [number for number, (_, held) in enumerate(self._new, first) if held == _UNKNOWN]
        for number in range(first, self._count):
            if number in self._partial:
                self._contributions[number] = _partial_groups(self._tilings[number])
        self._new.clear()

    def count_table(self, rows: Ints, columns: Ints) -> None:
        """Counts what is not known of a large table: rows, shape [rows, 1], against columns."""
        if self.ways.workers <= _FEW_WORKERS:
            self._count_by_worker(rows, columns)
        else:
            self._count_by_pair(rows, columns)

    def unknown(self, some: Ints, others: Ints) -> tuple[Ints, Ints]:
        """Of these pairs, those of which it is not known what they have in common, each once; and the divisions whose
        elements are not known, each with itself.
        """
        is_unknown = self._common[some, others] == 0
        one, other = self.uncounted()
        if not is_unknown.any():
            return one, other
        first, second = np.divmod(np.unique(some[is_unknown] * self._count + others[is_unknown]), self._count)
        return np.concatenate([one, first]), np.concatenate([other, second])

    def uncounted(self) -> tuple[Ints, Ints]:
        """The divisions whose elements are not known, each with itself; they are about to be counted."""
        numbers = np.array(self._uncounted, dtype=np.int64)
        self._uncounted.clear()
        return numbers, numbers

    def note(self, some: Ints, others: Ints, common: Ints) -> None:
        """Takes note of what pairs have in common; with itself, that is the elements of a division."""
        self._common[some, others] = self._common[others, some] = common + 1
        itself = some == others
        self._elements[some[itself]] = common[itself]

    def in_common(self, some: Ints, others: Ints) -> Ints:
        """Elements that workers have in both of each pair, over all workers, once they are known."""
        found: Ints = self._common[some, others] - 1
        return found

    def elements(self, numbers: Ints) -> Ints:
        """Elements of divisions, over all workers, once they are known."""
        found: Ints = self._elements[numbers]
        return found

    def contributions(self, numbers: Ints) -> Ints:
        """How many partial results of each element there are; 0 where it is no partial result."""
        found: Ints = self._contributions[numbers]
        return found

    @property
    def rank(self) -> int:
        """How many dims there are."""
        return len(self._shape)

    def ways_of(self, numbers: Ints, rank: int) -> Ints:
        """The ways of divisions, shape [rank, divisions], as if there were more dims, of extent 1."""
        more = np.full((rank - len(self._shape), len(numbers)), self.ways.whole(1), dtype=np.int64)
        return np.concatenate([self._ways[numbers].T, more])

    def _grow(self) -> None:
        """Makes room for all, and for twice as many as there was."""
        before = len(self._elements)
        room = max(before + _ROOM, 2 * before, self._count)
        self._ways, self._elements = enlarged(self._ways, room), enlarged(self._elements, room)
        self._contributions = enlarged(self._contributions, room)
        common = np.zeros((room, room), dtype=np.int64)
        common[:before, :before] = self._common
        self._common = common

    def _count_by_worker(self, rows: Ints, columns: Ints) -> None:
        """Counts what rows, shape [rows, 1], and columns have in common, worker by worker."""
        is_known = self._common[rows, columns].all(axis=0)
        if not is_known.all():
            new, others = np.unique(columns[~is_known]), np.unique(rows)
            common = self._overlaps(others, new) + 1
            self._common[others[:, None], new] = common
            self._common[new[:, None], others] = common.T

    def _count_by_pair(self, rows: Ints, columns: Ints) -> None:
        """The same pair by pair, for some rows after the others."""
        most = max(1, _PAIRS // len(columns))
        for start in range(0, len(rows), most):
            some = rows[start : start + most]
            row, column = np.nonzero(self._common[some, columns] == 0)
            one, other = some[row, 0], columns[column]
            rank = len(self._shape)
            self.note(one, other, elements_in_common(self.ways, self.ways_of(one, rank), self.ways_of(other, rank)))

    def _overlaps(self, rows: Ints, columns: Ints) -> Ints:
        most = max(1, _AT_ONCE // (len(columns) * self.ways.workers))
        if len(rows) > most:
            parts = [self._overlaps(rows[start : start + most], columns) for start in range(0, len(rows), most)]
            return np.concatenate(parts)
        total: Ints | int = 1
        for whole, mine, theirs in zip(self._whole, self._ways[rows].T, self._ways[columns].T, strict=True):
            is_whole = bool((mine == whole).all() and (theirs == whole).all())
            total = total * (int(self.ways.lengths[whole]) if is_whole else self.ways.overlaps(mine, theirs))
        shape = (len(rows), len(columns), self.ways.workers)
        summed: Ints = np.broadcast_to(total, shape).sum(axis=2)
        return summed


def _partial_groups(made: Tiling) -> int:
    """How many partial results of each element there are, in workers that do not repeat one another's work."""
    return prod(
        ways for placement, ways in zip(made.placements, made.ways, strict=True) if isinstance(placement, Partial)
    )
