"""Arrivals at each worker, by the level that they cross: by the outermost cut that parts it from the sender.

The *depth* of a transfer is the number of cuts that its two workers have in common: 0 where the outermost cut parts
them. A worker takes what it lacks from the nearest workers that have it (``planner.partition.ways``), so what
arrives from a depth is what the workers nearer than that have not: a group of workers that share their first cuts has
between them the region that those cuts leave of a tensor.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from planner.algebra.delivery import contributors, reduced_boxes
from planner.algebra.partial import settled
from planner.algebra.region import Boxes
from planner.algebra.tiling import Only, Replicate, Shard, Tiling, coordinates

Elements = NDArray[np.int64]

_MOST_ENTRIES = 1 << 20
"""Pairs of workers, times needs, that are looked at together: 8 MiB."""


@lru_cache(maxsize=256)
def depths(ways: tuple[int, ...]) -> Elements:
    """The number of outermost cuts that each two workers have in common, [workers, workers]; a worker and itself have
    all.
    """
    groups = coordinates(ways)
    is_equal = groups[:, None, :] == groups[None, :, :]
    common: Elements = np.cumprod(is_equal, axis=2).sum(axis=2)
    return common


@lru_cache(maxsize=16384)
def group_boxes(tiling: Tiling, shape: tuple[int, ...]) -> tuple[Boxes, ...]:
    """The region that each worker's group has between it, for each depth, and last for the worker alone.

    Args:
        tiling: whose cuts nest in their own order: else what a group has between it is no box (``nearby``).
        shape: of the tensor's index space.
    """
    assert not tiling.is_nested, f"groups of {tiling} have no box between them"
    by_depth = []
    inner = tiling.workers
    for cut in range(len(tiling.ways) + 1):
        boxes = Tiling(tiling.placements[:cut], tiling.ways[:cut]).boxes(shape)
        by_depth.append(Boxes(np.repeat(boxes.lo, inner, axis=0), np.repeat(boxes.hi, inner, axis=0)))
        if cut < len(tiling.ways):
            inner //= tiling.ways[cut]
    return tuple(by_depth)


def nearby(needed: Boxes, held: Tiling, shape: tuple[int, ...]) -> Elements:
    """Elements that each worker needs and its group has, for each depth and last for itself, [workers, cuts + 1].

    Args:
        needed: what each worker needs.
        held: how the tensor is held.
        shape: of the tensor's index space.
    """
    if not held.is_nested:
        return np.stack([needed.overlap(group) for group in group_boxes(held, shape)], axis=1)
    elements: Elements = nearby_nested(needed.lo[None], needed.hi[None], held, shape)[0]
    return elements


def nearby_nested(lo: Elements, hi: Elements, held: Tiling, shape: tuple[int, ...]) -> Elements:
    """The same for several needs of a tensor whose cuts nest in another order, [needs, workers, cuts + 1].

    Args:
        lo: where what each worker needs begins, [needs, workers, rank].
        hi: where it ends.
        held: how the tensor is held.
        shape: of the tensor's index space.
    """
    tiles = held.boxes(shape)
    workers = tiles.workers
    is_repeated = tuple(not isinstance(placement, Shard | Only) for placement in held.placements)
    by_depth = _nearest_by_depth(is_repeated, held.ways)
    elements: Elements = np.empty((len(lo), workers, len(held.ways) + 1), dtype=np.int64)
    together = max(1, _MOST_ENTRIES // workers**2)
    for first in range(0, len(lo), together):
        needs = slice(first, first + together)
        # Floats are quick to multiply in matrices, and exact: no tensor has 2^53 elements.
        common = np.ones((len(lo[needs]), workers, workers))
        for dim in range(lo.shape[2]):
            upper = np.minimum(hi[needs, :, None, dim], tiles.hi[:, dim])
            lower = np.maximum(lo[needs, :, None, dim], tiles.lo[:, dim])
            common *= np.maximum(upper - lower, 0)
        elements[needs] = np.matmul(common.swapaxes(0, 1), by_depth).swapaxes(0, 1)
    return elements


@lru_cache(maxsize=256)
def _nearest_by_depth(is_repeated: tuple[bool, ...], ways: tuple[int, ...]) -> NDArray[np.float64]:
    """Which workers count for which depths, [worker, other, cuts + 1].

    Of workers that have the same, the one that parts from the worker nowhere else is the nearest.
    """
    groups = coordinates(ways)[:, np.array(is_repeated, dtype=bool)]
    alike = (groups[:, None, :] == groups[None, :, :]).all(axis=2)
    near = depths(ways)[:, :, None] >= np.arange(len(ways) + 1)
    counts: NDArray[np.float64] = (alike[:, :, None] & near).astype(np.float64)
    return counts


def arriving(needed: Boxes, held: Tiling, shape: tuple[int, ...]) -> Elements:
    """Elements that each worker takes from each depth, shape [workers, cuts].

    Args:
        needed: what each worker needs.
        held: how the tensor is held; a group of a partial cut has contributions of its own, and takes none of others.
        shape: of the tensor's index space.
    """
    near = nearby(needed, held, shape)
    elements: Elements = near[:, :-1] - near[:, 1:]
    return elements


def redistributed(source: Tiling, owned: Tiling, shape: tuple[int, ...]) -> tuple[Elements, ...]:
    """The arrivals that bring a tensor from its makers to its owners, by phase and depth.

    One phase, [workers, cuts]; two where partial results are reduced first. Over all workers and depths these are the
    elements of ``movements.made``.

    Args:
        source: how the op makes it.
        owned: contributions that stay apart are made so.
        shape: of the tensor's index space.
    """
    target = owned.boxes(shape)
    inside = settled(source, owned)
    assert inside is not None, f"made as {source}, owned as {owned}"
    if not inside.has_partial:
        return (arriving(target, inside, shape),)
    source = inside
    middle = reduced_boxes(source, owned, shape)
    joined = middle.cross_overlap(source.boxes(shape)) * contributors(source)
    # Workers that part at a cut which leaves the reduced tensor repeated have the same of it: the nearest is the one
    # that parts nowhere else.
    repeated = [
        cut
        for cut, (placement, wanted) in enumerate(zip(source.placements, owned.placements, strict=True))
        if isinstance(placement, Replicate) and not isinstance(wanted, Shard | Only)
    ]
    groups = coordinates(source.ways)
    nearest = (groups[:, None, repeated] == groups[None, :, repeated]).all(axis=2)
    spread = target.cross_overlap(middle) * nearest
    return _by_depth(joined, source.ways), _by_depth(spread, source.ways)


def _by_depth(between: Elements, ways: tuple[int, ...]) -> Elements:
    """Sums over senders, [receiver, sender] to [receiver, depth]; what a worker has itself counts nowhere."""
    depth = depths(ways)
    return np.stack([(between * (depth == cut)).sum(axis=1) for cut in range(len(ways))], axis=1)
