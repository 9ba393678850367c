"""Inputs and outputs of an op as regions: what workers need of it, or make, by their strategies.

Most ops read and make by their index variables alone, and strategies divide that by tilings. Others read regions that
may overlap and need not be tilings, such as windows with halos.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TypeAlias

import numpy as np

from planner.algebra.delivery import made_tiling
from planner.algebra.divisions import Divisions
from planner.algebra.region import Boxes, index_space
from planner.algebra.tiling import Piece, Replicate, Shard, Tiling, cuts_along, piece_of, pieces, shortest_piece
from planner.algebra.ways import Ints
from planner.tdl.analyse import Read
from planner.tdl.bind import BoundOp
from planner.tdl.interval import End, Interval, Symbol

_Cuts: TypeAlias = tuple[tuple[int, ...], tuple[Piece, ...]]
"""Which cuts are along a variable, and how each of them divides it (``cuts_along``)."""
Form: TypeAlias = tuple[bool, tuple[int, ...], tuple[int, ...], object]
"""Whether an op reads a tensor or makes it; the variable of each dim by number, -1 for one of which all is read; how
many elements of each dim go with one value of it; and how results are joined along each variable."""


class Tiled:
    """An access of an op by its variables alone: strategies divide it by tilings."""

    def __init__(self, op: BoundOp, shape: tuple[int, ...], form: Form) -> None:
        """Takes note of how.

        Args:
            op: the op, or any other of this form.
            shape: of what it reads or makes.
            form: all of one form are divided alike, whatever their shapes.
        """
        self.shape = shape
        self.form = form
        self.is_input, self._dims, self._steps, _ = form
        self._op = op

    def tilings(self, strategies: Sequence[Tiling]) -> tuple[Tiling, ...]:
        """The tilings in which strategies need it, or make it."""
        concatenated = (None,) * len(strategies[0].ways)
        reducers = [concatenated if self.is_input else self._op.reducers(strategy) for strategy in strategies]
        return tuple(
            [
                made_tiling(strategy, self._dims, how, self._steps)
                for strategy, how in zip(strategies, reducers, strict=True)
            ]
        )


class Regions:
    """Reads of an input by more than an op's variables: parts that may overlap, or be empty."""

    is_input = True

    def __init__(self, op: BoundOp, slot: int, shape: tuple[int, ...]) -> None:
        """Knows no strategy yet."""
        self.shape = shape
        self._op, self._slot = op, slot
        self._along = op.read_along(slot)
        self._dim_by_dim = _Intervals.of(op, slot)
        self._by_read: dict[Tiling, int] = {}
        """By what ``_as_read`` leaves of a strategy the division that workers need."""

    def needed(self, divisions: Divisions, strategies: Sequence[Tiling]) -> list[int]:
        """The divisions of the input that workers need."""
        if self._dim_by_dim is None:
            return self._regions(divisions, strategies)
        numbers = [self._dim_by_dim.number(divisions, strategy) for strategy in strategies]
        idle = [strategy for strategy, number in zip(strategies, numbers, strict=True) if number is None]
        regions = iter(self._regions(divisions, idle))
        return [next(regions) if number is None else number for number in numbers]

    def _regions(self, divisions: Divisions, strategies: Sequence[Tiling]) -> list[int]:
        alike = [self._as_read(strategy) for strategy in strategies]
        misses = [strategy for strategy in dict.fromkeys(alike) if strategy not in self._by_read]
        if misses:
            ranges = [self._op.ranges(strategy) for strategy in misses]
            together = Boxes(np.concatenate([r.lo for r in ranges]), np.concatenate([r.hi for r in ranges]))
            read = self._op.reads(together, self._slot)[self._slot].boxes
            pieces = zip(np.split(read.lo, len(misses)), np.split(read.hi, len(misses)), strict=True)
            numbers = [divisions.number_of(Boxes(lo, hi)) for lo, hi in pieces]
            self._by_read.update(zip(misses, numbers, strict=True))
        return [self._by_read[strategy] for strategy in alike]

    def _as_read(self, strategy: Tiling) -> Tiling:
        """The strategy without its cuts along variables that the input is not read along, if none is idle by them."""
        extents, workers = self._op.extents, strategy.workers
        return Tiling(
            tuple(
                Replicate()
                if isinstance(placement, Shard)
                and not placement.shares
                and placement.dim not in self._along
                and extents[placement.dim] >= workers * placement.block
                else placement
                for placement in strategy.placements
            ),
            strategy.ways,
        )


class _Intervals:
    """Intervals of each dim that workers need of an input, where they depend on their parts of few variables.

    So it is found once for all strategies that divide those alike. Every worker has a part.
    """

    def __init__(self, op: BoundOp, read: Read, plain: Sequence[int | None]) -> None:
        shape = op.node.input_shape(read.slot)
        self._op = op
        self._sizes = index_space(shape)
        numbers = {variable.name: number for number, variable in enumerate(op.variables)}
        self._once = tuple(numbers[name] for name in read.once)
        self._dims: list[tuple[Interval | None, tuple[int, ...]]] = []
        self._is_plain: list[bool] = []
        """Whether a dim is read as its variable is divided."""
        for dim in range(len(self._sizes)):
            interval = read.dims[dim] if dim < len(read.dims) else None
            along = {numbers[name] for name in (interval.along if interval is not None else ())}
            # A part that is read by the first worker of some has no elements on others: it is empty along dim 0.
            variables = tuple(sorted(along.union(self._once if dim == 0 else ())))
            self._is_plain.append(dim < len(plain) and plain[dim] is not None and len(variables) == 1)
            self._dims.append((interval, variables))
        self._ways: dict[tuple[object, ...], int] = {}
        """By dim and how its variables are divided, the number of its way."""
        self._of_groups: dict[tuple[object, ...], tuple[Ints, Ints]] = {}
        """By dim and how groups divide its variables, what is needed for each combination of groups."""

    @classmethod
    def of(cls, op: BoundOp, slot: int) -> _Intervals | None:
        """Of an input; None if several places of it are read."""
        reads = [(read, plain) for read, plain in op.plain_dims if read.slot == slot]
        return cls(op, *reads[0]) if len(reads) == 1 and 0 not in op.extents else None

    def number(self, divisions: Divisions, strategy: Tiling) -> int | None:
        """The number of the division that workers need; None if some worker has no part."""
        divided = cuts_along(strategy)
        if any(shortest_piece(self._op.extents[variable], how) <= 0 for variable, _, how in divided):
            return None
        along = {variable: (cuts, how) for variable, cuts, how in divided}
        return divisions.number_of_ways(
            tuple([self._way(divisions, dim, strategy.ways, along) for dim in range(len(self._dims))])
        )

    def _way(self, divisions: Divisions, dim: int, ways: tuple[int, ...], along: Mapping[int, _Cuts]) -> int:
        """The number of the way in which workers need a dim."""
        interval, variables = self._dims[dim]
        cuts = tuple([along.get(variable) for variable in variables])
        if self._is_plain[dim]:
            return divisions.way_of_cuts(dim, cuts[0])
        key = (dim, ways, cuts)
        way = self._ways.get(key)
        if way is None:
            cuts_by_variable = dict(zip(variables, cuts, strict=True))
            way = self._ways[key] = divisions.way(dim, *self._ends(dim, interval, ways, cuts_by_variable))
        return way

    def _ends(
        self, dim: int, interval: Interval | None, ways: tuple[int, ...], cuts: Mapping[int, _Cuts | None]
    ) -> tuple[Ints, Ints, tuple[int, ...]]:
        """Where the part of each combination of groups begins and ends, and the cuts whose groups these are."""
        along = tuple(sorted({cut for division in cuts.values() if division is not None for cut in division[0]}))
        key = (dim, *[division and (tuple(map(along.index, division[0])), division[1]) for division in cuts.values()])
        spans = self._of_groups.get(key)
        if spans is None:
            groups = tuple([ways[cut] for cut in along])
            ranges = {}
            for variable, division in cuts.items():
                starts, ends = pieces(self._op.extents[variable], division[1] if division else ())
                piece = piece_of(groups, tuple(map(along.index, division[0])) if division else ())
                ranges[variable] = starts[piece], ends[piece]
            spans = self._of_groups[key] = self._read(dim, interval, prod(groups), ranges)
        return *spans, along

    def _read(
        self, dim: int, interval: Interval | None, parts: int, ranges: Mapping[int, tuple[Ints, Ints]]
    ) -> tuple[Ints, Ints]:
        """Where the parts of a dim begin and end that are read for parts of variables, as many of each."""
        size = self._sizes[dim]
        low, high = np.zeros(parts, dtype=np.int64), np.full(parts, size, dtype=np.int64)
        if interval is not None:
            ends: dict[Symbol, Ints] = {}
            for number, (lo, hi) in ranges.items():
                name = self._op.variables[number].name
                ends[Symbol(name, End.FIRST)], ends[Symbol(name, End.LAST)] = lo, hi - 1
            first, last = interval.integers(ends)
            low, high = (np.minimum(np.maximum(end + low, 0), size) for end in (first, last))
        if dim == 0:
            for number in self._once:
                high = np.where(ranges[number][0] > 0, low, high)
        return low, high


Access: TypeAlias = Tiled | Regions
"""How an op has an input or an output; one object serves all that have it alike."""
