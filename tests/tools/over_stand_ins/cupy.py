"""What of CuPy is used, over the stand-ins for CUDA's libraries (``cuda_stand_in.py``): ``import cupy`` in a child.

Memory is the host's, copies are done at once, and a kernel of ours is noted as a launch and not executed.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np

_current = threading.local()


@functools.cache
def _library(name: str) -> ctypes.CDLL:
    return ctypes.CDLL(name)


def _call(name: str, *arguments: Any) -> None:
    code = getattr(_library("libcudart.so.13"), name)(*arguments)
    if code:
        raise CUDARuntimeError(f"{name}: {code}")


def _number(name: str) -> int:
    value = ctypes.c_int()
    _call(name, ctypes.byref(value))
    return value.value


def _handle(name: str, *arguments: Any) -> int:
    made = ctypes.c_void_p()
    _call(name, ctypes.byref(made), *arguments)
    return int(made.value or 0)


class CUDARuntimeError(RuntimeError):
    """A function of CUDA failed."""


class Device:
    """A GPU."""

    compute_capability = "90"

    def __init__(self, number: int) -> None:
        self.number = number

    def use(self) -> None:
        _call("cudaSetDevice", self.number)

    def __enter__(self) -> Device:
        value = ctypes.c_int()
        _call("cudaGetDevice", ctypes.byref(value))
        self.before = value.value
        self.use()
        return self

    def __exit__(self, *_: object) -> None:
        _call("cudaSetDevice", self.before)


class Stream:
    """A stream."""

    def __init__(self, non_blocking: bool = False) -> None:
        self.ptr = _handle("cudaStreamCreateWithFlags", ctypes.c_uint(non_blocking))

    def use(self) -> None:
        _current.stream = self

    def synchronize(self) -> None:
        _call("cudaStreamSynchronize", ctypes.c_void_p(self.ptr))

    def wait_event(self, event: Event) -> None:
        _call("cudaStreamWaitEvent", ctypes.c_void_p(self.ptr), ctypes.c_void_p(event.ptr), ctypes.c_uint(0))


class Event:
    """An event."""

    def __init__(self, block: bool = False, disable_timing: bool = False) -> None:
        self.ptr = _handle("cudaEventCreateWithFlags", ctypes.c_uint(0))

    def record(self, stream: Stream) -> None:
        _call("cudaEventRecord", ctypes.c_void_p(self.ptr), ctypes.c_void_p(stream.ptr))


def _copy(to: int, source: int, size: int, kind: int, stream: Stream | None) -> None:
    stream = stream or getattr(_current, "stream", None)
    pointers = [ctypes.c_void_p(to), ctypes.c_void_p(source)]
    pointer = ctypes.c_void_p(stream.ptr if stream is not None else 0)
    _call("cudaMemcpyAsync", *pointers, ctypes.c_size_t(size), ctypes.c_int(kind), pointer)


class Pointer:
    """A place in device memory."""

    def __init__(self, ptr: int) -> None:
        self.ptr = ptr

    def __add__(self, offset: int) -> Pointer:
        return Pointer(self.ptr + offset)


class ndarray:  # noqa: N801 -- CuPy's name
    """An array in device memory."""

    def __init__(self, shape: Any, dtype: Any, memptr: Pointer | None = None, strides: Any = None) -> None:
        like = np.empty(shape, dtype)
        self.shape, self.dtype, self.nbytes = like.shape, like.dtype, like.nbytes
        self.strides = like.strides if strides is None else strides
        self.data = memptr or alloc(self.nbytes)

    def reshape(self, shape: Any) -> ndarray:
        return ndarray(shape, self.dtype, self.data)

    def __getitem__(self, box: Any) -> ndarray:
        reach = 1 + sum((extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True))
        flat = np.frombuffer((ctypes.c_uint8 * (reach + self.dtype.itemsize)).from_address(self.data.ptr), np.uint8)
        view = np.lib.stride_tricks.as_strided(flat[: self.dtype.itemsize].view(self.dtype), self.shape, self.strides)
        part = view[box]
        return ndarray(part.shape, self.dtype, Pointer(part.__array_interface__["data"][0]), part.strides)

    def set(self, host: np.ndarray, stream: Stream | None = None) -> None:
        _copy(self.data.ptr, host.ctypes.data, self.nbytes, 1, stream)

    def get(self, stream: Stream | None = None, out: np.ndarray | None = None) -> None:
        assert out is not None
        _copy(out.ctypes.data, self.data.ptr, self.nbytes, 2, stream)


class RawKernel:
    """A kernel of ours."""

    def __init__(self, source: str, name: str, **_: Any) -> None:
        self.name = name

    def compile(self) -> None:
        """There is nothing to compile it with."""

    def __call__(self, grid: Any, block: Any, arguments: Any, stream: Stream, **_: Any) -> None:
        _library("libstandnotes.so").stand_in_launch(self.name.encode(), ctypes.c_void_p(stream.ptr))


def alloc(size: int) -> Pointer:
    """Device memory."""
    return Pointer(_handle("cudaMalloc", ctypes.c_size_t(size)))


def empty(shape: Any, dtype: Any) -> ndarray:
    """An array with whatever is there."""
    return ndarray(shape, dtype)


def asarray(host: np.ndarray) -> ndarray:
    """A copy of an array of the host."""
    array = ndarray(host.shape, host.dtype)
    array.set(np.ascontiguousarray(host))
    return array


def copyto(target: ndarray, source: ndarray) -> None:
    """Copies an array over another."""
    _copy(target.data.ptr, source.data.ptr, target.nbytes, 3, None)


def _peer_copy(target: int, _: int, source: int, __: int, size: int, stream: int) -> None:
    pointers = [ctypes.c_void_p(target), ctypes.c_void_p(source)]
    _call("cudaMemcpyAsync", *pointers, ctypes.c_size_t(size), ctypes.c_int(3), ctypes.c_void_p(stream))


def _memory() -> tuple[int, int]:
    unused, everything = ctypes.c_size_t(), ctypes.c_size_t()
    _call("cudaMemGetInfo", ctypes.byref(unused), ctypes.byref(everything))
    return unused.value, everything.value


cuda = SimpleNamespace(
    Device=Device,
    Stream=Stream,
    Event=Event,
    alloc=alloc,
    runtime=SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        getDeviceCount=lambda: _number("cudaGetDeviceCount"),
        driverGetVersion=lambda: _number("cudaDriverGetVersion"),
        runtimeGetVersion=lambda: _number("cudaRuntimeGetVersion"),
        memGetInfo=_memory,
        deviceCanAccessPeer=lambda one, other: 1,
        deviceEnablePeerAccess=lambda other: None,
        memcpyPeerAsync=_peer_copy,
    ),
)
