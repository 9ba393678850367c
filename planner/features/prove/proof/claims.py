"""Claims on the contents of a buffer: which region of which tensor it holds, whole or in part.

A part of a sum is told by the terms of the op that sums, and of each term by boxes of the index set that it sums over.
Contributions are the whole if, term by term, their boxes are disjoint and cover the set (``Partial.with_others``).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from planner.algebra.region import Region
from planner.algebra.tiling import Reducer

Symbol: TypeAlias = Hashable
"""What stands for a tensor of the model: tensors that are equal by their ops have one."""
Box: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
Place: TypeAlias = tuple[int | None, ...]
"""Where an array begins in its tensor, by dim; None along a dim in which the tensor does not change."""

IDEMPOTENT = (Reducer.MAX, Reducer.MIN)
"""Reducers of which it does not matter if something is counted twice."""


@dataclass(frozen=True, slots=True)
class Partial:
    """Contributions to a reduction, and what all of it would be."""

    reducer: Reducer
    parts: tuple[tuple[Hashable, tuple[Box, ...]], ...]
    """By term, sorted, the disjoint boxes of its index set that are reduced."""
    extents: tuple[tuple[Hashable, tuple[int, ...]], ...]
    """By term, the index set's extents."""

    @property
    def is_whole(self) -> bool:
        held = dict(self.parts)
        return all(_covers(held.get(term, ()), extents) for term, extents in self.extents)

    def with_others(self, partials: Iterable[Partial]) -> Partial | str:
        """All contributions together; a text that says why they are none."""
        held: dict[Hashable, list[Box]] = {term: list(boxes) for term, boxes in self.parts}
        for partial in partials:
            if (partial.reducer, partial.extents) != (self.reducer, self.extents):
                return "contributions to different reductions are joined"
            for term, boxes in partial.parts:
                mine = held.setdefault(term, [])
                if self.reducer not in IDEMPOTENT and any(_meet(held_box, box) for held_box in mine for box in boxes):
                    return f"a contribution is counted twice: term {term}"
                mine.extend(box for box in boxes if box not in mine)
        return Partial(self.reducer, sorted_parts(held), self.extents)

    def lacking(self) -> str:
        """The missing contributions, in words."""
        held = dict(self.parts)
        for term, extents in self.extents:
            if not _covers(held.get(term, ()), extents):
                boxes = ", ".join(str(Region(*box)) for box in held.get(term, ())) or "nothing"
                return f"of term {term} over {Region.whole(extents)} it has {boxes}"
        return "nothing"


def sorted_parts(held: Mapping[Hashable, Sequence[Box]]) -> tuple[tuple[Hashable, tuple[Box, ...]], ...]:
    return tuple(sorted(((term, tuple(sorted(boxes))) for term, boxes in held.items()), key=repr))


def _meet(first: Box, second: Box) -> bool:
    return all(max(a, b) < min(c, d) for a, b, c, d in zip(first[0], second[0], first[1], second[1], strict=True))


def _covers(boxes: Sequence[Box], extents: tuple[int, ...]) -> bool:
    missing = [Region((0,) * len(extents), extents)] if extents else [Region((0,), (1,))]
    for lo, hi in boxes:
        held = Region(lo, hi) if extents else Region((0,), (1,))
        missing = [gap for box in missing for gap in box.subtract(held)]
    return not missing


@dataclass(frozen=True, slots=True)
class Claim:
    """An array holds a region of a tensor, or contributions to it."""

    tensor: Symbol
    lo: Place
    shape: tuple[int, ...]
    """Of the array: () for a scalar."""
    partial: Partial | None = None
    """None: the elements are final."""
    number: int = field(default=-1, compare=False)
    """Among those of a call that is followed."""

    def holds(self, region: Region) -> bool:
        """Whether a region of the tensor lies in the array; a scalar's is (1,)."""
        if not self.shape:
            return region.ends == ((0,), (1,))
        return len(self.lo) == region.rank and all(
            (first is None and size >= hi - lo) or (first is not None and first <= lo and hi <= first + size)
            for first, size, lo, hi in zip(self.lo, self.shape, *region.ends, strict=True)
        )

    def __str__(self) -> str:
        ends = ", ".join(
            f"any {size}" if first is None else f"{first}:{first + size}"
            for first, size in zip(self.lo, self.shape, strict=True)
        )
        kind = "" if self.partial is None else f", a part: {self.partial.lacking()}"
        return f"{self.tensor}[{ends}]{kind}"
