"""Divisions of one index space among workers, numbered, and how many elements each two of them have in common.

What moves between two divisions is what workers need less what they have of it: one subtraction, once the common
elements are known. A training graph asks for the same pairs again and again, for every tensor of a shape and every op
that reads it or makes it; here each pair is counted once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from planner.algebra.delivery import reduction, shared_out
from planner.algebra.partial import IMPOSSIBLE, partial_cuts, settled
from planner.algebra.region import Boxes, BoxStack, index_space
from planner.algebra.tiling import Partial, Tiling

Ints = NDArray[np.int64]

_UNKNOWN = -1
_ROOM = 32
"""Divisions that there is room for at first."""
_AHEAD = 1 << 18
"""Numbers up to which a new division is counted against all others at once, and not only those it is asked with."""


def redistribution_table(made: Sequence[Tiling], owned: Sequence[Tiling], shape: tuple[int, ...]) -> Ints:
    """``Divisions.redistribution`` of a tensor of this shape."""
    divisions = Divisions(shape, made[0].workers)
    return divisions.redistribution(made, divisions.numbers(owned))


class Divisions:
    """The divisions of an index space among some workers that were asked for so far."""

    def __init__(self, shape: tuple[int, ...], workers: int) -> None:
        """Knows none yet.

        Args:
            shape: of the tensor whose index space it is.
            workers: how many; every division has as many regions.
        """
        self._shape = index_space(shape)
        self._numbers: dict[Hashable, int] = {}
        self._count = 0
        self._lo = self._hi = np.zeros((0, workers, len(self._shape)), dtype=np.int64)
        self._elements = np.zeros(0, dtype=np.int64)
        self._common = np.zeros((0, 0), dtype=np.int64)
        self._tilings: dict[int, Tiling] = {}
        self._middles: dict[tuple[Tiling, int], int] = {}

    def numbers(self, tilings: Sequence[Tiling]) -> Ints:
        """The numbers of divisions that are tilings."""
        return np.array([self._number_of(tiling) for tiling in tilings], dtype=np.int64)

    def number_of(self, boxes: Boxes) -> int:
        """The number of a division that need not be a tiling."""
        return self._number((boxes.lo.tobytes(), boxes.hi.tobytes()), lambda: boxes)

    def missing(self, owned: Ints, needed: Ints) -> Ints:
        """Elements that workers need and do not own, over all workers, shape [owned, needed]."""
        table: Ints = self._elements[needed][None] - self._in_common(owned, needed)
        return table

    def redistribution(self, made: Sequence[Tiling], owned: Ints) -> Ints:
        """Elements that move to bring a tensor from how an op makes it to where it is owned, shape [owned, made].

        What arrives at the workers that reduce needs no look at who sends it: the tiles of the cuts that shard a
        partial result make up the whole of it, so a region is met by as many contributions as the partial cuts have
        groups.

        Args:
            made: how the op makes it; tilings, since partial results say more than who holds them.
            owned: numbers of tilings. Where one is partial, contributions are not joined at all
                (``planner.algebra.partial``).
        """
        apart = [partial_cuts(self._tilings[goal]) for goal in owned.tolist()]
        if not any(apart):
            return self._joined(made, owned)
        table: Ints = np.full((len(owned), len(made)), IMPOSSIBLE, dtype=np.int64)
        for cuts in dict.fromkeys(apart):
            rows = [row for row, own in enumerate(apart) if own == cuts]
            seen = [settled(source, self._tilings[int(owned[rows[0]])]) for source in made]
            columns = [column for column, source in enumerate(seen) if source is not None]
            if columns:
                inside = [source for source in seen if source is not None]
                table[np.ix_(rows, columns)] = self._joined(inside, owned[rows])
        return table

    def _joined(self, made: Sequence[Tiling], owned: Ints) -> Ints:
        """``redistribution`` where partial results are joined, but for what is as if replicated."""
        sources = self.numbers(made)
        table: Ints = self._elements[owned][:, None] - self._in_common(owned, sources)
        partial = [column for column, tiling in enumerate(made) if tiling.has_partial]
        if partial:
            middle = np.array([[self._middle(made[column], goal) for column in partial] for goal in owned.tolist()])
            different, where = np.unique(middle, return_inverse=True)
            where = where.reshape(middle.shape)
            rows, columns = np.arange(len(owned))[:, None], np.arange(len(partial))[None]
            groups = np.array([_partial_groups(made[column]) for column in partial], dtype=np.int64)
            arriving = self._elements[middle] * groups[None]
            arriving -= self._in_common(different, sources[partial])[where, columns]
            kept = self._in_common(owned, different)[rows, where]
            table[:, partial] = arriving + self._elements[owned][:, None] - kept
        return table

    def _middle(self, made: Tiling, owned: int) -> int:
        """The division in which partial results are reduced on their way."""
        key = (made, owned)
        if key not in self._middles:
            base, cuts = reduction(made, self._tilings[owned])
            self._middles[key] = self._number((base, cuts), lambda: shared_out(base, cuts, self._shape))
        return self._middles[key]

    def _number_of(self, tiling: Tiling) -> int:
        number = self._numbers.get(tiling)
        if number is None:
            number = self._number(tiling, lambda: tiling.boxes(self._shape))
            self._tilings[number] = tiling
        return number

    def _number(self, key: Hashable, make: Callable[[], Boxes]) -> int:
        number = self._numbers.setdefault(key, self._count)
        if number == self._count:
            self._add(make())
        return number

    def _add(self, boxes: Boxes) -> None:
        if self._count == len(self._elements):
            self._grow()
        self._lo[self._count], self._hi[self._count] = boxes.lo, boxes.hi
        self._elements[self._count] = boxes.elements.sum()
        self._count += 1

    def _grow(self) -> None:
        """Makes room for twice as many."""
        more = max(_ROOM, len(self._elements))
        self._lo = np.concatenate([self._lo, np.zeros((more, *self._lo.shape[1:]), dtype=np.int64)])
        self._hi = np.concatenate([self._hi, np.zeros((more, *self._hi.shape[1:]), dtype=np.int64)])
        self._elements = np.concatenate([self._elements, np.zeros(more, dtype=np.int64)])
        self._common = np.pad(self._common, (0, more), constant_values=_UNKNOWN)

    def _in_common(self, rows: Ints, columns: Ints) -> Ints:
        """Elements that workers have in both, over all workers, shape [rows, columns]."""
        grid = np.ix_(rows, columns)
        table: Ints = self._common[grid]
        unknown = (table == _UNKNOWN).any(axis=0)
        if unknown.any():
            new = np.unique(columns[unknown])
            others = np.arange(self._count) if self._count * len(new) * self._lo[0].size <= _AHEAD else np.unique(rows)
            counted = self._stack(others).overlaps(self._stack(new))
            self._common[np.ix_(others, new)] = counted
            self._common[np.ix_(new, others)] = counted.T
            table = self._common[grid]
        return table

    def _stack(self, numbers: Ints) -> BoxStack:
        return BoxStack(self._lo[numbers], self._hi[numbers])


def _partial_groups(made: Tiling) -> int:
    """How many partial results of each element there are, in workers that do not repeat one another's work."""
    return prod(
        ways for placement, ways in zip(made.placements, made.ways, strict=True) if isinstance(placement, Partial)
    )
