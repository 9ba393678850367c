"""Variable elimination: the exact minimum of a sum of tables over discrete variables.

SoyBean's BFS-level dynamic programme (section 4), Tofu's over forward and backward groups (section 5.1) and
ICML'18's node and edge elimination (section 5.2) are orders of it. Time and memory are exponential only in the
induced width of the order, which is small on training graphs.

Equal buckets are solved once: tables are interned by content, and the eliminations of a batch whose tables are the same
are one computation, as are those of later searches of the same network. What identical layers cost is the bookkeeping
of their numbers, done for a whole batch at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from planner.errors import InfeasibleError
from planner.search.effort import MAX_TABLE_ENTRIES, ROWS_IN_ARRAYS
from planner.search.exact.buckets import Bucket, KnownTables
from planner.search.exact.order import Order, find_order, order_of
from planner.search.exact.rows import Ints, distinct_rows
from planner.search.exact.sums import Table
from planner.stop import go_on


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
    table_of = np.array([numbers[id(factor.table)] for factor in squeezed], dtype=np.int64)
    refuse_larger(order.largest_bucket(np.array(sizes)), max_table_entries)
    return eliminate(order, tables, table_of)


def _without_decided(factor: Factor) -> Factor:
    """The factor without the variables that have one value: they are decided, and a table has at most 64 axes."""
    if 1 not in factor.table.shape:
        return factor
    variables = tuple(name for name, size in zip(factor.variables, factor.table.shape, strict=True) if size > 1)
    return Factor(variables, factor.table.reshape([size for size in factor.table.shape if size > 1]))


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


def eliminate(order: Order, tables: Sequence[Table], table_of: Ints, check: Callable[[], None] = go_on) -> Solution:
    """Finds the least sum of factors over all assignments; of equal values the first wins.

    Args:
        order: over the factors' scopes.
        tables: the different tables.
        table_of: the number of each factor's table, shape [factors].
        check: called between parts of the work; what it raises ends it.
    """
    known_tables = KnownTables()
    return eliminate_known(order, known_tables, *known_tables.interned(tables, table_of), check)


def eliminate_known(
    order: Order, known_tables: KnownTables, numbers: Ints, constant: int, check: Callable[[], None] = go_on
) -> Solution:
    """The least sum of factors, as ``eliminate`` finds it, for tables that are known by number.

    Args:
        order: over the factors' scopes.
        known_tables: the tables, and what was found out about them before.
        numbers: of each factor's table, shape [factors].
        constant: what was taken out of the tables.
        check: called between parts of the work; what it raises ends it.
    """
    reduced = Reduced(order, known_tables, numbers, constant, check)
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

    def __init__(
        self, order: Order, known_tables: KnownTables, numbers: Ints, constant: int, check: Callable[[], None] = go_on
    ) -> None:
        """Eliminates.

        Args:
            order: over the factors' scopes; it may leave variables, its core.
            known_tables: the tables, and what was found out about them before.
            numbers: of each factor's table, shape [factors].
            constant: what was taken out of the tables.
            check: called between batches; what it raises ends the work.
        """
        before = known_tables.entries
        self._order = order
        self._tables = known_tables
        # The last one stands for no factor.
        self._table_of = table_of = np.full(order.scopes + order.variables + 1, -1, dtype=np.int64)
        table_of[: order.scopes] = numbers
        self.constant = constant
        self.largest_table = 1
        self._done: list[tuple[list[Bucket], Ints]] = []
        for batch in order.batches:
            check()
            pattern = np.array([known_tables.pattern(pattern) for pattern in batch.patterns], dtype=np.int64)
            rows = np.concatenate([pattern[batch.pattern][:, None], table_of[batch.factors]], axis=1)
            distinct, group = _distinct(rows, max(known_tables.count, len(pattern)))
            buckets = known_tables.buckets([tuple([table for table in row if table >= 0]) for row in distinct], check)
            results = np.array([(bucket.result, bucket.least) for bucket in buckets], dtype=np.int64)[group]
            table_of[batch.produced] = results[:, 0]
            self.constant += int(results[:, 1].sum())
            self.largest_table = max(self.largest_table, *[bucket.entries for bucket in buckets])
            self._done.append((buckets, group))
        self.entries = known_tables.entries - before

    def table(self, factor: int) -> Table:
        """The table of a factor that is left, less its minimum (which is in ``constant``)."""
        return self._tables.table(int(self._table_of[factor]))

    def complete(self, values: Ints) -> None:
        """Gives the eliminated variables their best values, when the core has its own; in place."""
        for batch, (buckets, group) in zip(reversed(self._order.batches), reversed(self._done), strict=True):
            neighbours = values[batch.neighbours]
            width = batch.neighbours.shape[1]
            places = np.array([_place(bucket, width) for bucket in buckets])[group]
            values[batch.variables] = self._tables.best[places[:, 0] + (neighbours * places[:, 1:]).sum(axis=1)]
            for number, bucket in enumerate(buckets):
                if not isinstance(bucket.best, int):
                    members = np.flatnonzero(group == number)
                    near = neighbours[members, : len(bucket.strides)]
                    values[batch.variables[members]] = self._tables.values(bucket, near)


def _place(bucket: Bucket, width: int) -> tuple[int, ...]:
    """The place of the best values in ``KnownTables.best``: the first, and the strides, zeros for no neighbours."""
    if isinstance(bucket.best, int):
        return (bucket.best, *bucket.strides) + (0,) * (width - len(bucket.strides))
    return (0,) * (1 + width)


def _distinct(rows: Ints, count: int) -> tuple[list[list[int]], Ints]:
    """The distinct rows of numbers from -1 and below ``count``, and for each row the number of its own."""
    if len(rows) < ROWS_IN_ARRAYS:
        numbers: dict[tuple[int, ...], int] = {}
        group = [numbers.setdefault(row, len(numbers)) for row in map(tuple, rows.tolist())]
        return [list(row) for row in numbers], np.array(group, dtype=np.int64)
    first, inverse = distinct_rows(rows + 1, count + 1)
    return rows[first].tolist(), inverse
