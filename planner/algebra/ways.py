"""The ways in which a dim is divided among workers, numbered, and what two ways have in common."""

from __future__ import annotations

from collections.abc import Hashable
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.algebra.tiling import Only, Piece, piece_of, pieces

Ints: TypeAlias = NDArray[np.int64]

_ROOM = 32
"""Ways that there is room for at first."""
_FEW = 1 << 14
"""Numbers up to which it takes longer to find equal ways than to count them again."""
_KEPT = 1 << 18
"""Numbers up to which all that the ways of a dim have in common is kept."""


class Dim:
    """The ways in which one dim of an index space is divided. Way 0 gives all of it to every worker.

    Attributes:
        extent: of the dim.
        ways: of the cuts, outermost first.
        workers: how many.
        is_regular: whether all cuts have as many ways.
        pieces: by way that is known by its cuts, how long all pieces are; 0 if they are not of one length.
        cuts: by way the cuts on whose groups it depends which part a worker has, -1 behind them: those along the dim,
            outermost first, where a way is known by its cuts.
        knows_cuts: by way whether these are known.
    """

    def __init__(self, extent: int, ways: tuple[int, ...]) -> None:
        self.extent = extent
        self.ways = ways
        self.workers = workers = prod(ways)
        self.is_regular = len(set(ways)) == 1
        self.pieces = np.zeros(0, dtype=np.int64)
        self.cuts = np.zeros((0, len(ways)), dtype=np.int64)
        self.knows_cuts = np.zeros(0, dtype=np.bool_)
        self._count = 0
        self._lo = self._hi = np.zeros((0, workers), dtype=np.int64)
        self._by_ends: dict[bytes, int] = {}
        self._by_cuts: dict[Hashable, int] = {}
        self._kept = np.zeros((0, 0, workers), dtype=np.int64)
        self._kept_count = 0
        self.number_of(np.zeros(workers, dtype=np.int64), np.full(workers, extent, dtype=np.int64), ())
        self.pieces[0] = extent

    def number_of_cuts(self, cuts: tuple[int, ...], how: tuple[Piece, ...]) -> int:
        """The number of the way of these cuts, as ``cuts_along`` gives them."""
        key = (cuts, how)
        number = self._by_cuts.get(key)
        if number is None:
            (starts, ends), piece = pieces(self.extent, how), piece_of(self.ways, cuts)
            has_parts = not any(isinstance(one, Only) for _, one in how)
            number = self._by_cuts[key] = self.number_of(starts[piece], ends[piece], cuts if has_parts else None)
            lengths = ends - starts
            if has_parts and (lengths == lengths[0]).all():
                self.pieces[number] = lengths[0]
                self.cuts[number] = (*cuts, *[-1] * (len(self.ways) - len(cuts)))
        return number

    def number_of(self, lo: Ints, hi: Ints, cuts: tuple[int, ...] | None = None) -> int:
        """The number of the way with these ends, each of shape [workers], that depend on the groups of these cuts."""
        number = self._by_ends.setdefault(lo.tobytes() + hi.tobytes(), self._count)
        if number == self._count:
            if self._count == len(self._lo):
                more = np.zeros((max(_ROOM, self._count), self.workers), dtype=np.int64)
                self._lo, self._hi = np.concatenate([self._lo, more]), np.concatenate([self._hi, more])
                self.pieces = np.concatenate([self.pieces, more[:, 0]])
                self.cuts = np.concatenate([self.cuts, np.full((len(more), len(self.ways)), -1, dtype=np.int64)])
                self.knows_cuts = np.concatenate([self.knows_cuts, np.zeros(len(more), dtype=np.bool_)])
            self._lo[number], self._hi[number] = lo, hi
            self._count += 1
        if cuts is not None and not self.knows_cuts[number]:
            self.knows_cuts[number] = True
            self.cuts[number, : len(cuts)] = cuts
        return number

    def lengths(self, ways: Ints) -> Ints:
        """Of every worker's piece, shape [ways, workers]."""
        found: Ints = np.maximum(self._hi[ways] - self._lo[ways], 0)
        return found

    def overlaps(self, mine: Ints, theirs: Ints) -> Ints:
        """What workers have in common along this dim; shape [mine, theirs, workers], or 1 for what is all equal."""
        if self._keeps():
            kept: Ints = self._kept[mine[:, None], theirs]
            return kept
        if len(mine) * len(theirs) * self.workers <= _FEW:
            return self._common(mine, theirs)
        different, which = _different(mine)
        others, other = _different(theirs)
        along = self._common(different, others)
        if len(different) in (1, len(which)):  # numbered as they come
            return along if len(others) in (1, len(other)) else along[:, other]
        return along[which] if len(others) in (1, len(other)) else along[which[:, None], other]

    def overlap(self, mine: Ints, theirs: Ints) -> Ints:
        """The same pair by pair; shape [pairs, workers]."""
        if self._keeps():
            kept: Ints = self._kept[mine, theirs]
            return kept
        along: Ints = np.minimum(self._hi[mine], self._hi[theirs])
        along -= np.maximum(self._lo[mine], self._lo[theirs])
        return np.maximum(along, 0, out=along)

    def overlap_at(self, mine: Ints, theirs: Ints, workers: Ints) -> Ints:
        """The same of some workers, shape [pairs, ...]."""
        one, other = mine[:, None], theirs[:, None]
        along: Ints = np.minimum(self._hi[one, workers], self._hi[other, workers])
        along -= np.maximum(self._lo[one, workers], self._lo[other, workers])
        return np.maximum(along, 0, out=along)

    def _keeps(self) -> bool:
        """Counts what all ways have in common, if they are few, and says whether they are."""
        known, count = self._kept_count, self._count
        if known < count:
            if count * count * self.workers > _KEPT:
                return False
            if count > len(self._kept):
                room = 2 * count
                kept = np.zeros((room, room, self.workers), dtype=np.int64)
                kept[:known, :known] = self._kept[:known, :known]
                self._kept = kept
            along = self._common(np.arange(count), np.arange(known, count))
            self._kept[:count, known:count] = along
            self._kept[known:count, :count] = along.swapaxes(0, 1)
            self._kept_count = count
        return True

    def _common(self, mine: Ints, theirs: Ints) -> Ints:
        along: Ints = np.minimum(self._hi[mine][:, None], self._hi[theirs])
        along -= np.maximum(self._lo[mine][:, None], self._lo[theirs])
        return np.maximum(along, 0, out=along)


Dims: TypeAlias = dict[tuple[int, tuple[int, ...]], Dim]
"""By extent and the ways of the cuts."""


def _different(values: Ints) -> tuple[Ints, Ints]:
    """The different ones of a few numbers, and for each of all which one it is."""
    numbers: dict[int, int] = {}
    which = [numbers.setdefault(value, len(numbers)) for value in values.tolist()]
    return np.array(list(numbers), dtype=np.int64), np.array(which, dtype=np.int64)
