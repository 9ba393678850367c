"""Fetches on NVIDIA GPUs: a kernel on the reading worker's stream (``multifetch.py``).

The kernel reads the other workers' memory directly: on the same GPU, or by peer access. Without access, what it reads
is copied to the reader's GPU first (``staging.py``).

Source: CUDA C++ Programming Guide, "Unified Virtual Address Space" and "Peer-to-Peer Memory Access".
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from planner.algebra.region import Region
from planner.algebra.tiling import Reducer
from planner.artifacts.program import Buffer, Fetch, Piece, Source, WorkerProgram
from planner.artifacts.waits import Waits, joined_waits
from planner.graph.core.model import DType
from planner.runtime.engine.core.together import launches
from planner.runtime.engine.core.transport import BoundFetch, Locate, Tile, Transport
from planner.runtime.engine.gpu.fetches import fetch_kernel
from planner.runtime.engine.gpu.fetches.fetch_kernel import Kind
from planner.runtime.engine.gpu.fetches.multifetch import work_list
from planner.runtime.engine.gpu.fetches.staging import Staging, staging_of


def connect(cupy: Any, devices: Collection[int]) -> frozenset[tuple[int, int]]:
    """Gives every GPU access to the memory of every other one that is used.

    Returns:
        Pairs (GPU, other GPU) where the first cannot read the second's memory.
    """
    pairs = list(itertools.permutations(sorted(set(devices)), 2))
    blind = blind_pairs(cupy, pairs)
    for reader, owner in pairs:
        if (reader, owner) in blind:
            continue
        with cupy.cuda.Device(reader):
            try:
                cupy.cuda.runtime.deviceEnablePeerAccess(owner)
            except cupy.cuda.runtime.CUDARuntimeError as error:
                if "AlreadyEnabled" not in str(error):
                    raise
    return blind


def blind_pairs(cupy: Any, pairs: Iterable[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """Those pairs (GPU, other GPU) where the first cannot read the second's memory."""
    return frozenset(pair for pair in pairs if not cupy.cuda.runtime.deviceCanAccessPeer(*pair))


def fetch_is_right(cupy: Any, device: int) -> bool:
    """Whether a fetch on a GPU gives the right numbers: two partial results, added; every part of its way is taken.

    Args:
        cupy: the module, or what stands in for it.
        device: the GPU.

    Raises:
        Exception: CuPy's own, of what cannot be compiled or launched.
    """
    region = Region((0,), (5000,))
    buffers = {name: Buffer(name, name, region, region.shape, DType.FLOAT32) for name in ("one", "other", "sum")}
    sources = Source(0, "one"), Source(0, "other")
    fetch = Fetch("trial", "sum", (Piece(region, sources),), Reducer.SUM, 0)
    program = WorkerProgram(0, buffers, (fetch,), ("one", "other"), (), ("sum",))
    numbers = np.arange(region.elements, dtype=np.float32)
    with cupy.cuda.Device(device):
        stream = cupy.cuda.Stream(non_blocking=True)
        arrays = {name: cupy.empty(region.shape, np.float32) for name in buffers}
        for name in ("one", "other"):
            arrays[name].set(numbers, stream=stream)
        transport = MultiFetchTransport(cupy, [device], [stream], [program], ())
        transport.bind_together([fetch], 0, lambda source: Tile(arrays[source.buffer], region))()
        sums = np.zeros_like(numbers)
        arrays["sum"].get(stream=stream, out=sums)
        stream.synchronize()
    return bool(np.array_equal(sums, 2 * numbers))


class MultiFetchTransport(Transport):
    """Fetches as kernels on the reading worker's stream, behind copies of what the kernel could not read.

    Fetches that are bound together are one launch, whatever their dtypes and reducers, behind the copies of all of
    them. A worker's launches run one after the other on its stream, so they share one staging block, of the size that
    the largest needs. It is reserved before the first of them is bound.

    Args:
        cupy: the module, or what stands in for it.
        devices: the GPU of each worker.
        streams: of each worker that fetches here.
        programs: of all workers.
        blind: pairs (GPU, other GPU) where the first cannot read the second's memory.
        waits: what each step of each worker waits for; None: as the programs say, if they are whole.
    """

    is_joining = True

    def __init__(
        self,
        cupy: Any,
        devices: Sequence[int],
        streams: Mapping[int, Any] | Sequence[Any],
        programs: Sequence[WorkerProgram],
        blind: Collection[tuple[int, int]],
        waits: Sequence[Waits] | None = None,
    ) -> None:
        self._cupy, self._devices, self._streams, self._programs = cupy, devices, streams, programs
        self._kernels: dict[tuple[int, tuple[Kind, ...]], Any] = {}
        self._far = [[w for w, owner in enumerate(devices) if (mine, owner) in blind] for mine in devices]
        self._waits = waits or (joined_waits(programs) if blind else ())
        self.staging_bytes = [0] * len(programs)
        """Of each worker's staging block; 0 where its GPU reads all that it needs."""
        self._blocks: dict[int, Any] = {}

    def reserve(self, worker: int) -> None:
        """Allocates the staging block of a worker whose GPU cannot read all that its fetches need."""
        if not self._far[worker]:
            return
        program = self._programs[worker]
        size = 0
        for numbers in launches(program, self._waits[worker], together=True):
            fetches = [step for step in program.steps[numbers.start : numbers.stop] if isinstance(step, Fetch)]
            size = max(size, self._staging(fetches, worker).size_bytes)
        if size:
            self.staging_bytes[worker] = size
            with self._cupy.cuda.Device(self._devices[worker]):
                self._blocks[worker] = self._cupy.cuda.alloc(size)

    def bind(self, fetch: Fetch, worker: int, locate: Locate) -> BoundFetch:
        """See ``Transport.bind``."""
        return _Alone(self.bind_together([fetch], worker, locate))

    def bind_together(self, fetches: Sequence[Fetch], worker: int, locate: Locate) -> Callable[[], tuple[int, ...]]:
        """See ``Transport.bind_together``. The kernel is compiled here, not at its first launch."""
        staging = self._staging(fetches, worker)
        assert staging.size_bytes <= self.staging_bytes[worker], "a launch that was not reserved for"
        copies = [
            _PeerCopy(
                self._blocks[worker].ptr + staged.offset_bytes,
                self._devices[worker],
                int(locate(staged.source).array.data.ptr) + staged.begin_bytes,
                self._devices[staged.source.worker],
                staged.size_bytes,
            )
            for staged in staging.ranges
        ]

        def address_of(array: Any) -> int:
            # No two GPUs use the same addresses, so an address tells whether it is one of those that are copied.
            address = int(array.data.ptr)
            for copy in copies:
                if copy.source <= address < copy.source + copy.size_bytes:
                    return copy.target + address - copy.source
            return address

        buffers = self._programs[worker].buffers
        work = work_list([(fetch, buffers[fetch.target].dtype) for fetch in fetches], worker, locate, address_of)
        stream = self._streams[worker]
        with self._cupy.cuda.Device(self._devices[worker]):
            kernel = self._kernel(self._devices[worker], work.kinds)
            items = self._cupy.empty(work.items.shape, np.int64)
            items.set(work.items, stream=stream)
        return _Launch(self._cupy.cuda.runtime.memcpyPeerAsync, copies, kernel, stream, items, work.moved_bytes).run

    def _kernel(self, device: int, kinds: tuple[Kind, ...]) -> Any:
        """The kernel, compiled for the current GPU."""
        if (device, kinds) not in self._kernels:
            kernel = self._cupy.RawKernel(fetch_kernel.kernel_source(kinds), fetch_kernel.NAME)
            kernel.compile()
            self._kernels[device, kinds] = kernel
        return self._kernels[device, kinds]

    def _staging(self, fetches: Sequence[Fetch], worker: int) -> Staging:
        return staging_of(fetches, self._far[worker], self._programs)


class _PeerCopy(NamedTuple):
    """The arguments of ``memcpyPeerAsync``, but for the stream."""

    target: int
    target_device: int
    source: int
    source_device: int
    size_bytes: int


class _Launch:
    def __init__(
        self,
        copy: Callable[..., None],
        copies: Sequence[_PeerCopy],
        kernel: Any,
        stream: Any,
        items: Any,
        moved_bytes: tuple[int, ...],
    ) -> None:
        self._copy, self._copies = copy, tuple(copies)
        self._kernel, self._stream = kernel, stream
        blocks, words = items.shape
        self._arguments = (items, np.int64(words))
        self._grid, self._block = (blocks,), (fetch_kernel.THREADS,)
        self._moved_bytes = moved_bytes

    def run(self) -> tuple[int, ...]:
        for copy in self._copies:
            self._copy(*copy, self._stream.ptr)
        self._kernel(self._grid, self._block, self._arguments, stream=self._stream)
        return self._moved_bytes


class _Alone(BoundFetch):
    def __init__(self, launch: Callable[[], tuple[int, ...]]) -> None:
        self._launch = launch

    def run(self) -> int:
        return sum(self._launch())
