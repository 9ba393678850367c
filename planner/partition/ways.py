"""Senders and receivers: from the regions that workers have and need, rounds of boxes that move.

This file alone decides what moves, and from whom it comes; the tables of the search predict how much it is. It says so
without names of buffers, so that equal ops of a network have one answer: the partitioner puts names in
(``planner.partition.fetches``), an export writes the same rounds in another language (``planner.features.export``).

    read      owned -> needed            a round in which every worker takes what it needs and has not
    returned  made -> owned              the same
              made as partial -> owned   a round that joins contributions, spread over workers; then one that copies

The mathematics, for worker w with owned region O_w and needed region N_w. All workers are g_1 = w, g_2, ..., the
nearest first (``nearest_first``). A copy divides N_w into disjoint boxes, each from the nearest worker that has it::

    C_1 = N_w & O_w,  C_i = (N_w - C_1 - ... - C_(i-1)) & O_(g_i)          ``Holders.copied``
    moved elements = sum_w (|N_w| - |N_w & O_w|)                           ``Round.moved_elements``

A partial result c_g on each contributor g in J(w) is reduced where the regions X_w lie, which are disjoint inside of a
group (``planner.algebra.delivery.reduced_boxes``), in the order of the workers::

    T(x) = c_(j_1)(x) + c_(j_2)(x) + ...,  x in X_w, J(w) = {j_1 < j_2 < ...}   ``Contributions.to``
    moved elements = sum_w |X_w| * (|J(w)| - [w in J(w)])                  ``Round.moved_elements``

Then X_w is copied to O_w (``Ways.returned``). For a group of g workers and a tensor of S elements, |X_w| = S / g: the
reduction moves g * S/g * (g - 1) = (g - 1) S (reduce-scatter), the copy to everyone as much again (all-gather)::

    S = 4, two workers:     c_0 = [a b c d]      c_1 = [e f g h]
    round 1, reduced        X_0 = [a+e b+f]      X_1 = [c+g d+h]           each takes two elements
    round 2, copied         [a+e b+f c+g d+h] on both                      each takes two elements
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from planner.algebra.delivery import contributors, reduced_boxes, reducer_of
from planner.algebra.partial import holders, partial_cuts, settled
from planner.algebra.region import Region, index_space
from planner.algebra.tiling import Reducer, Tiling
from planner.counted import counted
from planner.graph.core.model import Shape

_MANY_BOXES: Final = 64
"""From so many on it is worth the while to look for those that have something in common with another."""
_ORDERS_KEPT: Final = 1024
"""Of so many workers it is kept which others are near: of all of some thousands that would be a gigabyte."""

Regions: TypeAlias = tuple[Region, ...]
"""By worker, a part of a tensor; empty where it has none."""


class Box(NamedTuple):
    """A box that a worker takes in one piece."""

    region: Region
    givers: tuple[int, ...]
    """The workers that it is taken from; several are joined, in this order."""
    part: int = 0
    """In which of their parts it lies, where each of them has several."""


@dataclass(frozen=True, slots=True)
class Round:
    """The boxes that workers take of one tensor at the same time."""

    regions: Regions
    """By worker, what it has then."""
    boxes: tuple[tuple[Box, ...], ...]
    """By worker, what that is put together of; what it has already it takes from itself."""
    reducer: Reducer | None = None
    """How boxes of several givers are joined."""

    @property
    def moved_elements(self) -> int:
        """The elements that cross between workers."""
        return sum(moved_elements(worker, boxes) for worker, boxes in enumerate(self.boxes))


@dataclass(frozen=True, slots=True)
class Way:
    """The way of a result from its makers to its owners."""

    rounds: tuple[Round, ...]
    """One after the other; () where all workers make just what they own."""
    joined: tuple[int, ...]
    """Cuts whose groups' contributions are joined in all rounds but the last, or in all."""


def moved_elements(worker: int, boxes: Iterable[Box]) -> int:
    """The elements that a worker takes from others."""
    return sum(box.region.elements * (len(box.givers) - box.givers.count(worker)) for box in boxes)


class Ways:
    """Senders and receivers on the workers of a plan.

    Args:
        cuts: their ways, outermost first.
        apart: how far workers are from each other, [reader][source], 0 on the diagonal; () if only the cuts tell.
    """

    def __init__(self, cuts: Sequence[int], apart: Sequence[Sequence[float]] = ()) -> None:
        self._workers = prod(cuts)
        self._nearest_first = lru_cache(maxsize=_ORDERS_KEPT)(
            lambda worker: nearest_first(worker, cuts, apart[worker] if apart else ())
        )

    def read(self, owned: Regions, tiling: Tiling | None, needed: Regions) -> Round:
        """The round in which workers get the regions of a tensor that they need.

        Args:
            owned: what they have.
            tiling: of the tensor; None of a constant, which all have.
            needed: by worker.
        """
        return Round(needed, self._copies((owned,), needed, tiling))

    def returned(
        self,
        parts: Sequence[Regions],
        made_as: Tiling,
        owned: Regions,
        tiling: Tiling,
        shape: Shape,
        *,
        is_by_part: bool = False,
    ) -> Way:
        """The way of a result from its makers to its owners.

        Args:
            parts: by part, what workers make; parts are disjoint.
            made_as: the tiling of all parts together.
            owned: what they are to have.
            tiling: of that.
            shape: of the tensor.
            is_by_part: whether contributions are joined part by part, in a round for each, where workers join boxes.
        """
        inside = settled(made_as, tiling)
        assert inside is not None, f"what is made as {made_as} cannot be owned as {tiling}"
        rounds = self._joins(parts, inside, tiling, shape, is_by_part=is_by_part) if inside.has_partial else []
        laid_out = tuple(exchange.regions for exchange in rounds) or tuple(parts)
        if laid_out != (owned,):
            rounds.append(Round(owned, self._copies(laid_out, owned, tiling)))
        return Way(tuple(rounds), partial_cuts(inside))

    def _joins(
        self, parts: Sequence[Regions], made_as: Tiling, tiling: Tiling, shape: Shape, *, is_by_part: bool
    ) -> list[Round]:
        middle = tuple(reduced_boxes(made_as, tiling, index_space(shape)))
        joined, contributions = contributors(made_as), dict[bytes, Contributions]()
        boxes_of: list[list[Box]] = []
        for worker in counted(range(self._workers), "making programs: sums of worker", self._workers):
            key = joined[worker].tobytes()  # most workers join what the same ones contribute
            if key not in contributions:
                contributions[key] = Contributions(parts, np.flatnonzero(joined[worker]).tolist())
            boxes_of.append(contributions[key].to(middle[worker]))
        groups = [boxes_of]
        if is_by_part:
            by_part = [[[box for box in boxes if box.part == part] for boxes in boxes_of] for part in range(len(parts))]
            # A worker that would join boxes of one part which lie apart has no buffer for those: then all at once.
            groups = by_part if all(map(_are_boxes, by_part)) else groups
        return [
            Round(tuple(map(_hull, boxes, middle)), tuple(map(tuple, boxes)), reducer_of(made_as)) for boxes in groups
        ]

    def _copies(self, parts: Sequence[Regions], needed: Regions, tiling: Tiling | None) -> tuple[tuple[Box, ...], ...]:
        """The boxes that each worker takes of a tensor that lies in parts, from the nearest."""
        held, givers = Holders(parts), self._givers(tiling)
        workers = counted(range(len(needed)), "making programs: sources of worker", self._workers)
        return tuple([() if needed[taker].is_empty else held.copied(needed[taker], givers(taker)) for taker in workers])

    def _givers(self, tiling: Tiling | None) -> Callable[[int], Sequence[int]]:
        """From whom a worker may copy a tensor, the nearest first: not other contributions to a sum."""
        if tiling is None or not tiling.has_partial:
            return self._nearest_first
        equal_holders = holders(tiling)
        return lambda worker: [giver for giver in self._nearest_first(worker) if equal_holders[worker][giver]]


def nearest_first(worker: int, ways: Sequence[int], apart: Sequence[float] = ()) -> tuple[int, ...]:
    """All workers, the nearest first: those that part from ``worker`` at an inner cut before those at an outer one.

    Among equally near ones the order starts behind the worker itself, so that several readers of a replicated
    tensor do not all turn to the same owner.

    Args:
        worker: the reader.
        ways: of the cuts, outermost first.
        apart: how far each worker is from the reader, 0 for itself, where more is known than the cuts; () if not.
    """
    order = [worker]
    first, stop = worker, worker + 1
    """Of the workers of the group so far, which follow each other."""
    size = 1
    for way in reversed(ways):
        size *= way
        start = worker // size * size
        order += [*range(stop, start + size), *range(start, first)]
        first, stop = start, start + size
    return tuple(sorted(order, key=apart.__getitem__) if apart else order)


class _Near:
    """The boxes that have a part in common with another one.

    Args:
        boxes: of one index space.
    """

    def __init__(self, boxes: Sequence[Region]) -> None:
        self._every = range(len(boxes))
        self._is_many = len(boxes) >= _MANY_BOXES
        if self._is_many:
            self._lo = np.array([box.lo for box in boxes], np.int64)
            self._hi = np.array([box.hi for box in boxes], np.int64)

    def to(self, box: Region) -> Sequence[int]:
        """Numbers of those that have; where they are few, of others, too."""
        if not self._is_many:
            return self._every
        numbers: list[int] = np.flatnonzero(((self._lo < box.hi) & (self._hi > box.lo)).all(axis=1)).tolist()
        return numbers


class Holders:
    """The holders of a tensor's parts.

    Args:
        parts: by part, what workers hold of it; parts are disjoint.
    """

    def __init__(self, parts: Sequence[Regions]) -> None:
        self._parts = parts
        self._each = [
            (worker, region, part)
            for part, regions in enumerate(parts)
            for worker, region in enumerate(regions)
            if not region.is_empty
        ]
        self._near = _Near([region for _, region, _ in self._each])

    def of(self, region: Region) -> Mapping[int, Sequence[tuple[Region, int]]]:
        """The parts, numbered, that hold some of a box, by worker; where holders are few, all parts of all."""
        parts_of: dict[int, list[tuple[Region, int]]] = {}
        for number in self._near.to(region):
            worker, held, part = self._each[number]
            parts_of.setdefault(worker, []).append((held, part))
        return parts_of

    def copied(self, region: Region, order: Sequence[int]) -> tuple[Box, ...]:
        """Covers a region with parts of its holders, the first in ``order`` that has a part giving it.

        Args:
            region: what is needed.
            order: workers, the preferred one first; the reader itself should lead.
        """
        reader = order[0]
        for part, regions in enumerate(self._parts):  # what the reader has needs no search among thousands
            if regions[reader] == region or regions[reader].contains(region):
                return (Box(region, (reader,), part),)
        parts_of = self.of(region)
        boxes: list[Box] = []
        missing = [region]
        for worker in order:
            for held, part in parts_of.get(worker, ()):
                remaining: list[Region] = []
                for box in missing:
                    common = box.intersect(held)
                    if common.is_empty:
                        remaining.append(box)
                    else:
                        boxes.append(Box(common, (worker,), part))
                        remaining.extend(box.subtract(common))
                missing = remaining
            if not missing:
                break
        assert not missing, f"nobody holds {missing[0]}"
        return tuple(boxes)


class Contributions:
    """Partial results, each with the workers that have a contribution to it, in their order.

    Args:
        parts: by part, what workers have contributions to; equal or disjoint regions.
        contributors: the workers whose results are joined.
    """

    def __init__(self, parts: Sequence[Regions], contributors: Iterable[int]) -> None:
        givers: dict[tuple[int, Region], list[int]] = {}
        for part, regions in enumerate(parts):
            for worker in sorted(contributors):
                if not regions[worker].is_empty:
                    givers.setdefault((part, regions[worker]), []).append(worker)
        self._boxes = [Box(region, tuple(workers), part) for (part, region), workers in givers.items()]
        self._near = _Near([box.region for box in self._boxes])

    def to(self, region: Region) -> list[Box]:
        """Covers a region by reducing the partial results.

        Args:
            region: what is needed.
        """
        near = [self._boxes[number] for number in self._near.to(region)]
        boxes = [Box(region.intersect(held), givers, part) for held, givers, part in near]
        boxes = [box for box in boxes if not box.region.is_empty]
        assert sum(box.region.elements for box in boxes) == region.elements, f"partial results do not cover {region}"
        return boxes


def _are_boxes(every: Sequence[Sequence[Box]]) -> bool:
    """Whether of each worker's boxes all together are one box."""
    return all(
        sum(box.region.elements for box in boxes) == _hull(boxes, boxes[0].region).elements for boxes in every if boxes
    )


def _hull(boxes: Iterable[Box], frame: Region) -> Region:
    """The smallest box around boxes; an empty one where there are none."""
    hull = frame if frame.is_empty else Region(frame.lo, frame.lo)
    for box in boxes:
        hull = hull.hull(box.region)
    return hull
