"""Staging: copies to a worker's own GPU if it cannot read the memory of another GPU.

The fetch's kernel reads the memory of other workers. Where its GPU has no peer access to a source's, the part of the
source's buffer that holds a needed box is copied to a staging block on the reader's GPU (``cudaMemcpyPeerAsync``, which
takes the way through the host's memory if there is no other), and the kernel reads there.

A copy takes one range of addresses, from the first to the last element of a box. So it may carry more than the box: of
a box of some columns, all that lies between them in the rows. What a fetch counts as moved is its boxes, as planned.

Source: CUDA Runtime API, "Memory Management", cudaMemcpyPeerAsync.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from planner.algebra.region import Region
from planner.artifacts.program import Buffer, Fetch, Source, WorkerProgram
from planner.runtime.engine.core.exchange import ALIGNMENT, aligned


@dataclass(frozen=True, slots=True)
class StagedRange:
    """A range of a source's buffer, and where it is copied to."""

    source: Source
    begin_bytes: int
    """Counted from the beginning of the buffer."""
    size_bytes: int
    offset_bytes: int
    """Of the copy, counted from the beginning of the staging block: as far behind a multiple of the alignment as the
    range is in its buffer, so that the kernel reads the copy with accesses as wide as the buffer's."""


@dataclass(frozen=True, slots=True)
class Staging:
    """All that is copied before one launch."""

    ranges: tuple[StagedRange, ...]
    size_bytes: int
    """Of the staging block that it needs."""


def staging_of(fetches: Iterable[Fetch], far: Collection[int], programs: Sequence[WorkerProgram]) -> Staging:
    """Lays out the staging block of a launch. Ranges of one buffer that overlap or touch are copied as one.

    Args:
        fetches: what is assembled in the launch.
        far: workers whose memory the reader's GPU cannot read.
        programs: of all workers.
    """
    needed: dict[Source, list[tuple[int, int]]] = {}
    for piece in (piece for fetch in fetches for piece in fetch.pieces):
        for source in piece.sources:
            if source.worker in far:
                buffer = programs[source.worker].buffers[source.buffer]
                needed.setdefault(source, []).append(span_bytes(piece.region, buffer))
    ranges: list[StagedRange] = []
    size = 0
    for source, spans in needed.items():
        for begin, end in _joined(spans):
            offset = size + begin % ALIGNMENT
            ranges.append(StagedRange(source, begin, end - begin, offset))
            size = aligned(offset + end - begin)
    return Staging(tuple(ranges), size)


def span_bytes(region: Region, buffer: Buffer) -> tuple[int, int]:
    """The smallest range of a buffer, in bytes from its beginning, that holds a region: first byte, and end."""
    first = last = 0
    frame = buffer.region
    for lo, hi, start, extent in zip(region.lo, region.hi, frame.lo, frame.shape, strict=True):
        first = first * extent + lo - start
        last = last * extent + hi - 1 - start
    return first * buffer.dtype.item_bytes, (last + 1) * buffer.dtype.item_bytes


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined
