"""A plan as a run needs it: the whole model, the worker models, and how they are tied."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # ships no types
from onnx import ModelProto

from planner.collection import without_collection
from planner.errors import ModelError
from planner.estimate import TimeEstimate
from planner.folder import PLAN, open_folder
from planner.graph.foreign import EVERY_OPERATOR
from planner.graph.from_onnx import read_model
from planner.graph.model import Graph
from planner.plan import digest
from planner.program import Program
from planner.runtime.fits import check_fits
from planner.worker_model import WorkerModel, read_worker_model


@dataclass(frozen=True)
class LoadedPlan:
    """All that a run needs."""

    graph: Graph
    """The whole model, with the plan's state pairs."""
    program: Program
    models: tuple[WorkerModel, ...]
    paths: tuple[Path, ...] = ()
    """Files of the worker models, in order; () if they exist in memory only."""
    model_digest: str = ""
    """Of the model that was planned: checkpoints belong to it."""
    peak_bytes: tuple[int, ...] = ()
    """What the plan states for each worker; () if it states nothing."""
    estimate: TimeEstimate | None = None
    """Of an iteration on the plan's topology; None where it is for none."""


@without_collection()
def load_plan(directory: Path) -> LoadedPlan:
    """Reads a plan's folder and checks that its files belong together.

    Raises:
        UsageError: it is no plan's folder.
        ModelError: its files do not belong together, or cannot be read.
    """
    folder = open_folder(directory)
    paths = tuple(folder.worker(worker) for worker in range(folder.plan.workers))
    models = tuple(_worker_model(path) for path in paths)
    plan_digest = digest((directory / PLAN).read_bytes())
    strangers = tuple(
        path.name for path, model in zip(paths, models, strict=True) if model.plan_digest not in ("", plan_digest)
    )
    if strangers:
        raise ModelError(
            f"{directory}: worker models of another plan", facts=strangers, hint="plan the model again with `tofu plan`"
        )
    program = Program(tuple(model.program for model in models), folder.inputs, folder.outputs, folder.state)
    stated = folder.plan.peak_bytes
    if stated and stated != program.peak_bytes:
        raise ModelError(
            f"{directory}: the plan states other memory than its worker models take",
            facts=tuple(
                f"worker {worker}: {one} bytes stated, {other} taken"
                for worker, (one, other) in enumerate(zip(stated, program.peak_bytes, strict=True))
                if one != other
            ),
            hint="plan the model again with `tofu plan`",
        )
    # The plan's state, and not what the reader would find: the workers' tiles are tied by it.
    graph = replace(read_model(folder.model, operators=EVERY_OPERATOR), state=folder.state)
    check_fits(program, graph)
    return LoadedPlan(graph, program, models, paths, folder.plan.model_digest, stated, folder.plan.estimate)


def _worker_model(path: Path) -> WorkerModel:
    try:
        return read_worker_model(ModelProto.FromString(path.read_bytes()))
    except DecodeError:
        raise ModelError(f"{path} is not an ONNX model") from None
