"""``tofu prove``: a plan's worker models compute what its model does, for all inputs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import fields, replace
from pathlib import Path

from planner.api.arguments import takes
from planner.api.opened import Opened, opened
from planner.artifacts.form import FORM_READERS, Form
from planner.artifacts.place import require_plan
from planner.artifacts.plan import digest
from planner.artifacts.plan_folder import MODEL
from planner.artifacts.planned_form import divided
from planner.artifacts.program import Program
from planner.artifacts.wholes import of_form
from planner.artifacts.worker_model import WorkerModel
from planner.collection import without_collection
from planner.errors import ModelError, UsageError, did_you_mean
from planner.features.prove.options import ProveOptions
from planner.features.prove.proof.calls import Calls
from planner.features.prove.proof.programs import WorkerFile, fault_at
from planner.features.prove.proof.programs import prove as follow
from planner.features.prove.proof.result import Fault, Proof
from planner.features.prove.proof.whole import Whole
from planner.features.prove.result import ProveResult
from planner.graph.core.model import Graph
from planner.graph.decompositions.randomness import lower_randomness
from planner.graph.files.data_folder import without_data_folder
from planner.graph.files.to_onnx import to_model
from planner.graph.rewriting.canonical import Canonical
from planner.options import ReadOptions
from planner.planning.request import source_of
from planner.records import reader
from planner.runtime.check_model import check_against_model
from planner.runtime.engine.core.check import InconsistentError, check_overwriting, check_programs
from planner.runtime.plan_files import check_stated, read_parts, read_workers
from planner.strict_json import JsonError, read_json
from planner.training.doors.read import read_step


@takes(ProveOptions)
@without_collection()
def prove(options: ProveOptions) -> ProveResult:  # noqa: D417 - those are the fields of the options
    """Proves that the worker models of a plan are equal to its model, or says where that is not seen.

    Args:
        directory: the plan's folder; None: the newest in the working directory.
        model: a file that is read once more, as it was to be planned: the plan's model must be what it is read as. With
            ``parts``, a model in the place of a plan.
        parts: its worker models, one file of each worker, in any order.
        program: a file that says what was made of that model before it was divided: of the members of ``plan.json``
            those of ``planner.artifacts.form``, and ``strategies`` for the names of ops. Without it, the model is
            divided as it is.
        progress: told what is being done.

    Raises:
        TofuError: there is no plan, its models are not there, cannot be read, or are of another plan. Changed
            worker models are no error: they are proven, or not.

    Example:
        ::

            proof = planner.prove("plan")
            assert proof.is_proven, proof.fault
    """
    if not options.parts:
        if options.program is not None:
            raise UsageError("--program: of which worker models?", hint="give them with --parts")
        return _of_plan(options)
    if options.model is None:
        raise UsageError("--parts: of which model?", hint="give the model that was divided with --model")
    if options.directory is not None:
        raise UsageError("--parts takes the place of a plan's folder", hint="give one of the two")
    return _of_parts(options, options.model)


def _of_plan(options: ProveOptions) -> ProveResult:
    where = require_plan(options.directory)
    options.progress("reading the plan")
    plan = opened(where, as_planned=False)
    if not plan.folder.has_models:
        raise UsageError(f"{where} has no models of its workers", hint="write them with `tofu build`")
    models, program = read_workers(plan.folder, options.progress)
    reference = Whole(plan.graph, plan.ops, plan.descriptions)
    options.progress("following the workers' programs")
    proof = _proof(plan.model, plan.form, reference, models, program)
    if proof.is_proven:
        stated = _refused(lambda: check_stated(plan.folder, program))
        proof = replace(proof, fault=stated or _of_another_file(plan, options))
    return _result(where, plan.folder.plan.model, program, proof)


def _of_parts(options: ProveOptions, file: Path) -> ProveResult:
    options.progress("reading the model")
    source = source_of(file, ReadOptions(), unknown_ops="replicate")
    model = without_data_folder(source.read())
    models, program = read_parts(options.parts, model, options.progress)
    form, planned = _stated_form(options.program)
    division = divided(form, planned, len(models), model, file)
    options.progress("following the workers' programs")
    reference = Whole(division.graph, source.descriptions.bind_all(division.graph), source.descriptions)
    proof = _proof(model, division.form, reference, models, program)
    # Right workers of another form differ from the model as it is, too.
    if options.program is None and (fault := proof.fault):
        should = f"{fault.should}; is --program missing?"
        proof = replace(proof, fault=replace(fault, should=should, is_counterexample=False))
    return _result(file, model.name, program, proof)


def _stated_form(file: Path | None) -> tuple[Form, Collection[str] | None]:
    """What a file says was made of a model, and the names of the ops that were divided; None: of all.

    Raises:
        UsageError: the file cannot be read, or has members that neither say that nor are of a ``plan.json``, which is
            known by its ``schema_version``.
    """
    if file is None:
        return Form(), None
    try:
        data = read_json(file)
        members, names = data.members(), (*(member.name for member in fields(Form)), "strategies")
        for name in members if "schema_version" not in members else ():
            if name not in names:
                hint = did_you_mean(name, names) or f"members are {', '.join(names)}"
                raise UsageError(f"{file}: there is no member {name!r}", hint=hint)
        strategies = data.get("strategies")
        return reader(Form, FORM_READERS)(data), None if strategies is None else strategies.members().keys()
    except JsonError as error:
        raise UsageError(f"{file} cannot be read: {error}") from None


def _proof(model: Graph, form: Canonical, reference: Whole, models: Sequence[WorkerModel], program: Program) -> Proof:
    """What is proven of worker models.

    Args:
        model: as it was read.
        form: its canonical form.
        reference: the form of it that was divided.
        models: of the workers.
        program: what they are together.
    """
    fault = _refused(lambda: check_against_model(model, program, "the proof")) or _inconsistent(
        reference, program, models
    )
    if fault is not None:
        return Proof(len(program.outputs), 0, 0, 0, fault)
    return follow(
        Calls(reference),
        of_form(program, reference.graph, form.boxes(model)),
        [WorkerFile(worker_model.bodies, worker_model.constants) for worker_model in models],
    )


def _result(where: Path, name: str, program: Program, proof: Proof) -> ProveResult:
    return ProveResult(
        directory=where,
        model=name,
        workers=len(program.workers),
        is_proven=proof.is_proven,
        tensors=proof.tensors,
        buffers=proof.buffers,
        functions=proof.functions,
        fetches=proof.fetches,
        fault=proof.fault,
    )


def _of_another_file(plan: Opened, options: ProveOptions) -> Fault | None:
    """A fault if the file, read as the plan's was, is not the plan's model."""
    if options.model is None:
        return None
    file, how = options.model, plan.folder.reading
    pairs = tuple((pair.current, pair.following) for pair in plan.folder.state) if how.states_pairs else None
    step = read_step(file, dims=how.dims, values=how.values, state_pairs=pairs, operators=plan.descriptions)
    read = to_model(without_data_folder(lower_randomness(step))).SerializeToString(deterministic=True)
    if digest(read) == plan.folder.plan.model_digest:
        return None
    holds = f"a model of sha256 {plan.folder.plan.model_digest}"
    return Fault(None, "", MODEL, "", holds, f"{file} as it is read, of sha256 {digest(read)}", False)


def _inconsistent(reference: Whole, program: Program, models: Sequence[WorkerModel]) -> Fault | None:
    """What is wrong with names, boxes, order, waits or places in memory: the first finding."""
    try:
        check_programs(program.workers, program.state)
        for model in models:
            check_overwriting(model.program, model.bodies)
    except InconsistentError as error:
        first = error.findings[0]
        return fault_at(reference, program, first.worker, first.step, first.buffer, first.what, "a program in order")
    return None


def _refused(check: Callable[[], object]) -> Fault | None:
    """What a check that refuses finds; None if it passes."""
    try:
        check()
    except ModelError as error:
        return Fault(None, "", "", "", "; ".join(error.facts) or error.what, "a program in order", True)
    return None
