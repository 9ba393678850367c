"""From boxes to fetches: who takes what from whom.

This file alone decides what moves; the tables of the search predict it. It decides it without names: a ``Round`` says
which workers take which boxes from which workers, and is the same for all equal ops of a network. Names are put in at
the end (``Round.fetches``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from planner.algebra.region import Region
from planner.algebra.tiling import Reducer
from planner.artifacts.program import Fetch, Piece, Source
from planner.counted import counted

NOTHING = -1
"""In the place of the number of a buffer's name: the worker has no such buffer."""
_MANY_BOXES: Final = 64
"""From so many on it is worth the while to look for those that have something in common with another."""
Box: TypeAlias = tuple[Region, tuple[int, ...]]
"""A box, and the workers that it is taken from."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Where a tensor lies, but for names; the same object for equal layouts, so that it is its own key."""

    regions: tuple[Region, ...]
    """By worker: which part it holds."""
    buffers: tuple[int, ...]
    """By worker: the number of the name of the buffer that holds it; ``NOTHING`` where it holds no part."""

    @property
    def held(self) -> dict[int, Region]:
        """The part of each worker that holds one."""
        return {worker: self.regions[worker] for worker, number in enumerate(self.buffers) if number != NOTHING}


class Near:
    """Which of some boxes have a part in common with another one.

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
        found: list[int] = np.flatnonzero(((self._lo < box.hi) & (self._hi > box.lo)).all(axis=1)).tolist()
        return found


class Holders:
    """Who holds which part of a tensor, and who of them a part of a box.

    Args:
        layout: how the tensor lies.
    """

    def __init__(self, layout: Layout) -> None:
        self.held = layout.held
        self._each = list(self.held.items())
        self._near = Near(list(self.held.values()))

    def of(self, region: Region) -> Mapping[int, Region]:
        """The parts of those that hold some of a box; where holders are few, of others, too.

        Args:
            region: the box.
        """
        return dict([self._each[number] for number in self._near.to(region)])


class Layouts:
    """The different layouts of a program."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[Region, ...], tuple[int, ...]], Layout] = {}

    def of(self, regions: Sequence[Region], buffers: Sequence[int]) -> Layout:
        """The layout of these parts in these buffers."""
        key = (tuple(regions), tuple(buffers))
        return self._known.setdefault(key, Layout(*key))


@dataclass(frozen=True, slots=True)
class Route:
    """What one worker takes in a round."""

    worker: int
    target: int
    """The number of the name of the buffer that it fills."""
    pieces: tuple[int, ...]
    """Numbers of the round's pieces."""
    moved_elements: int
    """Elements that it takes from other workers."""
    is_joined: bool
    """Whether a piece has several sources."""


@dataclass(frozen=True, slots=True)
class Round:
    """What several workers take of one tensor at the same time, but for names."""

    sources: tuple[tuple[int, int], ...]
    """Workers, and the numbers of the names of their buffers."""
    pieces: tuple[tuple[Region, tuple[int, ...]], ...]
    """Boxes, and the numbers of their sources."""
    routes: tuple[Route, ...]

    @classmethod
    def of(
        cls, taken: Sequence[tuple[int, int, Sequence[Box]]], buffers: Sequence[int] | Callable[[int, Region], int]
    ) -> Round:
        """The round in which workers take these boxes.

        Args:
            taken: workers, the number of the name of the buffer that each fills, and what it takes.
            buffers: by worker the number of the name of the buffer from which others take; or what says it by worker
                and box, where a worker has several.
        """
        number_of = buffers if callable(buffers) else lambda worker, _: buffers[worker]
        sources: dict[tuple[int, int], int] = {}
        pieces: dict[Box, int] = {}
        routes = []
        for worker, target, boxes in taken:
            routes.append(
                Route(
                    worker,
                    target,
                    tuple(pieces.setdefault(box, len(pieces)) for box in boxes),
                    sum(region.elements * (len(givers) - givers.count(worker)) for region, givers in boxes),
                    any(len(givers) > 1 for _, givers in boxes),
                )
            )
        known: dict[tuple[int, ...], tuple[int, ...]] = {}
        """By workers that a box is taken from: of a sum over thousands they are the same for all readers."""
        numbered = []
        for region, givers in pieces:
            numbers = None if callable(buffers) else known.get(givers)
            if numbers is None:
                numbers = tuple([sources.setdefault((one, number_of(one, region)), len(sources)) for one in givers])
                known[givers] = numbers
            numbered.append((region, numbers))
        return cls(tuple(sources), tuple(numbered), tuple(routes))

    def fetches(
        self, names: Sequence[str], targets: Sequence[str], reducer: Reducer | None, item_bytes: int
    ) -> list[tuple[int, Fetch]]:
        """The fetch of each worker.

        Args:
            names: of the buffers that are read, by number.
            targets: of the buffers that are filled, by number.
            reducer: how the sources of a piece are joined.
            item_bytes: size of an element.
        """
        sources = [Source(worker, names[number]) for worker, number in self.sources]
        taken = {id(numbers): numbers for _, numbers in self.pieces}
        sources_of = {key: tuple([sources[number] for number in numbers]) for key, numbers in taken.items()}
        pieces = [Piece(region, sources_of[id(numbers)]) for region, numbers in self.pieces]
        called = [f"fetch {target}" for target in targets]
        return [
            (
                route.worker,
                Fetch(
                    called[route.target],
                    targets[route.target],
                    tuple([pieces[number] for number in route.pieces]),
                    reducer if route.is_joined else None,
                    route.moved_elements * item_bytes,
                ),
            )
            for route in self.routes
        ]


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


def copied(region: Region, owners: Mapping[int, Region], order: Sequence[int]) -> list[Box]:
    """Covers a region with parts of its owners, the first in ``order`` that has a part giving it.

    Args:
        region: what is needed.
        owners: by worker the region that it holds.
        order: workers, the preferred one first; the reader itself should lead.
    """
    boxes: list[Box] = []
    missing = [region]
    for worker in order:
        held = owners.get(worker)
        if held is None:
            continue
        rest: list[Region] = []
        for box in missing:
            common = box.intersect(held)
            if common.is_empty:
                rest.append(box)
            else:
                boxes.append((common, (worker,)))
                rest.extend(box.subtract(common))
        missing = rest
        if not missing:
            break
    assert not missing, f"nobody owns {missing[0]}"
    return boxes


class Contributions:
    """Partial results, each with the workers that have a contribution to it, in their order.

    Args:
        makers: by worker the region of its partial result; equal or disjoint regions.
        contributors: the workers whose results are joined.
    """

    def __init__(self, makers: Mapping[int, Region], contributors: Sequence[int]) -> None:
        by_region: dict[Region, list[int]] = {}
        for worker in sorted(contributors):
            if worker in makers:
                by_region.setdefault(makers[worker], []).append(worker)
        self._boxes = [(region, tuple(workers)) for region, workers in by_region.items()]
        self._near = Near(list(by_region))

    def to(self, region: Region) -> list[Box]:
        """Covers a region by reducing the partial results.

        Args:
            region: what is needed.
        """
        near = [self._boxes[number] for number in self._near.to(region)]
        boxes = [(region.intersect(held), workers) for held, workers in near]
        boxes = [(common, workers) for common, workers in boxes if not common.is_empty]
        assert sum(common.elements for common, _ in boxes) == region.elements, f"partial results do not cover {region}"
        return boxes


@dataclass(frozen=True, slots=True)
class Need:
    """How workers come by what they need of a tensor as it lies."""

    buffers: tuple[int, ...]
    """By worker: the number of the name of the buffer that has just that; ``BROUGHT``, or ``NOTHING``."""
    brought: tuple[tuple[int, Region], ...]
    """Workers that have not just that, and what they need."""
    sliced: tuple[tuple[int, int, Region, Region], ...]
    """Of these, workers that hold more: the number of the buffer's name, what that holds, and what is needed of it."""
    taken: Round | None
    """What the rest of them takes."""


BROUGHT = -2
"""In the place of the number of a buffer's name: the worker has what it needs brought, or cut out of what it holds."""


def need(regions: Sequence[Region], layout: Layout, givers: Callable[[int], Sequence[int]]) -> Need:
    """How workers come by what they need.

    Args:
        regions: by worker, what it needs.
        layout: how the tensor lies.
        givers: by worker, from whom it may take parts, the preferred one first.
    """
    holders = Holders(layout)
    owners = holders.held
    buffers, brought, sliced, taken = [], [], [], []
    for worker in counted(range(len(regions)), "making programs: sources of worker", len(owners)):
        region = regions[worker]
        if region.is_empty:
            buffers.append(NOTHING)
            continue
        own = owners.get(worker)
        if own == region:
            buffers.append(layout.buffers[worker])
            continue
        buffers.append(BROUGHT)
        brought.append((worker, region))
        if own is not None and own.contains(region):
            sliced.append((worker, layout.buffers[worker], own, region))
        else:
            taken.append((worker, 0, copied(region, holders.of(region), givers(worker))))
    return Need(tuple(buffers), tuple(brought), tuple(sliced), Round.of(taken, layout.buffers) if taken else None)
