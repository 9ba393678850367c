"""Workers on NVIDIA GPUs: CuPy for memory, streams and the fetch kernel, ONNX Runtime's CUDA sessions for segments.

A worker has one stream and one block of device memory. Its sessions compute on that stream
(``user_compute_stream``), bound to raw device pointers; its fetches are one kernel each (``multifetch.py``), which
reads the other workers' memory directly: on the same GPU, or by peer access. Workers wait for each other by events on
their streams; the host waits once, at the end of an iteration. Several workers may share a GPU.

Sources: ONNX Runtime, "CUDA Execution Provider" (provider options, I/O binding); CuPy, "Low-level CUDA support";
CUDA C++ Programming Guide, "Unified Virtual Address Space" and "Peer-to-Peer Memory Access".
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from planner.algebra.tiling import Reducer
from planner.errors import UsageError
from planner.graph.model import DType
from planner.graph.protos import elem_type_of, numpy_dtype
from planner.program import Fetch, Segment, WorkerProgram
from planner.runtime import multifetch
from planner.runtime.backend import Backend, segment_model
from planner.runtime.exchange import Exchange, arena_of
from planner.runtime.sessions import carried_name, cuda_session
from planner.runtime.transport import BoundFetch, Locate, Transport
from planner.worker_model import WorkerModel

MakeSession = Callable[[Any, int, int], Any]
"""Makes a session of a model on a GPU (its number) and a stream (its address)."""


def devices_of(workers: int, device_map: Sequence[int] | None, count: int) -> tuple[int, ...]:
    """The GPU of each worker: as mapped, or in turn.

    Raises:
        UsageError: the map has another number of workers, or names a GPU that is not there.
    """
    if device_map is None:
        return tuple(worker % count for worker in range(workers))
    if len(device_map) != workers:
        raise UsageError(f"--map names {len(device_map)} GPUs, and the plan has {workers} workers")
    absent = sorted({device for device in device_map if not 0 <= device < count})
    if absent:
        raise UsageError(f"--map: there is no GPU {absent[0]}", facts=(f"GPUs found: {count}",))
    return tuple(device_map)


class CudaBackend(Backend):
    """Device memory, streams and sessions of all workers.

    Args:
        programs: of all workers.
        exchange: host memory that tiles come from and go to.
        devices: the GPU of each worker.
        cupy: the module, or what stands in for it.
        make_session: see ``MakeSession``.

    Raises:
        UsageError: GPUs that cannot reach each other's memory.
    """

    def __init__(
        self,
        programs: Sequence[WorkerProgram],
        exchange: Exchange,
        devices: Sequence[int],
        cupy: Any,
        make_session: MakeSession = cuda_session,
    ) -> None:
        self._exchange, self._devices, self._cupy, self._make_session = exchange, tuple(devices), cupy, make_session
        self._connect(cupy)
        self._streams: list[Any] = []
        self._memory: list[Any] = []
        self._arrays: list[dict[str, Any]] = []
        self._events: list[dict[int, Any]] = [{} for _ in programs]
        self._sessions: dict[tuple[int, str], Any] = {}
        for program in programs:
            with cupy.cuda.Device(self._devices[program.worker]):
                self._streams.append(cupy.cuda.Stream(non_blocking=True))
                arena = arena_of(program)
                block = cupy.cuda.alloc(max(arena.size_bytes, 1))
                self._memory.append(block)
                self._arrays.append(
                    {
                        name: cupy.ndarray(buffer.shape, stored(buffer.dtype), memptr=block + arena.offsets[name])
                        for name, buffer in program.buffers.items()
                    }
                )
        self.transport: Transport = MultiFetchTransport(cupy, self._devices, self._streams, programs)

    @property
    def session_count(self) -> int:  # type: ignore[override]  # read-only here
        """See ``Backend.session_count``. A session computes on one stream: each worker has its own."""
        return len(self._sessions)

    def arrays(self, model: WorkerModel) -> Mapping[str, Any]:
        """See ``Backend.arrays``."""
        worker = model.program.worker
        with self._cupy.cuda.Device(self._devices[worker]):
            for name in model.program.fixed:
                host = np.ascontiguousarray(model.constants[name]).reshape(model.program.buffers[name].shape)
                self._arrays[worker][name].set(plain(host))
        return self._arrays[worker]

    def segment(self, segment: Segment, model: WorkerModel, arrays: Mapping[str, Any]) -> Callable[[], int]:
        """See ``Backend.segment``."""
        worker = model.program.worker
        device, buffers, body = self._devices[worker], model.program.buffers, model.bodies[segment.function]
        key = (worker, segment.function)
        if key not in self._sessions:
            self._sessions[key] = self._make_session(segment_model(segment, model), device, self._streams[worker].ptr)
        session, options = self._sessions[key]
        binding = session.io_binding()
        for names, mine, bind in (
            (body.input, segment.inputs, binding.bind_input),
            (body.output, segment.outputs, binding.bind_output),
        ):
            for name, buffer in zip(names, mine, strict=True):
                dtype = buffers[buffer].dtype
                kind, called = elem_type_of(dtype.carrier), carried_name(name, dtype)
                bind(called, "cuda", device, kind, list(buffers[buffer].shape), arrays[buffer].data.ptr)

        def compute() -> int:
            session.run_with_iobinding(binding, options)
            return 0

        return compute

    def enter(self, worker: int) -> None:
        """See ``Backend.enter``: the thread's device and stream."""
        self._cupy.cuda.Device(self._devices[worker]).use()
        self._streams[worker].use()

    def done(self, worker: int, count: int) -> None:
        """See ``Backend.done``: an event marks the place in the worker's stream."""
        event = self._events[worker].get(count)
        if event is None:
            event = self._events[worker][count] = self._cupy.cuda.Event(block=False, disable_timing=True)
        event.record(self._streams[worker])

    def wait(self, worker: int, other: int, count: int) -> None:
        """See ``Backend.wait``: the stream waits, not the host."""
        self._streams[worker].wait_event(self._events[other][count])

    def end(self, worker: int) -> None:
        """See ``Backend.end``."""
        self._streams[worker].synchronize()

    def push(self, worker: int, buffers: Sequence[str]) -> None:
        """See ``Backend.push``."""
        stream = self._streams[worker]
        for name in buffers:
            self._arrays[worker][name].set(plain(self._exchange.array(worker, name)), stream=stream)
        stream.synchronize()

    def pull(self, worker: int, buffers: Sequence[str]) -> None:
        """See ``Backend.pull``."""
        stream = self._streams[worker]
        for name in buffers:
            host = self._exchange.array(worker, name)
            self._arrays[worker][name].get(stream=stream, out=plain(host))
        stream.synchronize()

    def copy(self, target: Any, source: Any) -> None:
        """See ``Backend.copy``."""
        self._cupy.copyto(target, source)

    def _connect(self, cupy: Any) -> None:
        """Gives every GPU access to the memory of every other one that is used."""
        refused = []
        for one, other in itertools.permutations(sorted(set(self._devices)), 2):
            if not cupy.cuda.runtime.deviceCanAccessPeer(one, other):
                refused.append(f"GPU {one} cannot read the memory of GPU {other}")
                continue
            with cupy.cuda.Device(one):
                try:
                    cupy.cuda.runtime.deviceEnablePeerAccess(other)
                except cupy.cuda.runtime.CUDARuntimeError as error:
                    if "AlreadyEnabled" not in str(error):
                        raise
        if refused:
            raise UsageError(
                "GPUs of --map cannot reach each other's memory",
                facts=tuple(refused),
                hint="map the workers to GPUs that can",
            )


class MultiFetchTransport(Transport):
    """Fetches as kernels on the reading worker's stream."""

    def __init__(
        self, cupy: Any, devices: Sequence[int], streams: Sequence[Any], programs: Sequence[WorkerProgram]
    ) -> None:
        self._cupy, self._devices, self._streams, self._programs = cupy, devices, streams, programs
        self._kernels: dict[tuple[int, DType, Reducer | None], Any] = {}

    def bind(self, fetch: Fetch, worker: int, locate: Locate) -> BoundFetch:
        """See ``Transport.bind``."""
        dtype = self._programs[worker].buffers[fetch.target].dtype
        table = multifetch.table_of(fetch, worker, locate, lambda array: int(array.data.ptr))
        key = (self._devices[worker], dtype, fetch.reducer)
        with self._cupy.cuda.Device(self._devices[worker]):
            if key not in self._kernels:
                source = multifetch.kernel_source(dtype, fetch.reducer)
                self._kernels[key] = self._cupy.RawKernel(source, multifetch.NAME)
            numbers = self._cupy.asarray(table.numbers)
        return _Launch(self._kernels[key], self._streams[worker], numbers, table.elements, table.moved_bytes)


class _Launch(BoundFetch):
    def __init__(self, kernel: Any, stream: Any, numbers: Any, elements: int, moved_bytes: int) -> None:
        self._kernel, self._stream, self._arguments = kernel, stream, (numbers,)
        self._grid, self._block = (multifetch.blocks(elements),), (multifetch.THREADS,)
        self._moved_bytes = moved_bytes

    def run(self) -> int:
        self._kernel(self._grid, self._block, self._arguments, stream=self._stream)
        return self._moved_bytes


def stored(dtype: DType) -> np.dtype[Any]:
    """The dtype of device memory: where CuPy has none, as for bfloat16, the bits are kept as unsigned integers."""
    return plain(np.empty(0, numpy_dtype(dtype))).dtype


def plain(array: np.ndarray) -> np.ndarray:
    """The array as ``stored`` has its elements."""
    return array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")
