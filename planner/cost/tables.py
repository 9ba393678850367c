"""Pairwise tables of bytes: for a tensor's tiling and an op's strategy, what moves between workers.

Every entry is a count by box overlap over all workers, exact for uneven pieces and halos. Tables are kept by
content (the op's analysis and extents, position, shapes, candidate lists), so repeated layers cost nothing again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.algebra import movements
from planner.algebra.delivery import made_tiling
from planner.algebra.divisions import Divisions
from planner.algebra.movements import Movements, counted
from planner.algebra.region import Boxes, index_space
from planner.algebra.tiling import Piece, Replicate, Shard, Tiling, cuts_along, piece_of, pieces, shortest_piece
from planner.algebra.ways import Ints, Ways
from planner.graph.model import DType, Tensor
from planner.tdl.analyse import Read
from planner.tdl.bind import BoundOp
from planner.tdl.interval import End, Interval, Symbol

Candidates: TypeAlias = tuple[Tiling, ...]
Table: TypeAlias = NDArray[np.int64]
Request: TypeAlias = tuple[BoundOp, bool, int, Candidates, Candidates]
"""An op, whether it is an input of it, which one, and the candidates of the tensor and of the op."""
_Cuts: TypeAlias = tuple[tuple[int, ...], tuple[Piece, ...]]
"""Which cuts are along a variable, and how each of them divides it (``cuts_along``)."""


class TableMemo:
    """Remembers tables.

    Candidate lists are told apart by identity, which is quick where they are long: callers pass the same list again
    for the same candidates (as ``Problem`` does), or get a table made anew. Equal requests give the same array.
    """

    def __init__(self) -> None:
        self._tables: dict[tuple[object, ...], tuple[Table, tuple[Candidates, ...]]] = {}
        self.entries = 0
        """Table entries evaluated so far (not counting those found again)."""

    def _once(self, key: tuple[object, ...], lists: tuple[Candidates, ...], make: Callable[[], Table]) -> Table:
        """The table of this content and these lists, made if there is none yet."""
        known = self._tables.get((*key, *map(id, lists)))
        return self._remember(key, lists, make()) if known is None else known[0]

    def _is_known(self, key: tuple[object, ...], lists: tuple[Candidates, ...]) -> bool:
        return (*key, *map(id, lists)) in self._tables

    def _remember(self, key: tuple[object, ...], lists: tuple[Candidates, ...], table: Table) -> Table:
        # The lists are kept with the table: an identity means something only while its object lives.
        self._tables[*key, *map(id, lists)] = (table, lists)
        self.entries += table.size
        return table


class CostTables(TableMemo):
    """Makes tables of bytes and remembers them."""

    def __init__(self) -> None:
        super().__init__()
        self._divisions: dict[tuple[tuple[int, ...], tuple[int, ...]], Divisions] = {}
        self._ways: dict[tuple[int, ...], Ways] = {}
        self._owned: dict[tuple[object, ...], tuple[list[int], Candidates]] = {}
        self._reads: dict[tuple[object, ...], _Read] = {}
        self._makes: dict[tuple[object, ...], _Made] = {}
        self._kinds: dict[tuple[object, ...], tuple[object, ...]] = {}
        self.lists: dict[Candidates, Candidates] = {}
        """The one list of each content; searches that share the tables share these."""
        self.local: dict[tuple[object, ...], bool] = {}
        """By an op's content and a strategy's parts, whether it can be computed by local ops; shared as well."""

    def prepare(self, requests: Iterable[Request]) -> None:
        """Counts what these tables need, all together: in much less time than one by one, when they are asked for."""
        asked: dict[tuple[_Read | _Made, int, int], tuple[Candidates, Candidates]] = {}
        tables: list[Movements] = []
        for bound, is_input, position, tilings, strategies in requests:
            access = self._read(bound, position) if is_input else self._made(bound, position)
            key = (access, id(tilings), id(strategies))
            if key not in asked and not self._is_known((access,), (tilings, strategies)):
                shape = (bound.node.input_shapes if is_input else bound.node.output_shapes)[position]
                asked[key] = tilings, strategies
                tables.append(self._movements(access, shape, tilings, strategies))
        for (key, lists), table in zip(asked.items(), counted(tables), strict=True):
            self._remember(key[:1], lists, table)

    def input_bytes(
        self, bound: BoundOp, slot: int, tensor: Tensor, tilings: Candidates, strategies: Candidates
    ) -> Table:
        """Bytes that move so that an op can read an input, shape [tilings, strategies]."""
        return self._table(self._read(bound, slot), bound.node.input_shapes[slot], tilings, strategies) * (
            tensor.dtype.item_bytes
        )

    def output_bytes(
        self, bound: BoundOp, position: int, tensor: Tensor, tilings: Candidates, strategies: Candidates
    ) -> Table:
        """Bytes that move so that an output arrives where it is owned, shape [tilings, strategies]."""
        return self._table(self._made(bound, position), bound.node.output_shapes[position], tilings, strategies) * (
            tensor.dtype.item_bytes
        )

    def kind(self, bound: BoundOp, is_input: bool, position: int, dtype: DType) -> tuple[object, ...]:
        """What tells the tables of ops' inputs and outputs apart: equal kinds have equal tables for equal lists."""
        key = (bound.content, is_input, position)
        kind = self._kinds.get(key)
        if kind is None:
            access = self._read(bound, position) if is_input else self._made(bound, position)
            kind = self._kinds[key] = (access, dtype.item_bytes)
        return kind

    def _read(self, bound: BoundOp, slot: int) -> _Read:
        key = ("in", bound.content, slot)
        access = self._reads.get(key)
        if access is None:
            dims, shape = bound.plain_read(slot), bound.node.input_shapes[slot]
            # Most ops read by their variables alone: then only how these are laid out matters.
            common = key if dims is None else ("in", shape, dims)
            access = self._reads.get(common) or _Read(bound, slot, dims)
            self._reads[key] = self._reads[common] = access
        return access

    def _made(self, bound: BoundOp, position: int) -> _Made:
        key = ("out", bound.content, position)
        access = self._makes.get(key)
        if access is None:
            dims, shape = bound.analysis.outputs[position], bound.node.output_shapes[position]
            reducers = tuple(variable.reducer for variable in bound.variables)
            common = ("out", shape, dims, reducers)
            access = self._makes.get(common) or _Made(bound, position)
            self._makes[key] = self._makes[common] = access
        return access

    def impossible(self, most_bytes: int) -> int:
        """What stands for an impossible entry in sums of these tables: more than a possible plan takes.

        The less, the better: bounds are sums of floats.

        Args:
            most_bytes: that any plan moves.
        """
        return most_bytes + 1

    def _table(
        self, access: _Read | _Made, shape: tuple[int, ...] | None, tilings: Candidates, strategies: Candidates
    ) -> Table:
        """Elements that move, shape [tilings, strategies]."""

        def make() -> Table:
            return counted([self._movements(access, shape, tilings, strategies)])[0]

        return self._once((access,), (tilings, strategies), make)

    def _divided(self, shape: tuple[int, ...] | None, tilings: Candidates) -> Divisions:
        """The divisions of an index space among as many workers as these tilings have."""
        assert shape is not None, "an absent input or output has no table"
        key = (shape, tilings[0].ways)
        if key not in self._divisions:
            if key[1] not in self._ways:
                self._ways[key[1]] = Ways(key[1])
            self._divisions[key] = Divisions(shape, self._ways[key[1]])
        return self._divisions[key]

    def _movements(
        self, access: _Read | _Made, shape: tuple[int, ...] | None, tilings: Candidates, strategies: Candidates
    ) -> Movements:
        """A table to be counted, shape [tilings, strategies]."""
        divisions = self._divided(shape, tilings)
        owned = self._owned.get((divisions, id(tilings)))
        if owned is None:
            owned = self._owned[divisions, id(tilings)] = (divisions.numbers(tilings), tilings)
        return access.movements(divisions, owned[0], strategies)


class _Read:
    """An op's reading of an input."""

    def __init__(self, bound: BoundOp, slot: int, dims: tuple[int, ...] | None) -> None:
        """Knows no strategy yet.

        Args:
            bound: the op.
            slot: of the input.
            dims: as ``BoundOp.plain_read`` says.
        """
        self._bound, self._slot, self._dims = bound, slot, dims
        self._along = bound.read_along(slot)
        self._dim_by_dim = None if dims is not None else _Intervals.of(bound, slot)
        self._numbers: dict[Tiling, int] = {}
        """By strategy the division of the input that workers need."""
        self._some_are_partial = False
        """Whether a strategy met so far is: else there is nothing to be told apart."""
        self._by_read: dict[Tiling, int] = {}
        """The same by what ``_as_read`` leaves of strategies."""

    def movements(self, divisions: Divisions, owned: Sequence[int], strategies: Candidates) -> Movements:
        """What moves, shape [owned, strategies]."""
        new = [strategy for strategy in strategies if strategy not in self._numbers]
        if new:
            self._numbers.update(zip(new, self._needed(divisions, new), strict=True))
            self._some_are_partial = self._some_are_partial or any(strategy.has_partial for strategy in new)
        needed = [self._numbers[strategy] for strategy in strategies]
        return movements.read(divisions, owned, needed, strategies if self._some_are_partial else ())

    def _needed(self, divisions: Divisions, strategies: Sequence[Tiling]) -> list[int]:
        """The divisions of the input that workers need."""
        if self._dims is not None:
            return self._plain(divisions, strategies)
        if self._dim_by_dim is None:
            return self._regions(divisions, strategies)
        found = [self._dim_by_dim.number(divisions, strategy) for strategy in strategies]
        idle = [strategy for strategy, number in zip(strategies, found, strict=True) if number is None]
        regions = iter(self._regions(divisions, idle))
        return [next(regions) if number is None else number for number in found]

    def _plain(self, divisions: Divisions, strategies: Sequence[Tiling]) -> list[int]:
        concatenated = (None,) * len(strategies[0].ways)
        tilings = [made_tiling(strategy, self._dims or (), concatenated) for strategy in strategies]
        return divisions.numbers(tilings)

    def _regions(self, divisions: Divisions, strategies: Sequence[Tiling]) -> list[int]:
        alike = [self._as_read(strategy) for strategy in strategies]
        new = [strategy for strategy in dict.fromkeys(alike) if strategy not in self._by_read]
        if new:
            ranges = [self._bound.ranges(strategy) for strategy in new]
            together = Boxes(np.concatenate([r.lo for r in ranges]), np.concatenate([r.hi for r in ranges]))
            read = self._bound.reads(together, self._slot)[self._slot].boxes
            pieces = zip(np.split(read.lo, len(new)), np.split(read.hi, len(new)), strict=True)
            numbers = [divisions.number_of(Boxes(lo, hi)) for lo, hi in pieces]
            self._by_read.update(zip(new, numbers, strict=True))
        return [self._by_read[strategy] for strategy in alike]

    def _as_read(self, strategy: Tiling) -> Tiling:
        """The strategy without its cuts along variables that the input is not read along, if none is idle by them."""
        extents, workers = self._bound.extents, strategy.workers
        return Tiling(
            tuple(
                Replicate()
                if isinstance(one, Shard) and one.dim not in self._along and extents[one.dim] >= workers * one.block
                else one
                for one in strategy.placements
            ),
            strategy.ways,
        )


class _Intervals:
    """What workers need of each dim of an input, where it depends on their parts of few variables.

    So it is found once for all strategies that divide those alike. Every worker has a part.
    """

    def __init__(self, bound: BoundOp, read: Read, plain: Sequence[int | None]) -> None:
        shape = bound.node.input_shapes[read.slot]
        assert shape is not None, "an absent input is never read"
        self._bound = bound
        self._sizes = index_space(shape)
        numbers = {variable.name: number for number, variable in enumerate(bound.variables)}
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
    def of(cls, bound: BoundOp, slot: int) -> _Intervals | None:
        """Of an input; None if several places of it are read."""
        reads = [(read, plain) for read, plain in bound.plain_dims if read.slot == slot]
        return cls(bound, *reads[0]) if len(reads) == 1 and 0 not in bound.extents else None

    def number(self, divisions: Divisions, strategy: Tiling) -> int | None:
        """The number of the division that workers need; None if some worker has no part."""
        divided = cuts_along(strategy)
        if any(shortest_piece(self._bound.extents[variable], how) <= 0 for variable, _, how in divided):
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
            known = dict(zip(variables, cuts, strict=True))
            way = self._ways[key] = divisions.way(dim, *self._ends(dim, interval, ways, known))
        return way

    def _ends(
        self, dim: int, interval: Interval | None, ways: tuple[int, ...], cuts: Mapping[int, _Cuts | None]
    ) -> tuple[Ints, Ints, tuple[int, ...]]:
        """Where the part of each combination of groups begins and ends, and the cuts whose groups these are."""
        along = tuple(sorted({cut for one in cuts.values() if one is not None for cut in one[0]}))
        key = (dim, *[None if one is None else (tuple(map(along.index, one[0])), one[1]) for one in cuts.values()])
        known = self._of_groups.get(key)
        if known is None:
            groups = tuple([ways[cut] for cut in along])
            ranges = {}
            for variable, one in cuts.items():
                starts, ends = pieces(self._bound.extents[variable], one[1] if one else ())
                piece = piece_of(groups, tuple(map(along.index, one[0])) if one else ())
                ranges[variable] = starts[piece], ends[piece]
            known = self._of_groups[key] = self._read(dim, interval, prod(groups), ranges)
        return *known, along

    def _read(
        self, dim: int, interval: Interval | None, parts: int, ranges: Mapping[int, tuple[Ints, Ints]]
    ) -> tuple[Ints, Ints]:
        """Where the parts of a dim begin and end that are read for parts of variables, as many of each."""
        size = self._sizes[dim]
        low, high = np.zeros(parts, dtype=np.int64), np.full(parts, size, dtype=np.int64)
        if interval is not None:
            ends: dict[Symbol, Ints] = {}
            for number, (lo, hi) in ranges.items():
                name = self._bound.variables[number].name
                ends[Symbol(name, End.FIRST)], ends[Symbol(name, End.LAST)] = lo, hi - 1
            first, last = interval.integers(ends)
            low, high = (np.minimum(np.maximum(end + low, 0), size) for end in (first, last))
        if dim == 0:
            for number in self._once:
                high = np.where(ranges[number][0] > 0, low, high)
        return low, high


class _Made:
    """An op's making of an output."""

    def __init__(self, bound: BoundOp, position: int) -> None:
        dims = bound.analysis.outputs[position]
        assert dims is not None, "an absent output has no table"
        self._bound, self._dims = bound, dims
        self._numbers: dict[Tiling, int] = {}
        """By strategy the tiling in which the output is made."""

    def movements(self, divisions: Divisions, owned: Sequence[int], strategies: Candidates) -> Movements:
        """What moves, shape [owned, strategies]."""
        new = [strategy for strategy in strategies if strategy not in self._numbers]
        if new:
            sources = [made_tiling(strategy, self._dims, self._bound.reducers(strategy)) for strategy in new]
            self._numbers.update(zip(new, divisions.numbers(sources), strict=True))
        return movements.made(divisions, owned, [self._numbers[strategy] for strategy in strategies])
