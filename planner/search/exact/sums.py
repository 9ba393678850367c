"""The minimum of a sum of tables over one of its variables, for sums of many entries.

How the tables' axes are laid out depends on their shapes only, so it is found once for all sums of a form. Tables that
are within another one are added to it first, so that there are mostly two. Their sum is made with all axes together
that are both tables' or one's; what is left has few axes, the longest innermost, over which numpy is quick. The place
of the minimum is found with it: sums have the value's number as their last bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.search.effort import CACHED_ENTRIES, REMEMBERED_MINIMA, SUM_LIMIT
from planner.search.exact.order import Pattern
from planner.search.exact.rows import Ints

Table: TypeAlias = NDArray[np.int64]
Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _View:
    """A table as a part of a sum: its axes in the sum's order, those that it lacks of size 1."""

    order: tuple[int, ...]
    shape: Shape

    def of(self, table: Table) -> Table:
        return table.transpose(self.order).reshape(self.shape)


class SumForm:
    """Sums of tables of certain shapes and axes, of which axis 0 is minimised over.

    Attributes:
        shape: of the sum.
        keeps_best: whether it is found where the minima are.
    """

    def __init__(self, pattern: Pattern, shapes: Sequence[Shape], shape: Shape) -> None:
        """Finds out how such tables are added.

        Args:
            pattern: for each table its axes.
            shapes: of the tables.
            shape: of the sum.
        """
        self.shape = shape
        self.keeps_best = prod(shape[1:]) <= REMEMBERED_MINIMA
        self._bits = shape[0].bit_length()
        self._value_type = np.min_scalar_type(shape[0])
        self._views = [_view(axes, sizes, len(shape)) for axes, sizes in zip(pattern, shapes, strict=True)]
        # Each of these is a table, the largest first, and those within it.
        self._groups: list[list[int]] = []
        for table in sorted(range(len(shapes)), key=lambda table: -prod(shapes[table])):
            for group in self._groups:
                pairs = zip(self._views[table].shape, self._views[group[0]].shape, strict=True)
                if all(size in (1, theirs) for size, theirs in pairs):
                    group.append(table)
                    break
            else:
                self._groups.append([table])
        first = self._views[self._groups[0][0]].shape
        smaller = [self._views[group[0]].shape for group in self._groups[1:]]
        second = tuple(map(max, *smaller)) if len(smaller) > 1 else smaller[0] if smaller else (1,) * len(shape)
        axes = range(1, len(shape))
        shared = [axis for axis in axes if first[axis] == second[axis]]
        mine = [axis for axis in axes if first[axis] > second[axis]]
        theirs = [axis for axis in axes if first[axis] < second[axis]]
        common, rows, columns = (prod([shape[axis] for axis in group]) for group in (shared, mine, theirs))
        inner, outer = (mine, theirs) if rows >= columns else (theirs, mine)
        self._axes = (0, *shared, *outer, *inner)
        self._first = (shape[0], common, 1, rows) if rows >= columns else (shape[0], common, rows, 1)
        self._second = (shape[0], common, columns, 1) if rows >= columns else (shape[0], common, 1, columns)
        order = [axis - 1 for axis in self._axes[1:]]
        self._sizes = tuple(shape[1:][axis] for axis in order)
        self._back = tuple(sorted(range(len(order)), key=order.__getitem__))
        self._values = np.arange(shape[0]).reshape(-1, 1, 1, 1)

    def least(self, tables: Sequence[Table], largest: int) -> tuple[Table, Ints | None]:
        """The minimum over the first axis, by the others, and where it is, flat; None if that is not kept.

        Args:
            tables: of the form's shapes.
            largest: no sum is larger.
        """
        keeps_best = self.keeps_best and largest < SUM_LIMIT >> self._bits
        first = self._joined(tables, 0).transpose(self._axes).reshape(self._first)
        if keeps_best:
            first = first << self._bits
            first += self._values  # in place: a large table is not made once more
        if len(self._groups) == 1:
            least = first.min(axis=0)
        else:
            joined = [self._joined(tables, group) for group in range(1, len(self._groups))]
            second = reduce(np.add, joined).transpose(self._axes).reshape(self._second)
            least = self._least(first, second << self._bits if keeps_best else second)
        least = np.ascontiguousarray(least.reshape(self._sizes).transpose(self._back))
        if not keeps_best:
            return least, None
        best = (least & ((1 << self._bits) - 1)).astype(self._value_type).ravel()
        least >>= self._bits
        return least, best

    def _joined(self, tables: Sequence[Table], group: int) -> Table:
        """A table with those within it."""
        first, *within = [self._views[table].of(tables[table]) for table in self._groups[group]]
        joined: Table = reduce(np.add, within, first)
        return joined

    def _least(self, first: Table, second: Table) -> Table:
        if prod(self.shape) <= CACHED_ENTRIES:
            minimum: Table = (first + second).min(axis=0)
            return minimum
        least: Table = first[0] + second[0]
        total = np.empty_like(least)
        for mine, theirs in zip(first[1:], second[1:], strict=True):
            np.minimum(least, np.add(mine, theirs, out=total), out=least)
        return least


def _view(axes: tuple[int, ...], sizes: Shape, rank: int) -> _View:
    shape = [1] * rank
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis] = size
    return _View(tuple(sorted(range(len(axes)), key=axes.__getitem__)), tuple(shape))
