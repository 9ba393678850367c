"""Ops of a whole plan without a CUDA kernel, listed without a GPU."""

from __future__ import annotations

from collections.abc import Iterable

from planner.artifacts.on_gpus import CudaChanges
from planner.artifacts.program import Segment
from planner.artifacts.worker_model import WorkerModel
from planner.runtime.engine.core.backend import BodyDigests, segment_model
from planner.runtime.engine.gpu.cuda_form import CudaForm, cuda_form


def cuda_changes(models: Iterable[WorkerModel]) -> CudaChanges:
    """The changes of all functions of a plan, listed without a GPU."""
    digests = BodyDigests()
    forms: dict[str, CudaForm] = {}
    for model in models:
        for step in model.program.steps:
            if isinstance(step, Segment) and (digest := digests.of(step, model)) not in forms:
                forms[digest] = cuda_form(segment_model(step, model))
    return CudaChanges.of(forms.values())
