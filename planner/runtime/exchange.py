"""The memory that the engine and its caller share: tiles that come in and go out, and each worker's whereabouts.

Both sides lay it out from the same programs, so no addresses are exchanged: loaded and collected buffers worker by
worker, each aligned, behind one number per worker that says which step it is in. The memory has no name in any file
system, so nothing is left behind whatever happens to either side.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Sequence
from typing import Final

import numpy as np

from planner.graph.protos import numpy_dtype
from planner.program import Buffer, WorkerProgram

ALIGNMENT: Final = 64
"""Bytes; a cache line. Kernels that peel unaligned elements would give other bits at other addresses."""

IDLE: Final = -1
"""The whereabouts of a worker that is in no step."""


def aligned(offset: int) -> int:
    """The next multiple of the alignment."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def new_array(buffer: Buffer) -> np.ndarray:
    """Aligned memory of a buffer's shape and dtype, zero."""
    memory = np.zeros(buffer.size_bytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + buffer.size_bytes].view(numpy_dtype(buffer.dtype)).reshape(buffer.shape)


class Exchange:
    """Arrays of loaded and collected buffers in shared memory.

    Args:
        programs: what the workers do.
        handle: descriptor of the memory that another process made; None to make it here.
    """

    def __init__(self, programs: Sequence[WorkerProgram], handle: int | None = None) -> None:
        offsets: dict[tuple[int, str], int] = {}
        size = aligned(8 * len(programs))
        for program in programs:
            for name in dict.fromkeys((*program.loaded, *program.collected)):
                offsets[program.worker, name] = size
                size = aligned(size + program.buffers[name].size_bytes)
        self.handle = _unnamed_memory(size) if handle is None else handle
        memory = np.frombuffer(mmap.mmap(self.handle, size), np.uint8)
        self.whereabouts: np.ndarray = memory[: 8 * len(programs)].view(np.int64)
        """Per worker the number of the step that it is in, or IDLE."""
        if handle is None:
            self.whereabouts[:] = IDLE
        self._arrays: dict[tuple[int, str], np.ndarray] = {}
        for program in programs:
            for name in dict.fromkeys((*program.loaded, *program.collected)):
                buffer = program.buffers[name]
                start = offsets[program.worker, name]
                raw = memory[start : start + buffer.size_bytes]
                self._arrays[program.worker, name] = raw.view(numpy_dtype(buffer.dtype)).reshape(buffer.shape)

    def array(self, worker: int, buffer: str) -> np.ndarray:
        """The memory of a loaded or collected buffer."""
        return self._arrays[worker, buffer]

    def holds(self, worker: int, buffer: str) -> bool:
        """True if the buffer is a loaded or a collected one."""
        return (worker, buffer) in self._arrays

    def close(self) -> None:
        """Gives up the descriptor; arrays that somebody still holds stay valid."""
        os.close(self.handle)


def _unnamed_memory(size: int) -> int:
    """A descriptor of zeroed memory that has no name."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("tofu", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    os.ftruncate(handle, size)
    return handle
