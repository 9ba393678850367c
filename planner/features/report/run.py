"""``tofu report``: a plan as a page, as a picture, and as a trace."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx

import planner
from planner.api.arguments import takes
from planner.api.building import program_of_folder
from planner.api.explanation import answers_of
from planner.api.occupancy import begins_of
from planner.api.opened import Opened, opened
from planner.api.timing import Times, refuse_without_topology, times_of
from planner.artifacts.measured import MeasuredRun, read_measured
from planner.artifacts.place import require_plan
from planner.artifacts.plan import Plan
from planner.artifacts.plan_folder import REPORT, PlanFolder, open_folder
from planner.artifacts.program import Program
from planner.artifacts.waits import last_reads, levels
from planner.collection import without_collection
from planner.cost.seconds.simulated import Schedule
from planner.cost.tables import CostTables
from planner.errors import TofuError, UsageError
from planner.features.report.options import ReportOptions
from planner.features.report.page.axes import Axes
from planner.features.report.page.columns import columns, products_of
from planner.features.report.page.facts import Beside, Memory, PlanFacts, Provenance
from planner.features.report.page.layers import layers, passes_of_ops
from planner.features.report.page.page import page
from planner.features.report.page.strip import Picture, Strip
from planner.features.report.page.throughput import throughput
from planner.features.report.page.trace import trace as traced
from planner.features.report.result import ReportResult
from planner.graph.core.model import Graph
from planner.graph.step.purposes import passes_in
from planner.machine.topology_file import Machine
from planner.partition.collectives import collectives, counted
from planner.partition.occupancy import needed_bytes, occupancy, spans_held
from planner.planning.bodies import decide_with_bodies
from planner.planning.limit.trial import Trial
from planner.planning.objective import Times as Goals
from planner.planning.objective import can_be_timed
from planner.planning.thresholds import Work
from planner.planning.why.causes import causes
from planner.progress import Progress
from planner.reasons import Cause
from planner.runtime.values.results import write_bytes
from planner.search.decide import STRATEGIES
from planner.search.request import SearchRequest
from planner.whole import try_file

_SCHEMES = {"data": "data parallelism", "fsdp": "FSDP", "megatron": "Megatron-LM"}
"""The schemes beside a plan, by strategy."""
_CAUSES = 8
_TOLD = 400
"""Tensors whose maker and readers a page tells."""


@takes(ReportOptions)
@without_collection()
def report(options: ReportOptions) -> ReportResult:  # noqa: D417 - those are the fields of the options
    """Writes a plan for people to look at.

    Args:
        directory: the plan's folder; None: the newest in the working directory.
        output: where the page goes, one file of HTML that asks nobody for anything; None: none is written, or where
            nothing else is asked for ``report.html`` in the plan's folder.
        svg: where the strip of the network goes; None: it is not written by itself.
        trace: where the simulated schedule goes, in the form that Perfetto opens, with what ``run --measure`` measured;
            None: it is not written.
        progress: told what is being done.

    Raises:
        TofuError: there is no plan, a file cannot be written, or a trace is wanted of a plan whose times are not known.

    Example:
        ::

            planner.api.report("plan", output="plan.html")
    """
    output, svg, trace = options.output, options.svg, options.trace
    progress = options.progress
    directory = require_plan(options.directory)
    if (output, svg, trace) == (None, None, None):
        output = directory / REPORT
    for file in filter(None, (output, svg, trace)):
        try_file(file)
    progress("reading the plan")
    folder = open_folder(directory)
    # Looked at twice: without an estimate there is no schedule, which is known before the program is read; whether
    # the estimate can be made again, with this topology and profile, only after.
    if trace is not None:
        refuse_without_topology(folder, f"-o {trace}")
    plan = opened(folder.path)
    program = program_of_folder(plan, progress)
    progress("analysing the plan")
    gathering = _Gathering(plan, program, progress)
    times = times_of(plan, program, progress)
    if trace is not None and times.schedule is None:
        raise UsageError(f"-o {trace}: {times.lacking}", hint=times.hint)
    measured = read_measured(folder.path)
    events = 0
    if trace is not None and times.schedule is not None:
        progress("writing the trace")
        content = traced(folder.plan, plan.graph, plan.ops, times.schedule, gathering.memory, measured)
        events = sum(event["ph"] == "X" for event in content["traceEvents"])
        _write(trace, json.dumps(content, separators=(",", ":"), allow_nan=False) + "\n")
    facts = None
    if output is not None or svg is not None:
        facts = gathering.facts(times, measured, output is not None, _provenance(folder, output or svg))
    if svg is not None and facts is not None:
        _write(svg, Picture(Strip.of(facts.graph, facts.plan, facts.columns, facts.axes)).alone() + "\n")
    size = 0
    if output is not None and facts is not None:
        progress("writing the page")
        size = _write(output, page(facts))
    return ReportResult(
        directory=folder.path,
        page=output,
        page_bytes=size,
        svg=svg,
        trace=trace,
        trace_events=events,
        is_measured=measured is not None,
        left_out=() if facts is None or output is None else tuple(_left_out(facts)),
        **(_schedule_fields(times.schedule) if trace is not None and times.schedule is not None else {}),
    )


def _schedule_fields(schedule: Schedule) -> dict[str, Any]:
    """What is told of a schedule that is written, by field of the result."""
    return {
        "estimated_seconds": schedule.estimate.estimated_seconds,
        "simulated_seconds": schedule.simulation.seconds,
        "differing": schedule.differing(),
    }


def _provenance(folder: PlanFolder, file: Path | None) -> Provenance:
    """The commands that make the plan and the page."""
    command = shlex.join(["tofu", "report", str(folder.path), "-o", str(file)])
    versions = f"tofu {planner.__version__} (onnx {onnx.__version__})"
    model = folder.plan.model if folder.source is None else os.path.normpath(folder.source.paths[0])
    words = folder.reading.words or ("--gpus", str(folder.plan.workers))  # an older folder records no words
    return Provenance(date.today().isoformat(), versions, command, shlex.join(["tofu", "plan", model, *words]))


def _write(target: Path, text: str) -> int:
    content = text.encode()
    write_bytes(target, content)
    return len(content)


def _left_out(facts: PlanFacts) -> Iterator[str]:
    yield from (f"{way.name}: {way.remark}" for way in facts.beside if way.remark.startswith("left out"))
    if facts.schedule is None:
        yield f"the schedule: {facts.no_schedule}"


class _Gathering:
    """The gathering of a page's facts.

    Args:
        plan: with its graph.
        program: of the plan.
        progress: told what is being done.
    """

    def __init__(self, plan: Opened, program: Program, progress: Progress) -> None:
        self._opened, self._program, self._progress = plan, program, progress
        self._tables = CostTables(plan.folder.plan.rates)

    @cached_property
    def memory(self) -> tuple[Memory, ...]:
        """What each worker holds over its steps."""
        return memory_of_page(self._program, self._opened.graph, levels(self._program.workers))

    def facts(self, times: Times, measured: MeasuredRun | None, is_page: bool, provenance: Provenance) -> PlanFacts:
        """All that a page tells; of what a picture of the strip alone does not need, only what is quickly known.

        Args:
            times: the schedule.
            measured: what a run took, or None.
            is_page: a page is wanted.
            provenance: how the page came to be.
        """
        plan, graph, ops = self._opened.folder.plan, self._opened.graph, self._opened.ops
        products = products_of(ops)
        self._progress("drawing the network")
        drawn, axes = columns(graph, ops, plan, products, self._tables), Axes(graph, ops)
        peaks = self._program.peak_bytes
        return PlanFacts(
            directory=self._opened.folder.path,
            plan=plan,
            graph=graph,
            columns=drawn,
            axes=axes,
            layers=layers(graph, ops, self._tables, plan.tensor_bytes, times.schedule) if is_page else (),
            pass_of=passes_of_ops(graph, ops),
            collectives=counted(collectives(self._program)),
            beside=tuple(self._beside(times)) if is_page else (),
            memory=self.memory,
            fullest=occupancy(self._program, graph, peaks.index(max(peaks))),
            limits=self._limits(times.machine),
            schedule=times.schedule,
            no_schedule=f"No schedule is drawn: {times.lacking}; {times.hint}." if times.schedule is None else "",
            measured=measured,
            # Reasons take longest of all, and the strip alone shows none.
            causes=self._causes() if is_page else (),
            readers=_readers(graph, plan, Strip.of(graph, plan, drawn, axes).tensors()),
            provenance=provenance,
            throughput=throughput(graph, ops, plan.estimate, times.machine),
        )

    def _limits(self, machine: Machine | None) -> tuple[int, ...] | None:
        """The memory of each worker, as its device has it and as the plan was asked to keep to."""
        plan = self._opened.folder.plan
        wanted_bytes = max(plan.asked.limit_bytes, default=None)
        if machine is None or plan.estimate is None:
            return None if wanted_bytes is None else (wanted_bytes,) * plan.workers
        held = (machine.devices[device].memory_bytes for device in plan.estimate.devices)
        return tuple(limit if wanted_bytes is None else min(limit, wanted_bytes) for limit in held)

    def _causes(self) -> tuple[Cause, ...]:
        """The largest causes."""
        self._progress("looking for reasons")
        return causes(answers_of(self._opened).deliveries)[:_CAUSES]

    def _beside(self, times: Times) -> Iterator[Beside]:
        """Known schemes on as many workers, with their time where the plan's machine is at hand."""
        plan, graph, descriptions = self._opened.folder.plan, self._opened.form.graph, self._opened.descriptions
        is_timed = times.schedule and times.machine and can_be_timed(times.machine, times.profile)
        for strategy, name in _SCHEMES.items():
            if not Work.SCHEMES.is_done(len(graph.ops), plan.workers):
                yield Beside(name, None, None, f"left out, it takes long here: `tofu plan --strategy {strategy}`")
                continue
            self._progress(f"planning {name}, to compare with")
            try:
                decided = decide_with_bodies(
                    graph, descriptions, SearchRequest(plan.workers, strategy=strategy, tables=self._tables)
                )
            except TofuError as error:
                yield Beside(name, None, None, f"no plan: {error.what}")
                continue
            trial, seconds = Trial(decided), None
            if is_timed and times.machine:
                seconds = Goals(times.machine, self._tables, times.profile).seconds(trial)
            peak = max(trial.partitioned.program.peak_bytes)
            yield Beside(name, decided.moved_bytes, decided.excess_bytes, STRATEGIES[strategy], seconds, peak)


def _readers(graph: Graph, plan: Plan, drawn: Sequence[str]) -> Mapping[str, tuple[str, tuple[str, ...]]]:
    """Makers and readers of the tensors that are drawn, and of those that most moves of."""
    heaviest = sorted(plan.tensor_bytes, key=lambda name: (-plan.tensor_bytes[name], name))[:_TOLD]
    names = [name for name in dict.fromkeys([*drawn, *heaviest]) if name in graph.tensors][:_TOLD]

    def maker(name: str) -> str:
        return graph.producer[name].name if name in graph.producer else ""

    return {name: (maker(name), tuple(op.name for op in graph.consumers[name])) for name in names}


def memory_of_page(program: Program, graph: Graph, levels: Sequence[Sequence[int]]) -> tuple[Memory, ...]:
    """What each worker holds over its steps, all in all.

    Args:
        program: of all workers.
        graph: that it is of.
        levels: of every step of every worker.
    """
    reads = last_reads(program.workers, levels)
    backward = passes_in(graph).backward
    memories = []
    for worker, total in zip(program.workers, program.peak_bytes, strict=True):
        needed = needed_bytes(spans_held(program, worker, levels, reads).values(), len(worker.steps))
        memories.append(Memory(needed + (total - int(needed.max())), total, begins_of(worker, graph, backward)))
    return tuple(memories)
