"""What the CUDA provider makes of a whole plan: which ops lack a kernel, and what the sessions take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from planner.artifacts.program import Segment
from planner.artifacts.worker_model import WorkerModel
from planner.runtime.engine.core.backend import BodyDigests, segment_model
from planner.runtime.engine.gpu.cuda_form import CudaForm, cuda_form


@dataclass(frozen=True, slots=True)
class CudaChanges:
    """Ops without a CUDA kernel, by what is done to them (see ``cuda_form.py``); each with the dtype that it is of."""

    widened: tuple[str, ...] = ()
    expanded: tuple[str, ...] = ()
    on_cpu: tuple[str, ...] = ()

    @staticmethod
    def of(forms: Iterable[CudaForm | CudaChanges]) -> CudaChanges:
        """Those of all forms, or of all parts of a plan, together."""
        known = tuple(forms)
        return CudaChanges(
            *(
                tuple(sorted({op for form in known for op in getattr(form, field.name)}))
                for field in fields(CudaChanges)
            )
        )

    def sentence(self) -> str:
        """What a user should know of them; "" if it is nothing."""
        if not self.on_cpu:
            return ""
        return f"without a CUDA kernel, so on the CPU between two copies: {', '.join(self.on_cpu)}"


@dataclass(frozen=True, slots=True)
class OnGpus:
    """What is known of a run on GPUs once all sessions are made, or after some of its steps."""

    changes: CudaChanges
    beside_bytes: tuple[tuple[int, int], ...]
    """By GPU: device memory that sessions, tables and staging blocks take beside the arenas; workspaces of kernels only
    after a step."""

    @staticmethod
    def of_processes(told: Sequence[OnGpus]) -> OnGpus:
        """What processes with a worker each know, together.

        Of a GPU that several share, it is the most that one of them saw being taken while it made its sessions.
        """
        taken: dict[int, int] = {}
        for device, size in (row for one in told for row in one.beside_bytes):
            taken[device] = max(size, taken.get(device, 0))
        return OnGpus(CudaChanges.of(one.changes for one in told), tuple(sorted(taken.items())))


def cuda_changes(models: Iterable[WorkerModel]) -> CudaChanges:
    """Those of all functions of a plan, told without a GPU."""
    digests = BodyDigests()
    forms: dict[str, CudaForm] = {}
    for model in models:
        for step in model.program.steps:
            if isinstance(step, Segment) and (digest := digests.of(step, model)) not in forms:
                forms[digest] = cuda_form(segment_model(step, model))
    return CudaChanges.of(forms.values())
