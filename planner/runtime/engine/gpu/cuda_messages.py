"""GPUs across machines: what a rank's worker sends and receives goes by way of pinned memory of its host.

    sent        a kernel on the worker's stream packs the boxes that a step has made ready into a block on the GPU, one
                copy takes the block to pinned memory, the host waits for the stream, and the channel sends from there
    received    the channel fills pinned memory; before the fetches that read the boxes, on the same stream, one copy
                takes all boxes of their launch to the block on the GPU, where the kernel reads and counts them

The block is shared by all copies of a worker, which come one after the other on its stream. In pinned memory each box
has a place of its own for a whole iteration: nothing is written there twice before the iteration's end, which waits for
the stream and for all sends.

The host waits for the stream, and not for an event, before it sends. Only the host sees messages arrive, so it comes no
further than the next box that it needs anyway; an event would let it launch the steps up to there, but somebody would
have to ask for it while the host waits elsewhere.

Sources: CUDA Runtime API, cudaMemcpyAsync; CuPy, ``cupy.cuda.alloc_pinned_memory``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from planner.artifacts.program import Arena, Buffer, Fetch, Piece, Source, WorkerProgram
from planner.artifacts.waits import Waits
from planner.runtime.engine.core.exchange import Exchange, aligned, arena_of
from planner.runtime.engine.core.together import launches
from planner.runtime.engine.core.transport import BoundFetch, Locate, Tile, Transport
from planner.runtime.engine.gpu.cuda import CudaBackend, MakeSession, devices_of
from planner.runtime.engine.gpu.cuda_sessions import cuda_session, fix_cublas_workspace, sessions_on
from planner.runtime.engine.gpu.devices import require_cuda
from planner.runtime.engine.mpi.message_peers import Places, RankBackend
from planner.runtime.engine.mpi.messages import Message, Post
from planner.runtime.engine.mpi.world import World

_Run = Callable[[], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _Crossing:
    """Boxes that one copy takes between the GPU and pinned memory, where they lie alike."""

    boxes: tuple[tuple[Message, Buffer, int], ...]
    """Each as a buffer on the GPU, and where it begins, counted in bytes from the first."""
    begin_bytes: int
    """Of the first, in pinned memory."""
    size_bytes: int


def _crossings(
    program: WorkerProgram, messages: Iterable[Message], group: Callable[[Message], int], name: str, begin: int
) -> tuple[_Crossing, ...]:
    """Lays out messages: those of a group beside each other, one group behind the other.

    Args:
        program: of the worker that sends or receives them.
        messages: as in its post.
        group: those with the same number cross in one copy.
        name: of their buffers, but for a number.
        begin: of the first in pinned memory, in bytes.
    """
    crossings: list[_Crossing] = []
    count = 0
    for _, members in groupby(sorted(messages, key=group), key=group):
        boxes, size = [], 0
        for message in members:
            held = message.buffer
            if message.reader == program.worker:
                step = program.steps[message.before]
                assert isinstance(step, Fetch)
                held = step.target
            region, dtype = message.region, program.buffers[held].dtype
            boxes.append((message, Buffer(f"{name} {count}", held, region, region.shape, dtype), size))
            size, count = aligned(size + message.size_bytes), count + 1
        crossings.append(_Crossing(tuple(boxes), begin, size))
        begin += size
    return tuple(crossings)


class StagedBackend(CudaBackend, RankBackend):
    """The GPU of a rank's worker.

    Args:
        programs: of all workers; those of others may be empty.
        worker: the rank's.
        post: its messages.
        waits: what each of its steps waits for (``with_arrivals``).
        exchange: host memory that its tiles come from and go to.
        device: its GPU.
        cupy: the module, or what stands in for it.
        make_session: see ``MakeSession``.
    """

    def __init__(
        self,
        programs: Sequence[WorkerProgram],
        worker: int,
        post: Post,
        waits: Waits,
        exchange: Exchange,
        device: int,
        cupy: Any,
        make_session: MakeSession = cuda_session,
    ) -> None:
        program = programs[worker]
        longest = max(program.buffers, key=len, default="")  # no buffer of the program has a longer name
        launched = {step: steps.start for steps in launches(program, waits, together=True) for step in steps}
        arriving = _crossings(
            program, post.received, lambda message: launched[message.before], f"{longest} received", 0
        )
        size = sum(crossing.size_bytes for crossing in arriving)
        leaving = _crossings(program, post.sent, lambda message: message.after, f"{longest} sent", size)
        size += sum(crossing.size_bytes for crossing in leaving)
        self._worker, self._program = worker, _with_block(program, (*arriving, *leaving))
        all_programs = [self._program if peer.worker == worker else peer for peer in programs]
        super().__init__(all_programs, exchange, [device] * len(programs), cupy, make_session)
        with cupy.cuda.Device(device):
            self._host = np.frombuffer(cupy.cuda.alloc_pinned_memory(max(size, 1)), np.uint8, size)
        self._staging_bytes = size + arena_of(self._program).size_bytes - arena_of(program).size_bytes
        inner = self.transport
        self._departures: dict[int, _Run] = {}
        """By the number of the first message that leaves."""
        count = 0
        for crossing in leaving:
            self._departures[count] = self._departure(crossing, inner)
            count += len(crossing.boxes)
        arrivals: dict[str, _Run] = {}
        for crossing in arriving:
            names = (program.steps[message.before].name for message, *_ in crossing.boxes)
            arrivals |= dict.fromkeys(names, self._copy(crossing, is_leaving=False))
        self.transport = _StagedTransport(inner, _renamed(program, arriving), arrivals, self._find)
        places = {
            message: self._host[crossing.begin_bytes + begin :][: message.size_bytes]
            for crossing in (*arriving, *leaving)
            for message, _, begin in crossing.boxes
        }
        self.places = Places(
            [places[message] for message in post.sent], [places[message] for message in post.received], self._fill
        )

    @property
    def staging_bytes(self) -> tuple[int, ...]:  # type: ignore[override]  # read-only here
        """See ``Backend.staging_bytes``: pinned memory, and the block on the GPU."""
        return tuple(self._staging_bytes if worker == self._worker else 0 for worker in range(len(self._devices)))

    def wait(self, worker: int, peer: int, count: int) -> None:
        """See ``Backend.wait``: what the other one has sent is in this host's memory."""

    def _fill(self, numbers: range) -> None:
        """See ``Places.fill``; returns when the copies are done."""
        for number in numbers:
            if number in self._departures:
                self._departures[number]()
        self.end(self._worker)

    def _departure(self, crossing: _Crossing, transport: Transport) -> _Run:
        """What packs boxes into the block, and copies them to pinned memory."""
        packs = [
            Fetch(box.name, box.name, (Piece(box.region, (Source(self._worker, message.buffer),)),), None, 0)
            for message, box, _ in crossing.boxes
        ]
        pack = transport.bind_together(packs, self._worker, self._find)
        copy = self._copy(crossing, is_leaving=True)
        return lambda: pack() + copy()

    def _copy(self, crossing: _Crossing, *, is_leaving: bool) -> _Run:
        """A copy between the block and pinned memory, on the worker's stream."""
        runtime = self._cupy.cuda.runtime
        device = int(self.array(self._worker, crossing.boxes[0][1].name).data.ptr)
        host = int(self._host.ctypes.data) + crossing.begin_bytes
        target, source = (host, device) if is_leaving else (device, host)
        kind = runtime.memcpyDeviceToHost if is_leaving else runtime.memcpyHostToDevice
        stream = self._streams[self._worker].ptr

        def run() -> tuple[int, ...]:
            runtime.memcpyAsync(target, source, crossing.size_bytes, kind, stream)
            return ()

        return self._noticing(run, self._worker)

    def _find(self, source: Source) -> Tile:
        """Memory on this GPU: of the worker's buffers, and of boxes, whoever sends them."""
        region = self._program.buffers[source.buffer].region
        return Tile(self.array(self._worker, source.buffer).reshape(region.shape), region)


class _StagedTransport(Transport):
    """Another transport's fetches, behind the copies of what they read.

    Args:
        inner: where all is on one GPU.
        fetches: by name, as they read boxes in the block.
        arrivals: by the fetch's name, what copies its boxes there, and those of its launch.
        find: the memory of all that they read and write.
    """

    is_joining = True

    def __init__(
        self, inner: Transport, fetches: Mapping[str, Fetch], arrivals: Mapping[str, _Run], find: Locate
    ) -> None:
        self._inner, self._fetches, self._arrivals, self._find = inner, fetches, arrivals, find

    def bind(self, fetch: Fetch, worker: int, locate: Locate) -> BoundFetch:
        """See ``Transport.bind``."""
        raise AssertionError("fetches of a GPU are bound together")

    def bind_together(self, fetches: Sequence[Fetch], worker: int, locate: Locate) -> _Run:
        """See ``Transport.bind_together``."""
        launch = self._inner.bind_together([self._fetches[fetch.name] for fetch in fetches], worker, self._find)
        copies = {self._arrivals[fetch.name] for fetch in fetches if fetch.name in self._arrivals}
        if not copies:
            return launch
        (copy,) = copies  # laid out by the same rule as the launches
        return lambda: copy() + launch()


def _with_block(program: WorkerProgram, crossings: Sequence[_Crossing]) -> WorkerProgram:
    """A program with boxes as further buffers: all in one block behind its arena, which they use in turn."""
    arena = arena_of(program)
    begin = aligned(arena.size_bytes)
    boxes = [(box, begin + offset) for crossing in crossings for _, box, offset in crossing.boxes]
    size = begin + max((crossing.size_bytes for crossing in crossings), default=0)
    return replace(
        program,
        buffers={**program.buffers, **{box.name: box for box, _ in boxes}},
        arena=Arena(size, {**arena.offsets, **{box.name: offset for box, offset in boxes}}, arena.workspace_bytes),
    )


def _renamed(program: WorkerProgram, arriving: Sequence[_Crossing]) -> dict[str, Fetch]:
    """The fetches of a program by name, reading boxes that have arrived in place of buffers of other workers."""
    entries = (entry for crossing in arriving for entry in crossing.boxes)
    boxes = {(message.before, message.piece, message.part): box for message, box, _ in entries}
    fetches = {}
    for number, step in enumerate(program.steps):
        if isinstance(step, Fetch):
            pieces = []
            for index, piece in enumerate(step.pieces):
                sources = [
                    Source(source.worker, boxes[number, index, part].name)
                    if source.worker != program.worker
                    else source
                    for part, source in enumerate(piece.sources)
                ]
                pieces.append(Piece(piece.region, tuple(sources)))
            fetches[step.name] = replace(step, pieces=tuple(pieces))
    return fetches


def gpu_of_rank(world: World, device_map: Sequence[int], libraries: Sequence[Path]) -> Callable[..., StagedBackend]:
    """Finds the GPU of this rank's worker: as mapped, or in turn among the ranks of this machine.

    Args:
        world: the ranks.
        device_map: the GPU of each worker, on its machine; () where nobody says.
        libraries: of custom operators.

    Returns:
        ``StagedBackend``, but for what is known of the programs.

    Raises:
        UsageError: there is no such GPU, or it cannot be used.
    """
    fix_cublas_workspace()
    place = [rank for rank, host in enumerate(world.hosts) if host == world.host].index(world.rank)
    cupy, count = require_cuda(())
    device = devices_of(len(world.ranks), device_map, count)[world.worker] if device_map else place % count
    require_cuda([device])  # and no other: one that a process has tried keeps memory for it
    return partial(StagedBackend, device=device, cupy=cupy, make_session=sessions_on([device], libraries))
