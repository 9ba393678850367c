"""Lanes: equal ops beside each other, of which a cut may give each worker some, whole (``Only``).

The lanes of an op are numbered, and a cut that gives them to workers divides their numbers as a dim is divided: of
eight lanes and cuts of 2, 2, 2 each worker has one. What one lane's op does is then done by one worker, while others
do theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from planner.algebra.tiling import Only, Placement, Tiling, pieces


@dataclass(frozen=True, slots=True)
class Lane:
    """The number of an op among equal ops beside each other."""

    number: int
    count: int
    """The number of lanes."""
    like: str = field(default="", compare=False)
    """The first lane's op in the same place."""
    of: str = field(default="", compare=False)
    """The name of all of these lanes together."""

    def owner(self, ways_before: tuple[int, ...], ways: int) -> Only | None:
        """The group that has this lane, if a cut gives lanes to workers; None where some group would have none.

        Args:
            ways_before: of the cuts outside of it that do so.
            ways: of the cut.
        """
        lo, hi = pieces(self.count, tuple((before, 1) for before in ways_before))
        if int((hi - lo).min()) < ways:
            return None
        lo, hi = pieces(self.count, (*((before, 1) for before in ways_before), (ways, 1)))
        return Only(int(np.flatnonzero((lo <= self.number) & (self.number < hi))[0]) % ways)

    def owned(self, tiling: Tiling) -> Tiling | None:
        """The tiling with this lane's owners wherever it has owners; None where lanes are too few for all of them."""
        placements: list[Placement] = []
        before: tuple[int, ...] = ()
        for placement, ways in zip(tiling.placements, tiling.ways, strict=True):
            if isinstance(placement, Only):
                owner = self.owner(before, ways)
                if owner is None:
                    return None
                placements.append(owner)
                before = (*before, ways)
            else:
                placements.append(placement)
        return Tiling(tuple(placements), tiling.ways)

    def most_of_a_worker(self, tiling: Tiling) -> int:
        """The number of lanes that a worker has at most, if all are divided like this one; all where none has owners.

        An owner that is not this lane's says nothing of the others: then it counts as one for all of them.
        """
        if self.owned(tiling) != tiling:
            return self.count
        cuts = zip(tiling.placements, tiling.ways, strict=True)
        lo, hi = pieces(self.count, tuple((ways, 1) for placement, ways in cuts if isinstance(placement, Only)))
        return int((hi - lo).max())


def has_owners(tiling: Tiling) -> bool:
    """Whether a cut gives something to one of its groups alone."""
    return any(isinstance(placement, Only) for placement in tiling.placements)


def without_owners(tiling: Tiling) -> Tiling:
    """The cuts that divide something or repeat it, without those that give it to some workers."""
    cuts = [
        (placement, ways)
        for placement, ways in zip(tiling.placements, tiling.ways, strict=True)
        if not isinstance(placement, Only)
    ]
    if len(cuts) == len(tiling.placements):
        return tiling
    return Tiling(tuple(placement for placement, _ in cuts), tuple(ways for _, ways in cuts))
