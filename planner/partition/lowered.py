"""The partitioned program before its work is gathered into segments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from planner.algebra.region import Region
from planner.artifacts.program import Buffer, Fetch
from planner.graph.core.model import Shape, Tensor
from planner.partition.local_work import LocalWork


@dataclass
class Epoch:
    """A round of fetches, and the work that follows it, by worker."""

    fetches: list[list[Fetch]]
    work: list[list[LocalWork]]


class Buffers(Mapping[str, Buffer]):
    """The buffers of a worker, which are made when they are asked for: most lie inside of segments, and never are.

    Args:
        regions: by name, the part of a tensor that the buffer holds.
        tensors: by name, of which tensor; the same on all workers.
    """

    def __init__(self, regions: Mapping[str, Region], tensors: Mapping[str, Tensor]) -> None:
        self._regions = regions
        self._tensors = tensors

    def __getitem__(self, name: str) -> Buffer:
        region, tensor = self._regions[name], self._tensors[name]
        return Buffer(name, tensor.name, region, region.shape if tensor.shape else (), tensor.dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self._regions)

    def __len__(self) -> int:
        return len(self._regions)

    def __contains__(self, name: object) -> bool:
        return name in self._regions

    def region(self, name: str) -> Region | None:
        """The part that a buffer holds; None if there is no such buffer."""
        return self._regions.get(name)

    def only(self, names: Set[str]) -> dict[str, Buffer]:
        """Those of these names, in order."""
        return {name: self[name] for name in self._regions if name in names}

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes of the parts, in order."""
        return tuple([region.shape for region in self._regions.values()])


@dataclass(frozen=True)
class Lowered:
    """The partitioned program, op by op."""

    epochs: tuple[Epoch, ...]
    buffers: tuple[Buffers, ...]
    """By worker."""
    fixed: tuple[Mapping[str, np.ndarray], ...]
    """By worker: parts of constants."""
    absent: tuple[tuple[str, ...], ...]
    """By worker: buffers for parts of constants whose values are not there; they are loaded before a run."""
    collected: tuple[tuple[str, ...], ...]
    """By worker: buffers that hold tiles of results and next states at the end."""

    @property
    def constants(self) -> frozenset[str]:
        """The buffers of any worker for parts of constants."""
        return frozenset().union(*self.fixed, *self.absent)


def sources_read(epochs: Sequence[Epoch]) -> Iterator[tuple[set[str], ...]]:
    """The buffers that fetches on any worker read, for every epoch, by worker."""
    for epoch in epochs:
        names_read: tuple[set[str], ...] = tuple(set() for _ in epoch.fetches)
        # Workers of a round share its pieces, and pieces their sources.
        pieces = {id(piece): piece for fetches in epoch.fetches for fetch in fetches for piece in fetch.pieces}
        for source in {id(source): source for piece in pieces.values() for source in piece.sources}.values():
            names_read[source.worker].add(source.buffer)
        yield names_read
