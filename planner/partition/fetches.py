"""Fetches made of rounds: buffers get numbers, and names at the end.

Who takes what from whom is found without buffers (``planner.partition.ways``). Here a ``Pattern`` says of a round which
buffers it reads and fills, by numbers of their names: it is the same for all equal ops of a network, so that of each
only names are put in (``Pattern.fetches``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from planner.algebra.region import Region
from planner.algebra.tiling import Reducer
from planner.artifacts.program import Fetch, Piece, Source
from planner.partition.ways import Box, Regions, Round, moved_elements

NOTHING: Final = -2
"""In the place of the number of a buffer's name: the worker has no such buffer."""
BROUGHT: Final = -1
"""The number of the last name: of the buffer for what is brought to a worker, or cut out of what it holds."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The layout of a tensor, but for names; the same object for equal layouts, so that it is its own key."""

    regions: Regions
    buffers: tuple[int, ...]
    """By worker: the number of the name of the buffer that holds it; ``NOTHING`` where it holds no part."""


class Layouts:
    """The different layouts of a program."""

    def __init__(self) -> None:
        self._known: dict[tuple[Regions, tuple[int, ...]], Layout] = {}

    def of(self, regions: Sequence[Region], buffers: Sequence[int]) -> Layout:
        """The layout of these parts in these buffers."""
        key = (tuple(regions), tuple(buffers))
        return self._known.setdefault(key, Layout(*key))


@dataclass(frozen=True, slots=True)
class Route:
    """The boxes that one worker takes."""

    worker: int
    target: int
    """The number of the name of the buffer that it fills."""
    pieces: tuple[int, ...]
    """Numbers of the pattern's pieces."""
    moved_elements: int
    """Elements that it takes from other workers."""
    is_joined: bool
    """Whether a piece has several sources."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """The fetches of a round, but for names."""

    sources: tuple[tuple[int, int], ...]
    """Workers, and the numbers of the names of their buffers."""
    pieces: tuple[tuple[Region, tuple[int, ...]], ...]
    """Boxes, and the numbers of their sources."""
    routes: tuple[Route, ...]
    reducer: Reducer | None
    """How the sources of a piece are joined."""

    @classmethod
    def of(cls, exchange: Round, targets: Sequence[int], buffers: Sequence[Sequence[int]]) -> Pattern:
        """The route of some workers in a round.

        Args:
            exchange: the round.
            targets: by worker, the number of the name of the buffer that it fills; ``NOTHING`` where it takes nothing.
            buffers: by part and worker, the number of the name of the buffer from which others take.
        """
        sources: dict[tuple[int, int], int] = {}
        pieces: dict[Box, int] = {}
        routes = []
        for worker, (target, boxes) in enumerate(zip(targets, exchange.boxes, strict=True)):
            if target != NOTHING:
                numbers = tuple([pieces.setdefault(box, len(pieces)) for box in boxes])
                is_joined = any(len(box.givers) > 1 for box in boxes)
                routes.append(Route(worker, target, numbers, moved_elements(worker, boxes), is_joined))
        source_numbers: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = {}
        """By workers that a box is taken from, and part: of a sum over thousands they are the same for all readers."""
        numbered = []
        for region, givers, part in pieces:
            if (givers, part) not in source_numbers:
                named = [(giver, buffers[part][giver]) for giver in givers]
                source_numbers[givers, part] = tuple([sources.setdefault(source, len(sources)) for source in named])
            numbered.append((region, source_numbers[givers, part]))
        return cls(tuple(sources), tuple(numbered), tuple(routes), exchange.reducer)

    def fetches(self, names: Sequence[str], item_bytes: int) -> list[tuple[int, Fetch]]:
        """The fetch of each worker.

        Args:
            names: of the buffers that are read and filled, by number.
            item_bytes: size of an element.
        """
        sources = [Source(worker, names[number]) for worker, number in self.sources]
        distinct = {id(numbers): numbers for _, numbers in self.pieces}
        sources_of = {key: tuple([sources[number] for number in numbers]) for key, numbers in distinct.items()}
        pieces = [Piece(region, sources_of[id(numbers)]) for region, numbers in self.pieces]
        called = [f"fetch {name}" for name in names]
        return [
            (
                route.worker,
                Fetch(
                    called[route.target],
                    names[route.target],
                    tuple([pieces[number] for number in route.pieces]),
                    self.reducer if route.is_joined else None,
                    route.moved_elements * item_bytes,
                ),
            )
            for route in self.routes
        ]


@dataclass(frozen=True, slots=True)
class Need:
    """The fetches that workers need of a tensor as it lies."""

    buffers: tuple[int, ...]
    """By worker: the number of the name of the buffer that has just that; ``BROUGHT``, or ``NOTHING``."""
    brought: tuple[tuple[int, Region], ...]
    """Workers that have not just that, and what they need."""
    sliced: tuple[tuple[int, int, Region, Region], ...]
    """Of these, workers that hold more: the number of the buffer's name, what that holds, and what is needed of it."""
    pattern: Pattern
    """What the rest of them takes."""

    @classmethod
    def of(cls, read: Round, layout: Layout) -> Need:
        """How workers come by what they take in a round, as far as they have not just that.

        Args:
            read: the round.
            layout: how the tensor lies.
        """
        buffers, brought, sliced, targets = [], [], [], [NOTHING] * len(read.regions)
        for worker, (region, boxes) in enumerate(zip(read.regions, read.boxes, strict=True)):
            held, number = layout.regions[worker], layout.buffers[worker]
            if region.is_empty or (number != NOTHING and held == region):
                buffers.append(NOTHING if region.is_empty else number)
                continue
            buffers.append(BROUGHT)
            brought.append((worker, region))
            if boxes == (Box(region, (worker,)),):
                sliced.append((worker, number, held, region))
            else:
                targets[worker] = BROUGHT
        return cls(tuple(buffers), tuple(brought), tuple(sliced), Pattern.of(read, targets, (layout.buffers,)))
