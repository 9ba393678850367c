"""``tofu fit``: how many GPUs hold a model, and with which batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from planner.api.arguments import bytes_text, names_file, takes
from planner.collection import without_collection
from planner.errors import InfeasibleError, UsageError
from planner.features.fit.answer import Answered, Query, answered
from planner.features.fit.counts import batches_of, counts_of
from planner.features.fit.options import FitOptions
from planner.features.fit.result import FitResult
from planner.features.fit.samples import Wanted, batches_of_model
from planner.machine.topology_file import Machine, load_topology
from planner.planning.folder import Destination
from planner.planning.machines import memory_of
from planner.planning.recomputing import Recompute
from planner.planning.request import ModelSource, PlanRequest, source_of
from planner.planning.session import Session
from planner.progress import Progress
from planner.runtime.values.results import write_bytes
from planner.training.doors.make import update_of
from planner.units import binary, parse_duration
from planner.whole import try_file


@takes(FitOptions)
@without_collection()
def fit(options: FitOptions) -> FitResult:  # noqa: D417 - those are the fields of the options
    """Says how many GPUs hold a model, what plans for each number of them take, and with which batch.

    Args:
        model: an ONNX file or a model in memory: a training graph, or what ``grad`` makes one of, with its options; or
            a name of the zoo.
        memory: what the tensors of a worker may take, such as ``80GiB``, or in bytes; None: what the topologies'
            devices have.
        topology: topology files, or names of those that ship; each is answered for by itself, with estimates of time.
        gpus: numbers of GPUs: a list, or a range such as ``1..64``, of which the ends, the powers of two and what the
            topology's levels join are looked at; None: from 1 to all of the topology's, or to 64.
        batch: a number: that of the plans; a range such as ``1..512``: where the largest batch is looked for.
        within: an iteration must not be estimated to take longer, such as ``0.5s``, or in seconds.
        plan: writes the plan for so many GPUs, without the workers' models (``build`` adds them).
        out: the folder to write; MODEL.tofuK in the working directory if None.
        force: a plan that is there is replaced.
        page: a file to write: the table and a chart, in HTML.
        loss: see ``grad``, as of all other options of training; None: the model is a training graph.
        dim: sizes of symbolic dims.
        value: by input, the number that it becomes, or numbers with commas between them.
        state: a file of pairs of state and next state; None: as the model says, or inferred.
        opdefs: see ``plan``.
        unknown_ops: see ``plan``.
        progress: told what is being done.

    Raises:
        TofuError: nothing says how much memory there is; the model cannot be read or planned; the plan that is to be
            written does not fit, or cannot be written.

    Example:
        ::

            result = planner.fit("train.onnx", memory="80GiB")
            print(result.answers[0].workers, [row.least_bytes for row in result.answers[0].rows])
    """
    path, plan, progress = options.model, options.plan, options.progress
    update_of(options)  # what excludes each other is refused before the model is read
    is_trained = options.loss is not None or options.optimizer is not None
    is_of_zoo = not names_file(path)
    if is_of_zoo and is_trained:
        raise UsageError(
            f"{path}: a name of the zoo is a training graph already", hint="leave --loss and --optimizer out"
        )
    ends, of_plans = batches_of(None if options.batch is None else str(options.batch))
    queries = _queries(options, ends)
    if plan is not None and len(queries) > 1:
        raise UsageError(f"--plan {plan}: on which topology?", hint="write one --topology")
    if plan is not None:
        # The plan is taken from the answer for its count, so that count is answered, whether or not it is in --gpus.
        queries = [replace(query, counts=tuple(sorted({*query.counts, plan}))) for query in queries]
    directory = options.out or Path(f"{path.stem}.tofu{plan}")
    destination = Destination(directory, options.force, None, has_models=False)
    if plan is not None:
        destination.try_it()
    page = options.page
    if page is not None:
        try_file(page)
    source = source_of(path, options, opdefs=options.opdefs, unknown_ops=options.unknown_ops)
    progress(f"reading {path}")
    batches = batches_of_model(Wanted(source, is_of_zoo, options if is_trained else None, of_plans))
    answers = [answered(batches, query, progress) for query in queries]
    result = FitResult(
        batches.stated.graph.name,
        tuple(answer.answer for answer in answers),
        None if batches.samples is None else batches.samples.given,
        None if batches.samples is None or of_plans is not None else ends,
        batches.why_fixed,
        queries[0].within_seconds,
    )
    if plan is not None:
        _write(plan, answers[0], queries[0], batches.stated.source, destination, progress)
        result = replace(result, directory=destination.directory)
    if page is not None:
        from planner.features.fit.page import fit_page

        write_bytes(page, fit_page(result).encode())
        result = replace(result, page=page)
    return result


def _queries(options: FitOptions, ends: tuple[int, int]) -> list[Query]:
    """What is asked of each machine.

    Raises:
        UsageError: nothing says how much memory there is; a text cannot be read.
    """
    topology, gpus, within = options.topology, options.gpus, options.within
    memory_bytes = memory_of(bytes_text(options.memory))
    if memory_bytes is None and not topology:
        raise UsageError("fit: into how much memory?", hint="write --memory 80GiB, or --topology with a file or a name")
    seconds = (
        None if within is None else parse_duration(within if isinstance(within, str) else f"{within}s", "--within")
    )
    if seconds is not None and not topology:
        raise UsageError(f"--within {within}: times are estimated for a topology", hint="write --topology")
    counts = gpus if gpus is None or isinstance(gpus, str) else ",".join(map(str, _listed(gpus)))
    machines: list[Machine | None] = [load_topology(name) for name in topology]
    return [Query(machine, memory_bytes, counts_of(counts, machine), ends, seconds) for machine in machines or [None]]


def _listed(gpus: int | Sequence[int]) -> Sequence[int]:
    return gpus if isinstance(gpus, Sequence) else (gpus,)


def _write(
    count: int, answer: Answered, query: Query, source: ModelSource, destination: Destination, progress: Progress
) -> None:
    """Writes the plan for so many workers.

    Raises:
        InfeasibleError: none was found that fits.
        TofuError: it cannot be written.
    """
    row = next(row for row in answer.answer.rows if row.workers == count)
    if count not in answer.plans:
        raise InfeasibleError(
            f"--plan {count}: no plan was found that fits on {count} workers",
            facts=(f"every plan takes {binary(row.at_least_bytes)} at least on some worker",),
            hint=f"write --plan {answer.answer.workers}" if answer.answer.workers else "a smaller batch takes less",
        )
    target, trial, again = answer.plans[count]
    auto = Recompute("auto")
    request = PlanRequest(
        source,
        target,
        query.memory_bytes,
        query.limits(target),
        recompute=auto,
        effort="quick",
        progress=progress,
    )
    session = Session(request)
    if again:
        session.take(again)
    destination.write(session, session.complete(trial), trial)
