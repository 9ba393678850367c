"""A stand-in for CuPy: its streams are lazy, so that a missing wait between workers gives wrong numbers every time.

Nothing that is put on a stream is executed until somebody synchronises it, and then only what that needs. Memory and
events that are lent to other processes are opened in this very process here; ``cuda_ipc_child.py`` has processes.
"""

from __future__ import annotations

import ctypes
import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from functools import partial, reduce
from typing import Any

import numpy as np

from multifetch_emulation import all_kinds
from planner.algebra.tiling import Reducer
from planner.graph.core.model import DType
from planner.runtime.engine.core.sessions import SessionMaker
from planner.runtime.engine.gpu.cuda_form import CudaForm
from planner.runtime.engine.gpu.fetches.fetch_kernel import ARRAY_WORDS, Kind, Word


class FakeStream:
    """Work that is done when it must be."""

    by_address: dict[int, FakeStream] = {}  # noqa: RUF012 -- as streams are to a driver

    def __init__(self, non_blocking: bool = False) -> None:
        self.work: deque[Callable[[], None]] = deque()
        self.ptr = id(self)
        FakeStream.by_address[self.ptr] = self

    def use(self) -> None:
        FakeCupy.current.stream = self

    def put(self, work: Callable[[], None]) -> None:
        self.work.append(work)

    def wait_event(self, event: Any) -> None:
        recorded = FakeEvent.by_address[event.ptr].recorded
        assert recorded is not None, "the host let a stream wait for an event that nobody has recorded"
        self.put(recorded.reach)

    def synchronize(self) -> None:
        with FakeCupy.lock:
            while self.work:
                self.work.popleft()()


class Mark:
    """A place in a stream."""

    def __init__(self, stream: FakeStream) -> None:
        self.stream, self.is_reached = stream, False
        stream.put(self._pass)

    def _pass(self) -> None:
        self.is_reached = True

    def reach(self) -> None:
        while not self.is_reached:
            self.stream.work.popleft()()


class FakeEvent:
    by_address: dict[int, FakeEvent] = {}  # noqa: RUF012 -- as events are to a driver

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        assert disable_timing or not interprocess, "CUDA lends no event that tells the time"
        self.recorded: Mark | None = None
        self.is_timing = not disable_timing
        self.passed = math.nan
        """When the stream came to it."""
        self.is_lendable = interprocess
        self.ptr = id(self)
        FakeEvent.by_address[self.ptr] = self

    def record(self, stream: FakeStream) -> None:
        if self.is_timing:
            stream.put(self._pass)
        self.recorded = Mark(stream)

    def _pass(self) -> None:
        self.passed = time.perf_counter()


class FakeArray:
    """An array in device memory: only the stand-in's own functions touch what it holds."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, memptr: Any = None, view: np.ndarray | None = None) -> None:
        if view is None:
            size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            view = memptr.block[memptr.offset : memptr.offset + size].view(dtype).reshape(shape)
        self.view = view
        self.shape, self.dtype, self.strides, self.nbytes = view.shape, view.dtype, view.strides, view.nbytes

    @property
    def data(self) -> Any:
        return type("Pointer", (), {"ptr": self.view.ctypes.data})

    def __getitem__(self, box: Any) -> FakeArray:
        return FakeArray((), None, view=self.view[box])

    def reshape(self, shape: tuple[int, ...]) -> FakeArray:
        return FakeArray((), None, view=self.view.reshape(shape))

    def set(self, host: np.ndarray, stream: FakeStream | None = None) -> None:
        assert host.shape == self.shape
        assert host.dtype == self.dtype
        kept = host.copy()
        (stream or FakeCupy.current_stream()).put(lambda: np.copyto(self.view, kept))

    def get(self, stream: FakeStream, out: np.ndarray) -> None:
        stream.put(lambda: np.copyto(out, self.view))


class FakePointer:
    def __init__(self, block: np.ndarray, offset: int = 0) -> None:
        self.block, self.offset = block, offset

    @property
    def ptr(self) -> int:
        return int(self.block.ctypes.data) + self.offset

    def __add__(self, offset: int) -> FakePointer:
        return FakePointer(self.block, self.offset + offset)


class FakeKernel:
    """Interprets the items of fetches, as the kernel's code does; reads no memory that its GPU has no access to."""

    def __init__(self, runtime: FakeRuntime, source: str, name: str) -> None:
        self.runtime = runtime
        known = {str(kind): kind for kind in all_kinds()}
        self.kinds = [known[kind] for kind in re.findall(r"case \d+: run<(.*)>\(item\)", source)]
        assert self.kinds
        self.is_compiled = False

    def compile(self) -> None:
        self.is_compiled = True

    def __call__(self, grid: Any, block: Any, arguments: Any, stream: FakeStream) -> None:
        assert self.is_compiled, "a kernel that is compiled at its first launch holds the worker up"
        items, words = arguments
        assert (grid[0], words) == items.shape
        device = FakeDevice.current()
        stream.put(lambda: self.run(items.view, device))

    def run(self, items: np.ndarray, device: int) -> None:
        for item in items:
            kind = self.kinds[item[Word.KIND]]
            found = []
            for number in range(1 + item[Word.SOURCES]):
                first = Word.ARRAYS + number * ARRAY_WORDS
                address, row_stride, plane_stride = (int(word) for word in item[first : first + ARRAY_WORDS])
                if number:
                    owner = self.runtime.device_of(address)
                    assert (device, owner) not in self.runtime.blind, f"GPU {device} cannot read GPU {owner}"
                found.append(
                    self.array(kind, address, item[[Word.PLANES, Word.ROWS, Word.UNITS]], (plane_stride, row_stride))
                )
            target, *parts = found
            if kind.reducer is None:
                (target[...],) = parts
            else:
                joins = {Reducer.SUM: np.add, Reducer.MAX: np.maximum}[kind.reducer]
                held = np.float32 if kind.dtype in (DType.FLOAT16, DType.BFLOAT16) else target.dtype
                target[...] = reduce(joins, [part.astype(held) for part in parts])

    def array(self, kind: Kind, address: int, extents: np.ndarray, strides: tuple[int, int]) -> np.ndarray:
        """An array of an item: planes, rows, and the elements of its units (of a copy, its units)."""
        dtype = np.dtype(f"V{kind.unit_bytes}") if kind.dtype is None else kind.dtype.array_dtype
        planes, rows, units = (int(extent) for extent in extents)
        steps = [stride * kind.unit_bytes for stride in strides]
        reach = (planes - 1) * steps[0] + (rows - 1) * steps[1] + units * kind.unit_bytes
        raw = np.frombuffer((ctypes.c_uint8 * reach).from_address(address), np.uint8)
        shape = planes, rows, units * kind.unit_bytes // dtype.itemsize
        return np.lib.stride_tricks.as_strided(raw[: dtype.itemsize].view(dtype), shape, (*steps, dtype.itemsize))


class FakeDevice:
    def __init__(self, number: int) -> None:
        self.number = number

    @staticmethod
    def current() -> int:
        return getattr(FakeCupy.current, "device", 0)

    def use(self) -> None:
        FakeCupy.current.device = self.number

    def __enter__(self) -> None:
        self.before = self.current()
        self.use()

    def __exit__(self, *_: object) -> None:
        FakeCupy.current.device = self.before


def copy_bytes(target: int, source: int, size: int) -> None:
    ctypes.memmove(target, source, size)


def aligned_block(size: int, byte: int) -> np.ndarray:
    """Memory that begins where CUDA's does, at a multiple of 256 bytes."""
    block = np.full(size + 256, byte, np.uint8)
    begin = -block.ctypes.data % 256
    return block[begin : begin + size]


def holds(block: np.ndarray, address: int, size: int) -> bool:
    return bool(block.ctypes.data <= address and address + size <= block.ctypes.data + block.nbytes)


class FakeRuntime:
    CUDARuntimeError = RuntimeError
    memcpyHostToDevice = 1  # noqa: N815 -- CUDA's names
    memcpyDeviceToHost = 2  # noqa: N815

    def __init__(self, blind: Collection[tuple[int, int]] = ()) -> None:
        self.blind = blind
        self.enabled: list[tuple[int, int]] = []
        self.blocks: list[tuple[int, np.ndarray]] = []
        self.copied: list[tuple[int, int, int]] = []
        self.lendable: list[int] = []
        self.opened: list[tuple[int, int]] = []
        """GPUs, and the addresses of blocks that were opened for them."""
        self.pinned: list[np.ndarray] = []
        self.staged: list[tuple[int, int]] = []
        """Copies between pinned memory and a GPU: the kind, and the bytes."""

    def alloc(self, size: int) -> FakePointer:
        block = aligned_block(size, 0xA5)
        self.blocks.append((FakeDevice.current(), block))
        return FakePointer(block)

    def own(self, size: int) -> np.ndarray:
        """An allocation of the driver's own."""
        pointer = self.alloc(size)
        self.lendable.append(pointer.ptr)
        return pointer.block

    def unowned(self, address: int, size: int, owner: object, device: int) -> np.ndarray:
        """Memory that somebody else allocated: nobody may use it who has not opened it."""
        assert (FakeDevice.current(), address) in self.opened or (device, address) in self.opened
        (block,) = (block for _, block in self.blocks if block.ctypes.data == address)
        assert self.device_of(address, size) == device
        return block

    def ipcGetMemHandle(self, address: int) -> bytes:  # noqa: N802 -- CUDA's name
        assert address in self.lendable, "CUDA lends the memory around it, of which this would be some part"
        return address.to_bytes(64, "little")

    def ipcOpenMemHandle(self, handle: bytes, flags: int) -> int:  # noqa: N802 -- CUDA's name
        address = int.from_bytes(handle, "little")
        device = FakeDevice.current()
        assert (device, self.device_of(address)) not in self.blind, "CUDA refuses to open what cannot be read"
        self.opened.append((device, address))
        return address

    def ipcGetEventHandle(self, event: int) -> bytes:  # noqa: N802 -- CUDA's name
        assert FakeEvent.by_address[event].is_lendable
        return event.to_bytes(64, "little")

    def ipcOpenEventHandle(self, handle: bytes) -> int:  # noqa: N802 -- CUDA's name
        return int.from_bytes(handle, "little")

    def alloc_pinned_memory(self, size: int) -> np.ndarray:
        self.pinned.append(aligned_block(size, 0x5A))
        return self.pinned[-1]

    def device_of(self, address: int, size: int = 1) -> int:
        """The GPU whose memory has all of these bytes, in one block."""
        (device,) = (device for device, block in self.blocks if holds(block, address, size))
        return device

    def memGetInfo(self) -> tuple[int, int]:  # noqa: N802 -- CUDA's name
        used = sum(block.nbytes for device, block in self.blocks if device == FakeDevice.current())
        return FakeCupy.memory_bytes - used, FakeCupy.memory_bytes

    def deviceCanAccessPeer(self, one: int, other: int) -> int:  # noqa: N802 -- CUDA's name
        return int((one, other) not in self.blind)

    def deviceEnablePeerAccess(self, other: int) -> None:  # noqa: N802 -- CUDA's name
        self.enabled.append((FakeDevice.current(), other))

    def memcpyPeerAsync(  # noqa: N802 -- CUDA's name
        self, target: int, target_device: int, source: int, source_device: int, size: int, stream: int
    ) -> None:
        assert self.device_of(target, size) == target_device
        assert self.device_of(source, size) == source_device
        self.copied.append((target_device, source_device, size))
        FakeStream.by_address[stream].put(partial(copy_bytes, target, source, size))

    def memcpyAsync(self, target: int, source: int, size: int, kind: int, stream: int) -> None:  # noqa: N802
        """Between pinned memory and the current GPU; read and written when the stream comes to it."""
        host, device = (source, target) if kind == self.memcpyHostToDevice else (target, source)
        assert self.device_of(device, size) == FakeDevice.current()
        assert any(holds(block, host, size) for block in self.pinned), "memory of the host that is not pinned"
        self.staged.append((kind, size))
        FakeStream.by_address[stream].put(partial(copy_bytes, target, source, size))


class FakeCupy:
    """What of CuPy is used."""

    lock = threading.RLock()
    current = threading.local()
    null_stream = FakeStream()
    """What is put here without a stream is done when somebody synchronises this one: no stream of ours waits for it."""
    memory_bytes = 1 << 30

    def __init__(self, blind: Collection[tuple[int, int]] = ()) -> None:
        self.runtime = FakeRuntime(blind)
        members = {
            "Device": FakeDevice,
            "Stream": FakeStream,
            "Event": FakeEvent,
            "get_elapsed_time": lambda one, other: 1e3 * (other.passed - one.passed),
            "runtime": self.runtime,
            "alloc": self.runtime.alloc,
            "Memory": self.runtime.own,
            "UnownedMemory": self.runtime.unowned,
            "MemoryPointer": FakePointer,
            "alloc_pinned_memory": self.runtime.alloc_pinned_memory,
        }
        self.cuda = type("cuda", (), members)
        self.ndarray, self.RawKernel = FakeArray, partial(FakeKernel, self.runtime)

    @classmethod
    def current_stream(cls) -> FakeStream:
        return getattr(cls.current, "stream", cls.null_stream)

    def empty(self, shape: tuple[int, ...], dtype: Any) -> FakeArray:
        return FakeArray(shape, dtype, self.cuda.alloc(int(np.prod(shape)) * np.dtype(dtype).itemsize))

    def copyto(self, target: FakeArray, source: FakeArray) -> None:
        self.current_stream().put(lambda: np.copyto(target.view, source.view))


class FakeSession:
    """A session of the CPU that computes when its stream comes to it."""

    def __init__(self, session: Any, stream: int) -> None:
        self.session, self.stream = session, FakeStream.by_address[stream]

    def io_binding(self) -> Any:
        binding = self.session.io_binding()

        class Binding:
            inner = binding

            def bind_input(self, name: str, kind: str, device: int, *rest: Any) -> None:
                assert kind == "cuda"
                binding.bind_input(name, "cpu", 0, *rest)

            def bind_output(self, name: str, kind: str, device: int, *rest: Any) -> None:
                assert kind == "cuda"
                binding.bind_output(name, "cpu", 0, *rest)

        return Binding()

    def run_with_iobinding(self, binding: Any, options: Any) -> None:
        assert options == "asynchronous"
        self.stream.put(lambda: self.session.run_with_iobinding(binding.inner))


def fake_session(form: CudaForm, device: int, stream: int) -> tuple[Any, Any]:
    return FakeSession(SessionMaker(1).session(form.model), stream), "asynchronous"
