"""Moving boxes between workers: the one place where bytes cross, and where they are counted.

A transport binds a fetch once to the arrays that it will read and write, and then runs it in every iteration.
What a run returns is counted from the arrays that it copied, never from what the plan predicted: the comparison
of the two is the law of this project, and it is made by the caller.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from planner.algebra.region import Region
from planner.algebra.tiling import Reducer
from planner.artifacts.program import Fetch, Source

Box: TypeAlias = tuple[slice, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """A buffer's memory, seen as an array of its region's shape ((1,) for a scalar)."""

    array: Any
    """A NumPy array; on a GPU, CuPy's."""
    region: Region


Locate: TypeAlias = Callable[[Source], Tile]
"""Finds the memory of a buffer on any worker."""


class BoundFetch(ABC):
    """A fetch that knows its arrays."""

    @abstractmethod
    def run(self) -> int:
        """Assembles the target; returns the bytes that it took from other workers."""


class Transport(ABC):
    """The copies of arrays from one worker to another."""

    is_joining: ClassVar[bool] = False
    """True if fetches between which nothing must happen are better bound together (``together.py``)."""

    @abstractmethod
    def bind(self, fetch: Fetch, worker: int, locate: Locate) -> BoundFetch:
        """Prepares a fetch.

        Args:
            fetch: what is to be assembled.
            worker: the worker that assembles it, whose buffer ``fetch.target`` is filled.
            locate: finds the memory of sources and target; it stays the same for the life of the program.
        """

    def bind_together(self, fetches: Sequence[Fetch], worker: int, locate: Locate) -> Callable[[], tuple[int, ...]]:
        """Prepares fetches of a worker whose order among them does not matter.

        Returns:
            What runs all of them, and returns the bytes that each took from other workers.
        """
        runs = [self.bind(fetch, worker, locate).run for fetch in fetches]
        if len(runs) == 1:
            (run,) = runs
            return lambda: (run(),)
        return lambda: tuple(run() for run in runs)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The source of a piece: a box of an array."""

    array: np.ndarray
    box: Box
    is_remote: bool
    """True if the array is another worker's."""


class NumpyTransport(Transport):
    """Workers that share memory: a copy is a copy of an array slice."""

    def bind(self, fetch: Fetch, worker: int, locate: Locate) -> BoundFetch:
        """See ``Transport.bind``."""
        target = locate(Source(worker, fetch.target))
        pieces = []
        for piece in fetch.pieces:
            parts = []
            for source in piece.sources:
                tile = locate(source)
                parts.append(Part(tile.array, piece.region.within(tile.region), source.worker != worker))
            pieces.append((target.array[piece.region.within(target.region)], tuple(parts)))
        if type(self) is NumpyTransport:  # one that is derived from it may watch, or change, every piece
            return direct(pieces, fetch.reducer)
        return _NumpyFetch(self, tuple(pieces), fetch.reducer)

    def assemble(self, target: np.ndarray, parts: tuple[Part, ...], reducer: Reducer | None) -> int:
        """Fills one piece: a copy of one part, or several parts joined in the order given.

        Partial results in half precision are joined in float32 and rounded once.

        Returns:
            Bytes of the slices that were read from other workers' arrays.
        """
        slices = [part.array[part.box] for part in parts]
        if len(slices) == 1:
            np.copyto(target, slices[0])
        else:
            assert reducer is not None, "several sources and no reducer"
            _join(target, slices, _JOIN[reducer])
        return sum(slice_.nbytes for slice_, part in zip(slices, parts, strict=True) if part.is_remote)


@dataclass(frozen=True, slots=True, eq=False)
class _NumpyFetch(BoundFetch):
    transport: NumpyTransport
    pieces: tuple[tuple[np.ndarray, tuple[Part, ...]], ...]
    reducer: Reducer | None

    def run(self) -> int:
        moved = 0
        for target, parts in self.pieces:
            moved += self.transport.assemble(target, parts, self.reducer)
        return moved


def direct(pieces: Sequence[tuple[np.ndarray, tuple[Part, ...]]], reducer: Reducer | None) -> BoundFetch:
    """A fetch whose slices are cut once, when it is bound, and not in every iteration."""
    copies: list[tuple[np.ndarray, np.ndarray]] = []
    joins: list[tuple[np.ndarray, list[np.ndarray]]] = []
    moved = 0
    for target, parts in pieces:
        slices = [part.array[part.box] for part in parts]
        moved += sum(view.nbytes for view, part in zip(slices, parts, strict=True) if part.is_remote)
        if len(slices) == 1:
            copies.append((target, slices[0]))
        else:
            joins.append((target, slices))
    assert reducer is not None or not joins, "several sources and no reducer"
    return _DirectFetch(tuple(copies), tuple(joins), None if reducer is None else _JOIN[reducer], moved)


@dataclass(frozen=True, slots=True, eq=False)
class _DirectFetch(BoundFetch):
    copies: tuple[tuple[np.ndarray, np.ndarray], ...]
    joins: tuple[tuple[np.ndarray, list[np.ndarray]], ...]
    join: np.ufunc | None
    moved_bytes: int
    """Of the slices that are read from other workers' arrays."""

    def run(self) -> int:
        for target, view in self.copies:
            np.copyto(target, view)
        for target, slices in self.joins:
            assert self.join is not None
            _join(target, slices, self.join)
        return self.moved_bytes


_JOIN = {Reducer.SUM: np.add, Reducer.MAX: np.maximum, Reducer.MIN: np.minimum, Reducer.PROD: np.multiply}


def _join(target: np.ndarray, slices: list[np.ndarray], join: np.ufunc) -> None:
    is_half = target.dtype.itemsize == 2 and target.dtype.kind not in "iu"
    if not is_half:
        join(slices[0], slices[1], out=target)
        for part in slices[2:]:
            join(target, part, out=target)
        return
    wide = slices[0].astype(np.float32)
    for part in slices[1:]:
        join(wide, part.astype(np.float32), out=wide)
    target[...] = wide.astype(target.dtype)
