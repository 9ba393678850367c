"""The memory of all workers, shared by the engine and its caller: one arena per worker, and everybody's whereabouts.

Both sides lay it out from the same programs, so no addresses are exchanged: behind two numbers per worker, which say
which step it is in and how many it has done, the arenas, each aligned. Where buffers lie in an arena is what the plan
says; without a plan of memory they lie one after the other. The memory has no name in any file system, so nothing is
left behind whatever happens to either side.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from planner.artifacts.program import Arena, Fetch, WorkerProgram
from planner.errors import InfeasibleError
from planner.runtime.engine.core.check import Finding, InconsistentError

ALIGNMENT: Final = 64
"""Bytes; a cache line. Kernels that peel unaligned elements would give other bits at other addresses."""

_LESS: Final = "run it on a machine with more memory, or plan a smaller batch"

IDLE: Final = -1
"""The whereabouts of a worker that is in no step."""


def aligned(offset: int) -> int:
    """The next multiple of the alignment."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def arena_of(program: WorkerProgram) -> Arena:
    """The arena of a worker's buffers: as its plan of memory says, or one after the other."""
    if program.arena is not None:
        return program.arena
    offsets: dict[str, int] = {}
    size = 0
    for name, buffer in program.buffers.items():
        offsets[name] = size
        size = aligned(size + buffer.size_bytes)
    return Arena(size, offsets, 0)


def as_seen_by(worker: int, programs: Sequence[WorkerProgram]) -> tuple[WorkerProgram, ...]:
    """All programs as far as one worker needs them: its own, and of the others the buffers that its fetches read.

    Their arenas keep size and places, so that an ``Exchange`` of them lays out the same memory.
    """
    read: dict[int, set[str]] = {program.worker: set() for program in programs}
    for step in programs[worker].steps:
        if isinstance(step, Fetch):
            for source in step.sources:
                read[source.worker].add(source.buffer)
    seen = []
    for program in programs:
        if program.worker != worker:
            arena, names = arena_of(program), read[program.worker]
            program = WorkerProgram(
                program.worker,
                {name: program.buffers[name] for name in program.buffers if name in names},
                (),
                (),
                (),
                (),
                Arena(arena.size_bytes, {name: arena.offsets[name] for name in names}, 0),
            )
        seen.append(program)
    return tuple(seen)


class Exchange:
    """The arrays of all buffers, in shared memory.

    Args:
        programs: what the workers do.
        handle: descriptor of the memory that another process made; None to make it here.

    Raises:
        ModelError: a buffer does not lie in its worker's arena.
    """

    def __init__(self, programs: Sequence[WorkerProgram], handle: int | None = None) -> None:
        arenas = {program.worker: arena_of(program) for program in programs}
        outside = [
            Finding(program.worker, finding)
            for program in programs
            for finding in arenas[program.worker].misplaced(program.buffers)
        ]
        if outside:
            raise InconsistentError(outside)
        # Whereabouts, a cache line per worker, the arenas: every process that maps the memory computes the same layout.
        starts: dict[int, int] = {}
        size = aligned(8 * len(programs)) + ALIGNMENT * len(programs)
        for worker, arena in arenas.items():
            starts[worker] = size
            size = aligned(size + arena.size_bytes)
        self.handle = _unnamed_memory(size) if handle is None else handle
        try:
            memory = np.frombuffer(mmap.mmap(self.handle, size), np.uint8)
        except (OSError, OverflowError):
            raise _too_large(size) from None
        self.whereabouts: np.ndarray = memory[: 8 * len(programs)].view(np.int64)
        """Per worker the number of the step that it is in, or IDLE."""
        if handle is None:
            self.whereabouts[:] = IDLE
        rows = memory[aligned(8 * len(programs)) :][: ALIGNMENT * len(programs)]
        self.counts: np.ndarray = rows.view(np.int32).reshape(len(programs), -1)
        """Per worker a cache line, which begins with how many steps it has done (``shared_peers.py``)."""
        self._arrays: dict[tuple[int, str], np.ndarray] = {}
        self.arena_bytes = tuple(arena.size_bytes for arena in arenas.values())
        """What each worker's arrays take."""
        for program in programs:
            offsets = arenas[program.worker].offsets
            for name, buffer in program.buffers.items():
                start = starts[program.worker] + offsets[name]
                raw = memory[start : start + buffer.size_bytes]
                self._arrays[program.worker, name] = raw.view(buffer.dtype.array_dtype).reshape(buffer.shape)

    def array(self, worker: int, buffer: str) -> np.ndarray:
        """The memory of a buffer."""
        return self._arrays[worker, buffer]

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
    try:
        os.ftruncate(handle, size)
    except (OSError, OverflowError):
        os.close(handle)
        raise _too_large(size) from None
    return handle


def check_room(programs: Sequence[WorkerProgram]) -> None:
    """Refuses workers whose memory this machine does not have, before the system ends the process for it.

    Raises:
        InfeasibleError: all of its memory and swap space are less than what the workers take.
    """
    needed = sum(arena_of(program).size_bytes + program.workspace_bytes for program in programs)
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return  # a system that does not say
    stated = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    memory_bytes = sum(1024 * int(stated[name][0]) for name in ("MemTotal", "SwapTotal") if name in stated)
    if memory_bytes and needed > memory_bytes:
        raise InfeasibleError(
            "this machine has too little memory for all workers of the plan",
            facts=(f"they take {needed:,} bytes, and it has {memory_bytes:,}",),
            hint=_LESS,
        )


def _too_large(size: int) -> InfeasibleError:
    return InfeasibleError(
        "this machine has too little memory for all workers of the plan",
        facts=(f"their arrays take {size:,} bytes, which the system does not give",),
        hint=_LESS,
    )
