"""The partitioned program: what each worker does, as data.

The partitioner writes it, the runtime executes it, and it alone says what a plan moves. A program is a list of
steps in the order of the original ops: segments (compute: a function of standard operators, on local buffers)
and fetches (communication: one assembly of a region from boxes on this worker and on others). As grammar::

    program ::= worker* input* output* state*
    worker  ::= buffer* loaded* fixed* collected* step* arena
    buffer  ::= name tensor region shape dtype               the part of a tensor that this worker has
    step    ::= fetch | segment
    fetch   ::= name target piece* [reducer] bytes           fills the target from pieces that do not overlap
    piece   ::= region source | region source source*        copied; or reduced, in the order of the workers
    source  ::= worker buffer
    segment ::= name function input* output* op*             local ops between fetches: one call of the runtime
    arena   ::= size (buffer offset)* workspace
    region  ::= [lo:hi, ...]                                 half open, in coordinates of the whole tensor

Buffers of a tensor ``h`` are named by their place on its way from maker to readers::

    h@made       as its op makes it here: the final value, or a partial result
    h@reduced    partial results reduced into disjoint parts, where the owners' parts overlap
    h            the part that this worker owns by the plan's tiling
    h@Relu.y.0   fetched for input 0 of the op Relu.y; a reader that needs no more than ``h`` reads ``h`` itself

All regions are in the coordinates of the whole tensor; a scalar's index space is (1,). An epoch is a round of fetches
that wait for nothing but segments before them, and the segment behind: the same on all workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from planner.algebra.region import Region
from planner.algebra.tiling import Reducer
from planner.graph.core.model import DType, Shape, StatePair


@dataclass(frozen=True, slots=True)
class Buffer:
    """A worker's array that holds one region of one tensor."""

    name: str
    """Unique on the worker. The same name on two workers holds the same kind of thing (their tile of ``tensor``)."""
    tensor: str
    """The tensor of the model that it holds a part of."""
    region: Region
    """Which part; never empty."""
    shape: Shape
    """Shape of the array: the region's, and () where the tensor is a scalar."""
    dtype: DType

    @property
    def size_bytes(self) -> int:
        return self.region.elements * self.dtype.item_bytes


@dataclass(frozen=True, slots=True)
class Source:
    """A buffer on some worker."""

    worker: int
    buffer: str


@dataclass(frozen=True, slots=True)
class Piece:
    """A box of a fetch: copied from one source, or reduced over several in the order given."""

    region: Region
    """Lies in the fetched region and in the region of every source."""
    sources: tuple[Source, ...]
    """One, or the contributors of a reduction in worker order."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """Assembles a buffer on this worker from disjoint pieces that cover its region."""

    name: str
    """Unique on the worker; says what it is for."""
    target: str
    """The buffer that it fills."""
    pieces: tuple[Piece, ...]
    reducer: Reducer | None
    """How the sources of a piece are joined; None where every piece has one source."""
    predicted_bytes: int
    """Bytes that it takes from other workers: for every piece its bytes, once per source on another worker."""

    @property
    def sources(self) -> tuple[Source, ...]:
        """The buffers, here and on other workers, that it reads."""
        return tuple(dict.fromkeys(source for piece in self.pieces for source in piece.sources))

    def taken_bytes(self, item_bytes: int) -> dict[int, int]:
        """The bytes that the fetch takes from each worker, its own included, of elements of so many bytes."""
        bytes_from: dict[int, int] = {}
        for piece in self.pieces:
            size = piece.region.elements * item_bytes
            for source in piece.sources:
                bytes_from[source.worker] = bytes_from.get(source.worker, 0) + size
        return bytes_from


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of local ops between fetches: one call of a function."""

    name: str
    """Unique on the worker."""
    function: str
    """Name of the body; equal bodies on equal shapes have one name, on all workers."""
    inputs: tuple[str, ...]
    """Buffers, by position of the function's inputs."""
    outputs: tuple[str, ...]
    ops: tuple[str, ...]
    """The model's ops that it computes a part of, in order; for messages."""


Step: TypeAlias = Fetch | Segment


@dataclass(frozen=True)
class Arena:
    """The one block of memory that holds all buffers of a worker."""

    told: ClassVar = "size_bytes workspace_bytes offsets"

    size_bytes: int
    offsets: Mapping[str, int]
    """Where each buffer begins, in bytes. Buffers that are never needed at the same time may overlap; a next state may
    lie where the state lies, and is then written in place."""
    workspace_bytes: int
    """What the tensors inside of segments take at most, beside the arena; the runtime that executes a segment
    allocates them."""

    def misplaced(self, buffers: Mapping[str, Buffer]) -> list[str]:
        """Findings about buffers, by name, that do not lie in the arena, or not where their elements may begin."""
        findings = []
        for name, buffer in buffers.items():
            start = self.offsets.get(name)
            if start is None:
                findings.append(f"buffer {name!r} has no place in the arena")
            elif start < 0 or start + buffer.size_bytes > self.size_bytes or start % buffer.dtype.item_bytes:
                findings.append(f"buffer {name!r} does not lie in the arena of {self.size_bytes} bytes")
        return findings


@dataclass(frozen=True)
class WorkerProgram:
    """All that one worker does in one iteration."""

    worker: int
    buffers: Mapping[str, Buffer]
    """Every buffer that its steps name, and those that are only loaded or only collected."""
    steps: tuple[Step, ...]
    loaded: tuple[str, ...]
    """Buffers filled from outside before an iteration: tiles of data and state."""
    fixed: tuple[str, ...]
    """Buffers filled once, from the worker model's initializers: parts of constants."""
    collected: tuple[str, ...]
    """Buffers that hold tiles of results and next states after an iteration."""
    arena: Arena | None = None
    """Where the buffers lie; None: each has memory of its own."""

    @property
    def arena_bytes(self) -> int:
        """The bytes of the buffers."""
        if self.arena is not None:
            return self.arena.size_bytes
        return sum(buffer.size_bytes for buffer in self.buffers.values())

    @property
    def workspace_bytes(self) -> int:
        """The bytes of tensors inside of segments beside that, at most; 0 where nobody has computed it."""
        return 0 if self.arena is None else self.arena.workspace_bytes


@dataclass(frozen=True)
class Program:
    """The partitioned program of a whole plan."""

    workers: tuple[WorkerProgram, ...]
    inputs: tuple[str, ...]
    """Data and state tensors of the model, in its order."""
    outputs: tuple[str, ...]
    """Results and next states of the model, in its order."""
    state: tuple[StatePair, ...]
    """The tiles of a state and of its next value have equal regions on each worker."""

    @property
    def predicted_bytes(self) -> int:
        """The bytes that one iteration moves between workers."""
        return sum(step.predicted_bytes for worker in self.workers for step in worker.steps if isinstance(step, Fetch))

    @property
    def peak_bytes(self) -> tuple[int, ...]:
        """The bytes of each worker's tensors: its arena, and beside it the tensors inside of a segment."""
        return tuple(worker.arena_bytes + worker.workspace_bytes for worker in self.workers)

    @property
    def soybean_bytes(self) -> int:
        """``predicted_bytes`` in SoyBean's convention (section 2.2): with the parts that workers have already."""
        total = 0
        for worker in self.workers:
            for step in worker.steps:
                if isinstance(step, Fetch) and step.predicted_bytes:
                    item_bytes = worker.buffers[step.target].dtype.item_bytes
                    total += sum(piece.region.elements * len(piece.sources) * item_bytes for piece in step.pieces)
        return total
