"""``tofu prove``: a plan's worker models compute what its model does, for all inputs."""

from __future__ import annotations

from planner.api.arguments import path_of, takes
from planner.api.opened import opened
from planner.artifacts.place import require_plan
from planner.collection import without_collection
from planner.descriptions import in_force
from planner.errors import ModelError, UsageError
from planner.options.plans import ProveOptions
from planner.prove.programs import WorkerFile
from planner.prove.programs import prove as follow
from planner.prove.result import Fault, Proof
from planner.prove.whole import Whole
from planner.results import ProveResult
from planner.runtime.engine.core.check import check_programs
from planner.runtime.plan_files import LoadedPlan, load_plan


@takes(ProveOptions)
@without_collection()
def prove(options: ProveOptions) -> ProveResult:  # noqa: D417 - those are the fields of the options
    """Proves that the worker models of a plan are equal to its model, or says where that is not seen.

    Args:
        directory: the plan's folder; None: the newest in the working directory.
        opdefs: the file of descriptions that the plan was made with.
        progress: told what is being done.

    Raises:
        TofuError: there is no plan, its models are not there, or are not those of the plan.

    Example:
        ::

            proof = planner.prove("plan")
            assert proof.is_proven, proof.fault
    """
    progress, opdefs = options.progress, path_of(options.opdefs)
    where = require_plan(path_of(options.directory))
    progress("reading the plan")
    plan = opened(where, opdefs)
    if not plan.folder.has_models:
        raise UsageError(f"{where} has no models of its workers", hint="write them with `tofu build`")
    loaded = load_plan(where, progress)
    progress("following the workers' programs")
    proof = _of_order(loaded)
    if proof is None:
        descriptions, _ = in_force(opdefs, "replicate")
        files = [WorkerFile(model.bodies, model.constants) for model in loaded.models]
        proof = follow(Whole(plan.graph, plan.ops, descriptions), loaded.program, files)
    return ProveResult(
        directory=where,
        model=plan.folder.plan.model,
        workers=len(loaded.program.workers),
        is_proven=proof.is_proven,
        tensors=proof.tensors,
        buffers=proof.buffers,
        functions=proof.functions,
        fetches=proof.fetches,
        fault=proof.fault,
    )


def _of_order(loaded: LoadedPlan) -> Proof | None:
    """A proof that has failed at names, order, waits or places in memory; None where these are right."""
    try:
        check_programs(loaded.program.workers, loaded.program.state)
    except ModelError as error:
        fault = Fault(None, "", "", "", "; ".join(error.facts) or error.what, "a program in order", True)
        return Proof(len(loaded.program.outputs), 0, 0, 0, fault)
    return None
