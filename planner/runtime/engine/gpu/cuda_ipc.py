"""Device memory and events of workers in other processes, by CUDA IPC: GPUs behind the engine ``processes``.

The process of a worker makes the worker's block of device memory and an event for each of its steps that others wait
for, and lends both: it tells their handles, which are bytes, to the other processes. An opened handle is the same
memory, or an event for which a stream here can wait. An event that is recorded and then counted (``shared_peers.py``)
is a recorded one for whoever reads the count; nobody records it anew before all workers have ended the iteration.

Source: CUDA C++ Programming Guide, "Interprocess Communication".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.artifacts.waits import Waits

LAZY_PEER_ACCESS = 1
"""``cudaIpcMemLazyEnablePeerAccess``: the opened memory of another GPU can be read by kernels here."""


@dataclass(frozen=True, slots=True)
class Lent:
    """Handles of what the process of a worker lends to the others."""

    block: bytes
    """Of its block of device memory."""
    events: Mapping[int, bytes]
    """By count of the worker's steps, of those for which others wait."""

    def as_json(self) -> dict[str, Any]:
        """The text for a pipe between processes."""
        return {"block": self.block.hex(), "events": {str(count): event.hex() for count, event in self.events.items()}}

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> Lent:
        """Reads the text of ``as_json``."""
        events = {int(count): bytes.fromhex(handle) for count, handle in record["events"].items()}
        return Lent(bytes.fromhex(record["block"]), events)


@dataclass(frozen=True, slots=True)
class Apart:
    """A worker that is alone in its process, and how it meets those of other processes."""

    worker: int
    waits: tuple[Waits, ...]
    """What each step of each worker waits for."""
    awaited: Collection[int]
    """Counts of the worker's steps for which others wait."""
    meet: Callable[[Lent], Sequence[Lent]]
    """Tells the others what the worker lends; returns what each worker lends, in their order."""


@dataclass(frozen=True, slots=True)
class OpenedEvent:
    """Another process's event, as a stream takes it."""

    ptr: int
    """The driver's own reference to it."""


def own_block(cupy: Any, size_bytes: int) -> Any:
    """Memory of the current GPU that can be lent: an allocation of the driver's own, and not a part of a pool's."""
    return cupy.cuda.MemoryPointer(cupy.cuda.Memory(max(size_bytes, 1)), 0)


def own_event(cupy: Any) -> Any:
    """An event of the current GPU that can be lent."""
    return cupy.cuda.Event(block=False, disable_timing=True, interprocess=True)


def lent(cupy: Any, block: Any, events: Mapping[int, Any]) -> Lent:
    """The handles of a worker's block and events."""
    runtime = cupy.cuda.runtime
    return Lent(
        bytes(runtime.ipcGetMemHandle(block.ptr)),
        {count: bytes(runtime.ipcGetEventHandle(event.ptr)) for count, event in events.items()},
    )


def opened_block(cupy: Any, handle: bytes, size_bytes: int, owner: int, opener: int) -> Any:
    """Another worker's block.

    Args:
        cupy: the module, or what stands in for it.
        handle: of the block.
        size_bytes: of the block.
        owner: the GPU that it lies on.
        opener: the GPU whose kernels read it; the owner itself where they cannot, and it is only copied from.
    """
    with cupy.cuda.Device(opener):
        address = cupy.cuda.runtime.ipcOpenMemHandle(handle, LAZY_PEER_ACCESS)
    return cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(address, max(size_bytes, 1), None, owner), 0)


def opened_event(cupy: Any, handle: bytes) -> OpenedEvent:
    """Another worker's event."""
    return OpenedEvent(int(cupy.cuda.runtime.ipcOpenEventHandle(handle)))
