"""Variable elimination: the exact minimum of a sum of tables over discrete variables.

SoyBean's BFS-level dynamic programme (section 4), Tofu's over forward and backward groups (section 5.1) and
OptCNN's node and edge elimination (section 5) are orders of it. Time and memory are exponential only in the
induced width of the order, which is small on training graphs.

Equal buckets are solved once: tables are interned by content, and the eliminations of a round whose tables are the same
are one computation. What identical layers cost is the bookkeeping of their numbers, done for a whole round at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.errors import InfeasibleError
from planner.search.order import Ints, Order, Pattern, find_order, order_of

MAX_TABLE_ENTRIES = 1 << 26
"""A bucket larger than this would not fit in memory; the search refuses rather than guesses."""
_AT_ONCE = 1 << 17
"""A bucket larger than this is minimised value by value, so that it stays in the cache and takes less memory."""

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
    reduced = Reduced(order, tables, which)
    values = np.zeros(order.variables, dtype=np.int64)
    reduced.complete(values)
    return Solution(values, reduced.constant, reduced.largest_table, reduced.entries)


class Reduced:
    """A sum of factors after an order's eliminations: what is left of it, and how to complete an assignment.

    Attributes:
        constant: what every assignment costs beside the tables that are left.
        largest_table: entries of the largest bucket so far.
        entries: entries of all buckets so far.
    """

    def __init__(self, order: Order, tables: Sequence[Table], which: Ints) -> None:
        """Eliminates.

        Args:
            order: over the factors' scopes; it may leave variables, its core.
            tables: the different tables.
            which: the number of each factor's table, shape [factors].
        """
        self._order = order
        self._known = known = _Known(tables)
        self._table_of = table_of = np.full(order.scopes + order.variables, -1, dtype=np.int64)
        table_of[: order.scopes] = known.numbers[which]
        self.constant = int(known.least[which].sum())
        self._done: list[tuple[Ints, Ints]] = []
        for steps in order.rounds:
            buckets, group = _distinct(table_of[steps.factors])
            results = np.array(
                [known.bucket(steps.pattern, tuple(bucket)) for bucket in buckets.tolist()], dtype=np.int64
            )
            table_of[steps.produced] = results[group, 0]
            self.constant += int(results[group, 1].sum())
            self._done.append((buckets, group))
        self.largest_table, self.entries = known.largest, known.entries

    def table(self, factor: int) -> Table:
        """The table of a factor that is left, less its minimum (which is in ``constant``)."""
        return self._known.table(int(self._table_of[factor]))

    def complete(self, values: Ints) -> None:
        """Gives the eliminated variables their best values, when the core has its own; in place."""
        for steps, (buckets, group) in zip(reversed(self._order.rounds), reversed(self._done), strict=True):
            for number, bucket in enumerate(buckets.tolist()):
                members = np.flatnonzero(group == number) if len(buckets) > 1 else slice(None)
                values[steps.variables[members]] = self._known.best(steps.pattern, bucket, values[steps.rest[members]])


def _distinct(rows: Ints) -> tuple[Ints, Ints]:
    """The distinct rows, and for each row the number of its own."""
    if len(rows) == 1 or rows.shape[1] == 0:
        return rows[:1], np.zeros(len(rows), dtype=np.int64)
    if (rows == rows[0]).all():
        return rows[:1], np.zeros(len(rows), dtype=np.int64)
    numbers: dict[tuple[int, ...], int] = {}
    group = np.array([numbers.setdefault(row, len(numbers)) for row in map(tuple, rows.tolist())], dtype=np.int64)
    return np.array(list(numbers), dtype=np.int64), group


class _Known:
    """The tables met so far, each once, with its minimum taken out; and the buckets solved so far."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self._tables: list[Table] = []
        self._by_content: dict[tuple[tuple[int, ...], bytes], int] = {}
        self._buckets: dict[tuple[Pattern, tuple[int, ...]], tuple[int, int]] = {}
        self.largest, self.entries = 1, 0
        interned = [self._intern(table) for table in tables]
        self.numbers = np.array([number for number, _ in interned], dtype=np.int64)
        self.least = np.array([least for _, least in interned], dtype=np.int64)

    def _intern(self, table: Table) -> tuple[int, int]:
        """The number of a table less its minimum, and the minimum."""
        least = int(table.min())
        rest = np.ascontiguousarray(table - least if least else table)
        number = self._by_content.setdefault((rest.shape, rest.tobytes()), len(self._tables))
        if number == len(self._tables):
            self._tables.append(rest)
        return number, least

    def table(self, number: int) -> Table:
        """A table by its number."""
        return self._tables[number]

    def bucket(self, pattern: Pattern, numbers: tuple[int, ...]) -> tuple[int, int]:
        """The table that an elimination makes: its number, and what is common to all its entries."""
        found = self._buckets.get((pattern, numbers))
        if found is None:
            found = self._buckets[pattern, numbers] = self._intern(self._least(pattern, numbers))
        return found

    def _least(self, pattern: Pattern, numbers: Sequence[int]) -> Table:
        views = self._views(pattern, numbers)
        shape = np.broadcast_shapes(*(view.shape for view in views)) if views else (1,)
        entries = prod(shape)
        self.largest = max(self.largest, entries)
        self.entries += entries
        if not views:
            return np.zeros((), dtype=np.int64)
        views.sort(key=lambda view: view.size)
        if entries <= _AT_ONCE:
            least: Table = reduce(np.add, views).min(axis=0)
            return least
        least = reduce(np.add, [view[0] for view in views], np.zeros((), dtype=np.int64))
        for value in range(1, shape[0]):
            np.minimum(least, reduce(np.add, [view[min(value, len(view) - 1)] for view in views]), out=least)
        return least

    def _views(self, pattern: Pattern, numbers: Sequence[int]) -> list[Table]:
        """The tables of a bucket, all with the axes of the bucket: the variable's first."""
        rank = 1 + max((axis for axes in pattern for axis in axes), default=0)
        views = []
        for axes, number in zip(pattern, numbers, strict=True):
            table = self._tables[number]
            shape = [1] * rank
            for axis, size in zip(axes, table.shape, strict=True):
                shape[axis] = size
            views.append(table.transpose(np.argsort(axes)).reshape(shape))
        return views

    def best(self, pattern: Pattern, numbers: Sequence[int], rest: Ints) -> Ints:
        """The values of a variable when its neighbours have theirs.

        Args:
            pattern: of the bucket.
            numbers: its tables.
            rest: the neighbours' values, shape [eliminations, neighbours].

        Returns:
            Shape [eliminations].
        """
        total: Table = np.zeros((1, len(rest)), dtype=np.int64)
        for axes, number in zip(pattern, numbers, strict=True):
            own = axes.index(0)
            others = tuple(rest[:, axis - 1] for axis in axes if axis)
            along: Table = np.moveaxis(self._tables[number], own, 0)
            if others:
                total = total + along.reshape(len(along), -1)[:, np.ravel_multi_index(others, along.shape[1:])]
            else:
                total = total + along[:, None]
        values: Ints = total.argmin(axis=0)
        return values
