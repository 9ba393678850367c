"""A summary of the GPU sessions of a run or plan: which ops lack a kernel, and what memory is taken."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Protocol


class Changed(Protocol):
    """A model of which some ops are changed for GPUs, or several of them together."""

    @property
    def widened(self) -> Collection[str]: ...

    @property
    def expanded(self) -> Collection[str]: ...

    @property
    def on_cpu(self) -> Collection[str]: ...


@dataclass(frozen=True, slots=True)
class CudaChanges:
    """Ops without a CUDA kernel, by what is done to them (docs/gpu-results.md); each with the dtype that it is of."""

    widened: tuple[str, ...] = ()
    expanded: tuple[str, ...] = ()
    on_cpu: tuple[str, ...] = ()

    @staticmethod
    def of(parts: Iterable[Changed]) -> CudaChanges:
        """The changes of all models, or of all parts of a plan, together."""
        changes = tuple(parts)
        return CudaChanges(
            *(
                tuple(sorted({op for part in changes for op in getattr(part, field.name)}))
                for field in fields(CudaChanges)
            )
        )

    def sentence(self) -> str:
        """The sentence that a user should read of them; "" if it is nothing."""
        if not self.on_cpu:
            return ""
        return f"without a CUDA kernel, so on the CPU between two copies: {', '.join(self.on_cpu)}"


@dataclass(frozen=True, slots=True)
class OnGpus:
    """The facts of a run on GPUs once all sessions are made, or after some of its steps."""

    changes: CudaChanges
    beside_bytes: tuple[tuple[int, int], ...]
    """By GPU: device memory that sessions, tables and staging blocks take beside the arenas; workspaces of kernels only
    after a step."""

    @staticmethod
    def of_processes(processes: Sequence[OnGpus]) -> OnGpus:
        """The facts of processes with a worker each, together.

        Of a GPU that several share, it is the most that one of them saw being taken while it made its sessions.
        """
        memory_bytes: dict[int, int] = {}
        for device, size in (row for process in processes for row in process.beside_bytes):
            memory_bytes[device] = max(size, memory_bytes.get(device, 0))
        return OnGpus(CudaChanges.of(process.changes for process in processes), tuple(sorted(memory_bytes.items())))
