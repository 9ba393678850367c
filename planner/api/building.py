"""``tofu build``: the models of a plan's workers, from the plan alone."""

from __future__ import annotations

from dataclasses import replace

from planner.api.arguments import takes
from planner.api.opened import Opened, opened
from planner.artifacts.place import PLAN
from planner.artifacts.plan_folder import add_models, open_folder
from planner.artifacts.program import Program
from planner.artifacts.wholes import of_form, of_model
from planner.collection import without_collection
from planner.counted import counts_told
from planner.errors import ModelError, UsageError
from planner.options.plans import BuildOptions
from planner.partition.build import unplaced, worker_files
from planner.partition.segments import Partitioned
from planner.progress import Progress
from planner.regular_file import digest_of
from planner.results import BuildResult
from planner.runtime.engine.core.check import check_programs
from planner.runtime.plan_files import load_plan
from planner.whole import try_folder


@takes(BuildOptions)
@without_collection()
def build(options: BuildOptions) -> BuildResult:  # noqa: D417 - those are the fields of the options
    """Adds the models of the workers to a plan that was written without them.

    Args:
        directory: the plan's folder; None: the newest in the working directory.
        force: models that are there are made anew.
        progress: told what is being done.

    Raises:
        TofuError: there is no plan, its models are there, or they cannot be made or written.

    Example:
        ::

            planner.plan("train.onnx", gpus=4, out="plan", models=False)
            planner.build("plan")
    """
    progress = options.progress
    progress("reading the plan")
    folder = open_folder(options.directory, with_models=False)
    where = folder.path
    if folder.has_models and not options.force:
        raise UsageError(f"{where} has the models of its workers", hint="make them anew with --force")
    try_folder(where)
    plan = opened(where, with_models=False)
    with counts_told(progress):
        partitioned = program_of(plan, progress)
    partitioned = replace(partitioned, program=of_model(partitioned.program, plan.model, plan.form.boxes(plan.model)))
    add_models(folder, worker_files(plan.model.opset, digest_of(where / PLAN), partitioned, progress))
    return BuildResult(
        directory=where,
        model=folder.plan.model,
        workers=folder.plan.workers,
        functions=len(partitioned.bodies),
        model_bytes=sum(folder.worker(worker).stat().st_size for worker in range(folder.plan.workers)),
    )


def program_of(plan: Opened, progress: Progress) -> Partitioned:
    """The program of a plan, made of the plan alone.

    Args:
        plan: opened.
        progress: told what is being done.

    Raises:
        UsageError: it was made with descriptions that are not given.
        ModelError: the plan states other memory than its program takes.
    """
    folder = plan.folder
    plan.require_descriptions()
    progress("making a program for each worker")
    making = folder.making
    program = unplaced(plan.graph, plan.ops, plan.decided, making.apart, lean=making.is_lean)
    partitioned = program.placed(limit_bytes=making.limit_bytes)
    peak_bytes = partitioned.program.peak_bytes
    if folder.plan.has_program and peak_bytes != folder.plan.peak_bytes:
        raise ModelError(
            f"{folder.path}: the plan states other memory than its program takes",
            facts=tuple(
                f"worker {worker}: {stated} bytes stated, {needed} taken"
                for worker, (stated, needed) in enumerate(zip(folder.plan.peak_bytes, peak_bytes, strict=False))
                if stated != needed
            ),
            hint="plan the model again with `tofu plan`: this plan is of another version",
        )
    return partitioned


def program_of_folder(plan: Opened, progress: Progress) -> Program:
    """The program that a run of a plan executes: of its workers' models, or where these are not written, made anew.

    Args:
        plan: opened.
        progress: told what is being done.

    Raises:
        TofuError: the models do not belong to the plan, or the program cannot be made (``program_of``).
    """
    if plan.folder.has_models:
        program = load_plan(plan.folder.path, progress).program
        check_programs(program.workers, program.state)
        return of_form(program, plan.graph, plan.form.boxes(plan.model))
    return program_of(plan, progress).program
