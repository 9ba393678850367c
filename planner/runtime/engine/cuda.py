"""Workers on NVIDIA GPUs: CuPy for memory, streams and the fetch kernel, ONNX Runtime's CUDA sessions for segments.

A worker has one stream and one block of device memory. Its sessions compute on that stream
(``user_compute_stream``), bound to raw device pointers; its fetches are kernels on it (``cuda_fetch.py``). Workers wait
for each other by events on their streams; the host waits once, at the end of an iteration. Several workers may share a
GPU.

Sources: ONNX Runtime, "CUDA Execution Provider" (provider options, I/O binding); CuPy, "Low-level CUDA support".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from planner.artifacts.program import Segment, WorkerProgram
from planner.artifacts.worker_model import WorkerModel
from planner.errors import UsageError
from planner.graph.model import DType
from planner.graph.protos import elem_type_of, numpy_dtype
from planner.runtime.engine.backend import Backend, BodyDigests, segment_model
from planner.runtime.engine.cuda_fetch import MultiFetchTransport, connect
from planner.runtime.engine.exchange import Exchange, arena_of
from planner.runtime.engine.sessions import carried_name, cuda_session

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
        blind = connect(cupy, self._devices)
        self._streams: list[Any] = []
        self._memory: list[Any] = []
        self._arrays: list[dict[str, Any]] = []
        self._events: list[dict[int, Any]] = [{} for _ in programs]
        self._bodies = BodyDigests()
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
        self.transport: MultiFetchTransport = MultiFetchTransport(cupy, self._devices, self._streams, programs, blind)

    @property
    def session_count(self) -> int:  # type: ignore[override]  # read-only here
        """See ``Backend.session_count``. A session computes on one stream: each worker has its own."""
        return len(self._sessions)

    @property
    def staging_bytes(self) -> tuple[int, ...]:  # type: ignore[override]  # read-only here
        """See ``Backend.staging_bytes``."""
        return tuple(self.transport.staging_bytes)

    def arrays(self, model: WorkerModel) -> Mapping[str, Any]:
        """See ``Backend.arrays``; also reserves the worker's staging block."""
        worker = model.program.worker
        with self._cupy.cuda.Device(self._devices[worker]):
            for name in model.program.fixed:
                host = np.ascontiguousarray(model.constants[name]).reshape(model.program.buffers[name].shape)
                self._arrays[worker][name].set(plain(host))
        self.transport.reserve(worker)
        return self._arrays[worker]

    def array(self, worker: int, buffer: str) -> Any:
        """See ``Backend.array``."""
        return self._arrays[worker][buffer]

    def segment(self, segment: Segment, model: WorkerModel, arrays: Mapping[str, Any]) -> Callable[[], tuple[int, ...]]:
        """See ``Backend.segment``."""
        worker = model.program.worker
        device, buffers, body = self._devices[worker], model.program.buffers, model.bodies[segment.function]
        key = (worker, self._bodies.of(segment, model))
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

        def compute() -> tuple[int, ...]:
            session.run_with_iobinding(binding, options)
            return ()

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


def stored(dtype: DType) -> np.dtype[Any]:
    """The dtype of device memory: where CuPy has none, as for bfloat16, the bits are kept as unsigned integers."""
    return plain(np.empty(0, numpy_dtype(dtype))).dtype


def plain(array: np.ndarray) -> np.ndarray:
    """The array as ``stored`` has its elements."""
    return array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")
