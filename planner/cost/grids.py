"""Processor grids: an op cut along several of its variables at once, and what moves where its tensors lie best.

SPAA'21, section 2.2: P workers form a grid P_b x P_h x P_w x P_c x P_k. Along the variables that do not index a tensor,
its elements are spread, each within the group of workers that read it, or join it. Then, in elements over all workers,

    moved = (P_k - 1) |In| + (P_b P_h P_w - 1) |Ker| + (P_c - 1) |Out|

on grids that divide evenly and without halos. Here what workers need is counted from the op's description, so that it
holds of uneven parts and halos, and of any op that is cut along its variables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from planner.algebra.region import Boxes
from planner.algebra.tiling import Shard, Tiling
from planner.graph.core.model import DType
from planner.tdl.bind import BoundOp


@dataclass(frozen=True, slots=True)
class Grid:
    """The number of ways that each of an op's variables is cut."""

    ways: tuple[int, ...]
    """Of each variable, in the order of the op's."""
    moved_bytes: int
    """Over all workers, where each element of a tensor lies with one worker of those that need it."""
    held_bytes: int
    """What the fullest worker reads and makes of the op's tensors."""
    made_bytes: int
    """What the fullest worker makes of them."""

    def named(self, op: BoundOp) -> dict[str, int]:
        """The ways by the name of the variable, without those that are not cut."""
        pairs = zip(op.variables, self.ways, strict=True)
        return {variable.name: ways for variable, ways in pairs if ways > 1}


def grids(op: BoundOp, workers: int) -> Iterator[Grid]:
    """All grids of so many workers that an op can be computed on, each part with something to do.

    Args:
        op: the op.
        workers: how many.
    """
    free = [number for number, variable in enumerate(op.variables) if not variable.obstacle and op.extents[number] > 1]
    for ways in _factorised(workers, [op.extents[number] for number in free]):
        by_variable = dict(zip(free, ways, strict=True))
        cut = [(number, count) for number, count in by_variable.items() if count > 1]
        strategy = Tiling(tuple(Shard(number) for number, _ in cut), tuple(count for _, count in cut))
        if op.is_local(strategy):
            everywhere = tuple(by_variable.get(number, 1) for number in range(len(op.variables)))
            yield Grid(everywhere, *_counted(op, strategy))


def best_grid(op: BoundOp, workers: int) -> Grid | None:
    """The grid that moves least; None if there is none.

    Args:
        op: the op.
        workers: how many.
    """
    return min(grids(op, workers), key=lambda grid: (grid.moved_bytes, grid.held_bytes, grid.ways), default=None)


def stepped_bytes(op: BoundOp, grid: Grid, workers: int) -> int:
    """The bytes of the op's tensors on a worker of a grid, about, each spread evenly, if the op runs in many steps.

    Its share of every tensor, the part of the result that it adds to unless that is its share, and of what it reads a
    chunk: an owner's part is divided into eight at most (``planner.planning.limit.in_steps``), and two at least own it.

    Args:
        op: the op.
        grid: one of its grids.
        workers: of the grid.
    """
    read = sum(
        _bytes(op.node.input_shapes[slot], op.node.input_dtypes[slot]) for slot in set(op.delivered_slots.values())
    )
    result_bytes = sum(map(_bytes, op.node.output_shapes, op.node.output_dtypes))
    adding = grid.made_bytes if grid.made_bytes * workers > result_bytes else 0
    return (read + result_bytes) // workers + adding + (grid.held_bytes - grid.made_bytes) // _CHUNKS


_CHUNKS = 16


def _bytes(shape: Sequence[int] | None, dtype: DType | None) -> int:
    return 0 if shape is None or dtype is None else prod(shape) * dtype.item_bytes


def _counted(op: BoundOp, strategy: Tiling) -> tuple[int, int, int]:
    """What moves, what the fullest worker holds, and what the fullest makes, in bytes."""
    ranges = op.ranges(strategy)
    moved, held, all_made = 0, np.zeros(ranges.workers, dtype=np.int64), np.zeros(ranges.workers, dtype=np.int64)
    constant = [slot for slot, value in enumerate(op.node.constants) if value is not None]
    for slot, read in op.reads(ranges).items():
        dtype = op.node.input_dtypes[slot]
        assert dtype is not None, "an absent input is never read"
        held += read.boxes.elements * dtype.item_bytes
        if slot not in constant and op.delivered_slots[slot] == slot:
            moved += _beyond_once(read.boxes) * dtype.item_bytes
    for position, boxes in enumerate(op.all_made(ranges)):
        dtype = op.node.output_dtypes[position] if boxes is not None else None
        if boxes is not None and dtype is not None:
            all_made += boxes.elements * dtype.item_bytes
            moved += _beyond_once(boxes) * dtype.item_bytes
    return moved, int((held + all_made).max()), int(all_made.max())


def _beyond_once(boxes: Boxes) -> int:
    """Elements of all boxes beyond what they cover together; they are pieces of each dim, in all combinations."""
    covered = prod(_covered(boxes.lo[:, dim], boxes.hi[:, dim]) for dim in range(boxes.lo.shape[1]))
    return max(0, int(boxes.elements.sum()) - covered)


def _covered(lo: np.ndarray, hi: np.ndarray) -> int:
    """Elements of one dim that intervals cover together."""
    total, reached = 0, None
    for start, end in sorted(set(zip(lo.tolist(), hi.tolist(), strict=True))):
        first = start if reached is None else max(start, reached)
        total += max(0, end - first)
        reached = end if reached is None else max(reached, end)
    return total


def _factorised(workers: int, extents: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The ways to write a number as a product of one factor for each variable, none above what there is of it."""
    if not extents:
        if workers == 1:
            yield ()
        return
    for first in range(1, min(workers, extents[0]) + 1):
        if workers % first == 0:
            for factors in _factorised(workers // first, extents[1:]):
                yield (first, *factors)
