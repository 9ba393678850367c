"""A plan as a run needs it: the whole model, the worker models, and how they are tied."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # ships no types
from onnx import ModelProto

from planner.artifacts.estimate import TimeEstimate
from planner.artifacts.place import PLAN
from planner.artifacts.plan import DescriptionFile
from planner.artifacts.plan_folder import Ends, PlanFolder, open_folder
from planner.artifacts.planned_form import check_named
from planner.artifacts.program import Program
from planner.artifacts.source_file import SourceFile
from planner.artifacts.worker_model import WorkerModel, read_worker_model
from planner.collection import without_collection
from planner.errors import ModelError
from planner.graph.core.model import Graph, Tensor
from planner.graph.files.data_folder import Followed, followed
from planner.graph.files.external import external_values
from planner.graph.folding.foreign import EVERY_OPERATOR
from planner.graph.reading.from_onnx import read_model
from planner.progress import Progress, silent
from planner.regular_file import digest_of, read_regular
from planner.runtime.check_model import check_against_model


@dataclass(frozen=True)
class LoadedPlan:
    """All that a run needs."""

    graph: Graph
    """The whole model, with the plan's state pairs."""
    program: Program
    models: tuple[WorkerModel, ...]
    """Of the workers of this process, in order; of one that runs a single worker, that one's."""
    paths: tuple[Path, ...] = ()
    """Files of the worker models, in order; () if they exist in memory only."""
    model_digest: str = ""
    """Of the model that was planned: checkpoints belong to it."""
    peak_bytes: tuple[int, ...] = ()
    """What the plan states for each worker; () if it states nothing."""
    estimate: TimeEstimate | None = None
    """Of an iteration on the plan's topology; None where it is for none."""
    data: Followed = field(default_factory=Followed)
    """Where the model's external data may lie."""
    source: SourceFile | None = None
    """The file that was planned; None if it is not recorded."""
    described_by: DescriptionFile | None = None
    """The user's descriptions with which it was planned, or None."""

    @property
    def states(self) -> dict[str, Tensor]:
        """The states, by name."""
        return {pair.current: self.graph.tensors[pair.current] for pair in self.program.state}


@without_collection()
def load_plan(directory: Path, progress: Progress = silent, *, own_worker: int | None = None) -> LoadedPlan:
    """Reads a plan's folder and checks that its files belong together.

    Args:
        directory: the folder.
        progress: told what is being read.
        own_worker: the one worker whose functions and constants are wanted; None: of all.

    Raises:
        UsageError: it is no plan's folder.
        ModelError: its files do not belong together, or cannot be read.
    """
    progress("reading the plan")
    folder = open_folder(directory)
    models, program = read_workers(folder, progress, own_worker=own_worker)
    check_stated(folder, program)
    progress("reading the model")
    graph = read_model(folder.model, operators=EVERY_OPERATOR)
    check_against_model(graph, program, str(directory))
    check_named(folder, graph)
    own_models = models if own_worker is None else (models[own_worker],)
    values = external_values(graph).values()
    data = followed(directory, folder.data_record if values else (), values)
    return LoadedPlan(
        graph,
        program,
        own_models,
        tuple(map(folder.worker, range(folder.plan.workers))),
        folder.plan.model_digest,
        folder.plan.program_peak_bytes,
        folder.plan.estimate,
        data,
        folder.source,
        folder.plan.described_by,
    )


def read_workers(
    folder: PlanFolder, progress: Progress = silent, *, own_worker: int | None = None
) -> tuple[tuple[WorkerModel, ...], Program]:
    """The worker models of a plan's folder, and the program that they are together.

    Args:
        folder: of the plan.
        progress: told what is being read.
        own_worker: the one worker whose functions and constants are wanted; None: of all.

    Raises:
        ModelError: they cannot be read, or are of another plan.
    """
    # The steps of all workers say who waits for whom, and how much moves. Functions and constants of the others are
    # let go file by file: all together may be more than one machine of several holds.
    paths = tuple(map(folder.worker, range(folder.plan.workers)))
    models = tuple(
        model if own_worker in (None, worker) else replace(model, bodies={}, constants={})
        for worker, model in enumerate(_worker_models(paths, progress))
    )
    plan_digest = digest_of(folder.path / PLAN)
    strangers = tuple(
        path.name for path, model in zip(paths, models, strict=True) if model.plan_digest not in ("", plan_digest)
    )
    if strangers:
        raise ModelError(
            f"{folder.path}: worker models of another plan",
            facts=strangers,
            hint="plan the model again with `tofu plan`",
        )
    return models, Program(tuple(model.program for model in models), folder.inputs, folder.outputs, folder.state)


def read_parts(
    paths: Sequence[Path], ends: Ends, progress: Progress = silent
) -> tuple[tuple[WorkerModel, ...], Program]:
    """The same of worker models that lie anywhere, in any order.

    Args:
        paths: one file of each worker.
        ends: what the model takes and makes.
        progress: told what is being read.

    Raises:
        ModelError: they cannot be read, are not one of each worker, or are of several plans.
    """
    models = tuple(sorted(_worker_models(paths, progress), key=lambda model: model.program.worker))
    numbers = [model.program.worker for model in models]
    digests = {model.plan_digest for model in models}
    if numbers != list(range(len(models))) or len(digests) > 1:
        raise ModelError(
            "the worker models do not belong together",
            facts=(f"they are of workers {', '.join(map(str, numbers))}, and of {len(digests)} plans",),
            hint="give one file of each worker, from 0",
        )
    return models, Program(tuple(model.program for model in models), ends.inputs, ends.outputs, ends.state)


def check_stated(folder: PlanFolder, program: Program) -> None:
    """Refuses a program that moves, or takes, other bytes than its plan states.

    Args:
        folder: of the plan.
        program: of its worker models.

    Raises:
        ModelError: with all findings.
    """
    stated = folder.plan.program_peak_bytes
    if stated and len(stated) != len(program.peak_bytes):
        raise ModelError(
            f"{folder.path}: the plan states the memory of {len(stated)} workers, and has {len(program.workers)}"
        )
    if folder.plan.moved_bytes != program.predicted_bytes:
        raise ModelError(
            f"{folder.path}: the plan states {folder.plan.moved_bytes} bytes moved, and its worker models move "
            f"{program.predicted_bytes}",
            hint="plan the model again with `tofu plan`",
        )
    if stated and stated != program.peak_bytes:
        raise ModelError(
            f"{folder.path}: the plan states other memory than its worker models take",
            facts=tuple(
                f"worker {worker}: {plan_bytes} bytes stated, {program_bytes} taken"
                for worker, (plan_bytes, program_bytes) in enumerate(zip(stated, program.peak_bytes, strict=True))
                if plan_bytes != program_bytes
            ),
            hint="plan the model again with `tofu plan`",
        )


def _worker_models(paths: Sequence[Path], progress: Progress) -> Iterator[WorkerModel]:
    seen: dict[Hashable, Any] = {}
    for number, path in enumerate(paths, start=1):
        progress(f"reading worker {number} of {len(paths)}")
        yield _worker_model(path, seen)


def _worker_model(path: Path, seen: dict[Hashable, Any]) -> WorkerModel:
    try:
        return read_worker_model(ModelProto.FromString(read_regular(path)), seen)
    except ModelError as error:
        raise ModelError(f"{path}: {error.what}", facts=error.facts, hint=error.hint) from None
    except DecodeError:
        raise ModelError(f"{path} is not an ONNX model") from None
    except IsADirectoryError as error:
        raise ModelError(
            f"{path} cannot be read: {error.strerror}", hint="name the worker models, one by one"
        ) from None
