"""From boxes to fetches: who takes what from whom.

This file alone decides what moves; the tables of the search predict it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from planner.algebra.region import Region
from planner.algebra.tiling import Reducer
from planner.artifacts.program import Fetch, Piece, Source


def nearest_first(worker: int, ways: Sequence[int], apart: Sequence[float] = ()) -> tuple[int, ...]:
    """All workers, the nearest first: those that part from ``worker`` at an inner cut before those at an outer one.

    Among equally near ones the order starts behind the worker itself, so that several readers of a replicated
    tensor do not all turn to the same owner.

    Args:
        worker: the reader.
        ways: of the cuts, outermost first.
        apart: how far each worker is from the reader, 0 for itself, where more is known than the cuts; () if not.
    """
    total = prod(ways)
    group_sizes = [total // prod(ways[:depth]) for depth in range(len(ways) + 1)]

    def distance(other: int) -> tuple[float, int, int]:
        shared = max(depth for depth, size in enumerate(group_sizes) if worker // size == other // size)
        return (apart[other] if apart else 0.0, -shared, (other - worker) % total)

    return tuple(sorted(range(total), key=distance))


def copied(region: Region, owners: Mapping[int, tuple[str, Region]], order: Sequence[int]) -> tuple[Piece, ...]:
    """Covers a region from the buffers of its owners, the first in ``order`` that has a part giving it.

    Args:
        region: what is needed.
        owners: by worker the buffer and the region that it holds.
        order: workers, the preferred one first; the reader itself should lead.
    """
    pieces: list[Piece] = []
    missing = [region]
    for worker in order:
        if worker not in owners or not missing:
            continue
        buffer, held = owners[worker]
        rest: list[Region] = []
        for box in missing:
            common = box.intersect(held)
            if common.is_empty:
                rest.append(box)
            else:
                pieces.append(Piece(common, (Source(worker, buffer),)))
                rest.extend(box.subtract(common))
        missing = rest
    assert not missing, f"nobody owns {missing[0]}"
    return tuple(pieces)


def reduced(region: Region, makers: Mapping[int, tuple[str, Region]], contributors: Sequence[int]) -> tuple[Piece, ...]:
    """Covers a region by reducing partial results, contributors in worker order.

    Args:
        region: what is needed.
        makers: by worker the buffer and the region of its partial result; equal or disjoint regions.
        contributors: the workers whose results are joined.
    """
    by_region: dict[Region, list[Source]] = {}
    for worker in sorted(contributors):
        if worker in makers:
            buffer, held = makers[worker]
            by_region.setdefault(held, []).append(Source(worker, buffer))
    pieces = []
    for held, sources in by_region.items():
        common = region.intersect(held)
        if not common.is_empty:
            pieces.append(Piece(common, tuple(sources)))
    assert sum(piece.region.elements for piece in pieces) == region.elements, f"partial results do not cover {region}"
    return tuple(pieces)


def make_fetch(
    name: str, worker: int, target: str, pieces: tuple[Piece, ...], reducer: Reducer | None, item_bytes: int
) -> Fetch:
    """A fetch with the bytes that it takes from other workers."""
    moved = sum(
        piece.region.elements * sum(source.worker != worker for source in piece.sources) * item_bytes
        for piece in pieces
    )
    joins = any(len(piece.sources) > 1 for piece in pieces)
    return Fetch(name, target, pieces, reducer if joins else None, moved)
