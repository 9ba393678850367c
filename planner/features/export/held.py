"""Tiles of a tensor on all workers, in arrays of one shape: a program for all devices has no other ones.

Each worker's part lies somewhere in its *frame*, an array as large as the largest part needs. Where all parts are of
one shape, frame and part are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from planner.algebra.region import Region
from planner.algebra.tiling import coordinates
from planner.graph.core.model import Shape

Grid: TypeAlias = tuple[tuple[int, ...], ...]
"""By dim the cuts that divide it into equal parts, the one that divides it first before the others."""


@dataclass(frozen=True, slots=True)
class Held:
    """The part of each worker, and where it lies in the worker's frame."""

    regions: tuple[Region, ...]
    """By worker; empty where it holds nothing."""
    frame: Shape
    """Shape of every worker's array, in the tensor's index space: (1,) for a scalar."""
    offsets: tuple[Shape, ...]
    """By worker, where the part begins in the frame."""

    @classmethod
    def of(cls, regions: Sequence[Region]) -> Held:
        """Parts that begin where their frames do."""
        frame = tuple(max(extents) for extents in zip(*(region.shape for region in regions), strict=True))
        return cls(tuple(regions), frame, ((0,) * len(frame),) * len(regions))

    @property
    def is_even(self) -> bool:
        """Whether every worker's part fills its frame."""
        return all(region.shape == self.frame for region in self.regions)

    def start(self, worker: int, region: Region) -> Shape:
        """The beginning of a part of a worker's tile in its frame."""
        mine = self.regions[worker]
        return tuple(at - lo + offset for at, lo, offset in zip(region.lo, mine.lo, self.offsets[worker], strict=True))


def grid_of(regions: Sequence[Region], ways: tuple[int, ...], extents: Shape) -> Grid | None:
    """The grid by which cuts divide all of an index space into equal parts; None if they do not.

    Args:
        regions: by worker.
        ways: of the cuts.
        extents: of the index space.
    """
    lo = np.array([region.lo for region in regions], dtype=np.int64)
    hi = np.array([region.hi for region in regions], dtype=np.int64)
    sizes = hi - lo
    if (sizes != sizes[0]).any() or (sizes <= 0).any():
        return None
    groups = coordinates(ways)
    grid = []
    for dim, extent in enumerate(extents):
        size = int(sizes[0, dim])
        strides = {}
        for cut in range(len(ways)):
            neighbour = groups[0].copy()
            neighbour[cut] = 1
            worker = int(np.flatnonzero((groups == neighbour).all(axis=1))[0])
            stride = int(lo[worker, dim] - lo[0, dim])
            if stride:
                strides[cut] = stride
        cuts = tuple(sorted(strides, key=lambda cut: -strides[cut]))
        # The innermost cut shifts by one part, and each cut outside it by all that it encloses.
        expected = size
        for cut in reversed(cuts):
            if strides[cut] != expected:
                return None
            expected *= ways[cut]
        total = sum((groups[:, cut] * strides[cut] for cut in cuts), np.zeros(len(groups), dtype=np.int64))
        if expected != extent or lo[0, dim] != 0 or (lo[:, dim] != total).any():
            return None
        grid.append(cuts)
    return tuple(grid)
