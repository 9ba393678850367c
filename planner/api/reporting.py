"""``tofu report``: a plan as a page, as a picture, and as a trace."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import onnx

import planner
from planner.api.arguments import checked, path_of
from planner.api.building import program_of_folder
from planner.api.explanation import answers_of
from planner.api.occupancy import memory_of_page
from planner.api.opened import Opened, opened
from planner.artifacts.measured import MeasuredRun, read_measured
from planner.artifacts.plan import Plan
from planner.artifacts.plan_folder import open_folder
from planner.artifacts.program import Program
from planner.artifacts.waits import levels
from planner.collection import without_collection
from planner.cost.distance import distances
from planner.cost.seconds.assignment import bytes_between
from planner.cost.seconds.estimate import summed, timed
from planner.cost.seconds.laid_out import Span, laid_out
from planner.cost.tables import CostTables
from planner.descriptions import in_force
from planner.errors import TofuError, UsageError
from planner.graph.model import Graph
from planner.machine.device_profile import DeviceProfile, load_profile
from planner.machine.routes import part, whole_name
from planner.machine.topology_file import Machine, load_topology, shipped_topology
from planner.options import AnyPath
from planner.partition.occupancy import occupancy
from planner.planning.bodies import decide_with_bodies
from planner.planning.limit.trial import trial_of
from planner.planning.objective import Times
from planner.planning.why.causes import causes
from planner.progress import Progress, silent
from planner.reasons import Cause, Why
from planner.report.page.columns import columns, products_of
from planner.report.page.facts import Beside, Made, PlanFacts
from planner.report.page.page import page
from planner.report.page.strip import Picture, Strip
from planner.report.page.trace import trace as traced
from planner.report.wanted import wanted_files
from planner.results import ReportResult
from planner.search.request import SearchRequest
from planner.whole import try_file, whole_file

_MOST_PARTS = 200_000
"""With more ops, times workers, data parallelism takes minutes to plan."""
_MOST_PARTS_ASKED = 100_000
"""With more ops, times workers, runners-up take longer than a page should."""
_CAUSES = 8
_WHYS = 3
_RUNNERS_UP = 3
"""Of each of these tensors."""
_TOLD = 400
"""Tensors whose maker and readers a page tells."""
_CLOSE = 1e-9


@checked
@without_collection()
def report(
    directory: AnyPath | None = None,
    *,
    output: AnyPath | None = None,
    svg: AnyPath | None = None,
    trace: AnyPath | None = None,
    topology: str | None = None,
    profile: AnyPath | None = None,
    opdefs: AnyPath | None = None,
    progress: Progress = silent,
) -> ReportResult:
    """Writes a plan for people to look at.

    Args:
        directory: the plan's folder; None: the newest in the working directory.
        output: where the page goes, one file of HTML that asks nobody for anything; None: none is written.
        svg: where the strip of the network goes; None: it is not written by itself.
        trace: where the estimated schedule goes, in the form that Perfetto opens, with what ``run --profile`` measured;
            None: it is not written.
        topology: the topology that the plan is for, a file or a name; None: by the name that the plan states, of those
            that ship with tofu.
        profile: the profile that the plan's times are by.
        opdefs: the file of descriptions that the plan was made with.
        progress: told what is being done.

    Raises:
        TofuError: there is no plan, nothing is to be written, a file cannot be written, or a trace is wanted of a plan
            whose times are not known.

    Example:
        ::

            planner.api.report("plan", output="plan.html")
    """
    output, svg, trace = path_of(output), path_of(svg), path_of(trace)
    profile, opdefs = path_of(profile), path_of(opdefs)
    for file in wanted_files(output, svg, trace):
        try_file(file)
    progress("reading the plan")
    folder = open_folder(path_of(directory))
    # Looked at twice: without an estimate there is no schedule, which is known before the program is read; whether
    # the estimate can be made again, with this topology and profile, only after.
    if trace is not None and folder.plan.estimate is None:
        raise UsageError(
            f"--trace: the plan in {folder.path} is for no topology, and has no schedule",
            hint="plan it for a machine: tofu plan --topology with a file or a name",
        )
    plan = opened(folder.path, opdefs)
    program = program_of_folder(plan, progress)
    progress("analysing the plan")
    gathering = _Gathering(plan, program, progress)
    times = gathering.times(topology, profile)
    if trace is not None and times.spans is None:
        raise UsageError(f"--trace: {times.lacking}", hint=times.hint)
    measured = read_measured(folder.path)
    events = 0
    if trace is not None and times.spans is not None and folder.plan.estimate is not None:
        progress("writing the trace")
        content = traced(folder.plan.model, times.spans, folder.plan.estimate, measured)
        events = sum(event["ph"] == "X" for event in content["traceEvents"])
        _write(trace, json.dumps(content, separators=(",", ":"), allow_nan=False) + "\n")
    facts = None
    if output is not None or svg is not None:
        given = {"-o": output or "plan.html", "--topology": topology, "--profile": profile, "--opdefs": opdefs}
        facts = gathering.facts(times, measured, opdefs, output is not None, _made(folder.path, given))
    if svg is not None and facts is not None:
        _write(svg, Picture(Strip.of(facts.graph, facts.plan, facts.columns)).alone() + "\n")
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
    )


def _made(directory: Path, given: Mapping[str, str | Path | None]) -> Made:
    """How the page comes to be, by a command with the options that were given."""
    options = [str(word) for option in given.items() if option[1] is not None for word in option]
    words = ["tofu", "report", str(directory), *options]
    versions = f"tofu {planner.__version__} (onnx {onnx.__version__})"
    return Made(date.today().isoformat(), versions, shlex.join(words))


def _write(target: Path, text: str) -> int:
    content = text.encode()
    with whole_file(target) as file:
        file.write(content)
    return len(content)


def _left_out(facts: PlanFacts) -> Iterator[str]:
    yield from (f"{one.name}: {one.remark}" for one in facts.beside if one.moved_bytes is None)
    if facts.spans is None:
        yield f"the schedule: {facts.no_spans}"
    if facts.no_whys:
        yield f"runners-up: {facts.no_whys}"


@dataclass(frozen=True, slots=True)
class _Times:
    """What is known of when things happen."""

    machine: Machine | None
    spans: tuple[Span, ...] | None
    lacking: str = ""
    """Why there are no spans."""
    hint: str = ""
    measured: DeviceProfile | None = None
    """What ops were measured to take, where the plan's times are by that."""


class _Gathering:
    """Gathers what a page tells.

    Args:
        plan: with its graph.
        program: of the plan.
        progress: told what is being done.
    """

    def __init__(self, plan: Opened, program: Program, progress: Progress) -> None:
        self._opened, self._program, self._progress = plan, program, progress
        self._levels = levels(program.workers)
        self._tables = CostTables(plan.folder.plan.rates)

    def times(self, topology: str | None, profile: Path | None) -> _Times:
        """The schedule, if what the plan's estimate was made with is there.

        Args:
            topology: as the user names it, or None.
            profile: as the user names it, or None.

        Raises:
            UsageError: what the user names cannot be used.
        """
        plan = self._opened.folder.plan
        stated = plan.estimate
        if stated is None:
            lacking = "the plan is for no topology, so that no time is estimated"
            return _Times(None, None, lacking, "plan it with `tofu plan --topology`, with a file or a name")
        give = "give the file that it was planned for, with --topology"
        try:
            whole = shipped_topology(whole_name(stated.topology)) if topology is None else load_topology(topology)
        except UsageError:
            if topology is not None:
                raise
            return _Times(None, None, f"the plan is for {stated.topology!r}, which does not ship with tofu", give)
        machine = part(whole, plan.workers) if whole.device_count >= plan.workers else whole
        if machine.name != stated.topology:
            lacking = f"the plan is for {stated.topology!r}, and not for this {whole.name!r}"
            return _Times(None, None, lacking, give)
        if stated.sources is not None and profile is None:
            lacking = f"the plan's times are by a profile of {stated.sources.device}"
            return _Times(machine, None, lacking, "give that profile, with --profile")
        measured = None if profile is None else load_profile(profile)
        ops, cuts, program = self._opened.ops, plan.cuts, self._program
        self._progress("estimating the schedule")
        parts = timed(self._opened.graph, ops, plan.strategies, cuts, program, machine, measured)
        found = summed(parts, ops, plan.strategies, program, measured)
        if not math.isclose(found.estimated_seconds, stated.estimated_seconds, rel_tol=_CLOSE):
            lacking = (
                f"with this topology the plan takes {found.estimated_seconds:.6g} s, and it states "
                f"{stated.estimated_seconds:.6g} s"
            )
            return _Times(machine, None, lacking, give + ", and the profile with --profile, if there was one")
        return _Times(machine, laid_out(program, ops, parts, self._levels), measured=measured)

    def facts(
        self, times: _Times, measured: MeasuredRun | None, opdefs: Path | None, is_page: bool, made: Made
    ) -> PlanFacts:
        """All that a page tells; of what a picture of the strip alone does not need, only what is quickly known.

        Args:
            times: the schedule.
            measured: what a run took, or None.
            opdefs: the file of descriptions that the plan was made with.
            is_page: a page is wanted.
            made: how the page came to be.
        """
        plan, graph, ops = self._opened.folder.plan, self._opened.graph, self._opened.ops
        products = products_of(ops)
        self._progress("drawing the network")
        drawn = columns(graph, ops, plan, products, self._tables)
        wanted = [bound for bound in ops if bound.op.name in products] if is_page else []
        found, whys, no_whys = self._why(opdefs) if is_page else ((), (), "")
        memory, peaks = memory_of_page(self._program, graph, self._levels), self._program.peak_bytes
        return PlanFacts(
            directory=self._opened.folder.path,
            plan=plan,
            graph=graph,
            columns=drawn,
            beside=tuple(self._beside(opdefs, times)) if is_page else (),
            memory=memory,
            fullest=occupancy(self._program, graph, peaks.index(max(peaks))),
            limits=self._limits(times.machine),
            between=bytes_between(self._program),
            spans=times.spans,
            no_spans=f"No schedule is drawn: {times.lacking}; {times.hint}." if times.spans is None else "",
            measured=measured,
            distances=tuple(distances(graph, wanted, plan.strategies, plan.tilings, self._tables)),
            causes=found,
            whys=whys,
            no_whys=no_whys,
            readers=_readers(graph, plan, Strip.of(graph, plan, drawn).tensors()),
            made=made,
        )

    def _limits(self, machine: Machine | None) -> tuple[int, ...] | None:
        """The memory of each worker, as its device has it and as the plan was asked to keep to."""
        plan = self._opened.folder.plan
        asked = max(plan.asked.limit_bytes, default=None)
        if machine is None or plan.estimate is None:
            return None if asked is None else (asked,) * plan.workers
        held = (machine.devices[device].memory_bytes for device in plan.estimate.devices)
        return tuple(limit if asked is None else min(limit, asked) for limit in held)

    def _why(self, opdefs: Path | None) -> tuple[tuple[Cause, ...], tuple[Why, ...], str]:
        """The largest causes, and the tensors that cost most; with runners-up where these take seconds."""
        plan, path = self._opened.folder.plan, self._opened.folder.path
        if plan.described_by is not None and opdefs is None:
            return (), (), "left out: the plan was made with descriptions of your own; give that file with --opdefs"
        self._progress("looking for reasons")
        answers = answers_of(self._opened)
        found = causes(answers.deliveries)
        dearest = [cause.names[0] for cause in found if cause.kind == "tensor"][:_WHYS]
        is_quick = len(self._opened.ops) * plan.workers <= _MOST_PARTS_ASKED
        whys = []
        for name in dearest:
            self._progress(f"what else {name} could be")
            whys.append(answers.why("tensor", name, _RUNNERS_UP if is_quick else 0))
        no_whys = "" if is_quick else f"left out, they take long here: `tofu explain {path} TENSOR` solves for them"
        return found[:_CAUSES], tuple(whys), no_whys

    def _beside(self, opdefs: Path | None, times: _Times) -> Iterator[Beside]:
        """Data parallelism on as many workers, with its time where the plan's machine is at hand."""
        plan, graph = self._opened.folder.plan, self._opened.form.graph
        what = "the batch is divided, everything else is on every worker"
        if len(graph.ops) * plan.workers > _MOST_PARTS:
            yield Beside("data parallelism", None, None, "left out, it takes long here: `tofu compare` has it")
            return
        self._progress("planning data parallelism, to compare with")
        ask = SearchRequest(plan.workers, strategy="data", tables=self._tables)
        try:
            found = decide_with_bodies(graph, in_force(opdefs, "replicate")[0], ask)
        except TofuError as error:
            yield Beside("data parallelism", None, None, f"no plan: {error.what}")
            return
        seconds = None
        if times.spans is not None and times.machine is not None:
            seconds = Times(times.machine, self._tables, times.measured).seconds(trial_of(found))
        yield Beside("data parallelism", found.moved_bytes, found.excess_bytes, what, seconds)


def _readers(graph: Graph, plan: Plan, drawn: Sequence[str]) -> Mapping[str, tuple[str, tuple[str, ...]]]:
    """Makers and readers of the tensors that are drawn, and of those that most moves of."""
    most = sorted(plan.tensor_bytes, key=lambda name: (-plan.tensor_bytes[name], name))[:_TOLD]
    names = [name for name in dict.fromkeys([*drawn, *most]) if name in graph.tensors][:_TOLD]

    def maker(name: str) -> str:
        return graph.producer[name].name if name in graph.producer else ""

    return {name: (maker(name), tuple(op.name for op in graph.consumers[name])) for name in names}
