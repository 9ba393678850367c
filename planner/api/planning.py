"""``tofu plan``: from a model to a plan's folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from types import MappingProxyType

from planner.api.arguments import takes
from planner.collection import without_collection
from planner.counted import counts_told, phases_told
from planner.graph.step.gradient_products import gradient_products
from planner.graph.step.state_warnings import state_warnings
from planner.machine.rates import Rates
from planner.options.planning import PlanOptions
from planner.planning.folder import Destination, files_beside
from planner.planning.in_time import planned_in_time
from planner.planning.machines import memory_limits, memory_of, target_of
from planner.planning.phases import SEARCHES, phases_of
from planner.planning.request import PlanRequest, source_of
from planner.planning.result import result_of
from planner.planning.session import Session
from planner.planning.smaller_batch import saying_what_batch_fits
from planner.results import PlanResult
from planner.runtime.judge.foreign import check_attributes
from planner.spent import measured
from planner.stop import Stop, StoppedBy
from planner.units import parse_duration

_STOPPED: Mapping[StoppedBy, str] = MappingProxyType(
    {
        "time": "the time is over: the best plan so far is written",
        "interrupt": "interrupted: the best plan so far is written; Ctrl-C again ends without it",
    }
)


@takes(PlanOptions)
@without_collection()
def plan(options: PlanOptions) -> PlanResult:  # noqa: D417 - those are the fields of the options
    """Plans a training graph, and writes the plan and one model for each worker.

    Args:
        model: an ONNX file, or a model in memory without external data.
        gpus: how many workers; may be left out with a topology. Fewer than its devices are those of a part of it.
        topology: a topology file, or the name of one that ships.
        memory: what the tensors of a worker may take, such as ``12GiB``, or in bytes; None: what the topology's devices
            have.
        objective: ``bytes``: the least of moved bytes and penalty; ``time``: the least that an iteration is estimated
            to take, for which there must be a topology; None: time where there is one, as ``objective_of`` says.
        rates: what repeated and uneven work is worth in moved bytes: how fast a link, a memory and a device are, such
            as ``link=450GB/s,memory=3.35TB/s,compute=60TFLOP/s``; None: those of ``planner.machine.rates``.
        dim: sizes of symbolic dims.
        value: by input, the number that it becomes, or numbers with commas between them.
        strategy: one of ``planner.search.decide.STRATEGIES``.
        pin: by tensor, or by pattern of tensors, the tiling that it must have.
        forbid: tensor, or pattern of tensors, and a placement that it must not have at any cut: ``("act*", "R")``.
        replicate: which tensors may be replicated where they can be cut: ``all``, ``weights`` (state, and data as
            ``inputs`` says) or ``none``.
        inputs: ``free``: data arrives in any tiling; ``partitioned``: in disjoint tiles only.
        share: ``auto``: what several readers have brought to them is brought once where that saves bytes and there is
            memory; ``none``: every reader has its own delivery. The literature's strategies always have that.
        op_schedule: ``auto``: ops run in steps, while their operands circulate, where memory asks for it; ``whole``:
            never; ``stepped``: every op that can. Steps move no byte more.
        recompute: which activations are computed again for the backward pass: ``auto``: what makes a plan fit for the
            least, where none fits as it is; ``none``; ``all``: of each of the blocks that repeat all that is made and
            read within it; or activations, or patterns of them.
        effort: ``quick``: no bound of what a plan can be; ``normal``: where it takes seconds, and a better plan where
            the bound's search finds one; ``thorough``: where it takes minutes, too. None: ``normal``; with
            a time ``thorough`` after it.
        time: how long to search, such as ``30s``, ``5m`` or ``1h``; then the search ends with what it has, and
            ``stopped_by`` of the plan says so if anything was left out. The first plan is made however long it takes:
            as ``quick`` does, and one that fits where memory has a limit. None: until all is done.
        out: the folder to write; MODEL.tofuK in the working directory if None.
        force: a plan that is there is replaced.
        models: the models of the workers are written, too; else ``build`` makes them, or ``run`` when it needs them.
            Without them no program is made where it would take minutes: then memory and time are those of tables.
        state: a file of pairs of state and next state; None: as the model says, or inferred.
        profile: a file of ``profile``: what ops were measured to take, for the topology's devices.
        opdefs: descriptions of the user's own (docs/operators.md); the file is executed.
        unknown_ops: ``refuse`` operators without a description, or ``replicate`` them: every worker runs them whole.
        progress: told what is being done.
        notice: told, before the plan is written, that the search was stopped.
        stop: ends the search when its owner says so; None: nobody does.

    Raises:
        TofuError: the model cannot be read or planned, or the folder not written.

    Example:
        ::

            result = planner.plan("train.onnx", gpus=4, out="plan")
            print(result.plan.moved_bytes, result.plan.certified_gap, result.plan.tilings["fc.weight"])
    """
    started = perf_counter()
    path, progress = options.model, options.progress
    stop = Stop() if options.stop is None else options.stop
    if options.time is not None:
        stop.end_after(parse_duration(options.time, "--time"))
    target = target_of(options.gpus, options.topology, options.profile)
    request = PlanRequest(
        replace(options, stop=stop),
        source_of(path, options, opdefs=options.opdefs, unknown_ops=options.unknown_ops),
        target,
        memory_limits(memory_of(options.memory), target.machine, target.workers),
        None if options.rates is None else Rates.parse(options.rates),
    )
    stop.must_fit = request.limits is not None
    directory = options.out or Path(f"{path.stem}.tofu{target.workers}")
    kept = files_beside(options.topology, target.profile)
    destination = Destination(directory, options.force, options.models, kept)
    destination.try_it()
    phases = phases_told(phases_of(request), progress, dict.fromkeys(SEARCHES, stop.ends_at))
    with measured() as spent, counts_told(progress), phases:
        session = Session(request)
        if not session.whole.state and not gradient_products(session.whole).gradients:
            options.notice("note: this graph only infers; `tofu grad` makes a training step")
        with saying_what_batch_fits(session):
            session, planned = planned_in_time(session)
        # Only now: descriptions and the search say in the model's words what they refuse.
        check_attributes(session.whole)
        complete = session.complete(planned.trial)
        beside, warnings = session.beside(planned, complete)
        warnings = (*warnings, *state_warnings(session.whole))
        # Only now: the plans beside this one are searched for, too, and may be what the stop leaves out.
        complete = replace(complete, stopped_by=stop.stopped_by, warnings=warnings)
        if stop.stopped_by is not None:
            options.notice(_STOPPED[stop.stopped_by])
        destination.write(session, complete, planned.trial)
        return result_of(session, planned, complete, beside, destination, started, spent)
