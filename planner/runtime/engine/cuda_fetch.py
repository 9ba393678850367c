"""Fetches on NVIDIA GPUs: a kernel on the reading worker's stream (``multifetch.py``).

The kernel reads the other workers' memory directly: on the same GPU, or by peer access. Without access, what it reads
is copied to the reader's GPU first (``staging.py``).

Source: CUDA C++ Programming Guide, "Unified Virtual Address Space" and "Peer-to-Peer Memory Access".
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from planner.algebra.tiling import Reducer
from planner.artifacts.program import Fetch, WorkerProgram
from planner.graph.model import DType
from planner.runtime.engine import multifetch
from planner.runtime.engine.staging import Staging, staging_of
from planner.runtime.engine.transport import BoundFetch, Locate, Transport


def connect(cupy: Any, devices: Collection[int]) -> frozenset[tuple[int, int]]:
    """Gives every GPU access to the memory of every other one that is used.

    Returns:
        Pairs (GPU, other GPU) where the first cannot read the second's memory.
    """
    blind = set()
    for one, other in itertools.permutations(sorted(set(devices)), 2):
        if not cupy.cuda.runtime.deviceCanAccessPeer(one, other):
            blind.add((one, other))
            continue
        with cupy.cuda.Device(one):
            try:
                cupy.cuda.runtime.deviceEnablePeerAccess(other)
            except cupy.cuda.runtime.CUDARuntimeError as error:
                if "AlreadyEnabled" not in str(error):
                    raise
    return frozenset(blind)


class MultiFetchTransport(Transport):
    """Fetches as kernels on the reading worker's stream, behind copies of what the kernel could not read.

    A worker's fetches run one after the other on its stream, so they share one staging block, of the size that the
    largest needs. It is reserved before the first of them is bound.

    Args:
        cupy: the module, or what stands in for it.
        devices: the GPU of each worker.
        streams: of each worker.
        programs: of all workers.
        blind: pairs (GPU, other GPU) where the first cannot read the second's memory.
    """

    def __init__(
        self,
        cupy: Any,
        devices: Sequence[int],
        streams: Sequence[Any],
        programs: Sequence[WorkerProgram],
        blind: Collection[tuple[int, int]],
    ) -> None:
        self._cupy, self._devices, self._streams, self._programs = cupy, devices, streams, programs
        self._kernels: dict[tuple[int, DType, Reducer | None], Any] = {}
        self._far = [[w for w, other in enumerate(devices) if (mine, other) in blind] for mine in devices]
        self.staging_bytes = [0] * len(programs)
        """Of each worker's staging block; 0 where its GPU reads all that it needs."""
        self._blocks: dict[int, Any] = {}

    def reserve(self, worker: int) -> None:
        """Allocates the staging block of a worker whose GPU cannot read all that its fetches need."""
        fetches = (step for step in self._programs[worker].steps if isinstance(step, Fetch))
        size = max((self._staging(fetch, worker).size_bytes for fetch in fetches), default=0)
        if size:
            self.staging_bytes[worker] = size
            with self._cupy.cuda.Device(self._devices[worker]):
                self._blocks[worker] = self._cupy.cuda.alloc(size)

    def bind(self, fetch: Fetch, worker: int, locate: Locate) -> BoundFetch:
        """See ``Transport.bind``."""
        dtype = self._programs[worker].buffers[fetch.target].dtype
        copies = [
            _PeerCopy(
                self._blocks[worker].ptr + staged.offset_bytes,
                self._devices[worker],
                int(locate(staged.source).array.data.ptr) + staged.begin_bytes,
                self._devices[staged.source.worker],
                staged.size_bytes,
            )
            for staged in self._staging(fetch, worker).ranges
        ]

        def address_of(array: Any) -> int:
            # No two GPUs use the same addresses, so an address tells whether it is one of those that are copied.
            address = int(array.data.ptr)
            for copy in copies:
                if copy.source <= address < copy.source + copy.size_bytes:
                    return copy.target + address - copy.source
            return address

        table = multifetch.table_of(fetch, worker, locate, address_of)
        key = (self._devices[worker], dtype, fetch.reducer)
        with self._cupy.cuda.Device(self._devices[worker]):
            if key not in self._kernels:
                source = multifetch.kernel_source(dtype, fetch.reducer)
                self._kernels[key] = self._cupy.RawKernel(source, multifetch.NAME)
            numbers = self._cupy.asarray(table.numbers)
        copy = self._cupy.cuda.runtime.memcpyPeerAsync
        return _Launch(copy, copies, self._kernels[key], self._streams[worker], numbers, table)

    def _staging(self, fetch: Fetch, worker: int) -> Staging:
        return staging_of(fetch, self._far[worker], self._programs)


class _PeerCopy(NamedTuple):
    """The arguments of ``memcpyPeerAsync``, but for the stream."""

    target: int
    target_device: int
    source: int
    source_device: int
    size_bytes: int


class _Launch(BoundFetch):
    def __init__(
        self,
        copy: Callable[..., None],
        copies: Sequence[_PeerCopy],
        kernel: Any,
        stream: Any,
        numbers: Any,
        table: multifetch.FetchTable,
    ) -> None:
        self._copy, self._copies = copy, tuple(copies)
        self._kernel, self._stream, self._arguments = kernel, stream, (numbers,)
        self._grid, self._block = (multifetch.blocks(table.elements),), (multifetch.THREADS,)
        self._moved_bytes = table.moved_bytes

    def run(self) -> int:
        for one in self._copies:
            self._copy(*one, self._stream.ptr)
        self._kernel(self._grid, self._block, self._arguments, stream=self._stream)
        return self._moved_bytes
