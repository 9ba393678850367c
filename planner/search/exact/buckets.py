"""Buckets of an elimination: what is known of tables and of sums of them, each once.

Most buckets of a training graph are small, a few values of a few variables each, and there are hundreds of different
ones in each sum. So small tables lie one after the other in one array, and the small buckets of a batch are solved
together: where in that array the terms of each entry are depends on the tables' shapes only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from operator import mul
from typing import NamedTuple, TypeAlias

import numpy as np

from planner.algebra.room import enlarged
from planner.search.effort import BUCKET_BATCH
from planner.search.exact.order import Pattern
from planner.search.exact.rows import Ints
from planner.search.exact.sums import Shape, SumForm, Table
from planner.stop import go_on

_BYTES = np.dtype(np.int64).itemsize

Key: TypeAlias = tuple[int, ...]
"""A bucket by numbers: the first is its pattern's, the others are its tables'."""


class Bucket(NamedTuple):
    """The result of an elimination."""

    key: Key
    result: int
    """Number of the table over the neighbours."""
    least: int
    """The minimum of all its entries."""
    entries: int
    """The entries of the sum of its tables."""
    best: int | Ints | None
    """The best values, flat over the neighbours' values, or where they begin in ``KnownTables.best``; None where they
    are not kept, but found again where they are needed."""
    strides: tuple[int, ...]
    """The strides of the best values, by neighbour."""


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """A bucket of tables of certain shapes."""

    shape: Shape
    """The variable's values, then the neighbours'."""
    entries: int
    cells: Ints
    """The place in the table of each entry's term, by table and entry, the variable's values innermost; empty if it is
    large.
    """
    form: SumForm | None
    """The form in which its tables are added if it is large."""
    strides: tuple[int, ...]
    """The strides of the table over the neighbours."""


class _Stack:
    """A stack of numbers, with room for more."""

    def __init__(self) -> None:
        self.values = np.zeros(1 << 12, dtype=np.int64)
        self.used = 0

    def add(self, values: Ints) -> int:
        """Puts these on top, and says where they begin."""
        start, self.used = self.used, self.used + values.size
        if self.used > len(self.values):
            self.values = enlarged(self.values, 2 * self.used)
        self.values[start : self.used] = values.ravel()
        return start


class KnownTables:
    """The tables met so far, each once, with its minimum taken out; and the buckets solved so far.

    Attributes:
        entries: entries of all buckets that were computed.
        held: entries of all tables.
    """

    def __init__(self) -> None:
        self._shapes: list[Shape] = []
        self._starts: list[int] = []
        self._small = _Stack()
        """The tables of up to ``BUCKET_BATCH`` entries."""
        self._tables: dict[int, Table] = {}
        """The tables of more entries, and small tables that a caller has asked for."""
        self._largest: dict[int, int] = {}
        """The largest entry of each table, by number, as far as a caller has asked for that."""
        self._by_content: dict[tuple[Shape, bytes], int] = {}
        self._patterns: dict[Pattern, int] = {}
        self._by_number: list[Pattern] = []
        self._layouts: dict[tuple[int, tuple[Shape, ...]], _Layout] = {}
        self._places: dict[Shape, Ints] = {}
        self._buckets: dict[Key, Bucket] = {}
        self._best = _Stack()
        self.entries = self.held = 0

    @property
    def count(self) -> int:
        """The number of tables."""
        return len(self._shapes)

    @property
    def best(self) -> Ints:
        """The best values of all buckets that keep them."""
        return self._best.values

    def interned(self, tables: Sequence[Table], table_of: Ints) -> tuple[Ints, int]:
        """The number of each factor's table, ``tables[table_of]``, and the sum of what was taken out."""
        pairs = np.array(self.intern(tables), dtype=np.int64).reshape(-1, 2)
        return pairs[table_of, 0], int(pairs[table_of, 1].sum())

    def intern(self, tables: Sequence[Table]) -> list[tuple[int, int]]:
        """The numbers of tables less their minima, and the minima."""
        small = [place for place, table in enumerate(tables) if table.size <= BUCKET_BATCH]
        pairs: dict[int, tuple[int, int]] = {}
        if small:
            sizes = np.array([tables[place].size for place in small], dtype=np.int64)
            flat = np.concatenate([tables[place].ravel() for place in small])
            least = np.minimum.reduceat(flat, sizes.cumsum() - sizes)
            numbers = self._numbers_of(flat - np.repeat(least, sizes), [tables[place].shape for place in small])
            pairs.update(zip(small, zip(numbers, least.tolist(), strict=True), strict=True))
        return [pairs[place] if place in pairs else self._intern_large(table) for place, table in enumerate(tables)]

    def _numbers_of(self, flat: Ints, shapes: Sequence[Shape]) -> list[int]:
        """The numbers of small tables of these shapes, whose entries lie one after the other."""
        content, stop = flat.tobytes(), 0
        numbers = []
        for shape in shapes:
            start, stop = stop, stop + prod(shape)
            key = (shape, content[start * _BYTES : stop * _BYTES])
            number = self._by_content.get(key)
            if number is None:
                number = self._by_content[key] = self._add(shape, self._small.add(flat[start:stop]))
            numbers.append(number)
        return numbers

    def _intern_large(self, table: Table) -> tuple[int, int]:
        least = int(table.min())
        reduced = np.ascontiguousarray(table - least if least else table)
        key = (reduced.shape, _mark(reduced))
        number = self._by_content.get(key)
        while number is not None and not np.array_equal(self._tables[number], reduced):
            key = (reduced.shape, key[1] + b"'")  # another one with the same mark
            number = self._by_content.get(key)
        if number is None:
            number = self._by_content[key] = self._add(reduced.shape, -1)
            self._tables[number] = reduced
        return number, least

    def _add(self, shape: Shape, start: int) -> int:
        """The number of a new table."""
        self._shapes.append(shape)
        self._starts.append(start)
        self.held += prod(shape)
        return len(self._shapes) - 1

    def table(self, number: int) -> Table:
        """A table by its number: always the same object."""
        table = self._tables.get(number)
        if table is None:
            start, shape = self._starts[number], self._shapes[number]
            table = self._tables[number] = self._small.values[start : start + prod(shape)].reshape(shape)
        return table

    def pattern(self, pattern: Pattern) -> int:
        """The number of a pattern."""
        number = self._patterns.setdefault(pattern, len(self._by_number))
        if number == len(self._by_number):
            self._by_number.append(pattern)
        return number

    def buckets(self, keys: Iterable[Key], check: Callable[[], None] = go_on) -> list[Bucket]:
        """The results of eliminations of the tables in these keys, each of which is there once.

        Args:
            keys: of the buckets.
            check: called before each large bucket; what it raises ends the work.
        """
        keys = list(keys)
        small: dict[int, list[tuple[Key, _Layout]]] = {}
        large: list[tuple[Key, _Layout]] = []
        for key in keys:
            if key not in self._buckets:
                layout = self._layout(key)
                self.entries += layout.entries
                if layout.form is None:
                    small.setdefault(len(key), []).append((key, layout))
                else:
                    large.append((key, layout))
        for alike in small.values():
            self._solve(alike)
        if large:
            self._solve_large(large, check)
        return [self._buckets[key] for key in keys]

    def _layout(self, key: Key) -> _Layout:
        shapes = tuple([self._shapes[number] for number in key[1:]])
        layout = self._layouts.get((key[0], shapes))
        if layout is None:
            pattern = self._by_number[key[0]]
            sizes = [1] * (1 + max((axis for axes in pattern for axis in axes), default=0))
            for axes, shape in zip(pattern, shapes, strict=True):
                for axis, size in zip(axes, shape, strict=True):
                    sizes[axis] = size
            entries = prod(sizes)
            cells = np.zeros((len(shapes), 0), dtype=np.int64)
            form = None
            if entries > BUCKET_BATCH:
                form = SumForm(pattern, shapes, tuple(sizes))
            else:
                # The cell of an entry is as far on for each axis as the table's entries are apart along it.
                apart = np.zeros((len(shapes), len(sizes)), dtype=np.int64)
                for table, (axes, shape) in enumerate(zip(pattern, shapes, strict=True)):
                    apart[table, axes] = _strides(shape)
                cells = apart @ self._entries_of(tuple(sizes))
            layout = self._layouts[key[0], shapes] = _Layout(tuple(sizes), entries, cells, form, _strides(sizes[1:]))
        return layout

    def _entries_of(self, shape: Shape) -> Ints:
        """The place of each entry along each axis, axis 0 varying fastest; shape [axes, entries]."""
        places = self._places.get(shape)
        if places is None:
            turned = np.indices((*shape[1:], shape[0])).reshape(len(shape), prod(shape))
            places = self._places[shape] = np.concatenate([turned[-1:], turned[:-1]])
        return places

    def _solve(self, pairs: Sequence[tuple[Key, _Layout]]) -> None:
        """Solves small buckets of as many tables each, all together."""
        layouts = [layout for _, layout in pairs]
        starts = np.array([[self._starts[number] for number in key[1:]] for key, _ in pairs], dtype=np.int64)
        entries = np.array([layout.entries for layout in layouts], dtype=np.int64)
        cells = np.concatenate([layout.cells for layout in layouts], axis=1) + np.repeat(starts.T, entries, axis=1)
        total = self._small.values[cells].sum(axis=0)
        values = np.array([layout.shape[0] for layout in layouts], dtype=np.int64)
        width = entries // values
        values = np.repeat(values, width)
        ends = values.cumsum()
        begins = ends - values
        least = np.minimum.reduceat(total, begins)
        at_least = np.flatnonzero(total == np.repeat(least, values))
        best = at_least[np.searchsorted(at_least, begins)] - begins
        first = self._best.add(best)
        stops = width.cumsum()
        lowest = np.minimum.reduceat(least, stops - width)
        reduced = least - np.repeat(lowest, width)
        results = self._numbers_of(reduced, [layout.shape[1:] for layout in layouts])
        begin = [first, *(first + stops).tolist()]
        for (key, layout), result, low, at in zip(pairs, results, lowest.tolist(), begin, strict=False):
            self._buckets[key] = Bucket(key, result, low, layout.entries, at, layout.strides)

    def _solve_large(self, pairs: Sequence[tuple[Key, _Layout]], check: Callable[[], None]) -> None:
        """Solves large buckets, each by itself."""
        minima: list[tuple[Table, Ints | None]] = []
        for key, layout in pairs:
            check()
            assert layout.form is not None, "a large bucket has a form"
            tables = [self.table(number) for number in key[1:]]
            minima.append(layout.form.least(tables, sum(map(self._largest_of, key[1:]))))
        interned = self.intern([least for least, _ in minima])
        for (key, layout), (_, best), (result, lowest) in zip(pairs, minima, interned, strict=True):
            self._buckets[key] = Bucket(key, result, lowest, layout.entries, best, layout.strides)

    def _largest_of(self, number: int) -> int:
        """The largest entry of a table."""
        largest = self._largest.get(number)
        if largest is None:
            largest = self._largest[number] = int(self.table(number).max())
        return largest

    def values(self, bucket: Bucket, neighbours: Ints) -> Ints:
        """The values of a variable when its neighbours have theirs.

        Args:
            bucket: what the elimination made.
            neighbours: the neighbours' values, shape [eliminations, neighbours].

        Returns:
            Shape [eliminations].
        """
        if bucket.best is not None:
            best, first = (self.best, bucket.best) if isinstance(bucket.best, int) else (bucket.best, 0)
            chosen: Ints = best[first + neighbours @ np.array(bucket.strides, dtype=np.int64)]
            return chosen
        total: Ints | int = 0
        for axes, number in zip(self._by_number[bucket.key[0]], bucket.key[1:], strict=True):
            table = self.table(number)
            strides = dict(zip(axes, _strides(table.shape), strict=True))
            places = np.arange(table.shape[axes.index(0)])[:, None] * strides.pop(0)
            for axis, stride in strides.items():
                places = places + neighbours[:, axis - 1] * stride
            total = total + table.ravel()[places]
        values: Ints = np.argmin(total, axis=0)
        return values


def _mark(table: Table) -> bytes:
    """Equal for equal tables, and seldom for others: in less time than its content would take."""
    flat = table.ravel()
    return flat[:: 1 + flat.size // 64].tobytes() + b"%d" % int(flat.sum())


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    """The distance in a flat array of two neighbours along each axis of an array of this shape."""
    return tuple(accumulate(reversed(shape), mul, initial=1))[-2::-1]
