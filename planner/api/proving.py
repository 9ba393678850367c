"""``tofu prove``: a plan's worker models compute what its model does, for all inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from planner.api.arguments import path_of, takes, texts_of
from planner.api.opened import Opened, opened
from planner.artifacts.place import require_plan
from planner.artifacts.plan import digest
from planner.artifacts.plan_folder import MODEL
from planner.artifacts.program import Program
from planner.collection import without_collection
from planner.descriptions import in_force
from planner.errors import ModelError, UsageError
from planner.graph.data_folder import without_data_folder
from planner.graph.to_onnx import to_model
from planner.options.plans import ProveOptions
from planner.planning.request import source_of
from planner.prove.calls import Calls
from planner.prove.programs import WorkerFile
from planner.prove.programs import prove as follow
from planner.prove.result import Fault, Proof
from planner.prove.whole import Whole
from planner.results import ProveResult
from planner.runtime.check_model import check_against_model
from planner.runtime.engine.core.check import check_programs
from planner.runtime.plan_files import check_stated, read_workers


@takes(ProveOptions)
@without_collection()
def prove(options: ProveOptions) -> ProveResult:  # noqa: D417 - those are the fields of the options
    """Proves that the worker models of a plan are equal to its model, or says where that is not seen.

    Args:
        directory: the plan's folder; None: the newest in the working directory.
        model: a file that is read once more, as it was to be planned: the plan's model must be what it is read as.
        dim: sizes of its symbolic dims, as the plan was made with.
        value: by input of it, the number that it becomes.
        state: a file of its pairs of state and next state.
        opdefs: the file of descriptions that the plan was made with.
        progress: told what is being done.

    Raises:
        TofuError: there is no plan, its models are not there, cannot be read, or are of another plan. One that
            somebody has changed since is proven, or is not.

    Example:
        ::

            proof = planner.prove("plan")
            assert proof.is_proven, proof.fault
    """
    progress, opdefs = options.progress, path_of(options.opdefs)
    where = require_plan(path_of(options.directory))
    progress("reading the plan")
    plan = opened(where, opdefs, as_planned=False)
    if not plan.folder.has_models:
        raise UsageError(f"{where} has no models of its workers", hint="write them with `tofu build`")
    models, program = read_workers(plan.folder, progress)
    progress("following the workers' programs")
    proof = Proof(len(program.outputs), 0, 0, 0, _out_of_order(plan, program))
    if proof.is_proven:
        descriptions, _ = in_force(opdefs, "replicate")
        files = [WorkerFile(model.bodies, model.constants) for model in models]
        proof = follow(Calls(Whole(plan.graph, plan.ops, descriptions)), program, files)
    if proof.is_proven:
        proof = replace(
            proof, fault=_refused(lambda: check_stated(plan.folder, program)) or _of_another_file(plan, options)
        )
    return ProveResult(
        directory=where,
        model=plan.folder.plan.model,
        workers=len(program.workers),
        is_proven=proof.is_proven,
        tensors=proof.tensors,
        buffers=proof.buffers,
        functions=proof.functions,
        fetches=proof.fetches,
        fault=proof.fault,
    )


def _out_of_order(plan: Opened, program: Program) -> Fault | None:
    """What is wrong with names, tiles, order, waits or places in memory."""
    return _refused(
        lambda: check_against_model(plan.model, program, str(plan.folder.path)),
        lambda: check_programs(program.workers, program.state),
    )


def _of_another_file(plan: Opened, options: ProveOptions) -> Fault | None:
    """Whether the plan's model is not what the file is read as that it is said to be of."""
    if options.model is None:
        return None
    file, state, opdefs = Path(options.model), path_of(options.state), path_of(options.opdefs)
    source = source_of(file, options.dim, texts_of(options.value), state, opdefs, "replicate")
    read = to_model(without_data_folder(source.read())).SerializeToString(deterministic=True)
    if digest(read) == plan.folder.plan.model_digest:
        return None
    holds = f"a model of sha256 {plan.folder.plan.model_digest}"
    return Fault(None, "", MODEL, "", holds, f"{file} as it is read, of sha256 {digest(read)}", False)


def _refused(*checks: Callable[[], object]) -> Fault | None:
    """What the first of some checks that refuses finds; None if all pass."""
    try:
        for check in checks:
            check()
    except ModelError as error:
        return Fault(None, "", "", "", "; ".join(error.facts) or error.what, "a program in order", True)
    return None
