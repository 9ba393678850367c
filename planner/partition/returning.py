"""The last pass of an op: its results are brought from where they are made to where they are owned."""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass
from typing import TypeAlias

from planner.algebra.region import Region
from planner.algebra.tiling import Tiling
from planner.artifacts.program import Fetch
from planner.graph.core.model import is_used
from planner.partition.draft import Draft
from planner.partition.fetches import NOTHING, Pattern
from planner.partition.ways import Regions, Round, Way, Ways

_MUCH = 32
"""A fetch gets an epoch of its own if it frees more than 1/32 of the bytes that a worker holds before the first op."""
_OWN = 0
"""The number of the name of a tensor's own tiles."""

Filled: TypeAlias = tuple[int, tuple[tuple[int, Region], ...]]
"""The number of a buffer's name; workers that have the buffer, and what it holds."""


@dataclass(frozen=True, slots=True)
class Home:
    """The way of a result from its makers to its owners; names are numbered."""

    labels: tuple[str, ...]
    """By number, what a name has behind the tensor's."""
    sources: tuple[tuple[int, ...], ...]
    """By part and worker: the buffer that its op fills; ``NOTHING`` where it makes no part."""
    filled: tuple[Filled, ...]
    """Buffers that fetches fill: on which workers, and with what."""
    rounds: tuple[Pattern, ...]
    early: int
    """How many of the rounds, the first ones, join one part each while others are still made."""
    freed_elements: int
    """By how many the largest part that is made is larger than the largest tile."""


class Returns:
    """Brings results home.

    Args:
        draft: the program.
        ways: who takes what from whom.
    """

    def __init__(self, draft: Draft, ways: Ways) -> None:
        self._draft = draft
        self._ways = ways
        self._limit = max(sum(buffer.size_bytes for buffer in buffers.values()) for buffers in draft.buffers) // _MUCH
        """A fetch that frees more bytes than this gets an epoch of its own."""
        self._following = {pair.following for pair in draft.graph.state}
        self._homes: dict[object, Home] = {}

    def home(
        self,
        name: str,
        division: Hashable,
        parts: Sequence[Regions],
        made_as: Tiling,
        busy: Set[int],
        labels: Sequence[str],
        *,
        is_by_part: bool = False,
    ) -> Home:
        """The way of a result to its owners; equal ones are found once.

        Args:
            name: of the tensor.
            division: of the op that makes it, and which of its outputs that is.
            parts: by part, what workers make of it.
            made_as: the tiling in which it is made, all parts together.
            busy: workers that make something.
            labels: of parts that are made, behind the tensor's name.
            is_by_part: whether contributions may be joined part by part.
        """
        graph, owned = self._draft.graph, self._draft.plan.tilings[name]
        is_read = is_used(graph, name)
        key = division, owned, is_read
        if key not in self._homes:
            tiles, way, joined = self._draft.tiles(name).regions, Way((), ()), made_as.has_partial
            if is_read:  # what nobody reads is never brought anywhere
                shape = graph.tensors[name].shape
                way = self._ways.returned(parts, made_as, tiles, owned, shape, is_by_part=is_by_part)
                joined = bool(way.joined)
            is_own = not joined and len(parts) == 1
            numbers = tuple(
                tuple(
                    NOTHING if worker not in busy else _OWN if is_own and tiles[worker] == region else part
                    for worker, region in enumerate(regions)
                )
                for part, regions in enumerate(parts, 1)
            )
            self._homes[key] = _numbered(way.rounds, parts, numbers, tiles, ("", *labels))
        return self._homes[key]

    def names(self, name: str, home: Home) -> list[str]:
        """The names of a result's buffers, by number."""
        return [name if number == _OWN else self._draft.derived(name + to) for number, to in enumerate(home.labels)]

    def result_buffers(self, name: str, home: Home, regions: Regions) -> list[str | None]:
        """Adds the buffers in which workers make a result in one part; by worker the name, None where it makes none."""
        names, [numbers] = self.names(name, home), home.sources
        for number, parts in _grouped(numbers, regions):
            self._draft.add_buffer(names[number], name, parts)
        return [None if number == NOTHING else names[number] for number in numbers]

    def fetches(self, name: str, home: Home) -> list[list[tuple[int, Fetch]]]:
        """Adds the buffers in which a result comes home; by round the fetches that bring it."""
        names = self.names(name, home)
        for number, parts in home.filled:
            self._draft.add_buffer(names[number], name, parts)
        return [pattern.fetches(names, self._draft.item_bytes(name)) for pattern in home.rounds]

    def expect(
        self, name: str, home: Home, rounds: Sequence[Sequence[tuple[int, Fetch]]], *, is_at_once: bool = False
    ) -> None:
        """Notes that a result lies where it is owned once the fetches of some rounds are done.

        They are done when somebody needs it; earlier where that frees memory, and in an epoch of their own where it
        frees much.

        Args:
            name: of the result.
            home: how it comes home.
            rounds: the last ones on its way.
            is_at_once: whether they are to be done next, whatever they free.
        """
        draft = self._draft
        if not is_used(draft.graph, name):
            return
        draft.own(name)
        draft.pending[name] = [fetch for fetches in rounds for fetch in fetches]
        if draft.pending[name] and name not in self._following:
            if is_at_once or home.freed_elements > 0:
                draft.returning.append(name)
            if is_at_once or home.freed_elements * draft.item_bytes(name) > self._limit:
                draft.start_epoch()


def _numbered(
    rounds: Sequence[Round],
    parts: Sequence[Regions],
    numbers: tuple[tuple[int, ...], ...],
    tiles: Regions,
    labels: tuple[str, ...],
) -> Home:
    """Gives rounds the numbers of buffers.

    Args:
        rounds: that bring a result home.
        parts: by part, what workers make.
        numbers: of the buffers in which it is made.
        tiles: what workers are to have.
        labels: of those buffers; such for joined parts are added.
    """
    joins = sum(exchange.reducer is not None for exchange in rounds)
    joined: list[list[int]] = []
    filled: list[Filled] = []
    patterns = []
    for number, exchange in enumerate(rounds):
        regions = exchange.regions
        if number < joins:
            labels = (*labels, "@reduced" + (f".{number}" if joins > 1 else ""))
            middle = len(labels) - 1
            # What a worker joins for itself alone lies where it is owned; of several parts each has a buffer.
            targets = [
                NOTHING if region.is_empty else _OWN if joins == 1 and region == tile else middle
                for region, tile in zip(regions, tiles, strict=True)
            ]
            sources: Sequence[Sequence[int]] = numbers
            joined.append(targets)
        else:
            sources = joined or numbers
            places = sources[0] if len(sources) == 1 else [NOTHING] * len(regions)
            targets = [
                NOTHING if region.is_empty or at == _OWN else _OWN for region, at in zip(regions, places, strict=True)
            ]
        patterns.append(Pattern.of(exchange, targets, sources))
        filled += _grouped(targets, regions)
    largest = max(region.elements for regions in parts for region in regions)
    freed = largest - max((region.elements for region in tiles), default=0)
    return Home(labels, numbers, tuple(filled), tuple(patterns), max(0, joins - 1), freed)


def _grouped(numbers: Sequence[int], regions: Regions) -> list[Filled]:
    """Buffers by number, from the numbers of workers' buffers."""
    parts_of: dict[int, list[tuple[int, Region]]] = {}
    for worker, (number, region) in enumerate(zip(numbers, regions, strict=True)):
        if number != NOTHING:
            parts_of.setdefault(number, []).append((worker, region))
    return [(number, tuple(parts)) for number, parts in parts_of.items()]
