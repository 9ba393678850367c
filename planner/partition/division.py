"""An op's work divided by a strategy: what each worker reads, computes and makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner.algebra.delivery import made_tiling
from planner.algebra.tiling import Tiling
from planner.partition.fetches import NOTHING
from planner.partition.local_work import different
from planner.partition.ways import Regions
from planner.tdl.bind import BoundOp
from planner.tdl.local import LocalOp, Part


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    """An op's work divided by a strategy: the same object for equal ops, so that it is its own key."""

    busy: tuple[int, ...]
    """Workers that have a part."""
    parts: tuple[Part, ...]
    """By worker."""
    reads: Mapping[int, Regions]
    """By input that is read: what each worker needs of it."""
    made: tuple[Regions, ...]
    """By output: what each worker makes of it; () for an absent one."""
    made_as: tuple[Tiling | None, ...]
    """By output: the tiling in which it is made."""
    local: tuple[int, ...]
    """By worker: the number of its local op."""
    local_ops: tuple[LocalOp, ...]
    """The different ones."""

    @classmethod
    def of(cls, described: BoundOp, strategy: Tiling) -> Division:
        """Divides an op."""
        ranges = described.ranges(strategy)
        reads, results, reducers = described.reads(ranges), described.all_made(ranges), described.reducers(strategy)
        parts = tuple(described.part(ranges, reads, worker, results) for worker in range(ranges.workers))
        busy = strategy.busy
        numbers, local_ops = different([described.local_op(parts[worker]) for worker in busy])
        local = dict(zip(busy, numbers, strict=True))
        return cls(
            busy,
            parts,
            {slot: tuple(read.boxes) for slot, read in reads.items()},
            tuple(() if boxes is None else tuple(boxes) for boxes in results),
            tuple(
                None if dims is None else made_tiling(strategy, dims, reducers, described.analysis.steps_of(position))
                for position, dims in enumerate(described.analysis.outputs)
            ),
            tuple(local.get(worker, NOTHING) for worker in range(ranges.workers)),
            local_ops,
        )
