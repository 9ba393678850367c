"""Boxes that are moved, found and counted as the partitioner does (``planner.partition.lower``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.algebra.delivery import contributors, reduced_boxes, reducer_of
from planner.algebra.partial import holders, settled
from planner.algebra.region import Region
from planner.algebra.tiling import Partial, Reducer, Tiling
from planner.export.held import Held
from planner.graph.model import Shape
from planner.partition.fetches import Box, Contributions, copied, nearest_first


@dataclass(frozen=True, slots=True)
class Taken:
    """What workers take of a tensor in one go."""

    target: Held
    boxes: tuple[tuple[Box, ...], ...]
    """By worker."""
    reducer: Reducer | None = None

    @property
    def moved_elements(self) -> int:
        """What crosses between workers."""
        return sum(
            region.elements * sum(giver != worker for giver in givers)
            for worker, boxes in enumerate(self.boxes)
            for region, givers in boxes
        )


@dataclass(frozen=True, slots=True)
class Return:
    """How an output comes from where it is made to where it is owned: joined first, then copied."""

    rounds: tuple[Taken, ...]
    partial: frozenset[int]
    """Cuts whose groups' contributions are joined."""
    reducer: Reducer | None


class Counting:
    """Who takes what from whom.

    Args:
        ways: of the plan's cuts.
    """

    def __init__(self, ways: tuple[int, ...], workers: int) -> None:
        self._every = range(workers)
        self._order = [nearest_first(worker, ways) for worker in self._every]

    def read(self, owned: Held, tiling: Tiling | None, needed: Held) -> Taken:
        """What workers take of an input.

        Args:
            owned: what they have.
            tiling: of the tensor; None of a constant, which all have.
            needed: what they need.
        """
        return Taken(needed, self._copies(owned, needed.regions, self._givers(tiling)))

    def returned(self, made: Held, made_as: Tiling, owned: Held, tiling: Tiling, space: Shape) -> Return:
        """How an output comes home.

        Args:
            made: by whom which part is made.
            made_as: as a tiling.
            owned: where it is to be.
            tiling: of that.
            space: the tensor's index space.
        """
        inside = settled(made_as, tiling)
        assert inside is not None, f"what is made as {made_as} cannot be owned as {tiling}"
        partial = frozenset(cut for cut, one in enumerate(inside.placements) if isinstance(one, Partial))
        reducer, rounds, source = reducer_of(inside), [], made
        if partial:
            joined, middle = contributors(inside), Held.of(tuple(reduced_boxes(inside, tiling, space)))
            joining = [[one for one in self._every if joined[worker, one]] for worker in self._every]
            boxes = tuple(
                () if region.is_empty else tuple(Contributions(made.by_worker, joining[worker]).to(region))
                for worker, region in enumerate(middle.regions)
            )
            rounds.append(Taken(middle, boxes, reducer))
            source = middle
        if source.regions != owned.regions:
            givers = self._givers(tiling if tiling.has_partial else None)
            rounds.append(Taken(owned, self._copies(source, owned.regions, givers)))
        return Return(tuple(rounds), partial, reducer)

    def _copies(
        self, source: Held, regions: Sequence[Region], givers: Callable[[int], Sequence[int]]
    ) -> tuple[tuple[Box, ...], ...]:
        held = source.by_worker
        return tuple(
            () if region.is_empty else tuple(copied(region, held, givers(worker)))
            for worker, region in enumerate(regions)
        )

    def _givers(self, tiling: Tiling | None) -> Callable[[int], Sequence[int]]:
        if tiling is None or not tiling.has_partial:
            return self._order.__getitem__
        same = holders(tiling)
        return lambda worker: [other for other in self._order[worker] if same[worker][other]]
