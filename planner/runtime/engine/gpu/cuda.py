"""Workers on NVIDIA GPUs: CuPy for memory, streams and the fetch kernel, ONNX Runtime's CUDA sessions for segments.

A worker has one stream and one block of device memory. Its sessions compute on that stream
(``user_compute_stream``), bound to raw device pointers; its fetches are kernels on it (``cuda_fetch.py``). Workers wait
for each other by events on their streams; the host waits once, at the end of an iteration. Several workers may share a
GPU.

Sources: ONNX Runtime, "CUDA Execution Provider" (provider options, I/O binding); CuPy, "Low-level CUDA support".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np

from planner.artifacts.on_gpus import CudaChanges, OnGpus
from planner.artifacts.program import Fetch, Segment, WorkerProgram
from planner.artifacts.worker_model import WorkerModel
from planner.errors import InfeasibleError, UsageError
from planner.graph.core.model import DType
from planner.graph.files.protos import elem_type_of
from planner.runtime.engine.core.backend import Backend, BodyDigests, segment_model
from planner.runtime.engine.core.exchange import Exchange, arena_of
from planner.runtime.engine.core.sessions import carried_name
from planner.runtime.engine.core.transport import BoundFetch, Locate, Transport
from planner.runtime.engine.gpu.cuda_form import CudaForm, cuda_form
from planner.runtime.engine.gpu.cuda_ipc import Apart, lent, opened_block, opened_event, own_block, own_event
from planner.runtime.engine.gpu.cuda_sessions import cuda_session
from planner.runtime.engine.gpu.fetches.cuda_fetch import MultiFetchTransport, blind_pairs, connect

MakeSession = Callable[[CudaForm, int, int], Any]
"""Makes a session of a model on a GPU (its number) and a stream (its address)."""
DEBUG_SYNC: Final = "TOFU_DEBUG_SYNC"
"""The environment's variable with which the host waits after every step."""


def devices_of(workers: int, device_map: Sequence[int] | None, count: int) -> tuple[int, ...]:
    """The GPU of each worker: as mapped, or in turn.

    Raises:
        UsageError: the map has another number of workers, or names a GPU that is not there.
    """
    if device_map is None:
        return tuple(worker % count for worker in range(workers))
    if len(device_map) != workers:
        raise UsageError(f"--device cuda: {len(device_map)} GPUs are named, and the plan has {workers} workers")
    absent = sorted({device for device in device_map if not 0 <= device < count})
    if absent:
        raise UsageError(f"--device cuda: there is no GPU {absent[0]}", facts=(f"GPUs found: {count}",))
    return tuple(device_map)


class CudaBackend(Backend):
    """Device memory, streams and sessions of all workers.

    Args:
        programs: of all workers.
        exchange: host memory that tiles come from and go to.
        devices: the GPU of each worker.
        cupy: the module, or what stands in for it.
        make_session: see ``MakeSession``.
        apart: the worker that is alone in this process, and how it meets the others; None: all workers are here.
    """

    def __init__(
        self,
        programs: Sequence[WorkerProgram],
        exchange: Exchange,
        devices: Sequence[int],
        cupy: Any,
        make_session: MakeSession = cuda_session,
        apart: Apart | None = None,
    ) -> None:
        self._exchange, self._devices, self._cupy, self._make_session = exchange, tuple(devices), cupy, make_session
        workers = range(len(programs)) if apart is None else (apart.worker,)
        self._used: Final = sorted({self._devices[worker] for worker in workers})
        self._streams: dict[int, Any] = {}
        self._blocks: dict[int, Any] = {}
        self._events: dict[int, dict[int, Any]] = {program.worker: {} for program in programs}
        self._bodies = BodyDigests()
        self._sessions: dict[tuple[int, str], Any] = {}
        self._is_waiting = os.environ.get(DEBUG_SYNC, "0") not in ("", "0")
        self._forms: list[CudaForm] = []
        for worker in workers:
            with cupy.cuda.Device(self._devices[worker]):
                self._streams[worker] = cupy.cuda.Stream(non_blocking=True)
                size = arena_of(programs[worker]).size_bytes
                try:
                    self._blocks[worker] = cupy.cuda.alloc(max(size, 1)) if apart is None else own_block(cupy, size)
                except MemoryError as error:  # CuPy's is one
                    raise self._too_large(worker, size) from error
        if apart is None:
            blind, waits = connect(cupy, self._devices), None
        else:
            mine = self._devices[apart.worker]
            blind = blind_pairs(cupy, ((mine, device) for device in sorted(set(self._devices) - {mine})))
            waits = apart.waits
            self._meet(programs, apart, blind)
        self._arrays = {program.worker: self._arrays_of(program) for program in programs}
        fetches = MultiFetchTransport(cupy, self._devices, self._streams, programs, blind, waits)
        self.transport: Transport = _NoticingTransport(fetches, self._noticing)
        self._fetches = fetches
        self._unused_bytes = self._free_bytes()

    def _too_large(self, worker: int, size: int) -> InfeasibleError:
        free, total = self._cupy.cuda.runtime.memGetInfo()
        return InfeasibleError(
            f"GPU {self._devices[worker]} has too little memory for worker {worker}",
            facts=(f"its tensors take {size:,} bytes", f"free are {free:,} of {total:,} bytes"),
            hint="plan for more GPUs, a smaller batch or with --memory, and leave room for what ONNX Runtime takes",
        )

    def _meet(self, programs: Sequence[WorkerProgram], apart: Apart, blind: Collection[tuple[int, int]]) -> None:
        """Lends what this process's worker has, and opens what the others lend."""
        cupy, mine = self._cupy, self._devices[apart.worker]
        with cupy.cuda.Device(mine):
            events = {count: own_event(cupy) for count in sorted(apart.awaited)}
            self._events[apart.worker] = events
            loans = apart.meet(lent(cupy, self._blocks[apart.worker], events))
            for program in programs:
                peer, owner = program.worker, self._devices[program.worker]
                if peer != apart.worker and program.buffers:
                    opener = owner if (mine, owner) in blind else mine
                    size = arena_of(program).size_bytes
                    self._blocks[peer] = opened_block(cupy, loans[peer].block, size, owner, opener)
            for peer, count in sorted({wait for step in apart.waits[apart.worker] for wait in step.items()}):
                self._events[peer][count] = opened_event(cupy, loans[peer].events[count])

    def _arrays_of(self, program: WorkerProgram) -> dict[str, Any]:
        """The arrays of a worker's buffers, in its block."""
        if not program.buffers:
            return {}
        block, offsets = self._blocks[program.worker], arena_of(program).offsets
        return {
            name: self._cupy.ndarray(buffer.shape, stored(buffer.dtype), memptr=block + offsets[name])
            for name, buffer in program.buffers.items()
        }

    @property
    def session_count(self) -> int:  # type: ignore[override]  # read-only here
        """See ``Backend.session_count``. A session computes on one stream: each worker has its own."""
        return len(self._sessions)

    @property
    def staging_bytes(self) -> tuple[int, ...]:  # type: ignore[override]  # read-only here
        """See ``Backend.staging_bytes``."""
        return tuple(self._fetches.staging_bytes)

    def arrays(self, model: WorkerModel) -> Mapping[str, Any]:
        """See ``Backend.arrays``; also reserves the worker's staging block.

        Constants go by the worker's own stream: it does not wait for the stream of all, which other copies take.
        """
        worker = model.program.worker
        stream = self._streams[worker]
        with self._cupy.cuda.Device(self._devices[worker]):
            for name in model.program.fixed:
                host = np.ascontiguousarray(model.constants[name]).reshape(model.program.buffers[name].shape)
                self._arrays[worker][name].set(plain(host), stream=stream)
            stream.synchronize()
        self._fetches.reserve(worker)
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
            form = cuda_form(segment_model(segment, model))
            self._forms.append(form)
            self._sessions[key] = self._make_session(form, device, self._streams[worker].ptr)
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

        return self._noticing(compute, worker)

    def on_gpus(self) -> OnGpus:
        """See ``Backend.on_gpus``."""
        free_bytes = self._free_bytes()
        used_bytes = tuple((device, max(0, free - free_bytes[device])) for device, free in self._unused_bytes.items())
        return OnGpus(CudaChanges.of(self._forms), used_bytes)

    def _free_bytes(self) -> dict[int, int]:
        by_device = {}
        for device in self._used:
            with self._cupy.cuda.Device(device):
                by_device[device] = int(self._cupy.cuda.runtime.memGetInfo()[0])
        return by_device

    def _noticing(self, run: Callable[[], tuple[int, ...]], worker: int) -> Callable[[], tuple[int, ...]]:
        """A step that tells what its failure means: kernels fail when they are executed, and are noticed later."""
        stream, is_waiting = self._streams[worker], self._is_waiting

        def noticed() -> tuple[int, ...]:
            try:
                moved = run()
                if is_waiting:
                    stream.synchronize()
            except Exception as error:
                raise _with_sync_hint(error, is_waiting=is_waiting) from error
            return moved

        return noticed

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

    def wait(self, worker: int, peer: int, count: int) -> None:
        """See ``Backend.wait``: the stream waits, not the host."""
        self._streams[worker].wait_event(self._events[peer][count])

    def end(self, worker: int) -> None:
        """See ``Backend.end``."""
        try:
            self._streams[worker].synchronize()
        except Exception as error:
            raise _with_sync_hint(error, is_waiting=self._is_waiting) from error

    def mark(self, worker: int) -> Any:
        """See ``Backend.mark``: a place in the worker's stream; the host is there long before the GPU."""
        event = self._cupy.cuda.Event()
        event.record(self._streams[worker])
        return event

    def seconds(self, worker: int, marks: Sequence[Any]) -> Sequence[float]:
        """See ``Backend.seconds``: since the first of them."""
        return [1e-3 * self._cupy.cuda.get_elapsed_time(marks[0], mark) for mark in marks]

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


def _with_sync_hint(error: Exception, *, is_waiting: bool) -> Exception:
    """The error, and whether the step that is named is the one that failed."""
    if is_waiting:
        return error
    return RuntimeError(
        f"{type(error).__name__}: {error} (noticed in this step; kernels of an earlier one may have failed: "
        f"{DEBUG_SYNC}=1 waits after every step, and names the right one)"
    )


class _NoticingTransport(Transport):
    """Another transport, whose fetches tell what their failures mean."""

    def __init__(
        self, inner: Transport, noticing: Callable[[Callable[[], tuple[int, ...]], int], Callable[[], tuple[int, ...]]]
    ) -> None:
        self._inner, self._noticing = inner, noticing

    @property
    def is_joining(self) -> bool:  # type: ignore[override]  # the inner one's
        """See ``Transport.is_joining``."""
        return self._inner.is_joining

    def bind(self, fetch: Fetch, worker: int, locate: Locate) -> BoundFetch:
        """See ``Transport.bind``."""
        return self._inner.bind(fetch, worker, locate)

    def bind_together(self, fetches: Sequence[Fetch], worker: int, locate: Locate) -> Callable[[], tuple[int, ...]]:
        """See ``Transport.bind_together``."""
        return self._noticing(self._inner.bind_together(fetches, worker, locate), worker)


def stored(dtype: DType) -> np.dtype[Any]:
    """The dtype of device memory: where CuPy has none, as for bfloat16, the bits are kept as unsigned integers."""
    return plain(np.empty(0, dtype.array_dtype)).dtype


def plain(array: np.ndarray) -> np.ndarray:
    """The array as ``stored`` has its elements."""
    return array if array.dtype.isbuiltin == 1 else array.view(f"u{array.dtype.itemsize}")
