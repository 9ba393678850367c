"""Half-open integer boxes: the index space that a worker owns, needs or makes.

``Region`` is one box; ``Boxes`` is one box for each worker, in NumPy arrays, so that the tables of the search
and the partitioner count the same elements with the same arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from operator import add, ge, le
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray


def index_space(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a tensor's index space: its own, and (1,) for a scalar, so that a scalar too can be absent."""
    return shape or (1,)


def _extent(lo: int, hi: int) -> int:
    return hi - lo if hi > lo else 0


@lru_cache(maxsize=1 << 16)
def _shape(lo: tuple[int, ...], hi: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(map(_extent, lo, hi))


@lru_cache(maxsize=1 << 16)
def _elements(lo: tuple[int, ...], hi: tuple[int, ...]) -> int:
    return prod(map(_extent, lo, hi))


def _volume(extents: NDArray[np.int64], axis: int) -> NDArray[np.int64]:
    volume: NDArray[np.int64] = np.prod(extents, axis=axis, dtype=np.int64)
    return volume


@dataclass(frozen=True, slots=True)
class Region:
    """The box ``[lo, hi)`` of an index space.

    Example:
        >>> Region((0, 2), (4, 5)).shape
        (4, 3)
    """

    told: ClassVar = "=ends"

    lo: tuple[int, ...]
    hi: tuple[int, ...]

    @property
    def ends(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The first index and the end, by dim; the end is not in it."""
        return self.lo, self.hi

    @classmethod
    def whole(cls, shape: tuple[int, ...]) -> Region:
        """The region of all of a tensor of this shape."""
        space = index_space(shape)
        return cls((0,) * len(space), space)

    @property
    def rank(self) -> int:
        return len(self.lo)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of every dim; 0 where the region is empty there."""
        return _shape(self.lo, self.hi)

    @property
    def elements(self) -> int:
        return _elements(self.lo, self.hi)

    @property
    def is_empty(self) -> bool:
        return any(map(ge, self.lo, self.hi))

    def text(self, shape: Sequence[int]) -> str:
        """``[0:4, :]``, ``all`` or ``nothing`` of an index space of this shape."""
        if self.is_empty:
            return "nothing"
        ends = list(zip(self.lo, self.hi, shape, strict=True))
        if all((lo, hi) == (0, size) for lo, hi, size in ends):
            return "all"
        return "[" + ", ".join(":" if (lo, hi) == (0, size) else f"{lo}:{hi}" for lo, hi, size in ends) + "]"

    def intersect(self, region: Region) -> Region:
        """The box common to both; empty (never inside out) where there is none."""
        assert len(self.lo) == len(region.lo), "regions of one index space have one rank"
        lo = tuple(map(max, self.lo, region.lo))
        return Region(lo, tuple(map(max, lo, map(min, self.hi, region.hi))))

    def contains(self, region: Region) -> bool:
        """True if every point of ``region`` is in this one."""
        assert len(self.lo) == len(region.lo), "regions of one index space have one rank"
        return region.is_empty or (all(map(le, self.lo, region.lo)) and all(map(ge, self.hi, region.hi)))

    def hull(self, region: Region) -> Region:
        """The smallest box that holds both; an empty region adds nothing."""
        if self.is_empty:
            return region
        if region.is_empty:
            return self
        return Region(
            tuple(min(a, b) for a, b in zip(self.lo, region.lo, strict=True)),
            tuple(max(a, b) for a, b in zip(self.hi, region.hi, strict=True)),
        )

    def moved(self, by: Sequence[int]) -> Region:
        """The box so much further along each dim."""
        return Region(tuple(map(add, self.lo, by)), tuple(map(add, self.hi, by)))

    def subtract(self, region: Region) -> tuple[Region, ...]:
        """The rest of this region without ``region``, as disjoint boxes in a fixed order."""
        common = self.intersect(region)
        if common.is_empty:
            return () if self.is_empty else (self,)
        boxes: list[Region] = []
        lo, hi = list(self.lo), list(self.hi)
        for dim in range(self.rank):
            if lo[dim] < common.lo[dim]:
                boxes.append(Region(tuple(lo), (*hi[:dim], common.lo[dim], *hi[dim + 1 :])))
            if common.hi[dim] < hi[dim]:
                boxes.append(Region((*lo[:dim], common.hi[dim], *lo[dim + 1 :]), tuple(hi)))
            lo[dim], hi[dim] = common.lo[dim], common.hi[dim]
        return tuple(boxes)

    def within(self, frame: Region) -> tuple[slice, ...]:
        """This region as slices of an array that holds ``frame``."""
        return tuple(slice(lo - start, hi - start) for lo, hi, start in zip(self.lo, self.hi, frame.lo, strict=True))

    def __str__(self) -> str:
        return "[" + ", ".join(f"{lo}:{hi}" for lo, hi in zip(self.lo, self.hi, strict=True)) + "]"


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """One region for each worker.

    ``lo`` and ``hi`` have shape [workers, rank]. An empty region has ``hi <= lo`` in some dim.
    """

    lo: NDArray[np.int64]
    hi: NDArray[np.int64]

    @classmethod
    def whole(cls, shape: tuple[int, ...], workers: int) -> Boxes:
        """Every worker has all of a tensor of this shape."""
        space = index_space(shape)
        hi = np.broadcast_to(np.array(space, dtype=np.int64), (workers, len(space))).copy()
        return cls(np.zeros_like(hi), hi)

    @property
    def workers(self) -> int:
        return int(self.lo.shape[0])

    @property
    def elements(self) -> NDArray[np.int64]:
        """Elements of each worker's region, shape [workers]."""
        extents: NDArray[np.int64] = np.maximum(self.hi - self.lo, 0)
        return _volume(extents, 1)

    def overlap(self, boxes: Boxes) -> NDArray[np.int64]:
        """Elements common to each worker's two regions, shape [workers]."""
        extents = np.minimum(self.hi, boxes.hi) - np.maximum(self.lo, boxes.lo)
        return _volume(np.maximum(extents, 0), 1)

    def cross_overlap(self, boxes: Boxes) -> NDArray[np.int64]:
        """Elements common to region i of this and region j of the other, shape [workers, other workers]."""
        extents = np.minimum(self.hi[:, None], boxes.hi[None]) - np.maximum(self.lo[:, None], boxes.lo[None])
        return _volume(np.maximum(extents, 0), 2)

    def hull(self, boxes: Boxes) -> Boxes:
        """Worker by worker the smallest box that holds both; an empty region adds nothing."""
        mine, theirs = self.elements[:, None] == 0, boxes.elements[:, None] == 0
        lo = np.where(mine, boxes.lo, np.where(theirs, self.lo, np.minimum(self.lo, boxes.lo)))
        hi = np.where(mine, boxes.hi, np.where(theirs, self.hi, np.maximum(self.hi, boxes.hi)))
        return Boxes(lo, hi)

    def region(self, worker: int) -> Region:
        lo = tuple(self.lo[worker].tolist())
        return Region(lo, tuple(map(max, lo, self.hi[worker].tolist())))

    def __iter__(self) -> Iterator[Region]:
        return (self.region(worker) for worker in range(self.workers))


@lru_cache(maxsize=1 << 16)
def tile(parts: tuple[Region, ...], region: Region) -> bool:
    """Whether boxes, none of them empty, lie in a region and cover it, each of its elements once."""
    if any(part.rank != region.rank or part.is_empty or not region.contains(part) for part in parts):
        return False
    if sum(part.elements for part in parts) != region.elements:
        return False
    boxes = Boxes(np.array([part.lo for part in parts]), np.array([part.hi for part in parts]))
    return int(boxes.cross_overlap(boxes).sum()) == region.elements
