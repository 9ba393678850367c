"""A description applied to an op of a graph: index variables get extents, intervals become boxes.

What is known of the op's signature (``planner.tdl.analyse``) is there already; binding is arithmetic on arrays. A
product sums over ``k``; cut in two along it, each part reads half of the columns of ``x`` and half of the rows of
``w``:

    >>> import onnx.parser
    >>> from planner import opdefs
    >>> from planner.algebra.tiling import Tiling
    >>> from planner.graph.reading.from_onnx import graph_from_proto
    >>> from planner.tdl.render import render
    >>> model = onnx.parser.parse_model('''<ir_version: 10, opset_import: ["": 21]>
    ... half (float[8,6] x, float[6,4] w) => (float[8,4] y) { h = MatMul(x, w)  y = Relu(h) }''')
    >>> descriptions = opdefs.standard()
    >>> product, relu = descriptions.bind_all(graph_from_proto(model, operators=descriptions))
    >>> render(product.description, product.node)
    ('Y[m, n] = Sum_{k} A[m, k] * B[k, n]',)
    >>> ranges = product.ranges(Tiling.parse("S(2)/2", (2,)))  # m, n and k have the numbers 0, 1 and 2
    >>> {slot: [str(part) for part in read.boxes] for slot, read in product.reads(ranges).items()}
    {0: ['[0:8, 0:3]', '[0:8, 3:6]'], 1: ['[0:3, 0:4]', '[3:6, 0:4]']}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from planner.algebra.lane import Lane
from planner.algebra.region import Boxes, Region, index_space
from planner.algebra.tiling import UNCUT, Partial, Placement, Reducer, Shard, Tiling, distinct_pieces, parts, pieces
from planner.graph.core.model import Op
from planner.tdl.analyse import Analysis, Read, Variable
from planner.tdl.builder import Description, NodeView
from planner.tdl.expr import VarKind
from planner.tdl.interval import End, Interval, Ints, Symbol
from planner.tdl.local import LocalOp, NotLocalError, Part, same_op

_ORIGIN = Interval.constant(Fraction(0))
"""The index 0 alone."""
_FEW = 24
"""Rows that it takes longer to compare than to look at one by one."""


@dataclass(frozen=True, slots=True)
class InputBoxes:
    """The boxes that workers read of one input."""

    boxes: Boxes
    """Clipped to the tensor; empty where a worker reads nothing."""
    before: Ints
    """How far the reads run past the low border, shape [workers, rank]; never negative."""
    after: Ints
    """How far they run past the high border."""


@dataclass(frozen=True, slots=True, eq=False)
class Content:
    """The content of an op, on which its boxes depend besides strategies: one object for all ops of repeated
    layers.
    """

    vetoes: dict[bytes, str] = field(default_factory=dict)
    """By what tells parts apart (``BoundOp.veto``), why such a part has no local op; "" if it has one."""


@dataclass(frozen=True)
class BoundOp:
    """An op with its index variables' extents: the iteration space that strategies divide."""

    node: NodeView
    description: Description
    analysis: Analysis
    extents: tuple[int, ...]
    """Of every index variable, in the order of ``analysis.variables``."""
    content: Content
    lane: Lane | None = None
    """Which of equal ops beside each other it is; None where it is none of these."""
    op: Op = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "op", self.node.op)

    @property
    def variables(self) -> tuple[Variable, ...]:
        return self.analysis.variables

    @cached_property
    def delivered_slots(self) -> dict[int, int]:
        """The first input that reads the same region of the same tensor, for each read input (``Mul(x, x)``).

        They share one delivery; every other input has its own.
        """
        names = [self.op.inputs[slot] for slot in self.read_slots]
        if len(set(names)) == len(names):
            return {slot: slot for slot in self.read_slots}
        seen: dict[object, int] = {}
        shared: dict[int, int] = {}
        for slot in self.read_slots:
            reads = tuple((read.dims, read.once) for read in self.analysis.reads if read.slot == slot)
            shared[slot] = seen.setdefault((self.op.inputs[slot], reads), slot)
        return shared

    def variable_number(self, name: str) -> int:
        return next(number for number, variable in enumerate(self.variables) if variable.name == name)

    @property
    def read_slots(self) -> tuple[int, ...]:
        """Inputs that the description reads; the others (axes, a shape) only parameterise the op."""
        return self.analysis.read_slots

    @cached_property
    def sized_reads(self) -> tuple[Read, ...]:
        """The reads of ops of this size: a variable of extent 1 is 0 and need not be said.

        So a convolution with a kernel of 1 x 1 reads an image by the image's variables alone.
        """
        sizes = zip(self.variables, self.extents, strict=True)
        single = frozenset(variable.name for variable, extent in sizes if extent == 1)
        if not single:
            return self.analysis.reads
        return tuple(
            replace(read, dims=tuple(None if dim is None else dim.at_origin(single) for dim in read.dims))
            for read in self.analysis.reads
        )

    def plain_read(self, slot: int) -> tuple[int, ...] | None:
        """The variable that indexes each dim of an input, by number, where what workers read of it is a tiling.

        It is one where every worker has a part: what would be read for a part that is empty is not looked at.
        Dims of which all is read have -1, as have those of size 1 that are broadcast. None if an index is more than a
        variable, or the input is read twice.
        """
        reads = [(read, numbers) for read, numbers in self.plain_dims if read.slot == slot]
        shape = self.node.input_shapes[slot]
        if len(reads) != 1 or reads[0][0].once or shape is None or 0 in self.extents:
            return None
        [(read, numbers)] = reads
        variables: list[int] = []
        for size, interval, number in zip(shape, read.dims, numbers, strict=False):  # a scalar has one dim in its space
            if interval is None or (size == 1 and interval == _ORIGIN):
                variables.append(-1)
            elif number is None or number in variables:
                return None
            else:
                variables.append(number)
        return tuple(variables)

    def read_along(self, slot: int) -> frozenset[int]:
        """The variables, by number, on which it depends what workers that have a part read of an input."""
        names: set[str] = set()
        for read in self.sized_reads:
            if read.slot == slot:
                names.update(read.once, *(interval.along for interval in read.dims if interval is not None))
        return frozenset(number for number, variable in enumerate(self.variables) if variable.name in names)

    @cached_property
    def looked_up(self) -> frozenset[int]:
        """The variables, by number, along which the data choose what is read."""
        return frozenset(
            number
            for number, variable in enumerate(self.variables)
            if variable.is_matched and variable.kind is VarKind.REDUCTION
        )

    def picked(self, ranges: Boxes) -> Ints:
        """The number of elements that each worker's part reads, at most, of a looked-up input, shape [workers]."""
        along = [number for number, variable in enumerate(self.variables) if not variable.is_matched]
        elements: Ints = np.maximum(ranges.hi - ranges.lo, 0)[:, along].prod(axis=1)
        return elements

    def operations(self, ranges: Boxes) -> NDArray[np.float64]:
        """Operations of each worker's part, shape [workers]; see ``planner.tdl.work``.

        Args:
            ranges: the workers' parts of the iteration space.
        """
        lengths = np.maximum(ranges.hi - ranges.lo, 0)
        operations = np.zeros(ranges.workers)
        for point_operations, numbers, blocks in self._work:
            points = lengths[:, numbers].astype(np.float64)
            for column, block in blocks:
                number = numbers[column]
                points[:, column] = (ranges.hi[:, number] - 1) // block - ranges.lo[:, number] // block + 1
            operations += point_operations * points.prod(axis=1)
        operations[(lengths == 0).any(axis=1)] = 0
        return operations

    @cached_property
    def _work(self) -> tuple[tuple[float, list[int], tuple[tuple[int, int], ...]], ...]:
        """Operations for each point, the numbers of the variables, and which of these goes in blocks of what length."""
        return tuple(
            (
                float(work.operations * prod(extent.size(self.node) for extent in work.inside)),
                [self.variable_number(name) for name, _ in work.along],
                tuple((column, block) for column, (_, block) in enumerate(work.along) if block != 1),
            )
            for work in self.analysis.work
        )

    @cached_property
    def flop(self) -> int:
        """Operations of the whole op."""
        return round(float(self.operations(self.ranges(UNCUT))[0]))

    def ranges(self, strategy: Tiling) -> Boxes:
        """Each worker's part of the iteration space."""
        return strategy.boxes(self.extents)

    def is_local(self, strategy: Tiling) -> bool:
        """True if every worker's part can be computed by a local op: ``veto`` says why not."""
        return self.is_always_local or not self.veto(self.unlike_ranges(strategy))

    def unlike_ranges(self, strategy: Tiling) -> Boxes:
        """A strategy's parts, at least one of all that differ in no more than where they lie: far fewer than workers.

        Along a variable that is an index of dims as long as it is, and is read in no other way, parts of one length are
        alike but for those at a border. All pieces of others are looked at: where an op's parts must be whole groups,
        or lie in one, it reads by the group's number, a quotient.
        """
        divided, space = parts(strategy), index_space(self.extents)
        piece_ends = [
            (distinct_pieces if variable in self._read_as_they_are else pieces)(space[variable], how)
            for variable, how in divided
        ]
        counts = [len(starts) for starts, _ in piece_ends]
        places = np.indices(counts).reshape(len(counts), prod(counts))
        chosen = Boxes.whole(self.extents, prod(counts))
        for (variable, _), (starts, ends), place in zip(divided, piece_ends, places, strict=True):
            chosen.lo[:, variable], chosen.hi[:, variable] = starts[place], ends[place]
        return chosen

    @cached_property
    def _read_as_they_are(self) -> frozenset[int]:
        """The variables, by number, that are read as indices of dims as long as they are, or not at all."""
        variables = set(range(len(self.variables)))
        for read, numbers in self.plain_dims:
            for interval, number in zip(read.dims, numbers, strict=False):
                if interval is not None and number is None:
                    variables -= {self.variable_number(name) for name in interval.along}
        return frozenset(variables)

    @cached_property
    def plain_dims(self) -> tuple[tuple[Read, tuple[int | None, ...]], ...]:
        """The variable, by number, that is the index of each read's dim and is as long; None if there is none."""
        return tuple(
            (read, tuple(self._plain_dim(read.slot, dim, interval) for dim, interval in enumerate(read.dims)))
            for read in self.sized_reads
        )

    def _plain_dim(self, slot: int, dim: int, interval: Interval | None) -> int | None:
        shape = self.node.input_shapes[slot]
        if interval is None or interval.alone is None or shape is None:
            return None
        number = self.variable_number(interval.alone)
        return number if self.extents[number] == index_space(shape)[dim] else None

    def reads(self, ranges: Boxes, only: int | None = None) -> dict[int, InputBoxes]:
        """The region of each input that each worker reads, by input position.

        Args:
            ranges: the workers' parts of the iteration space.
            only: the one input that is asked for; None: all.
        """
        ends: dict[Symbol, Ints] = {}
        for number, variable in enumerate(self.variables):
            ends[Symbol(variable.name, End.FIRST)] = ranges.lo[:, number]
            ends[Symbol(variable.name, End.LAST)] = ranges.hi[:, number] - 1
        idle = ranges.elements == 0
        inputs: dict[int, InputBoxes] = {}
        for read, plain in self.plain_dims:
            if only not in (None, read.slot):
                continue
            shape = self.node.input_shape(read.slot)
            boxes = Boxes.whole(shape, ranges.workers)
            before, after = np.zeros_like(boxes.lo), np.zeros_like(boxes.lo)
            for dim, (size, interval, var) in enumerate(zip(index_space(shape), read.dims, plain, strict=False)):
                if var is not None:
                    boxes.lo[:, dim], boxes.hi[:, dim] = ranges.lo[:, var], ranges.hi[:, var]
                elif interval is not None:
                    low, high = interval.integers(ends)
                    before[:, dim], after[:, dim] = np.maximum(0, -low), np.maximum(0, high - size)
                    boxes.lo[:, dim] = np.minimum(np.maximum(low, 0), size)
                    boxes.hi[:, dim] = np.minimum(np.maximum(high, 0), size)
            # Of the workers that share a reduction, the first alone reads a term outside of it.
            skip = idle
            for name in read.once:
                skip = skip | (ranges.lo[:, self.variable_number(name)] > 0)
            boxes.hi[skip, 0] = boxes.lo[skip, 0]
            if read.slot in inputs:
                previous = inputs[read.slot]
                inputs[read.slot] = InputBoxes(
                    previous.boxes.hull(boxes), np.maximum(previous.before, before), np.maximum(previous.after, after)
                )
            else:
                inputs[read.slot] = InputBoxes(boxes, before, after)
        return inputs

    def makes(self, ranges: Boxes, position: int) -> Boxes:
        """The region of an output that each worker makes, whole or as a partial result."""
        numbers = self.analysis.outputs[position]
        assert numbers is not None, "an absent output is never made"
        idle = ranges.elements == 0
        shape = self.node.output_shape(position)
        if numbers:
            steps = np.array(self.analysis.steps_of(position) or 1, dtype=np.int64)
            lo, hi = ranges.lo[:, list(numbers)] * steps, ranges.hi[:, list(numbers)] * steps
        else:
            # A scalar, or all of what an op makes that nobody describes.
            boxes = Boxes.whole(shape, ranges.workers)
            lo, hi = boxes.lo, boxes.hi
        hi = np.where(idle[:, None], lo, hi)
        return Boxes(lo, hi)

    def reducers(self, strategy: Tiling) -> tuple[Reducer | None, ...]:
        """The reducer of the variable that each cut of a strategy cuts; None: results are concatenated.

        A cut whose groups work on contributions to all inputs makes contributions to all outputs.
        """
        return tuple(self._reducer(placement) for placement in strategy.placements)

    def _reducer(self, placement: Placement) -> Reducer | None:
        if isinstance(placement, Partial):
            return placement.reducer
        return self.variables[placement.dim].reducer if isinstance(placement, Shard) else None

    def all_made(self, ranges: Boxes) -> tuple[Boxes | None, ...]:
        """The regions of every output that the workers make; None for an output that is absent."""
        return tuple(
            None if numbers is None else self.makes(ranges, position)
            for position, numbers in enumerate(self.analysis.outputs)
        )

    def part(
        self,
        ranges: Boxes,
        reads: Mapping[int, InputBoxes],
        worker: int,
        outputs: Sequence[Boxes | None] | None = None,
    ) -> Part:
        """One worker's part, as local rules see it.

        Args:
            ranges: the workers' parts of the iteration space.
            reads: what they read.
            worker: which one.
            outputs: what they make, ``all_made``; None: computed here.
        """
        outputs = self.all_made(ranges) if outputs is None else outputs
        names = [variable.name for variable in self.variables]
        # A scalar has an index space of one dim, and no variable for it.
        pairs = zip(ranges.lo[worker].tolist(), ranges.hi[worker].tolist(), strict=True)
        inputs: list[Region | None] = []
        reach: list[tuple[tuple[int, ...], tuple[int, ...]] | None] = []
        for slot in range(len(self.node.input_shapes)):
            boxes = reads.get(slot)
            region = boxes.boxes.region(worker) if boxes is not None else None
            if boxes is None or region is None or region.is_empty:
                inputs.append(None)
                reach.append(None)
            else:
                inputs.append(region)
                reach.append((tuple(boxes.before[worker].tolist()), tuple(boxes.after[worker].tolist())))
        return Part(
            ranges=dict(zip(names, pairs, strict=False)),
            extents=dict(zip(names, self.extents, strict=True)),
            inputs=tuple(inputs),
            reach=tuple(reach),
            outputs=tuple(None if boxes is None else boxes.region(worker) for boxes in outputs),
            reduction_variables=self.analysis.reduction_variables,
            read_slots=self.read_slots,
            empty={n: read.boxes.region(worker) for n, read in reads.items() if 0 in (self.node.input_shapes[n] or ())},
        )

    def local_op(self, part: Part) -> LocalOp:
        """The op that a worker executes for its part; nothing, where it has none.

        Raises:
            NotLocalError: no local op computes it.
        """
        if any(lo >= hi for lo, hi in part.ranges.values()):
            return LocalOp(())
        if self.description.local is None:
            return same_op(self.node, part)
        with self.description.blamed(self.node):
            return self.description.local(self.node, part)

    def veto(self, ranges: Boxes) -> str:
        """The reason why some worker's part has no local op; "" if every worker that has a part has one.

        Args:
            ranges: the workers' parts of the iteration space.
        """
        if self.is_always_local:
            return ""
        reads = self.reads(ranges)
        busy = np.flatnonzero(ranges.elements)
        # The op itself lacks nothing where every input is read, and most ops need no more than that.
        if self.description.local is None and all(read.boxes.elements[busy].all() for read in reads.values()):
            return ""
        vetoes, outputs = self.content.vetoes, self.all_made(ranges)
        for worker, row in self._unlike(ranges, reads, busy):
            if row not in vetoes:
                try:
                    self.local_op(self.part(ranges, reads, worker, outputs))
                    vetoes[row] = ""
                except NotLocalError as error:
                    vetoes[row] = str(error)
            if vetoes[row]:
                return vetoes[row]
        return ""

    @cached_property
    def is_always_local(self) -> bool:
        """True if the local rule refuses no part; or if there is none, and each part reads something of every input."""
        rule, always = self.description.local, self.description.always_local
        if rule is not None:
            with self.description.blamed(self.node):
                return always is not None and always(self.node)
        return all(self.plain_read(slot) is not None for slot in self.read_slots)

    def _unlike(self, ranges: Boxes, reads: Mapping[int, InputBoxes], busy: Ints) -> list[tuple[int, bytes]]:
        """Of the workers that have a part, the first of all that differ in no more than where their parts lie.

        Beside each worker is what tells its part apart.

        Whether a part has a local op is a matter of how long it is and what it reads, and of whether it lies at a
        border. If it must be made of whole blocks, parts of one length all are, or one of them is as wrong as the rest.
        """
        columns = [ranges.hi - ranges.lo, ranges.lo == 0, ranges.hi == np.array(self.extents, dtype=np.int64)]
        for read in reads.values():
            columns += [read.boxes.hi - read.boxes.lo, read.before, read.after]
        rows = np.concatenate(columns, axis=1, dtype=np.int64)[busy]
        return [(int(busy[first]), rows[first].tobytes()) for first in _first_of_equal(rows)]


def _first_of_equal(rows: Ints) -> list[int]:
    """The first of each set of equal rows of a matrix, ascending."""
    if len(rows) <= _FEW:
        return list(range(len(rows)))
    keys, count = np.zeros(len(rows), dtype=np.int64), 1
    least = rows.min(axis=0)
    widths = (rows.max(axis=0) - least + 1).tolist()
    for column in np.flatnonzero(np.array(widths) > 1).tolist():
        if count > (1 << 62) // widths[column]:
            different, keys = np.unique(keys, return_inverse=True)
            count = len(different)
        keys, count = keys * widths[column] + (rows[:, column] - least[column]), count * widths[column]
    return sorted(np.unique(keys, return_index=True)[1].tolist())
