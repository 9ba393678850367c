"""Residence, the tensors on the workers while an op runs, as pairwise tables: the part of a plan's
memory that the search can put a price on.

The moments of a training step are its ops, in the order in which all workers run them. At each of them the graph's
inputs (data and states) lie there as tiles; what was made before and is read later; and what the op reads and makes.
How many bytes that is depends on a tensor's tiling and the strategy of one op at its side:

    the op that makes it    the part that the op makes lies there from that op on. Until the first reader the smaller of
                            that part and the tile is counted, since the reader may take the part elsewhere
    an op that reads it     while the op runs, the region that it needs; the tile lies beside it if the two differ
    the last reader         from the first reader on the tile lies there; where the last reader fetches, the smaller of
                            the tile and the region that the reader needs, since the fetch may be done already

A next state that is made where its state lies counts nothing, since it may lie over it. Residence leaves out what
depends on how the program is divided into segments: that a segment's inputs and results lie there together, gaps
between buffers, fetches that come early. It is a measure to steer by and to compare plans by; the program alone says
what a worker needs: at least as much, if it is a lean one (``planner.partition.build``).
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.algebra.delivery import made_tiling
from planner.algebra.region import Boxes, index_space
from planner.algebra.tiling import UNCUT, Tiling
from planner.artifacts.plan import Partitioning
from planner.cost.tables import Candidates, Request, Table
from planner.graph.core.model import Graph, is_used
from planner.tdl.bind import BoundOp

Ints: TypeAlias = NDArray[np.int64]
Port: TypeAlias = tuple[str, bool, int]
"""An op's input (True) or output (False): the op's name, which, and its position."""
Weights: TypeAlias = tuple[Fraction, Fraction, Fraction]
"""Prices of a byte that lies there: while the op runs, between ops, and always (as tiles of a graph input)."""


@dataclass(frozen=True, slots=True)
class Stay:
    """The stay of a port's tensor, as far as this port says."""

    moment: int
    """The op's own number."""
    between: range
    """Moments at which it lies there, read or not."""
    is_kept: bool
    """While the op runs, the tensor lies there for a later op, too, or always."""
    counts_tiles: bool
    """Its first reader: this port counts the tiles of a graph input."""
    is_result: bool
    """The tensor stays to the end, as tiles."""
    is_next: bool
    """What is made is a next state, and may lie over its state."""

    @property
    def kind(self) -> tuple[bool, bool, bool]:
        """The kind of its tables."""
        return self.is_kept, self.is_result, self.is_next


class Residence:
    """Residence of the plans of one graph.

    Attributes:
        moments: how many there are: one for each op.
    """

    def __init__(self, graph: Graph, ops: Sequence[BoundOp], limits: Sequence[int] = ()) -> None:
        """Finds out when which tensor lies there.

        Args:
            graph: the training graph.
            ops: its ops with their descriptions, in order.
            limits: the memory of each worker, where they differ and each has its own: then a byte counts the more the
                less its worker has, such that what fills all of them is still their sum; (): a byte is a byte.
        """
        self._worth = np.array([sum(limits) / len(limits) / limit for limit in limits]) if limits else None
        self.moments = len(ops)
        self._graph = graph
        self._ops = tuple(ops)
        self._stays = dict(self._find_stays())
        self._port_bytes: dict[tuple[object, ...], tuple[int, int, int]] = {}
        self._tables: dict[tuple[object, ...], tuple[tuple[Table, Table, Table], tuple[Candidates, Candidates]]] = {}
        """By an op's content, a port and lists of candidates, told apart by identity (``TableMemo``)."""
        self._boxes: dict[tuple[object, ...], Boxes] = {}
        self._least_read: dict[tuple[object, ...], int] = {}
        """Elements that ops read at least, by content and slot."""

    def worth(self, workers: int) -> int:
        """The price of a byte on each of so many workers, at most: as many bytes, but for ``limits``."""
        return workers if self._worth is None else ceil(self._worth.sum())

    def _find_stays(self) -> Iterator[tuple[Port, Stay]]:
        graph = self._graph
        readers: dict[str, list[int]] = {}
        for number, op in enumerate(self._ops):
            for _, name in _inputs(graph, op):
                readers.setdefault(name, []).append(number)
        following = {pair.following for pair in graph.state} - set(graph.inputs)
        seen: set[str] = set()
        for number, op in enumerate(self._ops):
            last_ports = {name: slot for slot, name in _inputs(graph, op)}
            for slot, name in _inputs(graph, op):
                times, is_input, is_result = readers[name], name in graph.inputs, name in graph.outputs
                is_last = times[-1] == number and last_ports[name] == slot and not is_input and name not in following
                between = range(times[0], self.moments if is_result else number) if is_last else range(0)
                first = is_input and name not in seen
                seen.add(name)
                is_kept = is_input or is_result or times[-1] != number
                yield (op.op.name, True, slot), Stay(number, between, is_kept, first, is_result, False)
            for position, name in _outputs(graph, op):
                until = readers[name][0] if name in readers else self.moments
                between = range(0) if name in following else range(number + 1, until)
                is_next = name in following
                yield (op.op.name, False, position), Stay(number, between, False, False, False, is_next)

    def of(self, plan: Partitioning) -> Ints:
        """Bytes on all workers together, by moment; worth what ``limits`` make of them."""
        change = np.zeros(self.moments + 1, dtype=np.int64)
        moment_bytes = np.zeros(self.moments, dtype=np.int64)
        for op in self._ops:
            strategy = plan.strategies[op.op.name].tiling
            ports = [(True, slot, name) for slot, name in _inputs(self._graph, op)]
            ports += [(False, position, name) for position, name in _outputs(self._graph, op)]
            read: dict[str, int] = {}
            """Of tensors that lie there for this op alone, the most of all its places: one tile may serve them all."""
            for is_input, position, name in ports:
                stay = self._stays[op.op.name, is_input, position]
                tensor, tiling = self._graph.tensors[name], plan.tilings[name]
                key = (op.content, is_input, position, tensor.dtype, stay.kind, tiling, strategy)
                if key not in self._port_bytes:
                    tables = self._counted(Request(op, is_input, position, tensor, (tiling,), (strategy,)))
                    self._port_bytes[key] = (int(tables[0][0, 0]), int(tables[1][0, 0]), int(tables[2][0, 0]))
                during, between, tiles = self._port_bytes[key]
                if is_input and not stay.is_kept:
                    moment_bytes[stay.moment] += max(0, during - read.get(name, 0))
                    read[name] = max(during, read.get(name, 0))
                else:
                    moment_bytes[stay.moment] += during
                # A stay of any length is two changes, which the sum at the end spreads over its moments.
                if stay.between:
                    change[stay.between.start] += between
                    change[stay.between.stop] -= between
                if stay.counts_tiles:
                    change[0] += tiles
        resident_bytes: Ints = moment_bytes + np.cumsum(change[:-1])
        return resident_bytes

    def least(self, over: Collection[str] = (), apart: Collection[str] = ()) -> Ints:
        """Bytes on all workers together that every plan takes at least, by moment: each element that is there once.

        What lies there is what the last reader needs of a tensor, were it not divided; no element that a worker still
        needs is on none of them.

        Args:
            over: types of ops whose results may lie over an input of the same size that nothing reads any more; none,
                where programs are lean.
            apart: tensors of which nothing is said.
        """
        change = np.zeros(self.moments + 1, dtype=np.int64)
        for name, span, size in self._least_spans(over):
            if name not in apart:
                change[span.start] += size
                change[span.stop] -= size
        resident_bytes: Ints = np.cumsum(change[:-1])
        return resident_bytes

    def least_at(self, moment: int, over: Collection[str] = (), apart: Collection[str] = ()) -> dict[str, int]:
        """The same at one moment, by tensor.

        Args:
            moment: an op's number.
            over: see ``least``.
            apart: see ``least``.
        """
        bytes_by_tensor: dict[str, int] = {}
        for name, span, size in self._least_spans(over):
            if moment in span and size and name not in apart:
                bytes_by_tensor[name] = bytes_by_tensor.get(name, 0) + size
        return bytes_by_tensor

    def _least_spans(self, over: Collection[str]) -> Iterator[tuple[str, range, int]]:
        """Tensors, when they lie there, and how many bytes at least; a tensor may have several of these spans."""
        needed: dict[str, int] = {}
        """Of its last reader, by tensor."""
        most_read: dict[str, int] = {}
        """Of the reader that needs the most: what is made of a tensor at least."""
        for op in reversed(self._ops):
            read_by_name: dict[str, int] = {}
            """Of tensors that lie there for this op alone, the most of all its places: one tile may serve them all."""
            for slot, name in reversed(_inputs(self._graph, op)):
                stay, tensor = self._stays[op.op.name, True, slot], self._graph.tensors[name]
                read = self._needed(op, slot) * tensor.dtype.item_bytes
                needed.setdefault(name, read)  # its last reader comes first here
                most_read[name] = max(read, most_read.get(name, 0))
                tensor_bytes = tensor.elements * tensor.dtype.item_bytes
                if not stay.is_kept:
                    yield name, range(stay.moment, stay.moment + 1), max(0, read - read_by_name.get(name, 0))
                    read_by_name[name] = max(read, read_by_name.get(name, 0))
                if stay.between:
                    yield name, stay.between, tensor_bytes if stay.is_result else read
                if stay.counts_tiles:
                    yield name, range(self.moments), tensor_bytes
            for position, name in _outputs(self._graph, op):
                stay, tensor = self._stays[op.op.name, False, position], self._graph.tensors[name]
                tensor_bytes = tensor.elements * tensor.dtype.item_bytes
                made_bytes = tensor_bytes if name in self._graph.outputs else min(tensor_bytes, most_read.get(name, 0))
                is_over = op.op.op_type in over and made_bytes in read_by_name.values()
                if not stay.is_next and not is_over:
                    yield name, range(stay.moment, stay.moment + 1), made_bytes
                if stay.between:
                    yield name, stay.between, needed.get(name, made_bytes)

    def _needed(self, op: BoundOp, slot: int) -> int:
        """Elements of an input that an op reads, whatever divides it: no more than the points that it reads at."""
        key = (op.content, slot)
        if key in self._least_read:
            return self._least_read[key]
        boxes = self._parts(op, True, slot, UNCUT)
        extents = (boxes.hi - boxes.lo)[0].tolist()
        reads = [read for read in op.sized_reads if read.slot == slot]
        if len(reads) == 1:
            size = dict(zip((variable.name for variable in op.variables), op.extents, strict=True))
            for dim, interval in enumerate(reads[0].dims):
                if interval is not None and interval.alone is None and interval.along:
                    extents[dim] = min(extents[dim], prod(size[name] for name in interval.along))
        self._least_read[key] = prod(max(0, extent) for extent in extents)
        return self._least_read[key]

    def weights(self, prices: Mapping[int, Fraction]) -> dict[Port, Weights]:
        """The price of a byte of each port's tables, where it has one.

        Args:
            prices: of a byte, by moment.
        """
        moments = sorted(prices)
        until = [Fraction(0), *itertools.accumulate(prices[moment] for moment in moments)]
        nothing = Fraction(0)
        weights: dict[Port, Weights] = {}
        weights_by_key: dict[tuple[object, ...], Weights] = {}
        for port, stay in self._stays.items():
            between = bisect_left(moments, stay.between.start), bisect_left(moments, stay.between.stop)
            key = (prices.get(stay.moment), between, stay.counts_tiles)
            if key not in weights_by_key:
                during, lying = prices.get(stay.moment, nothing), until[between[1]] - until[between[0]]
                weights_by_key[key] = (during, lying, until[-1] if stay.counts_tiles else nothing)
            if any(weights_by_key[key]):
                weights[port] = weights_by_key[key]
        return weights

    def kind(self, port: Port) -> tuple[bool, bool, bool]:
        """The kind of a port's tables besides its op's content."""
        return self._stays[port].kind

    def tables(self, request: Request) -> tuple[Table, Table, Table]:
        """Bytes over all workers while the op runs, between ops, and of the tiles; each [tilings, strategies].

        With ``limits`` each byte is worth what they make of it.
        """
        op, is_input, position, tensor, tilings, strategies = request
        stay = self._stays[op.op.name, is_input, position]
        key = (op.content, is_input, position, tensor.dtype, stay.kind, id(tilings), id(strategies))
        entry = self._tables.get(key)
        if entry is None:
            # The lists are kept with the tables: an identity means something only while its object lives.
            entry = self._tables[key] = (self._counted(request), (tilings, strategies))
        return entry[0]

    def _counted(self, request: Request) -> tuple[Table, Table, Table]:
        op, is_input, position, tensor, tilings, strategies = request
        stay = self._stays[op.op.name, is_input, position]
        boxes = [self._parts(op, is_input, position, strategy) for strategy in strategies]
        lo, hi = (end[None] for end in _stacked(boxes))
        own_lo, own_hi = (end[:, None] for end in _stacked([self._owned(tensor.shape, tiling) for tiling in tilings]))
        part, tile = _elements(lo, hi), _elements(own_lo, own_hi)
        common = _elements(np.maximum(lo, own_lo), np.minimum(hi, own_hi))
        if not is_input:
            during = part + 0 * tile
            if stay.is_next:
                during = np.where((part == tile) & (common == tile), 0, during)
            between = np.minimum(part, tile)
        else:
            during = np.where(stay.is_kept & (part == tile) & (common == tile), 0, part)
            fetched = np.where(part == 0, 0, np.where(common == part, tile, np.minimum(part, tile)))
            between = tile + 0 * part if stay.is_result else fetched
        tiles = tile + 0 * part
        item = tensor.dtype.item_bytes
        return self._on_all(during * item), self._on_all(between * item), self._on_all(tiles * item)

    def _on_all(self, by_worker: Ints) -> Table:
        """What the last axis, of workers, adds up to."""
        if self._worth is None:
            table: Table = by_worker.sum(axis=-1)
        else:
            table = (by_worker @ self._worth).astype(np.int64)  # rounded down: what fits is never more than there is
        return table

    def _parts(self, op: BoundOp, is_input: bool, position: int, strategy: Tiling) -> Boxes:
        """What an op reads or makes on each worker."""
        key = (op.content, is_input, position, strategy)
        boxes = self._boxes.get(key)
        if boxes is None:
            if is_input:
                boxes = op.reads(op.ranges(strategy), position)[position].boxes
            else:
                dims = op.analysis.outputs[position]
                assert dims is not None, "an absent output has no table"
                tiling = made_tiling(strategy, dims, op.reducers(strategy), op.analysis.steps_of(position))
                boxes = tiling.boxes(index_space(op.node.output_shape(position)))
            self._boxes[key] = boxes
        return boxes

    def _owned(self, shape: tuple[int, ...], tiling: Tiling) -> Boxes:
        """The workers' tiles."""
        key = (shape, tiling)
        if key not in self._boxes:
            self._boxes[key] = tiling.boxes(index_space(shape))
        return self._boxes[key]


def _stacked(boxes: Sequence[Boxes]) -> tuple[Ints, Ints]:
    return np.stack([part.lo for part in boxes]), np.stack([part.hi for part in boxes])


def _elements(lo: Ints, hi: Ints) -> Ints:
    elements: Ints = np.maximum(hi - lo, 0).prod(axis=-1)
    return elements


def _inputs(graph: Graph, op: BoundOp) -> list[tuple[int, str]]:
    """Positions and names of what an op has delivered."""
    return [
        (slot, op.op.inputs[slot])
        for slot, first in op.delivered_slots.items()
        if slot == first and op.op.inputs[slot] not in graph.constants
    ]


def _outputs(graph: Graph, op: BoundOp) -> list[tuple[int, str]]:
    return [(position, name) for position, name in enumerate(op.op.outputs) if name and is_used(graph, name)]
