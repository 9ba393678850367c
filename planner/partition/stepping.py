"""An op's work in steps: chunks of one of its index variables, and parts of its result.

Tensors that are indexed by the variable circulate: of them a worker has one chunk at a time, and then the next one. The
others stay. What moves is what moves when the op runs at once, since chunks are disjoint (SPAA'21, section 2.2; SUMMA).

- The op sums over the variable: what a chunk gives is added to the sum. It is made in tiles along the first dim of the
  result that is longer than 1, each added to its own part of the sum: beside the sum there is a tile of it, and no
  second sum.
- The variable indexes the result: what a chunk gives is a part of that, and partial results are joined chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.algebra.delivery import made_tiling
from planner.algebra.region import Boxes, Region
from planner.algebra.tiling import Tiling, split_bounds
from planner.artifacts.plan import Steps
from planner.partition.ways import Regions
from planner.tdl.bind import BoundOp
from planner.tdl.local import LocalOp

_TILES = 8
"""Into so many tiles a sum falls at most."""
_SMALL_TILE_ELEMENTS = 1 << 10
"""No tile of a sum is divided that has no more elements than this."""


@dataclass(frozen=True, slots=True)
class TileWork:
    """The work of a worker for one tile of its sum with one chunk."""

    local: LocalOp
    """Makes ``out0``, which is to be added, of what it reads."""
    reads: Mapping[int, Region]
    """By input, what it reads of the chunk, or of what stays."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """One step of an op on all workers."""

    reads: Mapping[int, Regions]
    """By input that circulates, what each worker needs."""
    work: Mapping[int, Mapping[int, TileWork]]
    """By the number of a part of the result and busy worker: what is added to that part, or makes it."""


@dataclass(frozen=True, slots=True, eq=False)
class SteppedDivision:
    """An op's work divided by a strategy, in steps; the same object for equal ops."""

    busy: tuple[int, ...]
    stays: Mapping[int, Regions]
    """By input that does not circulate, what each worker needs."""
    chunks: tuple[Chunk, ...]
    parts: tuple[Regions, ...]
    """By part of the result, what each worker makes; empty where it makes none."""
    made_as: Tiling
    """The tiling in which the result is made, all parts together."""
    is_summed: bool
    """Whether chunks are added to each other; else each makes a part of its own."""

    @classmethod
    def of(cls, op: BoundOp, strategy: Tiling, steps: Steps) -> SteppedDivision:
        """Divides an op."""
        ranges = op.ranges(strategy)
        busy = strategy.busy
        chunked = _split(ranges, steps.variable, steps.count)
        by_chunk = [op.reads(chunk) for chunk in chunked]
        slots = sorted({slot for reads in by_chunk for slot in reads})
        regions = {slot: [tuple(reads[slot].boxes) for reads in by_chunk] for slot in slots}
        stays = {slot: boxes[0] for slot, boxes in regions.items() if len(set(boxes)) == 1}
        dims = op.analysis.outputs[0]
        assert dims is not None, "an op that sums products makes its result"
        is_summed = steps.variable not in dims
        results = tuple(op.makes(ranges, 0))
        tiled = [_tiled(op, chunk, results, dims) if is_summed else [chunk] for chunk in chunked]
        chunks = []
        for number, tiles in enumerate(tiled):
            work = {tile if is_summed else number: _work(op, part, busy) for tile, part in enumerate(tiles)}
            chunks.append(Chunk({slot: regions[slot][number] for slot in slots if slot not in stays}, work))
        parts = tiled[0] if is_summed else chunked
        return cls(
            busy,
            stays,
            tuple(chunks),
            tuple(tuple(op.makes(part, 0)) for part in parts),
            made_tiling(strategy, dims, op.reducers(strategy), op.analysis.steps_of(0)),
            is_summed,
        )


def _split(ranges: Boxes, variable: int, count: int) -> list[Boxes]:
    """The workers' parts of the iteration space, each cut along a variable."""
    pieces = []
    for piece in range(count):
        lo, hi = ranges.lo.copy(), ranges.hi.copy()
        number = np.full(len(lo), piece, dtype=np.int64)
        bounds = ranges.lo[:, variable], ranges.hi[:, variable]
        lo[:, variable], hi[:, variable] = split_bounds(*bounds, count, number, 1)
        pieces.append(Boxes(lo, hi))
    return pieces


def _tiled(op: BoundOp, ranges: Boxes, boxes: Sequence[Region], dims: Sequence[int]) -> list[Boxes]:
    """A chunk's parts, tile by tile of the result."""
    sizes = [min((region.shape[dim] for region in boxes if not region.is_empty), default=0) for dim in range(len(dims))]
    least = min((region.elements for region in boxes if not region.is_empty), default=0)
    dim = next((dim for dim, size in enumerate(sizes) if size > 1), None)
    count = 1 if dim is None else min(_TILES, sizes[dim], max(1, least // _SMALL_TILE_ELEMENTS))
    if dim is None or count == 1:
        return [ranges]
    variable = dims[dim]
    if op.variables[variable].obstacle:
        return [ranges]
    tiles = _split(ranges, variable, count)
    return tiles if all(not op.veto(tile) for tile in tiles) else [ranges]


def _work(op: BoundOp, ranges: Boxes, busy: Sequence[int]) -> dict[int, TileWork]:
    """The work of each busy worker for its part."""
    reads, results = op.reads(ranges), op.all_made(ranges)
    works = {}
    for worker in busy:
        regions = {slot: read.boxes.region(worker) for slot, read in reads.items()}
        inputs = {slot: region for slot, region in regions.items() if not region.is_empty}
        works[worker] = TileWork(op.local_op(op.part(ranges, reads, worker, results)), inputs)
    return works
