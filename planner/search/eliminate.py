"""Variable elimination: the exact minimum of a sum of tables over discrete variables.

SoyBean's BFS-level dynamic programme (section 4), Tofu's over forward and backward groups (section 5.1) and
OptCNN's node and edge elimination (section 5) are orders of it. Time and memory are exponential only in the
induced width of the order, which is small on training graphs.

Equal buckets are solved once: tables are interned by content, and the eliminations of a round whose tables are the same
are one computation, as are those of later searches of the same network. What identical layers cost is the bookkeeping
of their numbers, done for a whole round at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from math import prod
from operator import mul
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.errors import InfeasibleError
from planner.search.order import Ints, Order, Pattern, distinct_rows, find_order, order_of

MAX_TABLE_ENTRIES = 1 << 26
"""A bucket larger than this would not fit in memory; the search refuses rather than guesses."""
_AT_ONCE = 1 << 17
"""A bucket larger than this is minimised value by value, so that it stays in the cache and takes less memory."""
_DECIDED = 1 << 13
"""A bucket up to this size keeps where its minima are; of a larger one they are found again where they are needed."""
_MANY = 64
"""Rows from which on arrays are quicker than a dictionary."""

Table: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Factor:
    """A table over some variables: axis i of ``table`` is the value of ``variables[i]``."""

    variables: tuple[int, ...]
    table: Table


@dataclass(frozen=True, slots=True)
class Solution:
    """A minimising assignment."""

    values: Ints
    """The chosen value of each variable."""
    total: int
    """The sum of all tables there."""
    largest_table: int
    """Entries of the largest bucket, as a measure of the induced width."""
    entries: int
    """Entries of all buckets that were computed."""


def minimise(
    sizes: Sequence[int],
    factors: Sequence[Factor],
    max_table_entries: int = MAX_TABLE_ENTRIES,
    sequence: Sequence[int] | None = None,
) -> Solution:
    """Finds the least sum of all factors over all assignments.

    Args:
        sizes: the number of values of each variable; at least 1.
        factors: tables over variables; each at most once in a factor.
        max_table_entries: how large a bucket may be.
        sequence: all variables in the order in which they are to be eliminated; None: one with small buckets.

    Raises:
        InfeasibleError: a bucket would be larger.
    """
    squeezed = [_without_decided(factor) for factor in factors]
    scopes = [factor.variables for factor in squeezed]
    if sequence is None:
        order = find_order(sizes, scopes, [0] * len(sizes))
    else:
        order = order_of(sequence, len(sizes), scopes)
    numbers: dict[int, int] = {}
    tables: list[Table] = []
    for factor in squeezed:
        if id(factor.table) not in numbers:
            numbers[id(factor.table)] = len(tables)
            tables.append(factor.table)
    which = np.array([numbers[id(factor.table)] for factor in squeezed], dtype=np.int64)
    refuse_larger(order.largest_bucket(np.array(sizes)), max_table_entries)
    return eliminate(order, tables, which)


def _without_decided(factor: Factor) -> Factor:
    """The factor without the variables that have one value: they are decided, and a table has at most 64 axes."""
    if 1 not in factor.table.shape:
        return factor
    kept = tuple(name for name, size in zip(factor.variables, factor.table.shape, strict=True) if size > 1)
    return Factor(kept, factor.table.reshape([size for size in factor.table.shape if size > 1]))


def refuse_larger(entries: float, max_table_entries: int) -> None:
    """Refuses a bucket that is too large.

    Raises:
        InfeasibleError: it is.
    """
    if entries > max_table_entries:
        raise InfeasibleError(
            f"the search needs a table of {entries:,.0f} entries, more than {max_table_entries:,}",
            hint="the graph is too entangled for an exact search at this many ways",
        )


def eliminate(order: Order, tables: Sequence[Table], which: Ints) -> Solution:
    """Finds the least sum of factors over all assignments; of equal values the first wins.

    Args:
        order: over the factors' scopes.
        tables: the different tables.
        which: the number of each factor's table, shape [factors].
    """
    known = KnownTables()
    return eliminate_known(order, known, *known.interned(tables, which))


def eliminate_known(order: Order, known: KnownTables, numbers: Ints, constant: int) -> Solution:
    """The same, for tables that are known by number.

    Args:
        order: over the factors' scopes.
        known: the tables, and what was found out about them before.
        numbers: of each factor's table, shape [factors].
        constant: what was taken out of the tables.
    """
    reduced = Reduced(order, known, numbers, constant)
    values = np.zeros(order.variables, dtype=np.int64)
    reduced.complete(values)
    return Solution(values, reduced.constant, reduced.largest_table, reduced.entries)


class Reduced:
    """A sum of factors after an order's eliminations: what is left of it, and how to complete an assignment.

    Attributes:
        constant: what every assignment costs beside the tables that are left.
        largest_table: entries of the largest bucket.
        entries: entries of all buckets that were computed and not known before.
    """

    def __init__(self, order: Order, known: KnownTables, numbers: Ints, constant: int) -> None:
        """Eliminates.

        Args:
            order: over the factors' scopes; it may leave variables, its core.
            known: the tables, and what was found out about them before.
            numbers: of each factor's table, shape [factors].
            constant: what was taken out of the tables.
        """
        before = known.entries
        self._order = order
        self._known = known
        self._table_of = table_of = np.full(order.scopes + order.variables, -1, dtype=np.int64)
        table_of[: order.scopes] = numbers
        self.constant = constant
        self.largest_table = 1
        self._done: list[tuple[list[_Bucket], Ints]] = []
        for steps in order.rounds:
            rows, group = _distinct(table_of[steps.factors], known.count)
            buckets = [known.bucket(steps.pattern, tuple(row)) for row in rows.tolist()]
            table_of[steps.produced] = np.array([bucket.result for bucket in buckets], dtype=np.int64)[group]
            self.constant += sum(
                bucket.least * times
                for bucket, times in zip(buckets, np.bincount(group, minlength=len(buckets)).tolist(), strict=True)
            )
            self.largest_table = max(self.largest_table, *[bucket.entries for bucket in buckets])
            self._done.append((buckets, group))
        self.entries = known.entries - before

    def table(self, factor: int) -> Table:
        """The table of a factor that is left, less its minimum (which is in ``constant``)."""
        return self._known.table(int(self._table_of[factor]))

    def complete(self, values: Ints) -> None:
        """Gives the eliminated variables their best values, when the core has its own; in place."""
        for steps, (buckets, group) in zip(reversed(self._order.rounds), reversed(self._done), strict=True):
            rest = values[steps.rest]
            if all(bucket.best is not None for bucket in buckets):
                values[steps.variables] = _looked_up(buckets, group, rest)
                continue
            for number, bucket in enumerate(buckets):
                members = np.flatnonzero(group == number)
                values[steps.variables[members]] = self._known.best(steps.pattern, bucket, rest[members])


def _distinct(rows: Ints, count: int) -> tuple[Ints, Ints]:
    """The distinct rows of numbers below ``count``, and for each row the number of its own."""
    if len(rows) == 1 or rows.shape[1] == 0 or (rows == rows[0]).all():
        return rows[:1], np.zeros(len(rows), dtype=np.int64)
    if len(rows) < _MANY:
        numbers: dict[tuple[int, ...], int] = {}
        group = np.array([numbers.setdefault(row, len(numbers)) for row in map(tuple, rows.tolist())], dtype=np.int64)
        return np.array(list(numbers), dtype=np.int64), group
    first, group = distinct_rows(rows, count)
    return rows[first], group


def _looked_up(buckets: Sequence[_Bucket], group: Ints, rest: Ints) -> Ints:
    """The values that the buckets say are best, when the neighbours have theirs; shape [eliminations]."""
    best = [bucket.best for bucket in buckets if bucket.best is not None]
    if len(best) == 1:
        values: Ints = best[0][rest @ buckets[0].strides]
        return values
    strides = np.array([bucket.strides for bucket in buckets])
    start = np.cumsum([0, *(len(values) for values in best[:-1])])
    values = np.concatenate(best)[start[group] + (rest * strides[group]).sum(axis=1)]
    return values


def _strides(shape: Sequence[int]) -> Ints:
    """How far apart in a flat array are two entries that are neighbours along each axis of an array of this shape."""
    found = list(accumulate(reversed(shape), mul, initial=1))
    return np.array(found[-2::-1], dtype=np.int64)


def _in_order(table: Table, axes: tuple[int, ...]) -> Table:
    """A table with its axes ascending, those of a bucket."""
    if len(axes) == 2:
        return table if axes[0] < axes[1] else table.T
    return table.transpose(np.argsort(axes))


@dataclass(frozen=True, slots=True, eq=False)
class _Bucket:
    """What an elimination makes of its tables."""

    numbers: tuple[int, ...]
    """Of its tables."""
    result: int
    """Number of the table over the neighbours."""
    least: int
    """What is common to all its entries."""
    entries: int
    """Of the sum of its tables."""
    best: Ints | None
    """Flat over the neighbours' values, the value that is best; None for a large bucket."""
    strides: Ints
    """Of ``best``, by neighbour."""


class KnownTables:
    """The tables met so far, each once, with its minimum taken out; and the buckets solved so far.

    Attributes:
        entries: entries of all buckets that were computed.
        held: entries of all tables.
    """

    def __init__(self) -> None:
        self._tables: list[Table] = []
        self._by_content: dict[tuple[tuple[int, ...], bytes], int] = {}
        self._buckets: dict[tuple[Pattern, tuple[int, ...]], _Bucket] = {}
        self.entries = self.held = 0

    @property
    def count(self) -> int:
        """How many tables there are."""
        return len(self._tables)

    def interned(self, tables: Sequence[Table], which: Ints) -> tuple[Ints, int]:
        """The number of each factor's table, and the sum of what was taken out; ``which`` says which table that is."""
        pairs = [self.intern(table) for table in tables]
        numbers = np.array([number for number, _ in pairs], dtype=np.int64)
        least = np.array([least for _, least in pairs], dtype=np.int64)
        return numbers[which], int(least[which].sum())

    def intern(self, table: Table) -> tuple[int, int]:
        """The number of a table less its minimum, and the minimum."""
        least = int(table.min())
        rest = np.ascontiguousarray(table - least if least else table)
        number = self._by_content.setdefault((rest.shape, rest.tobytes()), len(self._tables))
        if number == len(self._tables):
            self._tables.append(rest)
            self.held += rest.size
        return number, least

    def table(self, number: int) -> Table:
        """A table by its number."""
        return self._tables[number]

    def bucket(self, pattern: Pattern, numbers: tuple[int, ...]) -> _Bucket:
        """What an elimination makes of the tables with these numbers."""
        found = self._buckets.get((pattern, numbers))
        if found is None:
            found = self._buckets[pattern, numbers] = self._solved(pattern, numbers)
        return found

    def _solved(self, pattern: Pattern, numbers: tuple[int, ...]) -> _Bucket:
        views, shape = self._views(pattern, numbers)
        entries = prod(shape)
        self.entries += entries
        views.sort(key=lambda view: view.size)
        best: Ints | None = None
        if not views:
            least, best = np.zeros((), dtype=np.int64), np.zeros(1, dtype=np.int64)
        elif entries <= _AT_ONCE:
            total: Table = reduce(np.add, views)
            least = total.min(axis=0)
            if entries <= _DECIDED:
                best = total.argmin(axis=0).ravel()
        else:
            least = np.array(reduce(np.add, [view[0] for view in views]))
            for value in range(1, shape[0]):
                np.minimum(least, reduce(np.add, [view[value] for view in views]), out=least)
        return _Bucket(numbers, *self.intern(least), entries, best, _strides(shape[1:]))

    def _views(self, pattern: Pattern, numbers: Sequence[int]) -> tuple[list[Table], list[int]]:
        """The tables of a bucket, all with the axes of the bucket: the variable's first; and the bucket's shape."""
        rank = 1 + max((axis for axes in pattern for axis in axes), default=0)
        views, whole = [], [1] * rank
        for axes, number in zip(pattern, numbers, strict=True):
            table = self._tables[number]
            shape = [1] * rank
            for axis, size in zip(axes, table.shape, strict=True):
                shape[axis] = whole[axis] = size
            views.append(_in_order(table, axes).reshape(shape))
        return views, whole

    def best(self, pattern: Pattern, bucket: _Bucket, rest: Ints) -> Ints:
        """The values of a variable when its neighbours have theirs.

        Args:
            pattern: of the bucket.
            bucket: what the elimination made.
            rest: the neighbours' values, shape [eliminations, neighbours].

        Returns:
            Shape [eliminations].
        """
        if bucket.best is not None:
            values: Ints = bucket.best[rest @ bucket.strides]
            return values
        total: Table = np.zeros((1, len(rest)), dtype=np.int64)
        for axes, number in zip(pattern, bucket.numbers, strict=True):
            own = axes.index(0)
            others = tuple(rest[:, axis - 1] for axis in axes if axis)
            along: Table = np.moveaxis(self._tables[number], own, 0)
            if others:
                total = total + along.reshape(len(along), -1)[:, np.ravel_multi_index(others, along.shape[1:])]
            else:
                total = total + along[:, None]
        values = total.argmin(axis=0)
        return values
