"""What arrives at each worker, told apart by how far it comes: by the outermost cut that parts it from the sender.

The *depth* of a transfer is the number of cuts that its two workers have in common: 0 where the outermost cut parts
them. A worker takes what it lacks from the nearest workers that have it (``planner.partition.fetches``), so what
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


@lru_cache(maxsize=256)
def depths(ways: tuple[int, ...]) -> Elements:
    """How many outermost cuts each two workers have in common, [workers, workers]; a worker and itself have all."""
    groups = coordinates(ways)
    same = groups[:, None, :] == groups[None, :, :]
    found: Elements = np.cumprod(same, axis=2).sum(axis=2)
    return found


@lru_cache(maxsize=16384)
def group_boxes(tiling: Tiling, shape: tuple[int, ...]) -> tuple[Boxes, ...]:
    """For each depth, and last for the worker alone, the region that each worker's group has between it.

    Args:
        tiling: whose cuts nest in their own order: else what a group has between it is no box (``nearby``).
        shape: of the tensor's index space.
    """
    assert not tiling.is_nested, f"groups of {tiling} have no box between them"
    found = []
    inner = tiling.workers
    for cut in range(len(tiling.ways) + 1):
        boxes = Tiling(tiling.placements[:cut], tiling.ways[:cut]).boxes(shape)
        found.append(Boxes(np.repeat(boxes.lo, inner, axis=0), np.repeat(boxes.hi, inner, axis=0)))
        if cut < len(tiling.ways):
            inner //= tiling.ways[cut]
    return tuple(found)


def nearby(needed: Boxes, held: Tiling, shape: tuple[int, ...]) -> Elements:
    """Elements that each worker needs and its group has, for each depth and last for itself, [workers, cuts + 1].

    Args:
        needed: what each worker needs.
        held: how the tensor is held.
        shape: of the tensor's index space.
    """
    if not held.is_nested:
        return np.stack([needed.overlap(group) for group in group_boxes(held, shape)], axis=1)
    common = needed.cross_overlap(held.boxes(shape))
    # Of workers that have the same, the one that parts from the worker nowhere else is the nearest.
    repeated = [cut for cut, one in enumerate(held.placements) if not isinstance(one, Shard | Only)]
    groups = coordinates(held.ways)
    alike = (groups[:, None, repeated] == groups[None, :, repeated]).all(axis=2)
    depth = depths(held.ways)
    return np.stack([(common * (alike & (depth >= cut))).sum(axis=1) for cut in range(len(held.ways) + 1)], axis=1)


def arriving(needed: Boxes, held: Tiling, shape: tuple[int, ...]) -> Elements:
    """Elements that each worker takes from each depth, shape [workers, cuts].

    Args:
        needed: what each worker needs.
        held: how the tensor is held; a group of a partial cut has contributions of its own, and takes none of others.
        shape: of the tensor's index space.
    """
    near = nearby(needed, held, shape)
    found: Elements = near[:, :-1] - near[:, 1:]
    return found


def redistributed(made: Tiling, owned: Tiling, shape: tuple[int, ...]) -> tuple[Elements, ...]:
    """What arrives to bring a tensor from how an op makes it to where it is owned, by phase and depth.

    One phase, [workers, cuts]; two where partial results are reduced first. Over all workers and depths these are the
    elements of ``movements.made``.

    Args:
        made: how the op makes it.
        owned: contributions that stay apart are made so.
        shape: of the tensor's index space.
    """
    target = owned.boxes(shape)
    inside = settled(made, owned)
    assert inside is not None, f"made as {made}, owned as {owned}"
    if not inside.has_partial:
        return (arriving(target, inside, shape),)
    made = inside
    middle = reduced_boxes(made, owned, shape)
    joined = middle.cross_overlap(made.boxes(shape)) * contributors(made)
    # Workers that part at a cut which leaves the reduced tensor repeated have the same of it: the nearest is the one
    # that parts nowhere else.
    repeated = [
        cut
        for cut, (source, wanted) in enumerate(zip(made.placements, owned.placements, strict=True))
        if isinstance(source, Replicate) and not isinstance(wanted, Shard | Only)
    ]
    groups = coordinates(made.ways)
    nearest = (groups[:, None, repeated] == groups[None, :, repeated]).all(axis=2)
    spread = target.cross_overlap(middle) * nearest
    return _by_depth(joined, made.ways), _by_depth(spread, made.ways)


def _by_depth(between: Elements, ways: tuple[int, ...]) -> Elements:
    """Sums over senders, [receiver, sender] to [receiver, depth]; what a worker has itself counts nowhere."""
    depth = depths(ways)
    return np.stack([(between * (depth == cut)).sum(axis=1) for cut in range(len(ways))], axis=1)
