"""A worker's process of the engine ``processes`` over the stand-in for CuPy: ``python cuda_ipc_child.py FOLDER``.

What it lends lies in files of the folder, which another process maps: the handle of a block is its file's name. What
is put on a stream is done at once, so that nothing is left for another process to do; that streams wait for events is
tried where they are lazy, in ``tests/runtime/test_cuda_ipc.py``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fake_cupy import FakeCupy, FakeDevice, FakeKernel, FakePointer, FakeRuntime, FakeStream, fake_session
from planner.runtime.engine.gpu import child, cuda_sessions

GPUS = 2
FOLDER = Path(sys.argv[-1])


class FileRuntime(FakeRuntime):
    """Blocks that are lent are files."""

    names: dict[int, str] = {}  # noqa: RUF012 -- of this process

    def __init__(self) -> None:
        super().__init__()
        self.mapped: list[tuple[int, np.ndarray]] = []

    def own(self, size: int) -> np.ndarray:
        name = f"{os.getpid()}-{len(self.names)}"
        block = np.memmap(FOLDER / name, np.uint8, "w+", shape=(size,))
        self.names[FakePointer(block).ptr] = name
        self.blocks.append((FakeDevice.current(), block))
        return block

    def unowned(self, address: int, size: int, owner: object, device: int) -> np.ndarray:
        (block,) = (block for _, block in self.mapped if block.ctypes.data == address)
        assert block.nbytes >= size
        self.blocks.append((device, block))
        return block

    def ipcGetMemHandle(self, address: int) -> bytes:  # noqa: N802 -- CUDA's name
        return self.names[address].encode().ljust(64, b"\0")

    def ipcOpenMemHandle(self, handle: bytes, flags: int) -> int:  # noqa: N802 -- CUDA's name
        name = handle.rstrip(b"\0").decode()
        assert name not in self.names.values(), "CUDA opens no handle in the process that lent it"
        block = np.memmap(FOLDER / name, np.uint8, "r+")
        self.mapped.append((FakeDevice.current(), block))
        return FakePointer(block).ptr


class EagerStream(FakeStream):
    """All is done when it is put there: what a stream would wait for has been done when it is counted."""

    def put(self, work: Callable[[], None]) -> None:
        with FakeCupy.lock:
            work()

    def wait_event(self, event: Any) -> None:
        pass


class FileCupy(FakeCupy):
    """The stand-in, with lent memory that other processes can open."""

    null_stream = EagerStream()

    def __init__(self) -> None:
        super().__init__()
        self.runtime = runtime = FileRuntime()
        members = dict(vars(self.cuda)) | {"Stream": EagerStream, "runtime": runtime, "alloc": runtime.alloc}
        members |= {"Memory": runtime.own, "UnownedMemory": runtime.unowned}
        self.cuda = type("cuda", (), members)
        self.RawKernel = partial(FakeKernel, runtime)


def require(wanted: Sequence[int] | None = None) -> tuple[Any, int]:
    """In place of the trial of GPUs: a process tries none but its own worker's."""
    assert wanted is not None
    assert len(wanted) <= 1
    return cupy, GPUS


cupy = FileCupy()
child.require_cuda = require  # type: ignore[assignment]
cuda_sessions.cuda_session = lambda form, device, stream, **_: fake_session(form, device, stream)
cuda_sessions.share_cuda_arena = lambda device: None
child.main()
